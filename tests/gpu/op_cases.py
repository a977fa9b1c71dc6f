"""One row per op: the contractions and the arithmetic; `op_cases_clear` has what moves values.

`SUMS_LOW` marks the kernels of which `ops/conditions.py` says that they sum in the low type on CPU.
A row of the tables that has no case stands in `LEFT_OUT` with the reason.
"""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np
import tensorflow as tf

from tests.gpu import op_cases_clear
from tests.gpu.comparisons import LOWERING, Case, case
from tests.gpu.error_bounds import (
    Bound,
    batch_norm,
    cell,
    contracted,
    log_softmax,
    rounded,
    softmax,
    softplus,
)
from tests.gpu.op_inputs import above_one, i32, i64, normal, positive
from tf_amp_rewriter.ops import categories, containers

raw = tf.raw_ops
SUMS_LOW: Final = "cpu"
STRIDES: Final = [1, 1, 1, 1]
STRIDES_3D: Final = [1, 1, 1, 1, 1]
GRADIENT: Final = "a gradient: no part of a model that is served"
IN_GRAPHS: Final = "control flow runs in graphs only: the model `tf1` and `frozen_loop` have it"
OF_HANDLES: Final = "works on a handle: tests/ir/test_containers.py runs it, with its container"

REMOVED: Final = "TensorFlow runs it only in graphs of a version before 14 (today's is above 2000)"
BROKEN: Final = "TensorFlow 2.21 finds no kernel for it, in float32 neither; TopKV2 has a case"


def is_gradient(op: str) -> bool:
    """Says whether `op` is a gradient by its name; filter gradients are contractions and run."""
    return re.search(r"Grad(Grad)?(V\d|WithArgmax)?$|RNNBackprop|NormGrad", op) is not None


LEFT_OUT: Final = {
    "BatchMatrixBandPart": REMOVED,
    "BatchMatrixDiag": REMOVED,
    "BatchMatrixDiagPart": REMOVED,
    "BatchMatrixSetDiag": REMOVED,
    "Conv3DBackpropFilter": REMOVED,
    "Conv3DBackpropInput": REMOVED,
    "TopK": BROKEN,
    **dict.fromkeys(("Enter", "Exit", "Merge", "NextIteration", "Switch"), IN_GRAPHS),
    **{op: OF_HANDLES for op, attr in containers.ELEMENT_TYPES.items() if attr},
    **{
        row.op: GRADIENT
        for row in categories.ROWS
        if row.category in LOWERING and is_gradient(row.op)
    },
}


def _conv(op: str, shape: Any, filter_shape: Any, terms: int, **others: Any) -> Case:
    """A convolution named by input and filter, its filter scaled as training does."""
    weights = normal(*filter_shape, scale=terms**-0.5)
    given = {"strides": STRIDES, "padding": "SAME", **others}
    return case(op, "input filter", normal(*shape), weights, **given)


def _product(terms: int) -> Bound:
    return contracted(terms, truncated=True)


