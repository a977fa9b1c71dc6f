"""Constants: their values as arrays, and their protos in another precision."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from tensorflow.core.framework import tensor_pb2

from tf_amp_rewriter.dtypes import LowPrecision, round_to


def values(tensor: tensor_pb2.TensorProto) -> NDArray[np.float32]:
    """Returns the float32 values that a proto stores, flat.

    A proto may store fewer values than its shape has: the last one then stands for the rest
    (tensorflow/core/framework/tensor.proto). Only the stored ones are returned.
    """
    if tensor.tensor_content:
        return np.frombuffer(tensor.tensor_content, np.dtype("<f4"))
    if tensor.float_val:
        return np.array(tensor.float_val, np.float32)
    return np.zeros(min(1, num_values(tensor)), np.float32)


def num_values(tensor: tensor_pb2.TensorProto) -> int:
    """Returns the number of values that the shape says."""
    count = 1
    for dim in tensor.tensor_shape.dim:
        count *= dim.size
    return count


def converted(tensor: tensor_pb2.TensorProto, low: LowPrecision) -> tensor_pb2.TensorProto:
    """Returns the same tensor rounded to nearest even in `low`, stored as compactly as before."""
    result = tensor_pb2.TensorProto(dtype=low.proto, tensor_shape=tensor.tensor_shape)
    result.version_number = tensor.version_number
    rounded = round_to(values(tensor), low)
    if tensor.tensor_content:
        result.tensor_content = rounded.tobytes()
    elif tensor.float_val:
        result.half_val.extend(int(bits) for bits in rounded.view(np.uint16))
    return result
