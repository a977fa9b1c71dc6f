"""`Options`: what a user can ask for. Every default stands here and nowhere else."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from tf_amp_rewriter import dtypes, errors
from tf_amp_rewriter.environment import GrapplerLists
from tf_amp_rewriter.user_rules import Registered, UserRule

DEVICES = ("any", "gpu", "cpu")
MISSING_OP = ("error", "warn", "ignore")

_NO_LISTS = GrapplerLists()


@dataclasses.dataclass(frozen=True)
class Options:
    """What to do; validated when made.

    Attributes:
        dtype: the low precision, `half` or `bfloat16`.
        device: `any` lowers only what kernels of GPU and CPU both compute well; `gpu` and `cpu` use
            what holds for that device alone.
        tags: a meta graph is rewritten if it has all of these tags.
        overwrite: replace an existing output.
        saturate: clamp constants and weights that overflow the low precision to its largest finite
            value, instead of keeping what reads them in float32.
        inputs: frozen graphs only: names of tensors that are fed; placeholders always are.
        outputs: frozen graphs only: names of tensors that are fetched; they keep their dtypes.
        allow_ops, infer_ops, clear_ops, deny_ops: op types to move into that category; `*` as the
            only entry of `deny_ops` denies every op.
        keep_float32: regular expressions; a node whose name one of them matches (`re.search`)
            stays float32.
        force_low: likewise; the node becomes low whatever the rules say, where it can.
        rules: path of a TOML file with rules; empty for none. Flags are stronger.
        missing_op: what to do about float32 nodes of ops that no rule knows: `error`, `warn` or
            `ignore`.
        grappler_lists: what grappler's environment variables say; stronger than flags. Only the
            command line reads them by itself, see `tf_amp_rewriter.grappler_lists`.
        file_rules: the rules that were read from `rules`; the pipeline fills this in.
        registered: rules that Python functions decide; the strongest. The pipeline adds those of
            `register_rule`.

    Raises:
        errors.FlagError: a value is not one of those allowed, or an op is in two lists.
    """

    dtype: str = "half"
    device: str = "any"
    tags: tuple[str, ...] = ("serve",)
    overwrite: bool = False
    saturate: bool = False
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    allow_ops: tuple[str, ...] = ()
    infer_ops: tuple[str, ...] = ()
    clear_ops: tuple[str, ...] = ()
    deny_ops: tuple[str, ...] = ()
    keep_float32: tuple[str, ...] = ()
    force_low: tuple[str, ...] = ()
    rules: str = ""
    missing_op: str = "warn"
    grappler_lists: GrapplerLists = _NO_LISTS
    file_rules: tuple[UserRule, ...] = ()
    registered: tuple[Registered, ...] = ()

    def __post_init__(self) -> None:
        """Refuses values that are not allowed; turns lists into tuples."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, list):
                object.__setattr__(self, field.name, tuple(value))
            elif isinstance(field.default, tuple) and isinstance(value, str):
                raise errors.FlagError(
                    f"`{field.name}` is the string `{value}`, expected a list of strings"
                )
        _expect_one_of("dtype", self.dtype, tuple(dtypes.LOW_PRECISIONS))
        _expect_one_of("device", self.device, DEVICES)
        _expect_one_of("missing_op", self.missing_op, MISSING_OP)
        _expect_disjoint(self)
        for name in ("keep_float32", "force_low"):
            for pattern in getattr(self, name):
                expect_pattern(name, pattern)

    @property
    def low(self) -> dtypes.LowPrecision:
        """The low precision that `dtype` names."""
        return dtypes.LOW_PRECISIONS[self.dtype]


def expect_pattern(name: str, pattern: str) -> None:
    """Refuses what is no regular expression.

    Raises:
        errors.FlagError: `pattern`, a value of `name`, is none.
    """
    try:
        re.compile(pattern)
    except re.error as error:
        raise errors.FlagError(
            f"`{name}` has `{pattern}`, which is no regular expression: {error}"
        ) from error


def _expect_one_of(name: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        expected = ", ".join(f"`{choice}`" for choice in allowed)
        raise errors.FlagError(f"`{name}` is `{value}`, expected one of {expected}")


def _expect_disjoint(options: Options) -> None:
    seen: dict[str, str] = {}
    for name in ("allow_ops", "infer_ops", "clear_ops", "deny_ops"):
        for op in getattr(options, name):
            if op in seen:
                raise errors.FlagError(
                    f"op `{op}` is in `{seen[op]}` and in `{name}`", "leave it in one of them"
                )
            seen[op] = name
