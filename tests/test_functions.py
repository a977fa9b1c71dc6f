"""Functions of the library: who calls them, what they say about themselves, all valid after."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from tensorflow.core.framework import full_type_pb2, function_pb2, graph_pb2, types_pb2

import tf_amp_rewriter
from tests import checks, graph_text
from tests.checks import check_precision
from tf_amp_rewriter import dtypes, errors
from tf_amp_rewriter.report.model import Report

# ---------------------------------------------------------------- who calls

FRAME = """
x: f32[4,8] = Placeholder
w: f32[8,8] = Const(seed=1)
cpu: str = Const('/device:CPU:0')
m = MatMul(x, w)   # low ALLOW
"""
LAYER = """
@layer(x: f32, w: f32) -> (y=t)
  m = MatMul(x, w)   # low ALLOW
  t = Tanh(m)   # low INFER
"""
ROW = """
@layer(x: f32, w: f32) -> (y=flat)
  shape = Const([1, 8])
  back = Const([8])
  wide = Reshape(x, shape)
  m = MatMul(wide, w)   # low ALLOW
  flat = Reshape(m, back)
"""
BATCH = "num_batch_threads=1, max_batch_size=8, batch_timeout_micros=0"
# The call, the function, and how many Casts between the low m and the low n.
FOREIGN = {
    "RemoteCall": ("y: f32 = RemoteCall(cpu, [m, w], Tout=[f32], f=@layer)", LAYER),
    "BatchFunction": (
        f"y: f32 = BatchFunction([m], [w], Tout=[f32], f=@layer, {BATCH})",
        LAYER,
    ),
    "MapDefun": (
        "y: f32 = MapDefun([m], [w], output_types=[f32], output_shapes=[[8]], f=@layer)",
        ROW,
    ),
    "datasets": (
        """rows = TensorSliceDataset([m], output_shapes=[[8]])
mapped = MapDataset(rows, [w], f=@layer, output_types=[f32], output_shapes=[[8]])
none: f32[8] = Const(0.0)
sum: f32 = ReduceDataset(mapped, [none], [], f=@add, output_types=[f32], output_shapes=[[8]])
wide = Const([1, 8])
y = Reshape(sum, wide)""",
        ROW + "\n@add(s: f32, x: f32) -> (y=a)\n  a = AddV2(s, x)   # f32\n",
    ),
}


@pytest.mark.parametrize(("call", "function"), FOREIGN.values(), ids=FOREIGN)
def test_what_other_ops_call_is_low_inside_and_float32_at_its_face(
    call: str, function: str
) -> None:
    text = FRAME + call + "\nn = MatMul(y, w)   # low ALLOW\nout = Identity(n)\n" + function
    for dtype in checks.BOTH:
        check_precision(text, dtypes=(dtype,), outputs=("out",), steps=4)
        report = checks.checked_rewrite(
            graph_text.parse(text), dtype, options={"outputs": ("out",)}, not_run="ran above"
        )
        assert report.graph_def is not None
        body = _function(report.graph_def, "layer").signature
        assert body.input_arg[0].type == types_pb2.DT_FLOAT
        assert body.output_arg[0].type == types_pb2.DT_FLOAT


def test_a_gradient_op_differentiates_the_function_that_is_now_low_inside() -> None:
    check_precision(
        f"""