ALLOW: Final = (
    case("MatMul", "a b", normal(16, 256), normal(256, 32, scale=1 / 16), bound=_product(256)),
    case(
        "MatMul", "a b", normal(4, 4096), normal(4096, 16, scale=1 / 64), bound=_product(4096),
        variant="deep",
    ),
    case(
        "MatMul", "a b", positive(64, 8), positive(32, 64), bound=_product(64),
        variant="transposed", transpose_a=True, transpose_b=True,
    ),
    case("BatchMatMul", "x y", normal(3, 8, 64), normal(3, 64, 16), bound=_product(64)),
    case("BatchMatMulV2", "x y", normal(2, 3, 8, 64), normal(3, 64, 16), bound=_product(64)),
    case(
        "BatchMatMulV2", "x y", normal(2, 4, 16, 64), normal(2, 4, 16, 64), bound=_product(64),
        variant="attention", adj_y=True,
    ),
    case(
        "BatchMatMulV3",
        lambda x, y: raw.BatchMatMulV3(x=x, y=y, Tout=x.dtype),
        normal(2, 3, 8, 64), normal(3, 64, 16), bound=_product(64),
    ),
    _conv("Conv2D", (2, 12, 12, 16), (3, 3, 16, 24), 144, bound=contracted(144)),
    _conv(
        "Conv2D", (2, 8, 8, 512), (1, 1, 512, 32), 512, bound=contracted(512), variant="pointwise"
    ),
    _conv("Conv", (2, 12, 12, 16), (3, 3, 16, 24), 144, bound=contracted(144)),
    _conv("DepthwiseConv2dNative", (2, 12, 12, 16), (3, 3, 16, 1), 9,
          bound=contracted(9, SUMS_LOW)),
    _conv(
        "DepthwiseConv2dNative", (2, 12, 12, 16), (5, 5, 16, 1), 25, bound=contracted(25, SUMS_LOW),
        variant="5x5",
    ),
    case(
        "DepthwiseConv2dNativeBackpropInput", "filter out_backprop",
        normal(3, 3, 16, 1), normal(2, 12, 12, 16), bound=contracted(9, SUMS_LOW),
        input_sizes=i32(2, 12, 12, 16), strides=STRIDES, padding="SAME",
    ),
    case("Einsum", "inputs*", normal(4, 8, 8), normal(8, 16), equation="abc,cd->abd",
         bound=contracted(8, SUMS_LOW)),
    case("Einsum", "inputs*", normal(2, 16, 256), normal(256, 16, scale=1 / 16),
         equation="abc,cd->abd", bound=contracted(256, SUMS_LOW), variant="deep"),
    case(
        "Conv2DBackpropInput", "filter out_backprop",
        normal(3, 3, 8, 32, scale=1 / 16), normal(2, 6, 6, 32), bound=contracted(288, SUMS_LOW),
        input_sizes=i32(2, 12, 12, 8), strides=[1, 2, 2, 1], padding="SAME",
    ),
    _conv("Conv3D", (1, 4, 6, 6, 8), (3, 3, 3, 8, 8), 216, bound=contracted(216, SUMS_LOW),
          strides=STRIDES_3D),
    case(
        "Conv3DBackpropInputV2", "filter out_backprop",
        normal(3, 3, 3, 8, 8, scale=1 / 16), normal(1, 4, 6, 6, 8),
        bound=contracted(216, SUMS_LOW),
        input_sizes=i32(1, 4, 6, 6, 8), strides=STRIDES_3D, padding="SAME",
    ),
    _conv(
        "FusedPadConv2D", (2, 8, 8, 16), (3, 3, 16, 8), 144, bound=contracted(144, SUMS_LOW),
        paddings=i32([0, 0], [1, 1], [1, 1], [0, 0]), mode="REFLECT", padding="VALID",
    ),
    # Gradients that are contractions: for `--device gpu`.
    case(
        "Conv2DBackpropFilter", "input out_backprop", normal(2, 8, 8, 8), normal(2, 8, 8, 16),
        bound=contracted(128), filter_sizes=i32(3, 3, 8, 16), strides=STRIDES, padding="SAME",
    ),
    case(
        "Conv3DBackpropFilterV2", "input out_backprop",
        normal(1, 4, 6, 6, 8), normal(1, 4, 6, 6, 8), bound=contracted(144),
        filter_sizes=i32(3, 3, 3, 8, 8), strides=STRIDES_3D, padding="SAME",
    ),
    case(
        "DepthwiseConv2dNativeBackpropFilter", "input out_backprop",
        normal(2, 8, 8, 16), normal(2, 8, 8, 16), bound=contracted(128),
        filter_sizes=i32(3, 3, 16, 1), strides=STRIDES, padding="SAME",
    ),
)  # fmt: skip

