"""Ops that are safe in low precision unless what flows in is unsafe."""

from __future__ import annotations

from typing import Final

from tf_amp_rewriter.ops.rows import Category, OpRow

INFER: Final = Category.INFER
KEEP: Final = Category.KEEP
_SPARSE_PRODUCT: Final = (
    "the CPU kernel sums in bfloat16 and loses 1 % from 64 terms on, and GPU has none"
)

ROWS: Final[tuple[OpRow, ...]] = (
    # Arithmetic of one rounding an element.
    OpRow("Add", INFER, "grappler infer"),
    OpRow("AddN", INFER, "grappler infer", condition="add_n_inputs"),
    OpRow("AddV2", INFER, "grappler infer"),
    OpRow("BiasAdd", INFER, "grappler infer"),
    OpRow("BiasAddV1", INFER, "grappler infer"),
    OpRow("Dilation2D", INFER, "one sum an element, then max"),
    OpRow("Div", INFER, "measured on CPU"),
    OpRow("DivNoNan", INFER, "measured on CPU"),
    OpRow("Inv", INFER, "grappler infer"),
    OpRow("Mul", INFER, "grappler infer"),
    OpRow("MulNoNan", INFER, "measured on CPU"),
    OpRow("RealDiv", INFER, "grappler infer"),
    OpRow("Reciprocal", INFER, "grappler infer"),
    OpRow("Sub", INFER, "grappler infer"),
    OpRow("Xdivy", INFER, "measured on CPU"),
    # Activations without bounds, each within a few roundings of its largest term on CPU. Elu and
    # Selu compute exp(x) - 1, and Softplus exp(x), in the low type: near 0 they are less accurate.
    OpRow("Elu", INFER, "grappler infer"),
    OpRow("LeakyRelu", INFER, "grappler infer"),
    OpRow("Selu", INFER, "grappler infer"),
    OpRow("Softplus", INFER, "grappler infer"),
    # Functions whose results lie in a small fixed range, whatever flows in.
    OpRow("Erf", INFER, "grappler infer", bounded=True),
    OpRow("Erfc", INFER, "grappler infer", bounded=True),
    OpRow("Sigmoid", INFER, "grappler infer", bounded=True),
    OpRow(
        "Softmax",
        INFER,
        "grappler infer",
        condition="softmax_width",
        bounded=True,
        only_inside=True,
    ),
    OpRow("Softsign", INFER, "grappler infer", bounded=True),
    OpRow("Tanh", INFER, "grappler infer", bounded=True),
    # Functions that grow more slowly than their argument.
    OpRow("Log", INFER, "grappler infer"),
    OpRow("Log1p", INFER, "grappler infer"),
    OpRow("LogSoftmax", INFER, "grappler infer", condition="softmax_width", only_inside=True),
    OpRow("Sqrt", INFER, "grappler infer"),
    OpRow("Xlog1py", INFER, "as Xlogy"),
    OpRow("Xlogy", INFER, "measured on CPU"),
    # Normalisation that computes in float32 inside: T is the data, U the statistics.
    OpRow("FusedBatchNormV2", INFER, "grappler infer", attrs=("T",)),
    OpRow("FusedBatchNormV3", INFER, "grappler infer", attrs=("T",)),
    # Means over small windows.
    OpRow("AvgPool", INFER, "grappler infer", condition="pool_window"),
    OpRow("AvgPool3D", INFER, "grappler infer", condition="pool_window"),
    # Sums that the CPU kernels make in float32 (in half at least).
    OpRow("SparseSegmentMean", INFER, "measured on CPU"),
    OpRow("SparseSegmentMeanWithNumSegments", INFER, "measured on CPU"),
    OpRow("SparseSegmentSqrtN", INFER, "measured on CPU"),
    OpRow("SparseSegmentSqrtNWithNumSegments", INFER, "measured on CPU"),
    OpRow("SparseSegmentSum", INFER, "measured on CPU"),
    OpRow("SparseSegmentSumWithNumSegments", INFER, "measured on CPU"),
    OpRow("SparseTensorDenseMatMul", KEEP, "measured on CPU", note=_SPARSE_PRODUCT),
    OpRow("SparseTensorDenseMatMul", INFER, "measured on CPU", dtype="half"),
    # Element-wise arithmetic of a sparse tensor with a dense one.
    OpRow("SparseDenseCwiseAdd", INFER, "one rounding"),
    OpRow("SparseDenseCwiseDiv", INFER, "one rounding"),
    OpRow("SparseDenseCwiseMul", INFER, "one rounding"),
    # Gradients of the ops above.
    OpRow("AvgPool3DGrad", INFER, "grappler infer", condition="pool_window"),
    OpRow("AvgPoolGrad", INFER, "grappler infer", condition="pool_window"),
    OpRow("BiasAddGrad", INFER, "grappler infer", condition="sums_in_bfloat16"),
    OpRow("EluGrad", INFER, "grappler infer"),
    OpRow("FusedBatchNormGradV2", INFER, "grappler infer", attrs=("T",)),
    OpRow("FusedBatchNormGradV3", INFER, "grappler infer", attrs=("T",)),
    OpRow("LeakyReluGrad", INFER, "grappler infer"),
    OpRow("SeluGrad", INFER, "grappler infer"),
    OpRow("SigmoidGrad", INFER, "grappler infer"),
    OpRow("SoftplusGrad", INFER, "grappler infer"),
    OpRow("SoftsignGrad", INFER, "grappler infer"),
    OpRow("TanhGrad", INFER, "grappler infer"),
)
