"""Ops that are numerically unsafe in low precision, and taint what they compute."""

from __future__ import annotations

from typing import Final

from tf_amp_rewriter.ops import overflow
from tf_amp_rewriter.ops.rows import Category, OpRow

DENY: Final = Category.DENY
INFER: Final = Category.INFER
_STEEP: Final = "it is steep near its poles, and magnifies the rounding of its argument"
_RSQRT: Final = (
    "a small argument, such as an epsilon, becomes 0 or inexact in half; a norm must stay whole"
)
_EMPTY: Final = "it fills empty segments with the lowest or highest value of its type"
_SUMS: Final = "it sums or multiplies many terms in the type of its input"
_LOSS: Final = "a loss sums exponentials and takes a logarithm"
_NORM: Final = "it squares its input or its statistics in the type of the data"


def _grows(op: str) -> str:
    return f"it overflows half {overflow.limits_of(op)}, and magnifies rounding"


ROWS: Final[tuple[OpRow, ...]] = (
    # Grow faster than their argument. bfloat16 has the range for them, but they stay float32 there
    # too: `ops/overflow.py` says why.
    OpRow("Cosh", DENY, "PyTorch float32 list", note=_grows("Cosh")),
    OpRow("Digamma", DENY, "steep near its poles", note=_grows("Digamma")),
    OpRow("Exp", DENY, "grappler deny", note=_grows("Exp")),
    OpRow("Expm1", DENY, "grappler deny", note=_grows("Expm1")),
    OpRow("Lgamma", DENY, "steep near its poles", note=_grows("Lgamma")),
    OpRow("Pow", DENY, "grappler deny", note=_grows("Pow")),
    OpRow("Sinh", DENY, "PyTorch float32 list", note=_grows("Sinh")),
    OpRow("Square", DENY, "measured on CPU, TF 2.21", note=_grows("Square")),
    OpRow("SquaredDifference", DENY, "measured on CPU, TF 2.21", note=_grows("SquaredDifference")),
    OpRow("Tan", DENY, "PyTorch float32 list", note=_STEEP),
    # It halves a relative rounding, but half rounds what is small by much, and an epsilon of 1e-8
    # to 0; the last step of a norm, which must not be cut in pieces.
    OpRow("Rsqrt", DENY, "PyTorch float32 list", note=_RSQRT, safe_on_weights=True),
    # Sum or multiply many terms; half stalls at 2048 and overflows at 65504, bfloat16 stalls at
    # 256.
    OpRow("Cumprod", DENY, "measured on CPU, TF 2.21", note=_SUMS),
    OpRow("Cumsum", DENY, "measured on CPU, TF 2.21", note=_SUMS),
    OpRow("CumulativeLogsumexp", DENY, "as Cumsum", note=_SUMS),
    OpRow("EuclideanNorm", DENY, "measured on CPU, TF 2.21", note=_SUMS),
    OpRow("L2Loss", DENY, "grappler deny", note=_SUMS),
    OpRow("Mean", DENY, "grappler deny", note=_SUMS),
    OpRow(
        "Mean",
        INFER,
        "measured on CPU, TF 2.21",
        dtype="bfloat16",
        device="cpu",
        only_if_wanted=True,
    ),
    OpRow(
        "Mean",
        INFER,
        "reduction_gpu_kernels.cu.h: MeanReducer of half",
        dtype="half",
        device="gpu",
        only_if_wanted=True,
    ),
    OpRow("Prod", DENY, "measured on CPU, TF 2.21", note=_SUMS),
    OpRow("SegmentMean", DENY, "measured on CPU, TF 2.21", note=_SUMS),
    OpRow("SegmentProd", DENY, "as SegmentSum", note=_SUMS),
    OpRow("SegmentSum", DENY, "measured on CPU, TF 2.21", note=_SUMS),
    OpRow("SparseReduceSum", DENY, "as Sum", note=_SUMS),
    OpRow("SparseReduceSumSparse", DENY, "as Sum", note=_SUMS),
    OpRow("Sum", DENY, "grappler deny", note=_SUMS),
    OpRow(
        "Sum",
        INFER,
        "measured on CPU, TF 2.21",
        dtype="bfloat16",
        device="cpu",
        only_if_wanted=True,
    ),
    OpRow("UnsortedSegmentMax", DENY, "TF op docs", note=_EMPTY),
    OpRow("UnsortedSegmentMin", DENY, "TF op docs", note=_EMPTY),
    OpRow("UnsortedSegmentProd", DENY, "as SegmentSum", note=_SUMS),
    OpRow("UnsortedSegmentSum", DENY, "measured on CPU, TF 2.21", note=_SUMS),
    # Losses: exp, a sum and a logarithm in one.
    OpRow("SoftmaxCrossEntropyWithLogits", DENY, "grappler deny", note=_LOSS),
    OpRow("SparseSoftmaxCrossEntropyWithLogits", DENY, "grappler deny", note=_LOSS),
    # Normalise by squares or variances of the type of the data.
    OpRow("BatchNormWithGlobalNormalization", DENY, "TF op def", note=_NORM),
    OpRow("LRN", DENY, "measured on CPU, TF 2.21", note=_NORM),
)
