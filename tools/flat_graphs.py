"""Models as flat graphs: how they are made, what grappler makes of them, and how they are run.

A flat graph has neither variables nor function calls. `grappler` needs an environment that
TensorFlow reads once, before its first use: see `ENVIRONMENT` in tools/benchmark.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.core.framework import graph_pb2, node_def_pb2, types_pb2
from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2
from tensorflow.python.framework import convert_to_constants
from tensorflow.python.grappler import tf_optimizer  # type: ignore[attr-defined]

from tests import models
from tf_amp_rewriter import dtypes
from tf_amp_rewriter.ops import accumulation
from tools import census

INPUT_SETS: Final = 5
# Ops of which the GPU's kernels accumulate in float32 and the CPU's in their input's type, and for
# which types, as far as `as_on_gpu` can write them: all data inputs and outputs of type `T`.
FLOAT32_SUMS_ON_GPU: Final = {
    op: frozenset(
        low.proto
        for low in dtypes.LOW_PRECISIONS.values()
        if accumulation.compute(op, low, "gpu") == accumulation.FLOAT32
        and accumulation.compute(op, low, "cpu") == accumulation.LOW
    )
    for op in ("DepthwiseConv2dNative", "Einsum", "Mean")
}

Arrays = Mapping[str, NDArray[Any]]


@dataclasses.dataclass(frozen=True)
class Flat:
    """A flat graph and how to run it.

    Attributes:
        graph_def: the graph.
        feeds: input values by tensor name.
        fetches: names of the output tensors.
        feed_shapes: shapes for the census, by node name.
    """

    graph_def: graph_pb2.GraphDef
    feeds: Arrays
    fetches: tuple[str, ...]
    feed_shapes: Mapping[str, Sequence[int]]


def flatten(model: models.TestModel) -> Flat:
    """Returns a model as one graph without variables or function calls."""
    if model.kind == "graph_def":
        graph_def = graph_pb2.GraphDef.FromString(model.path.read_bytes())
        return flat_graph_def(graph_def, model)
    loaded = tf.saved_model.load(str(model.path), tags=list(model.tags))
    function = loaded.signatures[model.signature]
    frozen = convert_to_constants.convert_variables_to_constants_v2(function)  # type: ignore[no-untyped-call]
    inputs = [tensor for tensor in frozen.inputs if tensor.dtype != tf.resource]
    return Flat(
        frozen.graph.as_graph_def(),
        _named_feeds(inputs, model.inputs),
        tuple(tensor.name for tensor in frozen.outputs),
        {
            tensor.op.name: census.feed_shape(tensor.shape.as_list())
            for tensor in inputs
            if tensor.shape.rank is not None
        },
    )


def flat_graph_def(graph_def: graph_pb2.GraphDef, model: models.TestModel) -> Flat:
    """Returns a frozen graph, which is flat as it is, with the feeds and fetches of `model`."""
    placeholders = {
        node.name: census.feed_shape(
            [None if d.size < 0 else d.size for d in node.attr["shape"].shape.dim]
        )
        for node in graph_def.node
        if node.op == "Placeholder" and not node.attr["shape"].shape.unknown_rank
    }
    return Flat(graph_def, model.inputs, model.outputs, placeholders)


def _named_feeds(tensors: Sequence[tf.Tensor], inputs: Arrays) -> Arrays:
    """Returns the input values by tensor name; a function's inputs are in the order of the names.

    A placeholder is named after its input, but for characters that a node's name can't hold and
    models of TensorFlow 1, whose names are the graph's own.
    """
    by_name = {tensor.op.name: tensor.name for tensor in tensors}
    if set(inputs) <= set(by_name):
        return {by_name[name]: value for name, value in inputs.items()}
    names = sorted(inputs)
    if len(names) != len(tensors):
        raise ValueError(f"inputs are {names}, the flat graph has {sorted(by_name)}")
    return {tensor.name: inputs[name] for tensor, name in zip(tensors, names, strict=True)}


def run(flat: Flat) -> Sequence[Arrays]:
    """Runs a flat graph on the CPU for each input set; gives the outputs by their position."""
    with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        tf.import_graph_def(flat.graph_def, name="")
        session.run([op for op in graph.get_operations() if op.type.startswith("InitializeTable")])
        results = [
            session.run(list(flat.fetches), varied(flat.feeds, seed)) for seed in range(INPUT_SETS)
        ]
    return [
        {str(index): np.asarray(value) for index, value in enumerate(values)} for values in results
    ]


def varied(feeds: Arrays, seed: int) -> dict[str, NDArray[Any]]:
    """Returns other inputs of the same kind: the same ones for seed 0, and each seed its own.

    Each float example is scaled by 0.8 to 1.2; of other types (such as ids) each position takes the
    value of a random example there, so that values stay what they may be at that position.
    """
    generator = np.random.default_rng(seed)
    result = {}
    for name, value in sorted(feeds.items(), key=lambda item: item[1].dtype.kind):
        result[name] = value
        if seed == 0 or value.ndim == 0:
            continue
        if value.dtype.kind == "f":
            scale = generator.uniform(0.8, 1.2, (len(value), *[1] * (value.ndim - 1)))
            result[name] = (value * scale).astype(value.dtype)
        else:
            rows = generator.integers(0, len(value), value.shape)
            result[name] = np.take_along_axis(value, rows, axis=0)
    return result


def as_on_gpu(flat: Flat) -> Flat:
    """Returns a graph that accumulates, on the CPU's kernels, as it would on the GPU's.

    There a few ops read half or bfloat16 and accumulate in float32, and here they do not: Casts
    around them in float32 give the same result, up to the order of the sums.
    """
    graph_def = graph_pb2.GraphDef()
    graph_def.CopyFrom(flat.graph_def)
    del graph_def.node[:]
    for node in flat.graph_def.node:
        dtype = node.attr["T"].type
        if node.op not in FLOAT32_SUMS_ON_GPU or dtype not in FLOAT32_SUMS_ON_GPU[node.op]:
            graph_def.node.append(node)
            continue
        wide = node_def_pb2.NodeDef()
        wide.CopyFrom(node)
        wide.name, wide.attr["T"].type = f"{node.name}/as_on_gpu", types_pb2.DT_FLOAT
        numbers = 1 if node.op == "Mean" else sum(not text.startswith("^") for text in node.input)
        for index in range(numbers):
            up = f"{wide.name}/up_{index}"
            _add_cast(graph_def, up, node.input[index], dtype, types_pb2.DT_FLOAT)
            wide.input[index] = up
        graph_def.node.append(wide)
        _add_cast(graph_def, node.name, wide.name, types_pb2.DT_FLOAT, dtype)
    return dataclasses.replace(flat, graph_def=graph_def)


def _add_cast(
    graph_def: graph_pb2.GraphDef, name: str, read: str, source: int, destination: int
) -> None:
    node: Any = graph_def.node.add(name=name, op="Cast", input=[read])
    node.attr["SrcT"].type, node.attr["DstT"].type = source, destination


def grappler(flat: Flat) -> graph_pb2.GraphDef:
    """Runs TensorFlow's `auto_mixed_precision` alone, told to assume a GPU; always to half."""
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(flat.graph_def, name="")
        meta_graph = tf.compat.v1.train.export_meta_graph(
            graph_def=graph.as_graph_def(), graph=graph
        )
    fetched = [name.split(":")[0] for name in flat.fetches]
    meta_graph.collection_def["train_op"].node_list.value.extend(fetched)
    config = config_pb2.ConfigProto()
    rewrites = config.graph_options.rewrite_options
    rewrites.auto_mixed_precision = rewriter_config_pb2.RewriterConfig.ON
    rewrites.meta_optimizer_iterations = rewriter_config_pb2.RewriterConfig.ONE
    rewrites.min_graph_nodes = -1
    rewrites.optimizers.append("auto_mixed_precision")
    result: graph_pb2.GraphDef = tf_optimizer.OptimizeGraph(config, meta_graph)
    return result
