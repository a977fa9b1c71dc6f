"""Rules that users register from Python: the one piece of module state of this package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from tf_amp_rewriter import errors
from tf_amp_rewriter.user_rules import OpRule, Registered

Decide = Callable[[Any], OpRule]

_rules: Final[dict[str, Registered]] = {}


def register_rule(
    op: str,
    *,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
) -> Callable[[Decide], Decide]:
    """Decorates a function that says how every node of an op is to be treated.

    The function takes the facts of a node (`node`, its NodeDef; `low`; `device`; `input_shapes`)
    and returns an `OpRule`. It overrules tables, rules file, flags and environment. For an op that
    neither TensorFlow nor the model defines (a custom op in a frozen graph), `inputs` and `outputs`
    describe it; both are needed then.

    Args:
        op: the op type.
        inputs: per data input the type attribute that it has (`T`) or its dtype (`int32`); with
            `name:` in front for the name of the port, by which bodies of functions refer to it.
        outputs: likewise per output.

    Raises:
        errors.FlagError: the op has a rule already, or only one of `inputs` and `outputs` is given.
    """
    if (inputs is None) != (outputs is None):
        raise errors.FlagError(f"`register_rule` of op `{op}` needs both `inputs` and `outputs`")
    for name, ports in (("inputs", inputs), ("outputs", outputs)):
        if isinstance(ports, str):
            raise errors.FlagError(f"`{name}` is the string `{ports}`, expected a list of strings")

    def register(decide: Decide) -> Decide:
        if op in _rules:
            raise errors.FlagError(
                f"op `{op}` has a registered rule already", "call `unregister_rule` first"
            )
        _rules[op] = Registered(op, _frozen(inputs), _frozen(outputs), decide)
        return decide

    return register


def unregister_rule(op: str) -> None:
    """Forgets the rule of `op`.

    Raises:
        errors.FlagError: it has none.
    """
    if _rules.pop(op, None) is None:
        raise errors.FlagError(f"op `{op}` has no registered rule")


def registered() -> tuple[Registered, ...]:
    """Returns all rules, in the order in which they were registered."""
    return tuple(_rules.values())


def _frozen(ports: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if ports is None else tuple(ports)
