"""The rows of the op table that move or select values: every one of them must be exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import tensorflow as tf

from tests.gpu.comparisons import case
from tests.gpu.op_inputs import distinct, i32, i64, normal, scalar

raw = tf.raw_ops
_STRIDES: Final = [1, 1, 1, 1]
_PADS: Final = i32([1, 2], [0, 1])
_CROPS: Final = i32([0, 0], [0, 0])
_SPARSE: Final = i64([0, 0], [0, 2], [1, 3], [2, 1], [3, 0], [3, 3])
_SPARSE_SHAPE: Final = i64(4, 4)


def _from_variable(op: Callable[..., tf.Tensor], indices: Any) -> Callable[..., tf.Tensor]:
    """Returns a call that gathers from a variable which lives for as long as that takes."""

    def call(x: tf.Tensor) -> tf.Tensor:
        variable = tf.Variable(x)
        return op(resource=variable.handle, indices=indices, dtype=x.dtype)

    return call


_PASS_ON: Final = (
    *(
        case(op, "input", normal(3, 4))
        for op in (
            "GuaranteeConst", "Identity", "PreventGradient", "Snapshot",
            "StopGradient", "Rank", "Shape", "Size",
        )
    ),
    case("CheckNumerics", "tensor", normal(3, 4), message="m"),
    case("CheckNumericsV2", "tensor", normal(3, 4), message="m"),
    case("EnsureShape", "input", normal(3, 4), shape=[None, 4]),
    case("IdentityN", "input*", normal(3, 4), normal(2)),
    case("ShapeN", "input*", normal(3, 4), normal(2, 4)),
    case("OnesLike", "x", normal(3, 4)),
    case("ZerosLike", "x", normal(3, 4)),
    case("Fill", "value", normal(), dims=[3, 4]),
    case("OneHot", "on_value off_value", normal(), normal(), indices=i32(1, 4, 0), depth=5),
)  # fmt: skip

_MOVE: Final = (
    case("BatchToSpace", "input", normal(4, 3, 3, 2), crops=_CROPS, block_size=2),
    case("BatchToSpaceND", "input", normal(4, 3, 3, 2), block_shape=i32(2, 2), crops=_CROPS),
    case("BroadcastTo", "input", normal(3, 1), shape=[2, 3, 4]),
    case("Concat", "values*", normal(3, 4), normal(3, 2), concat_dim=1),
    case("ConcatV2", "values*", normal(3, 4), normal(3, 2), axis=1),
    case("ConjugateTranspose", "x", normal(2, 3, 4), perm=[2, 0, 1]),
    case("DepthToSpace", "input", normal(2, 3, 3, 8), block_size=2),
    case("Diag", "diagonal", normal(4)),
    case("DiagPart", "input", normal(4, 4)),
    case("DynamicPartition", "data", normal(6, 3), partitions=i32(0, 1, 1, 0, 2, 1),
         num_partitions=3),
    *(
        case(op, "data*", normal(3, 4), normal(2, 4), indices=[i32(0, 2, 4), i32(1, 3)])
        for op in ("DynamicStitch", "ParallelDynamicStitch")
    ),
    case("ExpandDims", "input", normal(3, 4), axis=1),
    case("ExtractImagePatches", "images", normal(1, 6, 6, 2), ksizes=[1, 3, 3, 1],
         strides=[1, 2, 2, 1], rates=_STRIDES, padding="VALID"),
    case("ExtractVolumePatches", "input", normal(1, 4, 4, 4, 2), ksizes=[1, 2, 2, 2, 1],
         strides=[1, 2, 2, 2, 1], padding="VALID"),
    case("InplaceUpdate", "x v", normal(5, 4), normal(2, 4), i=i32(1, 3)),
    case("MatrixBandPart", "input", normal(2, 4, 4), num_lower=i64(1)[0], num_upper=i64(0)[0]),
    case("MatrixDiag", "diagonal", normal(2, 4)),
    case("MatrixDiagPart", "input", normal(2, 4, 4)),
    *(
        case(op, "input padding_value", normal(2, 4, 4), scalar(-1.0), k=i32(-1, 1))
        for op in ("MatrixDiagPartV2", "MatrixDiagPartV3")
    ),
    *(
        case(op, "diagonal padding_value", normal(2, 4), scalar(-1.0), k=0, num_rows=4, num_cols=4)
        for op in ("MatrixDiagV2", "MatrixDiagV3")
    ),
    case("MatrixSetDiag", "input diagonal", normal(2, 4, 4), normal(2, 4)),
    *(
        case(op, "input diagonal", normal(2, 4, 4), normal(2, 4), k=0)
        for op in ("MatrixSetDiagV2", "MatrixSetDiagV3")
    ),
    case("MirrorPad", "input", normal(5, 4), paddings=_PADS, mode="REFLECT"),
    case("Pack", "values*", normal(3, 4), normal(3, 4), axis=1),
    case("Pad", "input", normal(5, 4), paddings=_PADS),
    case("PadV2", "input constant_values", normal(5, 4), scalar(-3.0), paddings=_PADS),
    case("Reshape", "tensor", normal(3, 4), shape=[2, 6]),
    case("ResizeNearestNeighbor", "images", normal(2, 4, 4, 3), size=[9, 7]),
    case("Reverse", "tensor", normal(3, 4), dims=[True, False]),
    case("ReverseSequence", "input", normal(3, 5, 2), seq_lengths=i32(2, 5, 1), seq_dim=1),
    case("ReverseV2", "tensor", normal(3, 4), axis=[1]),
    case("Roll", "input", normal(3, 4), shift=[1, 2], axis=[0, 1]),
    case("Slice", "input", normal(5, 4), begin=[1, 0], size=[3, 2]),
    case("SpaceToBatch", "input", normal(2, 4, 4, 3), paddings=_CROPS, block_size=2),
    case("SpaceToBatchND", "input", normal(2, 4, 4, 3), block_shape=i32(2, 2), paddings=_CROPS),
    case("SpaceToDepth", "input", normal(2, 4, 4, 3), block_size=2),
    case("Split", "value", normal(6, 4), axis=0, num_split=3),
    case("SplitV", "value", normal(6, 4), size_splits=[1, 2, 3], axis=0, num_split=3),
    case("Squeeze", "input", normal(3, 1, 4), axis=[1]),
    case("StridedSlice", "input", normal(6, 5), begin=[1, 4], end=[6, 0], strides=[2, -1]),
    case("TensorScatterUpdate", "tensor updates", normal(5, 4), normal(2, 4),
         indices=i32([1], [3])),
    case("TensorStridedSliceUpdate", "input value", normal(6, 5), normal(2, 2),
         begin=[1, 1], end=[3, 5], strides=[1, 2]),
    case("Tile", "input", normal(3, 4), multiples=[2, 3]),
    case("Transpose", "x", normal(2, 3, 4), perm=[2, 0, 1]),
    case("Unpack", "value", normal(3, 4), num=3),
    case("Gather", "params", normal(6, 4), indices=i32(5, 0, 0, 2)),
    case("GatherNd", "params", normal(6, 4), indices=i32([5, 1], [0, 3])),
    case("GatherV2", "params", normal(6, 4), indices=i32(5, 0, 0, 2), axis=0),
    case("ResourceGather", _from_variable(raw.ResourceGather, i32(5, 0, 2)), normal(6, 4)),
    case("ResourceGatherNd", _from_variable(raw.ResourceGatherNd, i32([5], [0])), normal(6, 4)),
)  # fmt: skip

_SPARSE_AND_RAGGED: Final = (
    case("RaggedFillEmptyRows", "values default_value", normal(3), scalar(-1.0),
         value_rowids=i64(0, 0, 2), nrows=i64(4)[0], compared=2),
    case("RaggedGather", "params_dense_values", normal(6, 2),
         params_nested_splits=[i64(0, 2, 3, 6)], indices=i64(2, 0), OUTPUT_RAGGED_RANK=1),
    case("RaggedTensorToSparse", "rt_dense_values", normal(6), rt_nested_splits=[i64(0, 2, 3, 6)]),
    case("RaggedTensorToTensor", "values default_value", normal(6), scalar(-1.0), shape=i64(3, 4),
         row_partition_tensors=[i64(0, 2, 3, 6)], row_partition_types=["ROW_SPLITS"]),
    case("SparseConcat", "values*", normal(6), normal(6), indices=[_SPARSE, _SPARSE],
         shapes=[_SPARSE_SHAPE, _SPARSE_SHAPE], concat_dim=1),
    case("SparseFillEmptyRows", "values default_value", normal(3), scalar(-1.0),
         indices=i64([0, 0], [0, 2], [2, 1]), dense_shape=_SPARSE_SHAPE),
    case("SparseReorder", "input_values", normal(6), input_indices=_SPARSE[::-1].copy(),
         input_shape=_SPARSE_SHAPE),
    case("SparseSlice", "values", normal(6), indices=_SPARSE, shape=_SPARSE_SHAPE,
         start=i64(0, 0), size=i64(3, 3)),
    case("SparseSplit", "values", normal(6), split_dim=i64(1)[0], indices=_SPARSE,
         shape=_SPARSE_SHAPE, num_split=2),
    case("SparseToDense", "sparse_values default_value", normal(6), scalar(-1.0),
         sparse_indices=_SPARSE, output_shape=_SPARSE_SHAPE),
    case("SparseReduceMax", "input_values", normal(6), input_indices=_SPARSE,
         input_shape=_SPARSE_SHAPE, reduction_axes=[1]),
    case("SparseReduceMaxSparse", "input_values", normal(6), input_indices=_SPARSE,
         input_shape=_SPARSE_SHAPE, reduction_axes=[1]),
    *(
        case(op, "a_values b_values", normal(6), normal(6), a_indices=_SPARSE, b_indices=_SPARSE,
             a_shape=_SPARSE_SHAPE, b_shape=_SPARSE_SHAPE)
        for op in ("SparseSparseMaximum", "SparseSparseMinimum")
    ),
)  # fmt: skip

_SELECT: Final = (
    case("ClipByValue", "t clip_value_min clip_value_max", normal(8, 16), scalar(-0.7),
         scalar(0.9)),
    case("Max", "input", normal(4, 6, 8), axis=[1, 2]),
    case("Min", "input", normal(4, 6, 8), axis=[0]),
    case("Maximum", "x y", normal(8, 16), normal(16)),
    case("Minimum", "x y", normal(8, 16), normal(16)),
    case("MaxPool", "input", normal(2, 8, 8, 4), ksize=[1, 3, 3, 1], strides=[1, 2, 2, 1],
         padding="SAME"),
    case("MaxPoolV2", "input", normal(2, 8, 8, 4), ksize=i32(1, 3, 3, 1), strides=i32(1, 2, 2, 1),
         padding="SAME"),
    case("MaxPool3D", "input", normal(1, 6, 6, 6, 4), ksize=[1, 2, 2, 2, 1],
         strides=[1, 2, 2, 2, 1], padding="SAME"),
    case("Relu", "features", normal(8, 16)),
    case("Relu6", "features", normal(8, 16, scale=6.0)),
    case("SegmentMax", "data", normal(6, 4), segment_ids=i32(0, 0, 1, 1, 1, 2)),
    case("SegmentMin", "data", normal(6, 4), segment_ids=i32(0, 0, 1, 1, 1, 2)),
    case("Select", "x y", normal(3, 2), normal(3, 2), condition=np.array([[True, False]] * 3)),
    case("SelectV2", "t e", normal(3, 2), normal(2), condition=np.array([True, False])),
    *(
        case(op, "tensor updates", normal(5, 4), normal(2, 4), indices=i32([1], [3]))
        for op in ("TensorScatterMax", "TensorScatterMin")
    ),
    case("Abs", "x", normal(8, 16)),
    case("Neg", "x", normal(8, 16)),
)  # fmt: skip

_STEPS: Final = (
    case("ArgMax", "input", distinct(8, 16), dimension=1),
    case("ArgMin", "input", distinct(8, 16), dimension=0),
    case("Ceil", "x", normal(8, 16, scale=4.0)),
    case("Floor", "x", normal(8, 16, scale=4.0)),
    case("Rint", "x", normal(8, 16, scale=4.0)),
    case("Round", "x", normal(8, 16, scale=4.0)),
    case("Sign", "x", normal(8, 16)),
    case("MaxPoolWithArgmax", "input", distinct(1, 8, 8, 2), ksize=[1, 2, 2, 1],
         strides=[1, 2, 2, 1], padding="SAME"),
    case("TopKV2", "input", distinct(4, 32), k=5),
)  # fmt: skip

CASES: Final = (*_PASS_ON, *_MOVE, *_SPARSE_AND_RAGGED, *_SELECT, *_STEPS)
