"""What nodes and arguments say about the values in their lists: TensorFlow's full types.

An array of float32 tensors, `TFT_ARRAY[TFT_TENSOR[TFT_FLOAT]]`, becomes one of low ones. Source:
tensorflow/core/framework/full_type.proto of TensorFlow 2.21.
"""

from __future__ import annotations

from tensorflow.core.framework import full_type_pb2

from tf_amp_rewriter import dtypes
from tf_amp_rewriter.dtypes import LowPrecision


def lower(full_type: full_type_pb2.FullTypeDef, low: LowPrecision) -> None:
    """Makes float32 in a full type the low precision, in place."""
    of_low = {
        dtypes.HALF: full_type_pb2.TFT_HALF,
        dtypes.BFLOAT16: full_type_pb2.TFT_BFLOAT16,
    }[low]
    stack = [full_type]
    while stack:
        part = stack.pop()
        if part.type_id == full_type_pb2.TFT_FLOAT:
            part.type_id = of_low
        stack.extend(part.args)
