"""What a loop reads in both precisions is cast once, before the loop."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

import pytest
from tensorflow.core.framework import node_def_pb2

import tf_amp_rewriter
from tests import checks, graph_text

BEFORE = """
    x: f32[4,8] = Placeholder
    zero = Const(0)
    loop: i32, f32, f32 = While([zero, x, x], cond=@c, body=@b)
    out = Identity(loop:1)

    @c(i: i32, s: f32, key: f32) -> (go=go)
      n = Const(3)
      go = Less(i, n)

    @b(i: i32, s: f32, key: f32) -> (i1=next, s1=d, key1=key)
      one = Const(1)
      w: f32[8,8] = Const(0.1)
      next = AddV2(i, one)
      e = Exp(key)
      m = MatMul(key, w)
      t = Tanh(m)
      a = AddV2(t, e)
      d = Sigmoid(a)
    """
AFTER = """
    x: f32[4,8] = Placeholder
    zero = Const(0)
    x/Cast_LOW: low = Cast(x, DstT=low)
    loop: i32, f32, f32, low = While([zero, x, x, x/Cast_LOW], cond=@c, body=@b)
    out = Identity(loop:1)

    @c(i: i32, s: f32, key: f32, key_1: low) -> (go=go)
      n = Const(3)
      go = Less(i, n)

    @b(i: i32, s: f32, key: f32, key_1: low) -> (i1=next, s1=d, key1=key, key_1=key_1)
      one = Const(1)
      w: low[8,8] = Const(0.1)
      next = AddV2(i, one)
      e = Exp(key)
      m = MatMul(key_1, w)
      t = Tanh(m)
      t/Cast_float32: f32 = Cast(t, DstT=f32)
      a = AddV2(t/Cast_float32, e)
      d = Sigmoid(a)
    """
# A loop of control flow v1 around the same; what goes before the loop and what reads `key` follow.
V1 = """
    x: f32[4,8] = Placeholder
    zero = Const(0)
    three = Const(3)
    n = Enter(three, frame_name='a', is_constant=True)
    i0 = Enter(zero, frame_name='a')
    s0 = Enter(x, frame_name='a')
    i1 = Merge([i0, i5])
    s1 = Merge([s0, s5])
    less = Less(i1, n)
    go = LoopCond(less)
    i2 = Switch(i1, go)
    s2 = Switch(s1, go)
    i3 = Identity(i2:1)
    one = Const(1, ^i3)
    i4 = AddV2(i3, one)
    d = Sigmoid(a)
    i5 = NextIteration(i4)
    s5 = NextIteration(d)
    out = Exit(s2)
    """
V1_BEFORE = """
    key = Enter(VALUE, frame_name='a', is_constant=True)
    w: f32[8,8] = Const(0.1, ^i3)
    e = Exp(key)
    m = MatMul(key, w)
    t = Tanh(m)
    a = AddV2(t, e)
    """
V1_AFTER = """
    key = Enter(VALUE, frame_name='a', is_constant=True)
    key/half: low = Enter(LOW_VALUE, frame_name='a', is_constant=True)
    w: low[8,8] = Const(0.1, ^i3)
    e = Exp(key)
    m = MatMul(key/half, w)
    t = Tanh(m)
    t/Cast_float32: f32 = Cast(t, DstT=f32)
    a = AddV2(t/Cast_float32, e)
    """
CONSTANT = "c: f32[4,8] = Const(0.3)\n"
ITS_COPY = "c/half: low[4,8] = Const(0.3)\n"


def v1_loop(inner: str, value: str, low_value: str = "", before: str = "") -> str:
    """Returns the text of the loop with `value` as what it reads in both precisions."""
    text = textwrap.dedent(V1 + inner) + before
    return text.replace("LOW_VALUE", low_value).replace("VALUE", value)


@pytest.mark.parametrize("dtype", checks.BOTH)
def test_a_functional_loop_gets_a_second_value(dtype: str):
    checks.check_rewrite(BEFORE, AFTER.replace("LOW", dtype), dtypes=(dtype,), steps=3)


def test_a_loop_of_control_flow_v1_gets_a_second_enter():
    checks.check_rewrite(
        v1_loop(V1_BEFORE, "x"),
        v1_loop(V1_AFTER, "x", "x/Cast_half", "x/Cast_half: low = Cast(x, DstT=low)\n"),
        dtypes=("half",),
        steps=3,
    )


def test_a_constant_that_a_loop_reads_in_both_exists_twice():
    checks.check_rewrite(
        v1_loop(V1_BEFORE, "c", before=CONSTANT),
        v1_loop(V1_AFTER, "c", "c/half", CONSTANT + ITS_COPY),
        dtypes=("half",),
        steps=3,
    )


def test_functions_that_two_loops_share_stay_as_they_are():
    both = """
    other: i32, f32, f32 = While([zero, x, x], cond=@c, body=@b)
    sum = AddV2(loop:1, other:1)
    out = Identity(sum)
    """
    graph = graph_text.parse(BEFORE.replace("    out = Identity(loop:1)", both.strip("\n")), "half")
    report = tf_amp_rewriter.rewrite_graph_def(graph, tf_amp_rewriter.Options(outputs=("out",)))
    assert report.graph_def is not None
    functions = report.graph_def.library.function
    assert {f.signature.name: len(f.signature.input_arg) for f in functions} == {"b": 3, "c": 3}


def test_shapes_that_are_stated_are_stated_for_the_second_value_too():
    graph = graph_text.parse(BEFORE, "half")
    for function in graph.library.function:
        shapes = function.attr["_input_shapes"].list.shape
        shapes.add()
        shapes.add().dim.add(size=4)
        shapes.add().dim.add(size=8)
    report = tf_amp_rewriter.rewrite_graph_def(graph, tf_amp_rewriter.Options(outputs=("out",)))
    assert report.graph_def is not None
    for function in report.graph_def.library.function:
        shapes = function.attr["_input_shapes"].list.shape
        assert [[dim.size for dim in shape.dim] for shape in shapes] == [[], [4], [8], [8]]


def test_what_nested_loops_read_in_both_is_cast_before_the_outermost() -> None:
    graph = graph_text.parse(
        """
        x: f32[4,8] = Placeholder
        zero = Const(0)
        loop: i32, f32, f32 = While([zero, x, x], cond=@c, body=@outer)
        out = Identity(loop:1)

        @c(i: i32, s: f32, key: f32) -> (go=go)
          n = Const(3)
          go = Less(i, n)

        @outer(i: i32, s: f32, key: f32) -> (i1=next, s1=inside:1, key1=key)
          one = Const(1)
          zero = Const(0)
          next = AddV2(i, one)
          inside: i32, f32, f32 = While([zero, s, key], cond=@d, body=@inner)

        @d(i: i32, s: f32, key: f32) -> (go=go)
          n = Const(2)
          go = Less(i, n)

        @inner(i: i32, s: f32, key: f32) -> (i1=next, s1=d, key1=key)
          one = Const(1)
          w: f32[8,8] = Const(0.1)
          next = AddV2(i, one)
          e = Exp(key)
          m = MatMul(key, w)
          t = Tanh(m)
          a = AddV2(t, e)
          d = Sigmoid(a)
        """,
        "half",
    )
    report = tf_amp_rewriter.rewrite_graph_def(graph, tf_amp_rewriter.Options(outputs=("out",)))
    assert report.graph_def is not None
    casts = {f.signature.name: _casts(f.node_def) for f in report.graph_def.library.function}
    assert casts == {"c": [], "outer": [], "d": [], "inner": ["t/Cast_float32"]}
    assert _casts(report.graph_def.node) == ["x/Cast_half"]


def _casts(nodes: Iterable[node_def_pb2.NodeDef]) -> list[str]:
    return [node.name for node in nodes if node.op == "Cast"]
