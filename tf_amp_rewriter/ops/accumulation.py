"""In which type the kernels add up: float32, or the low type of what they read.

A kernel that sums or multiplies many terms in half or bfloat16 loses far more than the one rounding
of its result: ones stop adding up at 2048 or 256. What is said of the CPU was measured with the
plain kernels of TensorFlow 2.21 (`TF_ENABLE_ONEDNN_OPTS=0`), in the layout that loses most;
`tests/ops/test_accumulation.py` measures it again. What is said of the GPU is read in the kernel's
source, which is named; where it does not say, the low type is taken.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import Final

from tf_amp_rewriter import dtypes

FLOAT32: Final = "float32"
LOW: Final = "low"
MEASURED: Final = "measured on CPU, TF 2.21"
_CPU: Final = "cpu"
_GPU: Final = "gpu"
_HALF: Final = dtypes.HALF.name
_BFLOAT16: Final = dtypes.BFLOAT16.name
_UNKNOWN: Final = "not documented (cuDNN): taken as low"
_PAIRS: Final = "as Sum, which adds in pairs along the last axis"
_WITH_3D: Final = f"{MEASURED}: with 3 spatial dimensions; with 2 in float32"
_CONV: Final = "cuda_dnn.cc: TF_FP16_CONV_USE_FP32_COMPUTE is on"
_EINSUM: Final = "einsum_op_impl.h: by way of BatchMatMul; labels of one input alone as in Sum"
_MATMUL: Final = "matmul_util.cc: TF_FP16_MATMUL_USE_FP32_COMPUTE is on"
_REDUCTION: Final = "reduction_gpu_kernels.cu.h"
_RNN: Final = "cuda_dnn.cc: TF_FP16_RNN_USE_FP32_COMPUTE is off"
_SCAN: Final = "scan_ops_gpu.h"
_SCATTER: Final = "scatter_nd_op_gpu.cu.cc: atomic additions"
_SEGMENTS: Final = "segment_reduction_ops_gpu.cu.h: atomic additions"
_SPARSE_PRODUCT: Final = "sparse_tensor_dense_matmul_op.h: SumType"
_SPARSE_SEGMENTS: Final = "segment_reduction_ops_gpu.cu.h: ReduceType"


@dataclasses.dataclass(frozen=True)
class Accumulation:
    """One fact: in which type the kernel of an op adds up.

    Attributes:
        op: the op type.
        device: `cpu` or `gpu`; an op without a row for a device has no low kernel there.
        compute: `float32` or `low`.
        source: where the fact is from.
        low: the low precision that it holds for; empty means both.
    """

    op: str
    device: str
    compute: str
    source: str
    low: str = ""


def _rows(
    ops: str, device: str, compute: str, source: str, low: str = ""
) -> Iterable[Accumulation]:
    """One row for each of the ops named, parted by spaces."""
    return (Accumulation(op, device, compute, source, low) for op in ops.split())


_PRODUCTS: Final = "BatchMatMul BatchMatMulV2 BatchMatMulV3 MatMul"
_CONV_3D: Final = "Conv3D Conv3DBackpropInput Conv3DBackpropInputV2"
_CONV_GRADIENTS: Final = "Conv2DBackpropFilter Conv3DBackpropFilter Conv3DBackpropFilterV2"
_DEPTHWISE: Final = (
    "DepthwiseConv2dNative DepthwiseConv2dNativeBackpropInput DepthwiseConv2dNativeBackpropFilter"
)
_POOLS: Final = "AvgPool AvgPool3D AvgPool3DGrad AvgPoolGrad"
_NORMS: Final = "FusedBatchNormV2 FusedBatchNormV3"
_BLOCK_CELLS: Final = "BlockLSTM BlockLSTMV2 LSTMBlockCell"
_BLOCK_GRADIENTS: Final = "BlockLSTMGrad BlockLSTMGradV2"
_CUDNN_CELLS: Final = (
    "CudnnRNN CudnnRNNBackprop CudnnRNNBackpropV2 CudnnRNNBackpropV3 CudnnRNNV2 CudnnRNNV3"
)
_SCANS: Final = "Cumprod Cumsum CumulativeLogsumexp"
_SEGMENT_SUMS: Final = "SegmentMean SegmentProd SegmentSum UnsortedSegmentProd UnsortedSegmentSum"
_SPARSE_SEGMENT_SUMS: Final = (
    "SparseSegmentMean SparseSegmentMeanWithNumSegments SparseSegmentSqrtN"
    " SparseSegmentSqrtNWithNumSegments SparseSegmentSum SparseSegmentSumWithNumSegments"
)

ROWS: Final[tuple[Accumulation, ...]] = (
    # Contractions.
    *_rows(_PRODUCTS, _CPU, FLOAT32, MEASURED),
    *_rows(_PRODUCTS, _GPU, FLOAT32, _MATMUL),
    *_rows("SparseMatMul", _CPU, FLOAT32, MEASURED, _BFLOAT16),
    *_rows("SparseTensorDenseMatMul", _CPU, FLOAT32, MEASURED, _HALF),
    *_rows("SparseTensorDenseMatMul", _CPU, LOW, MEASURED, _BFLOAT16),
    *_rows("SparseTensorDenseMatMul", _GPU, FLOAT32, _SPARSE_PRODUCT, _HALF),
    *_rows("Einsum", _CPU, LOW, MEASURED),
    *_rows("Einsum", _GPU, FLOAT32, _EINSUM),
    *_rows("Conv2D", _CPU, FLOAT32, MEASURED),
    *_rows("Conv", _CPU, LOW, _WITH_3D),
    *_rows(f"Conv2DBackpropInput {_CONV_3D} {_CONV_GRADIENTS}", _CPU, LOW, MEASURED),
    *_rows(
        f"Conv Conv2D Conv2DBackpropInput {_CONV_3D} {_CONV_GRADIENTS}", _GPU, FLOAT32, _CONV
    ),
    *_rows("FusedPadConv2D", _CPU, LOW, MEASURED, _HALF),
    *_rows("FusedPadConv2D", _CPU, FLOAT32, MEASURED, _BFLOAT16),
    *_rows(_DEPTHWISE, _CPU, LOW, MEASURED),
    *_rows(_DEPTHWISE, _GPU, FLOAT32, "depthwise_conv_op_gpu.h: PseudoHalfType"),
    # Recurrent cells: their products with the weights.
    *_rows(f"{_BLOCK_CELLS} {_BLOCK_GRADIENTS}", _GPU, FLOAT32, "cuda_blas.cc: GemmEx", _HALF),
    *_rows(_BLOCK_CELLS, _CPU, LOW, MEASURED, _HALF),
    *_rows(_CUDNN_CELLS, _GPU, LOW, _RNN, _HALF),
    *_rows(_CUDNN_CELLS, _GPU, LOW, _UNKNOWN, _BFLOAT16),
    # Means, sums and products along axes.
    *_rows("Mean Sum", _CPU, LOW, MEASURED, _HALF),
    *_rows("Mean Sum", _CPU, FLOAT32, MEASURED, _BFLOAT16),
    *_rows("Mean", _GPU, FLOAT32, f"{_REDUCTION}: MeanReducer of half", _HALF),
    *_rows("Mean", _GPU, LOW, _REDUCTION, _BFLOAT16),
    *_rows("EuclideanNorm Prod Sum", _GPU, LOW, _REDUCTION),
    *_rows("Prod", _CPU, LOW, MEASURED),
    *_rows("EuclideanNorm", _CPU, LOW, MEASURED, _HALF),
    *_rows("EuclideanNorm", _CPU, FLOAT32, MEASURED, _BFLOAT16),
    *_rows("L2Loss", _CPU, LOW, _PAIRS, _HALF),
    *_rows("L2Loss", _CPU, FLOAT32, MEASURED, _BFLOAT16),
    *_rows("L2Loss", _GPU, LOW, "l2loss_op_gpu.cu.cc"),
    *_rows(_SCANS, _CPU, LOW, MEASURED),
    *_rows(_SCANS, _GPU, LOW, _SCAN),
    # Pools, normalisation and what sums to 1.
    *_rows(_POOLS, _CPU, LOW, MEASURED),
    *_rows(_POOLS, _GPU, LOW, _UNKNOWN),
    *_rows(_NORMS, _CPU, FLOAT32, MEASURED),
    *_rows(_NORMS, _GPU, FLOAT32, "fused_batch_norm_op.cc: U is float"),
    *_rows("LRN", _CPU, LOW, MEASURED, _HALF),
    *_rows("LogSoftmax Softmax", _CPU, LOW, MEASURED, _HALF),
    *_rows("LogSoftmax Softmax", _CPU, FLOAT32, MEASURED, _BFLOAT16),
    *_rows("LogSoftmax Softmax", _GPU, FLOAT32, "softmax_op_gpu.cu.cc: softmax_traits"),
    # Sums by segment or place.
    *_rows(_SEGMENT_SUMS, _CPU, LOW, MEASURED),
    *_rows(_SEGMENT_SUMS, _GPU, LOW, _SEGMENTS),
    *_rows(_SPARSE_SEGMENT_SUMS, _CPU, FLOAT32, MEASURED),
    *_rows(_SPARSE_SEGMENT_SUMS, _GPU, FLOAT32, _SPARSE_SEGMENTS),
    *_rows("ScatterNd TensorScatterAdd", _CPU, LOW, MEASURED),
    *_rows("ScatterNd", _GPU, LOW, _SCATTER),
    # Sums of several tensors.
    *_rows("AddN", _CPU, LOW, MEASURED),
    *_rows("AddN", _GPU, LOW, "aggregate_ops_gpu.cu.cc"),
    *_rows("AccumulateNV2", _CPU, LOW, "accumulate_n_optimizer.cc: additions in place"),
    *_rows("AccumulateNV2", _GPU, LOW, "accumulate_n_optimizer.cc: additions in place"),
    *_rows("BiasAddGrad", _CPU, FLOAT32, MEASURED, _HALF),
    *_rows("BiasAddGrad", _CPU, LOW, MEASURED, _BFLOAT16),
    *_rows("BiasAddGrad", _GPU, FLOAT32, "bias_op_gpu.cu.cc: AccumulatorType"),
)  # fmt: skip


def compute(op: str, low: dtypes.LowPrecision, device: str) -> str:
    """Returns in which type the low kernel of `op` adds up: `float32` or `low`.

    Args:
        op: the op type.
        low: the low precision.
        device: `cpu`, `gpu`, or `any` for the worse of both.

    Returns:
        An empty text where nothing is known to be added up, or there is no low kernel.
    """
    here = (_CPU, _GPU) if device == "any" else (device,)
    found = {fact.compute for name in here if (fact := fact_of(op, low, name)) is not None}
    return min(found, key=(LOW, FLOAT32).index, default="")


def fact_of(op: str, low: dtypes.LowPrecision, device: str) -> Accumulation | None:
    """Returns the fact about `op` on `device` (`cpu` or `gpu`), or None."""
    facts = _by_op_and_device()
    return facts.get((op, device, low.name)) or facts.get((op, device, ""))


@functools.cache
def _by_op_and_device() -> Mapping[tuple[str, str, str], Accumulation]:
    return {(row.op, row.device, row.low): row for row in ROWS}
