"""What users know about ops and nodes, as data: from a rules file, flags, environment or Python."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final

from tf_amp_rewriter import errors

CATEGORIES: Final = ("allow", "infer", "clear", "deny", "keep")
LOWERING: Final = ("allow", "infer", "clear")
LOW, FLOAT32 = "low", "float32"
ANY_OP: Final = "*"


@dataclasses.dataclass(frozen=True)
class OpRule:
    """What a function that `register_rule` registers returns about a node.

    Attributes:
        category: `allow` (always gains), `infer` (safe unless what flows in is not), `clear` (only
            moves values), `deny` (numerically unsafe) or `keep` (stays float32, taints nothing).
        compute: `low` or `float32`: in which precision the kernel accumulates.
        output: `low` or `float32`; for `deny`: `low` says that its results may be read in the low
            precision. Empty is what the category says.
        reason: why, for the report; may be empty.

    Raises:
        errors.FlagError: a value is not one of those, or they contradict each other.
    """

    category: str
    compute: str = ""
    output: str = ""
    reason: str = ""

    def __post_init__(self) -> None:
        """Refuses values that are not allowed."""
        problem = problem_of(self.category, self.compute, self.output)
        if problem:
            raise errors.FlagError(f"an OpRule's {problem}")


@dataclasses.dataclass(frozen=True)
class UserRule:
    """One rule; it holds for a node if everything that it names does.

    Attributes:
        source: where it is from, for people: `rules file amp.toml rule 3`, `--deny_ops`.
        category: one of `CATEGORIES`; empty where `force_low` is set, or it is about weights alone.
        force_low: low whatever category, taint or condition say.
        ops: op types; empty for all, `*` for every op that no other rule of its layer names.
        node: regular expression for the node's name or `function/node`; empty for all.
        function: regular expression for the function's name; empty for all.
        dtype: the low precision that it holds for; empty for both.
        device: the device that it holds for; empty for all.
        attrs: type attributes that become low; empty for those that the built-in rule has.
        compute: see `OpRule`.
        output: see `OpRule`.
        reason: why, for the report; may be empty.
        saturate: for constants and variables: whether values that overflow are clamped; None says
            nothing of it.
        max_loss: for constants and variables: the share of one that rounding may cost; likewise.
    """

    source: str
    category: str = ""
    force_low: bool = False
    ops: tuple[str, ...] = ()
    node: str = ""
    function: str = ""
    dtype: str = ""
    device: str = ""
    attrs: tuple[str, ...] = ()
    compute: str = ""
    output: str = ""
    reason: str = ""
    saturate: bool | None = None
    max_loss: float | None = None

    @property
    def decides(self) -> bool:
        """Whether it says anything of the precision of a node."""
        return self.force_low or self.category != ""

    @property
    def weighs(self) -> bool:
        """Whether it says which values of a weight fit."""
        return self.saturate is not None or self.max_loss is not None

    @property
    def lowers(self) -> bool:
        """Whether it says that a node may become low."""
        return self.force_low or self.category in LOWERING

    @property
    def is_broad(self) -> bool:
        """Whether it is about every op, so that it says nothing of a certain one."""
        return self.ops == (ANY_OP,)


@dataclasses.dataclass(frozen=True)
class Registered:
    """A rule that `register_rule` registered.

    Attributes:
        op: the op type.
        inputs: per data input a type attribute or a dtype (`T`, `int32`), a name and a colon in
            front where the op has one; None where the op's definition tells.
        outputs: likewise per output.
        decide: facts about a node (`ops.conditions.NodeFacts`) -> what holds for it.
    """

    op: str
    inputs: tuple[str, ...] | None
    outputs: tuple[str, ...] | None
    decide: Callable[[Any], OpRule]


def problem_of(category: str, compute: str, output: str) -> str:
    """Returns which key is wrong and why, or an empty string.

    Args:
        category: one of `CATEGORIES`.
        compute: `low`, `float32` or empty.
        output: likewise.
    """
    if category not in CATEGORIES:
        return f"`category` is `{category}`, expected one of {_listed(CATEGORIES)}"
    for key, value in (("compute", compute), ("output", output)):
        if value not in ("", LOW, FLOAT32):
            return f"`{key}` is `{value}`, expected `low` or `float32`"
    if category in LOWERING and output == FLOAT32:
        return (
            f"`output` is `float32` with category `{category}`, but a kernel of TensorFlow gives "
            "the type that it reads: use `deny`, with `output` `low` if its results are safe"
        )
    if category not in LOWERING and compute == LOW:
        return f"`compute` is `low` with category `{category}`, which computes in float32"
    if category == "keep" and output == FLOAT32:
        return "`output` is `float32` with category `keep`, which taints nothing: use `deny`"
    return ""


def _listed(words: tuple[str, ...]) -> str:
    return ", ".join(f"`{word}`" for word in words)
