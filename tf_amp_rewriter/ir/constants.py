"""Constants: their values as arrays, and their protos in another precision."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray
from tensorflow.core.framework import tensor_pb2

from tf_amp_rewriter.dtypes import DT_FLOAT, LowPrecision, clamped, round_to

_FLOAT_BYTES: Final = 4
_MAX_VALUES: Final = 2**31


def problem(tensor: tensor_pb2.TensorProto) -> str:
    """Returns what is wrong with the proto of a constant, or an empty string.

    What a proto of another dtype than float32 stores is not looked at.
    """
    dims = [dim.size for dim in tensor.tensor_shape.dim]
    if min(dims, default=0) < 0:
        return f"its `value` has the shape {dims}, expected no negative dimension"
    expected = num_values(tensor)
    if expected > _MAX_VALUES:
        return f"its `value` has the shape {dims}, expected at most {_MAX_VALUES} values"
    if tensor.dtype != DT_FLOAT:
        return ""
    if tensor.tensor_content:
        found = len(tensor.tensor_content)
        if found != _FLOAT_BYTES * expected:
            return (
                f"its `value` has {found} bytes in `tensor_content`, expected "
                f"{_FLOAT_BYTES * expected} for the shape {dims}"
            )
    elif len(tensor.float_val) > expected:
        return (
            f"its `value` has {len(tensor.float_val)} values in `float_val`, expected at most "
            f"{expected} for the shape {dims}"
        )
    return ""


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
    return math.prod(dim.size for dim in tensor.tensor_shape.dim)


def converted(
    tensor: tensor_pb2.TensorProto, low: LowPrecision, limit: float = 0.0
) -> tensor_pb2.TensorProto:
    """Returns the same tensor rounded to nearest even in `low`, stored as compactly as before.

    Args:
        tensor: the tensor.
        low: the low precision.
        limit: finite values are clamped to between its negative and it first; 0 clamps nothing.
    """
    result = tensor_pb2.TensorProto(dtype=low.proto, tensor_shape=tensor.tensor_shape)
    result.version_number = tensor.version_number
    rounded = round_to(clamped(values(tensor), limit) if limit else values(tensor), low)
    if tensor.tensor_content:
        result.tensor_content = rounded.tobytes()
    elif tensor.float_val:
        result.half_val.extend(int(bits) for bits in rounded.view(np.uint16))
    return result


def clamp(tensor: tensor_pb2.TensorProto, limit: float) -> None:
    """Brings the finite values of a float32 tensor to between `-limit` and `limit`, in place."""
    inside = clamped(values(tensor), limit)
    if tensor.tensor_content:
        tensor.tensor_content = inside.tobytes()
    elif tensor.float_val:
        tensor.float_val[:] = [float(value) for value in inside]