x: f32[4,8] = Placeholder
w: f32[8,8] = Const(seed=1)
dy: f32[4,8] = Placeholder
dx: f32, f32 = SymbolicGradient([x, w, dy], Tout=[f32, f32], f=@layer)
out1 = Identity(dx)   # f32 PINNED
out2 = Identity(dx:1)   # f32 PINNED
{LAYER.replace("# low ALLOW", "").replace("# low INFER", "")}
""",
        steps=4,
    )


@pytest.mark.parametrize("dtype", checks.BOTH)
def test_gp_19_a_function_as_an_op_type(dtype: str) -> None:
    graph = graph_text.parse(
        f"{FRAME}y: f32 = PartitionedCall([m, w], Tout=[f32], f=@layer)\n"
        f"n = MatMul(y, w)\nout = Identity(n)\n{LAYER}"
    )
    (call,) = (node for node in graph.node if node.op == "PartitionedCall")
    call.op = "layer"
    call.attr.clear()
    report = checks.checked_rewrite(graph, dtype, steps=1)

    low = {(v.scope, v.node): v.precision for v in report.type_variables}
    assert low["", "m"] == low["", "n"] == low["layer", "m"] == dtype
    assert report.graph_def is not None
    body = _function(report.graph_def, "layer").signature
    types = [arg.type for arg in (*body.input_arg, *body.output_arg)]
    assert types == [types_pb2.DT_FLOAT] * 3


def test_calls_of_any_depth_from_several_places() -> None:
    check_precision(
        """
        x: f32[4,8] = Placeholder
        w: f32[8,8] = Const(seed=1)                                       # low
        a: f32 = PartitionedCall([x, w], Tout=[f32], f=@five)             # Tin[0] low; Tin[1] low; Tout[0] low
        b: f32 = StatefulPartitionedCall([a, w], Tout=[f32], f=@two)      # Tin[0] low; Tin[1] low; Tout[0] low
        out1 = Identity(a)                                                # f32 PINNED
        out2 = Identity(b)                                                # f32 PINNED

        @one(x: f32, w: f32) -> (y=t)
          m = MatMul(x, w)                                                # low ALLOW
          t = Tanh(m)                                                     # low INFER

        @two(x: f32, w: f32) -> (y=b)
          a: f32 = PartitionedCall([x, w], Tout=[f32], f=@one)            # Tout[0] low
          b: f32 = PartitionedCall([a, w], Tout=[f32], f=@one)            # Tout[0] low

        @three(x: f32, w: f32) -> (y=b)
          a: f32 = PartitionedCall([x, w], Tout=[f32], f=@one)            # Tout[0] low
          b: f32 = PartitionedCall([a, w], Tout=[f32], f=@two)            # Tout[0] low

        @four(x: f32, w: f32) -> (y=a)
          a: f32 = PartitionedCall([x, w], Tout=[f32], f=@three)          # Tout[0] low

        @five(x: f32, w: f32) -> (y=b)
          a: f32 = PartitionedCall([x, w], Tout=[f32], f=@four)           # Tout[0] low
          b: f32 = PartitionedCall([a, w], Tout=[f32], f=@two)            # Tout[0] low
        """,  # noqa: E501
        steps=1,
        casts=3,
    )


# ---------------------------------------------------------------- what functions say

LIST = """
x: f32[4,8] = Placeholder
key: str[2] = Placeholder
w: f32[8,8] = Const(seed=1)
shape = Const([8])
m = MatMul(x, w)
list = TensorListFromTensor(m, shape)
y: var, f32, i32 = StatefulPartitionedCall([list, m, w, key], Tout=[var, f32, i32], f=@step)
stack: f32 = TensorListStack(y, shape, element_dtype=f32)
n = MatMul(stack, w, ^y)
out1 = Identity(n)
out2 = Identity(y:1)
out3 = Identity(y:2)

@step(list: var, x: f32, w: f32, key: str) -> (list=set, y=t, n=length)
  zero = Const(0)
  row: f32[8] = Const(0.5)
  m = MatMul(x, w)
  t = Tanh(m)
  set = TensorListSetItem(list, zero, row, ^m)
  length = StringLength(key, ^t)
