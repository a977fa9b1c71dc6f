"""What a flat (inlined, frozen) graph costs per inference: contractions, Casts, weights, traffic.

A flat graph is imported with input shapes that are known, TensorFlow infers all others, and every
op is looked at once. Dimensions that stay unknown count as 1; a tensor of unknown rank as nothing.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.core.framework import graph_pb2

from tests import walk

BATCH: Final = 8  # an unknown first dimension of an input
OTHER_DIMENSION: Final = 64  # any other unknown one
MEGA: Final = 1e6
MAX_WEIGHT_PATH: Final = 20

FLOATS: Final = frozenset({tf.float16, tf.bfloat16, tf.float32, tf.float64})
LOW: Final = frozenset({tf.float16, tf.bfloat16})
CONTRACTIONS: Final = frozenset(
    """BatchMatMul BatchMatMulV2 BatchMatMulV3 Conv Conv2D Conv2DBackpropInput Conv3D
    Conv3DBackpropInputV2 DepthwiseConv2dNative Einsum MatMul _FusedConv2D _FusedMatMul""".split()
)
# Ops that move no bytes: they give their input on, are there before the run, or steer control flow.
FREE: Final = frozenset(
    """Const EnsureShape Enter Exit ExpandDims Identity IdentityN LoopCond Merge NextIteration NoOp
    Placeholder Rank ReadVariableOp Reshape Shape ShapeN Size Squeeze StopGradient Switch""".split()
)
# Ops between a weight and the Cast that makes it a Cast on a weight.
WEIGHT_PATH: Final = frozenset({"Enter", "Identity", "ReadVariableOp", "Reshape", "Transpose"})


@dataclasses.dataclass(frozen=True)
class Census:
    """The figures of one graph; MB are 1e6 bytes.

    Attributes:
        contractions: number of contractions on float types.
        contractions_low: how many of them read half or bfloat16.
        activation_casts: number of Casts between float types that do not stand on a weight.
        activation_cast_mb: what these read and write.
        unknown_shape_casts: how many of these have an input of unknown rank and are not in it.
        loop_casts: how many Casts between float types, on weights too, run once a step of a loop.
        weight_casts: number of Casts between float types on a Const, through `WEIGHT_PATH` ops.
        weight_cast_mb: what these read and write.
        weight_mb: the size of all float Consts.
        weight_mb_low: the size of those that are half or bfloat16.
        traffic_mb: float bytes that all ops read and write but those in `FREE`; loops count once.
        traffic_by_op: `traffic_mb` by op type.
    """

    contractions: int
    contractions_low: int
    activation_casts: int
    activation_cast_mb: float
    unknown_shape_casts: int
    loop_casts: int
    weight_casts: int
    weight_cast_mb: float
    weight_mb: float
    weight_mb_low: float
    traffic_mb: float
    traffic_by_op: Mapping[str, float]


def feed_shape(shape: Sequence[int | None]) -> tuple[int, ...]:
    """Returns an input's shape with the unknown dimensions filled in."""
    return tuple(
        size if size is not None else OTHER_DIMENSION if index else BATCH
        for index, size in enumerate(shape)
    )


def static_graph(
    graph_def: graph_pb2.GraphDef, feed_shapes: Mapping[str, Sequence[int]]
) -> tf.Graph:
    """Imports a graph with inputs of known shape.

    Args:
        graph_def: the graph.
        feed_shapes: shapes by name of a Placeholder; others keep what the graph says.

    Returns:
        The graph; what was in it keeps its name, each fed input is a new node `fed_<name>`.
    """
    bare = graph_pb2.GraphDef()
    bare.CopyFrom(graph_def)
    fed = {}
    with tf.Graph().as_default() as graph:
        for node in bare.node:
            node.attr.pop("_output_shapes", None)  # would hold TensorFlow to the unknown dimensions
            if node.op == "Placeholder" and node.name in feed_shapes:
                fed[f"{node.name}:0"] = tf.compat.v1.placeholder(
                    tf.as_dtype(node.attr["dtype"].type),
                    tuple(feed_shapes[node.name]),
                    name=f"fed_{node.name}",
                )
        tf.import_graph_def(bare, name="", input_map=fed)
    return graph


def census(graph: tf.Graph) -> Census:
    """Takes the census of a flat graph of known shapes; linear in its size."""
    figures: collections.Counter[str] = collections.Counter()
    traffic: collections.Counter[str] = collections.Counter()
    for op in graph.get_operations():
        traffic[op.type] += traffic_bytes(op)
        figures.update(_figures(op))
    megabytes = {key: value / MEGA for key, value in figures.items() if key.endswith("_mb")}
    by_op = {op: moved / MEGA for op, moved in traffic.most_common() if moved}
    return Census(
        contractions=figures["contractions"],
        contractions_low=figures["contractions_low"],
        activation_casts=figures["activation_casts"],
        activation_cast_mb=megabytes.get("activation_cast_mb", 0.0),
        unknown_shape_casts=figures["unknown_shape_casts"],
        loop_casts=len(loop_casts(graph)),
        weight_casts=figures["weight_casts"],
        weight_cast_mb=megabytes.get("weight_cast_mb", 0.0),
        weight_mb=megabytes.get("float32_weight_mb", 0.0) + megabytes.get("low_weight_mb", 0.0),
        weight_mb_low=megabytes.get("low_weight_mb", 0.0),
        traffic_mb=sum(traffic.values()) / MEGA,
        traffic_by_op=by_op,
    )