# Cells of 8 units on 6 inputs, batch 3, 5 steps; recurrent weights as `error_bounds` wants them.
_UNITS, _INPUTS, _BATCH, _STEPS = 8, 6, 3, 5
_STATE = normal(_BATCH, _UNITS, scale=0.3)
_WEIGHTS = normal(_INPUTS + _UNITS, 4 * _UNITS, scale=0.01)
_PEEPHOLE = normal(_UNITS, scale=0.01)
_BIAS = normal(4 * _UNITS, scale=0.1)
_CUDNN_STATE = normal(1, _BATCH, _UNITS, scale=0.3)
# One layer of LSTM: four gates, each with weights for input and state, and two biases.
_CUDNN_PARAMS = normal(4 * _UNITS * (_INPUTS + _UNITS + 2), scale=0.01)
_CUDNN = {"rnn_mode": "lstm", "is_training": False}

CELLS: Final = (
    case(
        "LSTMBlockCell", "x cs_prev h_prev w wci wcf wco b",
        normal(_BATCH, _INPUTS), _STATE, _STATE, _WEIGHTS, _PEEPHOLE, _PEEPHOLE, _PEEPHOLE, _BIAS,
        bound=cell(1), use_peephole=True,
    ),
    *(
        case(
            op, "x cs_prev h_prev w wci wcf wco b", normal(_STEPS, _BATCH, _INPUTS),
            _STATE, _STATE, _WEIGHTS, _PEEPHOLE, _PEEPHOLE, _PEEPHOLE, _BIAS,
            bound=cell(_STEPS), seq_len_max=i64(_STEPS)[0], use_peephole=True,
        )
        for op in ("BlockLSTM", "BlockLSTMV2")
    ),
    *(
        case(
            op, "input input_h input_c params", normal(_STEPS, _BATCH, _INPUTS),
            _CUDNN_STATE, _CUDNN_STATE, _CUDNN_PARAMS, bound=cell(_STEPS), compared=3,
            **_CUDNN, **others,
        )
        for op, others in (
            ("CudnnRNN", {}),
            ("CudnnRNNV2", {}),
            ("CudnnRNNV3", {"sequence_lengths": i32(*[_STEPS] * _BATCH)}),
        )
    ),
)  # fmt: skip


def _batch_norm(op: str) -> Case:
    statistics = {
        "scale": [1.0, 0.5, 2.0, 1.5], "offset": [0.0, 1.0, -1.0, 0.3],
        "mean": [0.1, -0.2, 0.3, 0.0], "variance": [1.0, 0.5, 2.0, 4.0],
    }  # fmt: skip
    others = {name: np.array(values, np.float32) for name, values in statistics.items()}
    return case(
        op, "x", normal(2, 6, 6, 4), bound=batch_norm, compared=1, is_training=False, **others
    )


def _segments(op: str, **others: Any) -> Case:
    """Three segments of 8, 16 and 8 rows; a mean is one more rounding behind the sum."""
    return case(
        op, "data", normal(64, 12), bound=contracted(16, extra=0 if "Sum" in op else 1),
        indices=i32(*range(0, 64, 2)), segment_ids=i32(*[0] * 8, *[1] * 16, *[2] * 8), **others,
    )  # fmt: skip


_SPARSE: Final = i64([0, 0], [0, 2], [1, 3], [2, 1], [3, 0], [3, 3])
_SPARSE_SHAPE: Final = i64(4, 4)