"""
OPTIONS = {"outputs": ("out1", "out2", "out3")}
FEEDS = {"key": np.array([b"one", b"three"], object)}


def _function(graph: graph_pb2.GraphDef, name: str) -> function_pb2.FunctionDef:
    (found,) = (f for f in graph.library.function if f.signature.name == name)
    return found


def _array_of_floats() -> full_type_pb2.FullTypeDef:
    product = full_type_pb2.FullTypeDef(type_id=full_type_pb2.TFT_PRODUCT)
    array = product.args.add(type_id=full_type_pb2.TFT_ARRAY)
    tensor = array.args.add(type_id=full_type_pb2.TFT_TENSOR)
    tensor.args.add(type_id=full_type_pb2.TFT_FLOAT)
    return product


def _element(full_type: full_type_pb2.FullTypeDef) -> int:
    while full_type.args:
        full_type = full_type.args[0]
    return full_type.type_id


def _rewritten(graph: graph_pb2.GraphDef, dtype: str) -> Report:
    return checks.checked_rewrite(graph, dtype, FEEDS, options=OPTIONS, steps=1)


@pytest.mark.parametrize("dtype", checks.BOTH)
def test_attributes_that_tell_no_type_stay(dtype: str) -> None:
    graph = graph_text.parse(LIST)
    function = _function(graph, "step")
    function.attr["_XlaMustCompile"].b = False
    function.attr["_construction_context"].s = b"kEagerRuntime"
    shapes = function.attr["_input_shapes"].list.shape
    for _ in range(4):
        shapes.add().unknown_rank = True
    shape = function.arg_attr[1].attr["_output_shapes"].list.shape.add()
    shape.dim.add(size=4)
    shape.dim.add(size=8)
    function.arg_attr[1].attr["_user_specified_name"].s = b"inputs"
    for node in (*graph.node, *function.node_def):
        if node.op == "MatMul":
            node.attr["_output_shapes"].list.shape.add().unknown_rank = True
    for node in graph.node:
        node.attr["_grappler_do_not_remove"].b = True
    report = _rewritten(graph, dtype)

    assert report.graph_def is not None
    after = _function(report.graph_def, "step")
    assert dict(after.attr) == dict(function.attr)
    assert after.arg_attr[1] == function.arg_attr[1]
    for before_nodes, after_nodes in (
        (graph.node, report.graph_def.node),
        (function.node_def, after.node_def),
    ):
        now = {node.name: node for node in after_nodes}
        for node in before_nodes:
            assert {i for i in node.input if i.startswith("^")} == {
                i for i in now[node.name].input if i.startswith("^")
            }
            for name in set(node.attr) - {"T", "Tin", "Tout", "dtype", "value", "element_dtype"}:
                assert now[node.name].attr[name] == node.attr[name], (node.name, name)


@pytest.mark.parametrize("dtype", checks.BOTH)
def test_attributes_that_are_absent_stay_so(dtype: str) -> None:
    graph = graph_text.parse(LIST)
    absent = ("transpose_a", "transpose_b", "config", "config_proto", "executor_type", "unit")
    for node in (*graph.node, *_function(graph, "step").node_def):
        for name in absent:
            if name in node.attr:
                del node.attr[name]
    # Not by `checked_rewrite`: TensorFlow's importer writes the defaults into what it imports.
    options = tf_amp_rewriter.Options(dtype=dtype, outputs=OPTIONS["outputs"])
    after = tf_amp_rewriter.rewrite_graph_def(graph, options).graph_def

    assert after is not None
    nodes = (*after.node, *_function(after, "step").node_def)
    assert not [(n.name, a) for n in nodes for a in absent if a in n.attr]
    _rewritten(graph, dtype)


@pytest.mark.parametrize("dtype", checks.BOTH)
def test_what_handles_say_about_their_elements_agrees(dtype: str) -> None:
    graph = graph_text.parse(LIST)
    function = _function(graph, "step")
    for node in (*graph.node, *function.node_def):
        if node.op.startswith("TensorList") and node.op != "TensorListStack":
            node.experimental_type.CopyFrom(_array_of_floats())
    array = _array_of_floats().args[0]
    function.signature.input_arg[0].experimental_full_type.CopyFrom(array)
    function.signature.output_arg[0].experimental_full_type.CopyFrom(array)
    function.arg_attr[0].attr["_handle_dtypes"].list.type.append(types_pb2.DT_FLOAT)
    report = _rewritten(graph, dtype)

    assert report.graph_def is not None
    low = {"half": full_type_pb2.TFT_HALF, "bfloat16": full_type_pb2.TFT_BFLOAT16}[dtype]
    after = _function(report.graph_def, "step")
    nodes = {node.name: node for node in (*report.graph_def.node, *after.node_def)}
    assert _element(nodes["list"].experimental_type) == low
    assert _element(nodes["set"].experimental_type) == low
    assert _element(after.signature.input_arg[0].experimental_full_type) == low
    assert _element(after.signature.output_arg[0].experimental_full_type) == low
    types = list(after.arg_attr[0].attr["_handle_dtypes"].list.type)
    assert types == [dtypes.LOW_PRECISIONS[dtype].proto]


@pytest.mark.parametrize("dtype", checks.BOTH)
def test_a_float32_list_says_what_it_said(dtype: str) -> None:
    graph = graph_text.parse(LIST)
    for node in graph.node:
        if node.name == "list":
            node.experimental_type.CopyFrom(_array_of_floats())
    options = {"outputs": (*OPTIONS["outputs"], "list")}
    report = checks.checked_rewrite(
        graph, dtype, FEEDS, options=options, not_run="no variant can be fetched"
    )

    assert report.graph_def is not None
    (node,) = (node for node in report.graph_def.node if node.name == "list")
    assert node.experimental_type == _array_of_floats()
    assert node.attr["element_dtype"].type == types_pb2.DT_FLOAT


PAIR = """
x: f32[4,8] = Placeholder
w: f32[8,8] = Const(seed=1)
m = MatMul(x, w)
y: f32 = PartitionedCall([m, w], Tout=[f32], f=@forward)
out = Identity(y)