def traffic_bytes(op: tf.Operation, dtypes: Collection[tf.DType] = FLOATS) -> int:
    """Returns the bytes of the given dtypes that an op reads and writes."""
    if op.type in FREE:
        return 0
    tensors = (*op.inputs, *op.outputs)
    return sum(_bytes(tensor) or 0 for tensor in tensors if tensor.dtype in dtypes)


def contractions(graph: tf.Graph) -> Iterator[tuple[tf.Operation, bool]]:
    """Gives each contraction on float types, and whether it reads a low type."""
    for op in graph.get_operations():
        if is_contraction(op):
            yield op, op.inputs[0].dtype in LOW


def is_contraction(op: tf.Operation) -> bool:
    """Whether an op multiplies float matrices."""
    return op.type in CONTRACTIONS and bool(op.outputs) and op.outputs[0].dtype in FLOATS


def weight_casts(graph: tf.Graph) -> Iterator[tf.Operation]:
    """Gives each Cast between float types that stands on a weight."""
    for op in graph.get_operations():
        if _is_float_cast(op) and _is_weight(op.inputs[0].op):
            yield op


def loop_casts(graph: tf.Graph) -> list[tf.Operation]:
    """Returns each Cast between float types that stands in a loop of control flow v1."""
    framed = walk.Walk(graph.as_graph_def()).framed("")
    return [op for op in graph.get_operations() if op.name in framed and _is_float_cast(op)]


def _figures(op: tf.Operation) -> Mapping[str, int]:
    """Returns what one op adds to the figures; those in `_mb` in bytes."""
    if is_contraction(op):
        return {"contractions": 1, "contractions_low": int(op.inputs[0].dtype in LOW)}
    if _is_float_cast(op):
        return _cast_figures(op)
    if op.type == "Const" and op.outputs[0].dtype in FLOATS:
        precision = "low" if op.outputs[0].dtype in LOW else "float32"
        return {f"{precision}_weight_mb": _bytes(op.outputs[0]) or 0}
    return {}


def _is_float_cast(op: tf.Operation) -> bool:
    return op.type == "Cast" and {op.inputs[0].dtype, op.outputs[0].dtype} <= FLOATS


def _cast_figures(op: tf.Operation) -> Mapping[str, int]:
    read, written = _bytes(op.inputs[0]), _bytes(op.outputs[0])
    moved = (read or 0) + (written or 0)
    if _is_weight(op.inputs[0].op):
        return {"weight_casts": 1, "weight_cast_mb": moved}
    return {
        "activation_casts": 1,
        "activation_cast_mb": moved,
        "unknown_shape_casts": int(read is None),
    }


def _is_weight(op: tf.Operation) -> bool:
    """Whether `op` is a Const, or takes one on as it is."""
    for _ in range(MAX_WEIGHT_PATH):
        if op.type not in WEIGHT_PATH or not op.inputs:
            break
        op = op.inputs[0].op
    return bool(op.type == "Const")


def _bytes(tensor: tf.Tensor) -> int | None:
    """Returns a tensor's size; None where its rank is unknown."""
    if tensor.shape.rank is None:
        return None
    known = (1 if size is None else size for size in tensor.shape.as_list())
    return math.prod(known) * int(tensor.dtype.size)


def output_error(expected: Mapping[str, NDArray[Any]], actual: Mapping[str, NDArray[Any]]) -> float:
    """Returns the largest error of any float output, over the spread (max - min) of that output.

    A value that is not finite where the expected one is, or the reverse, is an infinite error;
    so is any error in an output whose values are all the same.
    """
    errors = [
        _error(np.asarray(value, np.float64), np.asarray(actual[name], np.float64))
        for name, value in expected.items()
        if value.dtype.kind == "f" and value.size
    ]
    return max(errors, default=0.0)


def _error(expected: NDArray[np.float64], actual: NDArray[np.float64]) -> float:
    finite = np.isfinite(expected)
    if not np.array_equal(expected[~finite], actual[~finite], equal_nan=True):
        return math.inf
    if not finite.any():
        return 0.0
    if not np.isfinite(actual[finite]).all():
        return math.inf
    largest = float(np.abs(actual[finite] - expected[finite]).max())
    spread = float(np.ptp(expected[finite]))
    if largest == 0.0:
        return 0.0
    return largest / spread if spread else math.inf