INFER: Final = (
    *(
        case(op, "x y", normal(8, 16), normal(16), bound=rounded(1))
        for op in ("Add", "AddV2", "Sub", "Mul", "MulNoNan")
    ),
    *(
        case(op, "x y", normal(8, 16), positive(16), bound=rounded(1))
        for op in ("Div", "DivNoNan", "RealDiv", "Xdivy")
    ),
    *(case(op, "x", positive(8, 16), bound=rounded(1)) for op in ("Inv", "Reciprocal", "Sqrt")),
    case("AddN", "inputs*", *[normal(8, 16)] * 16, bound=contracted(15, "both")),
    case("BiasAdd", "value bias", normal(2, 4, 4, 8), normal(8), bound=rounded(1)),
    case("BiasAddV1", "value bias", normal(16, 8), normal(8), bound=rounded(1)),
    case(
        "Dilation2D", "input filter", normal(1, 8, 8, 4), normal(3, 3, 4), bound=rounded(1),
        strides=STRIDES, rates=STRIDES, padding="SAME",
    ),
    # exp, difference.
    case("Elu", "features", normal(16, 16, scale=3.0), bound=rounded(2, offset=1.0)),
    # alpha in the low type, and the product with it.
    case("LeakyRelu", "features", normal(16, 16, scale=3.0), bound=rounded(2), alpha=0.1),
    # scale * alpha in the low type, exp, difference, the product: errors of 1 become 1.76.
    case("Selu", "features", normal(16, 16, scale=3.0), bound=rounded(4, offset=1.76)),
    case("Softplus", "features", normal(16, 16, scale=3.0), bound=softplus),
    case("Erf", "x", normal(16, 16), bound=rounded(1)),
    case("Erfc", "x", normal(16, 16), bound=rounded(1)),
    case("Tanh", "x", normal(16, 16, scale=2.0), bound=rounded(1)),
    # 1 / (1 + exp(-x)): exp, sum, quotient.
    case("Sigmoid", "x", normal(16, 16, scale=3.0), bound=rounded(3)),
    # x / (1 + |x|): sum, quotient.
    case("Softsign", "features", normal(16, 16, scale=3.0), bound=rounded(2)),
    case("Softmax", "logits", normal(8, 64, scale=4.0), bound=softmax),
    case("Softmax", "logits", normal(2, 2048), bound=softmax, variant="wide"),
    case("LogSoftmax", "logits", normal(8, 64, scale=4.0), bound=log_softmax),
    case("Log", "x", positive(16, 16), bound=rounded(1)),
    case("Log1p", "x", positive(16, 16), bound=rounded(1)),
    # A logarithm and a product.
    case("Xlogy", "x y", normal(8, 16), above_one(8, 16), bound=rounded(2)),
    case("Xlog1py", "x y", normal(8, 16), positive(8, 16), bound=rounded(2)),
    _batch_norm("FusedBatchNormV2"),
    _batch_norm("FusedBatchNormV3"),
    *(
        case(
            "AvgPool", "value", positive(2, 16, 16, 8), bound=contracted(size**2, "both", extra=1),
            ksize=[1, size, size, 1], strides=STRIDES, padding="VALID", variant=f"{size}x{size}",
        )
        for size in (2, 7, 8)
    ),
    case(
        "AvgPool3D", "input", positive(1, 6, 6, 6, 4), bound=contracted(8, "both", extra=1),
        ksize=[1, 2, 2, 2, 1], strides=STRIDES_3D, padding="VALID",
    ),
    _segments("SparseSegmentSum"),
    _segments("SparseSegmentMean"),
    _segments("SparseSegmentSqrtN"),
    _segments("SparseSegmentSumWithNumSegments", num_segments=4),
    _segments("SparseSegmentMeanWithNumSegments", num_segments=4),
    _segments("SparseSegmentSqrtNWithNumSegments", num_segments=4),
    case(
        "SparseTensorDenseMatMul", "a_values b", normal(256), normal(256, 16, scale=1 / 16),
        bound=contracted(256), a_indices=i64(*[[0, k] for k in range(256)]), a_shape=i64(1, 256),
    ),
    *(
        case(
            op, "sp_values dense", normal(6), positive(4, 4), bound=rounded(1),
            sp_indices=_SPARSE, sp_shape=_SPARSE_SHAPE,
        )
        for op in ("SparseDenseCwiseAdd", "SparseDenseCwiseDiv", "SparseDenseCwiseMul")
    ),
    # Sums in float32, where a row says so: bfloat16 on CPU, and Mean in half on GPU.
    case("Mean", "input", positive(4, 32, 32, 8), bound=contracted(1024, extra=1), axis=[1, 2]),
    case("Mean", "input", normal(64, 512), bound=contracted(512, extra=1), axis=[1],
         variant="inner"),
    case("Sum", "input", positive(4, 32, 32, 8), bound=contracted(1024), axis=[1, 2]),
    case("Sum", "input", normal(64, 512), bound=contracted(512), axis=[1], variant="inner"),
)  # fmt: skip

CASES: Final = (*ALLOW, *CELLS, *INFER, *op_cases_clear.CASES)
