"""SavedModels of graphs whose functions outsiders see, from texts, and what must become of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import saved_model_pb2

import tf_amp_rewriter
from tests import bounds, graph_text, loaders
from tests.checks import BOTH, assert_same_text
from tests.models_keras import SERVING
from tests.rewritten import meta_graphs_of
from tf_amp_rewriter import dtypes
from tf_amp_rewriter.ir import text as ir_text


def saved_model(
    graph: graph_pb2.GraphDef, directory: Path, visible: Collection[str]
) -> dict[str, np.ndarray[Any, Any]]:
    """Writes a SavedModel of one signature, whose object graph names `visible`; returns inputs."""
    with tf.Graph().as_default() as imported:
        tf.graph_util.import_graph_def(graph, name="")
    result = saved_model_pb2.SavedModel(saved_model_schema_version=1)
    meta_graph = result.meta_graphs.add()
    meta_graph.meta_info_def.tags.append("serve")
    meta_graph.graph_def.CopyFrom(graph)
    signature = meta_graph.signature_def[SERVING]
    random = np.random.default_rng(7)
    inputs = {}
    for operation in imported.get_operations():
        if operation.type == "Placeholder":
            (tensor,) = operation.outputs
            signature.inputs[operation.name].name = tensor.name
            signature.inputs[operation.name].dtype = tensor.dtype.as_datatype_enum
            known = tensor.shape.rank is not None  # that of a scalar is not
            values = random.uniform(-1, 1, tensor.shape.as_list() if known else [])
            inputs[operation.name] = values.astype(tensor.dtype.as_numpy_dtype)
        elif operation.type == "Identity" and operation.name.startswith("out"):
            signature.outputs[operation.name].name = operation.outputs[0].name
    for name in visible:
        meta_graph.object_graph_def.concrete_functions[name].SetInParent()
    directory.mkdir()
    (directory / "saved_model.pb").write_bytes(result.SerializeToString(deterministic=True))
    return inputs


def graph_in(directory: Path) -> graph_pb2.GraphDef:
    """Returns the graph of the first meta graph."""
    return meta_graphs_of(directory)[0].graph_def


def text_of(graph: graph_pb2.GraphDef) -> str:
    """Returns the text of a graph, its functions in the order of their names."""
    in_order = graph_pb2.GraphDef()
    in_order.CopyFrom(graph)
    functions = sorted(graph.library.function, key=lambda f: f.signature.name)
    del in_order.library.function[:]
    in_order.library.function.extend(functions)
    return ir_text.graph_text(in_order)


def check_faces(
    directory: Path,
    before: str,
    after: str,
    visible: Sequence[str] = ("f",),
    edit: Any = None,
    runs: bool = True,
    **options: Any,
) -> None:
    """Rewrites a SavedModel with the graph `before`: it must become `after`, and answer alike.

    Its outputs are the Identity ops whose names begin with `out`. `edit` gets the graphs of both
    texts, to add what text can't say. Without outputs there is nothing that `runs`.
    """
    for dtype in BOTH:
        source, once, twice = (directory / f"{dtype}_{name}" for name in ("in", "once", "twice"))
        graph, expected = (graph_text.parse(text, dtype) for text in (before, after))
        for edited in (graph, expected) if edit else ():
            edit(edited)
        inputs = saved_model(graph, source, visible)
        wishes = tf_amp_rewriter.Options(dtype=dtype, **options)

        tf_amp_rewriter.rewrite_saved_model(source, once, wishes)
        tf_amp_rewriter.rewrite_saved_model(once, twice, wishes)

        assert_same_text(text_of(expected), text_of(graph_in(once)))
        assert (once / "saved_model.pb").read_bytes() == (twice / "saved_model.pb").read_bytes()
        steps = bounds.longest_low_path(graph_in(once))
        for loader in (loaders.run_tf1, loaders.run_c_api) if runs else ():
            wanted = loader(source, SERVING, inputs)
            got = loader(once, SERVING, inputs)
            bounds.assert_close_to_original(wanted, got, dtypes.LOW_PRECISIONS[dtype], steps)


def check_whole(directory: Path, before: str, after: str, **arguments: Any) -> None:
    """Checks that no function is copied; `after` is what the rest becomes."""
    assert "__amp" not in after
    check_faces(directory, before, after, **arguments)


TWICE = """
x: f32[2,8] = Placeholder
w: f32[8,8] = Const(seed=1)
a: f32 = PartitionedCall([x, w], Tout=[f32], f=@f)
b: f32 = PartitionedCall([a, w], Tout=[f32], f=@f)
out = Identity(b)

@f(x: f32, w: f32) -> (y=r)
  m = MatMul(x, w)
  r = Relu(m)
"""