@forward(x: f32, w: f32) -> (y=t)
  m = MatMul(x, w)
  t = Tanh(m)

@backward(x: f32, w: f32, dy: f32) -> (dx=dx, dw=dw)
  m = MatMul(x, w)
  t = Tanh(m)
  g = TanhGrad(t, dy)
  dx = MatMul(g, w, transpose_b=True)
  dw = MatMul(x, g, transpose_a=True)
"""


@pytest.mark.xfail(strict=True, reason="gradients of a GraphDef are not yet looked at")
@pytest.mark.parametrize("dtype", checks.BOTH)
def test_a_registered_gradient_keeps_the_faces_of_both_functions(dtype: str) -> None:
    graph = graph_text.parse(PAIR)
    graph.library.gradient.add(function_name="forward", gradient_func="backward")
    report = checks.checked_rewrite(graph, dtype, steps=1)

    assert report.graph_def is not None
    assert report.graph_def.library.gradient == graph.library.gradient
    for name in ("forward", "backward"):
        signature = _function(report.graph_def, name).signature
        types = {arg.type for arg in (*signature.input_arg, *signature.output_arg)}
        assert types == {types_pb2.DT_FLOAT}, name


@pytest.mark.parametrize("dtype", checks.BOTH)
def test_a_pair_that_names_each_other_stays_valid(dtype: str) -> None:
    graph = graph_text.parse(PAIR)
    _function(graph, "forward").attr["backward_function_name"].s = b"backward"
    _function(graph, "backward").attr["forward_function_name"].s = b"forward"
    report = checks.checked_rewrite(graph, dtype, steps=1)

    assert report.graph_def is not None
    assert _function(report.graph_def, "forward").attr["backward_function_name"].s == b"backward"
    assert _function(report.graph_def, "backward").attr["forward_function_name"].s == b"forward"


# ---------------------------------------------------------------- damaged models


def test_a_function_that_calls_itself_is_refused() -> None:
    graph = graph_text.parse(
        inspect.cleandoc(
            """
            x: f32[4,8] = Placeholder
            w: f32[8,8] = Const(seed=1)
            y: f32 = PartitionedCall([x, w], Tout=[f32], f=@a)
            out = Identity(y)
            @a(x: f32, w: f32) -> (y=y)
              m = MatMul(x, w)
              y: f32 = PartitionedCall([m, w], Tout=[f32], f=@b)
            @b(x: f32, w: f32) -> (y=m)
              m = MatMul(x, w)
            """
        )
    )
    for node in _function(graph, "a").node_def:
        if node.op == "PartitionedCall":
            node.attr["f"].func.name = "a"
    with pytest.raises(errors.InputError, match="calls itself"):
        tf_amp_rewriter.rewrite_graph_def(
            graph, tf_amp_rewriter.Options(dtype="half", outputs=("out",))
        )
