"""The types of the tables in this folder: what is known about an op, as data."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Final

# Type attributes that stay alike where they are: those whose kernels exist for no others (source:
# tensorflow/core/kernels/matmul_op_impl.h, TensorFlow 2.21), and those of a Cast to the same type.
TIED_ATTRS: Final[Mapping[str, tuple[str, ...]]] = {
    "BatchMatMulV3": ("Ta", "Tb", "Tout"),
    "Cast": ("SrcT", "DstT"),
}


class Output(enum.Enum):
    """Whether what an op computes is fit for low precision, once it is computed.

    LOW: it is: a low op may read it, by a Cast where the op itself computes in float32.
    FLOAT32: it is not: what reads it stays float32 (the taint of the pass).
    """

    LOW = "LOW"
    FLOAT32 = "FLOAT32"


class Category(enum.Enum):
    """What the pass may do with a float32 type variable of an op.

    ALLOW: always gains (contractions).
    INFER: safe, unless what flows in is unsafe.
    CLEAR: moves or selects values, changes none.
    DENY: numerically unsafe; its results are tainted.
    KEEP: stays float32; its results are not tainted.
    """

    ALLOW = "ALLOW"
    INFER = "INFER"
    CLEAR = "CLEAR"
    DENY = "DENY"
    KEEP = "KEEP"


@dataclasses.dataclass(frozen=True)
class OpRow:
    """One fact: how the pass treats an op. The most specific row wins.

    Attributes:
        op: the op type.
        category: see `Category`.
        source: where the fact is from.
        attrs: the type attributes that may become low; empty means every type attribute for which
            the op's definition allows it. The others are KEEP.
        dtype: the low precision that the row holds for; empty means both.
        device: the `--device` that the row holds for; empty means all, `any` included.
        condition: name of a function in `ops/conditions.py` that says, from a node's attributes and
            static shapes, why this node must stay float32 all the same; empty means none.
        discrete: a CLEAR op with ties or steps (ArgMax, TopK, Floor): it may read low values where
            low was computed, but never makes anything be rounded.
        bounded: the results lie in a small fixed range (Softmax, Tanh), so they are never tainted.
        only_if_wanted: low only if every consumer is (through CLEAR ops) an ALLOW op.
        only_inside: float32 where its result only leaves the model: probabilities are small, and
            outsiders compare them.
        positions: its float inputs are coordinates or sizes: what computes them stays float32.
        safe_on_weights: a DENY op that does not taint what it computes from weights alone: a
            variance with its epsilon is no small argument.
        output: for a DENY row only: LOW if its results do not taint (a mean lies between its
            terms), though the op itself must compute in float32.
        saturate: for a constant or variable: whether values that overflow are clamped; None leaves
            it to the user's flag.
        max_loss: for a constant or variable: the share of it that rounding may cost, see
            `dtypes.MAX_LOSS`; None is the default.
        limit: for a constant: the magnitude to clamp to, if not the largest finite value.
        in_place: for a constant: clamp it for what reads it in float32, too, if anything that its
            values reach is low.
        pattern: the group of nodes that the row is about (`layer normalisation`), if it is not
            about the op as such.
        note: the reason in words for people, for DENY and KEEP rows.
    """

    op: str
    category: Category
    source: str
    attrs: tuple[str, ...] = ()
    dtype: str = ""
    device: str = ""
    condition: str = ""
    discrete: bool = False
    bounded: bool = False
    only_if_wanted: bool = False
    only_inside: bool = False
    positions: bool = False
    safe_on_weights: bool = False
    output: Output = Output.FLOAT32
    saturate: bool | None = None
    max_loss: float | None = None
    limit: float = 0.0
    in_place: bool = False
    pattern: str = ""
    note: str = ""

    @property
    def taints(self) -> bool:
        """Whether what is computed from its results must stay float32."""
        return self.category is Category.DENY and self.output is Output.FLOAT32
