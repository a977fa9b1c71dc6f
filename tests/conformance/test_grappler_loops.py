"""Grappler's Python cases on loops (GP-*) and its oracle facts on functions (OF-8, OF-9).

Letters are the ops of `rings.py`. Where a case starts from a constant, a placeholder stands here.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests import bounds, checks, graph_text
from tests.checks import check_precision
from tests.conformance.rings import ring
from tf_amp_rewriter import dtypes

# As grappler: the loop, the precision of its carried value, and the Casts.
AS_GRAPPLER = [
    ("GP-06", "", "WC", "W", "low CLEAR", 2),
    ("GP-11", "W", "C", "C", "low CLEAR", 2),
    ("GP-12", "C", "C", "W", "low CLEAR", 2),
    ("GP-14", "W", "gbg", "W", "f32", 4),
    ("GP-15", "b", "gWC", "c", "f32", 2),
    # GP-16 to GP-18 behind a contraction: what enters the loop is low.
    ("GP-16", "W", "CWCG", "C", "low CLEAR", 2),
    ("GP-17", "W", "GWCG", "C", "low CLEAR", 2),
    ("GP-18", "W", "CGbgWC", "G", "low CLEAR", 4),
]


@pytest.mark.parametrize(
    ("before", "body", "after", "carried", "casts"),
    [row[1:] for row in AS_GRAPPLER],
    ids=[row[0] for row in AS_GRAPPLER],
)
def test_gp_06_to_18_loops_with_grapplers_colours(
    before: str, body: str, after: str, carried: str, casts: int
) -> None:
    text = ring(before, body, after, carried)
    check_precision(text, outputs=("fetch",), ranges={"x": (0.1, 1)}, steps=4, casts=casts)


# Ours on purpose. GP-06, GP-16 to GP-18: grappler carries a half. x is float32, and so is what
# reads the value behind the loop: it would be rounded on its way without need, in every step.
# GP-13: grappler carries a half. In half a sum stalls: what a loop adds up stays float32.
OURS = [
    ("GP-06", "", "WC", "", "f32", 2),
    ("GP-13", "W", "g", "W", "f32", 4),
    ("GP-16", "c", "CWCG", "c", "f32", 2),
    ("GP-17", "c", "gWCG", "c", "f32", 2),
    ("GP-18", "c", "cgbgWC", "g", "f32", 2),
]


@pytest.mark.parametrize(
    ("before", "body", "after", "carried", "casts"),
    [row[1:] for row in OURS],
    ids=[row[0] for row in OURS],
)
def test_gp_06_to_18_loops_where_we_decide_otherwise(
    before: str, body: str, after: str, carried: str, casts: int
) -> None:
    text = ring(before, body, after, carried)
    check_precision(text, outputs=("fetch",), ranges={"x": (0.1, 1)}, steps=4, casts=casts)


@pytest.mark.parametrize("body", ["".join(pair) for pair in itertools.product("wgcb", repeat=2)])
@pytest.mark.parametrize("around", ["ww", "cc"])
def test_gp_all_loops_of_two_ops_have_one_precision_in_the_ring(body: str, around: str) -> None:
    for dtype in checks.BOTH:
        graph = graph_text.parse(ring(around[0], body, around[1], ""), dtype)
        report = checks.checked_rewrite(graph, dtype, None, {"x": (0.1, 1)}, "", OUT, steps=4)
        names = ("enter", "merge", "switch", "into", "next", "exit")
        found = {v.node: v.precision for v in report.type_variables if v.node in names}
        assert len(found) == 6
        ring_nodes = {found[name] for name in names if name != "into"}
        assert len(ring_nodes) == 1, found


OUT = {"outputs": ("fetch",)}

INTERTWINED = """
    x: f32[4,8] = Placeholder
    zero = Const(0)
    w: f32[8,8] = Const(seed=1)
    a0 = FIRST(x)
    b0 = MatMul(x, w)                                         # low ALLOW
    loop: i32, f32, f32, f32 = While([zero, a0, b0, w], cond=@c, body=@b)   # T[1] A; T[2] low CLEAR; T[3] low
    last_a = MatMul(loop:1, w)                                # low ALLOW
    last_b = MatMul(loop:2, w)                                # low ALLOW
    out1 = Identity(END)                                      # f32 PINNED
    out2 = Identity(last_b)                                   # f32 PINNED

    @c(i: i32, a: f32, b: f32, w: f32) -> (go=go)
      n = Const(6)
      go = Less(i, n)

    @b(i: i32, a: f32, b: f32, w: f32) -> (i1=i1, a1=a1, b1=b1, w1=w)
      one = Const(1)
      i1 = AddV2(i, one)
      ma = MatMul(a, w)                                       # low ALLOW
      mb = MatMul(b, w)                                       # low ALLOW
      b1 = Tanh(ma)                                           # low INFER
      a1 = Tanh(mb)                                           # low INFER
"""  # noqa: E501


def test_gp_07_two_intertwined_states_are_low() -> None:
    text = INTERTWINED.replace("T[1] A", "T[1] low CLEAR").replace("FIRST", "Relu")
    check_precision(text.replace("END", "last_a"), outputs=("out1", "out2"), steps=6, casts=3)


def test_gp_07_of_two_intertwined_states_one_is_float32() -> None:
    text = INTERTWINED.replace("T[1] A", "T[1] f32").replace("FIRST", "Exp")
    check_precision(text.replace("END", "loop:1"), outputs=("out1", "out2"), steps=6)


LSTM = """
    x: f32[5,2,4] = Placeholder
    k: f32[10,24] = Const(seed=1)                                 # low
    b: f32[24] = Const(seed=3)                                    # low
    h: f32[2,6] = Const(0)                                        # low
    c: f32[2,6] = Const(0)                                        # low
    zero = Const(0)
    five = Const(5)
    steps = Const([0, 1, 2, 3, 4])
    xs: res, f32 = TensorArrayV3(five, dtype=f32)                 # low CLEAR
    filled = TensorArrayScatterV3(xs, steps, x, xs:1)             # low CLEAR
    ys: res, f32 = TensorArrayV3(five, dtype=f32)                 # low CLEAR
    xs1 = Enter(xs, frame_name='rnn', is_constant=True)
    filled1 = Enter(filled, frame_name='rnn', is_constant=True)   # f32 -- a flow
    ys1 = Enter(ys, frame_name='rnn', is_constant=True)
    k1 = Enter(k, frame_name='rnn', is_constant=True)             # low
    b1 = Enter(b, frame_name='rnn', is_constant=True)             # low
    n1 = Enter(five, frame_name='rnn', is_constant=True)
    i0 = Enter(zero, frame_name='rnn')
    f0 = Enter(ys:1, frame_name='rnn')                            # f32 -- a flow
    h0 = Enter(h, frame_name='rnn')                               # low CLEAR
    c0 = Enter(c, frame_name='rnn')                               # low CLEAR
    i1 = Merge([i0, i5])
    f1 = Merge([f0, f5])                                          # f32
    h1 = Merge([h0, h5])                                          # low CLEAR
    c1 = Merge([c0, c5])                                          # low CLEAR
    less = Less(i1, n1)
    go = LoopCond(less)
    i2 = Switch(i1, go)
    f2 = Switch(f1, go)                                           # f32
    h2 = Switch(h1, go)                                           # low CLEAR
    c2 = Switch(c1, go)                                           # low CLEAR
    i3 = Identity(i2:1)
    one = Const(1, ^i3)
    i4 = AddV2(i3, one)
    read: f32 = TensorArrayReadV3(xs1, i3, filled1)               # low CLEAR
    row = EnsureShape(read, shape=[2,4])                          # low CLEAR
    both = ConcatV2([row, h2:1], one)                             # low CLEAR
    m = MatMul(both, k1)                                          # low ALLOW
    z = BiasAdd(m, b1)                                            # low INFER
    parts = Split(one, z, num_split=4)                            # low CLEAR
    input = Sigmoid(parts)                                        # low INFER
    forget = Sigmoid(parts:1)                                     # low INFER
    fresh = Tanh(parts:2)                                         # low INFER
    output = Sigmoid(parts:3)                                     # low INFER
    kept = Mul(forget, c2:1)                                      # low INFER
    new = Mul(input, fresh)                                       # low INFER
    c4 = AddV2(kept, new)                                         # low INFER
    t = Tanh(c4)                                                  # low INFER
    h4 = Mul(output, t)                                           # low INFER
    f4 = TensorArrayWriteV3(ys1, i3, h4, f2:1)                    # low CLEAR
    i5 = NextIteration(i4)
    f5 = NextIteration(f4)                                        # f32
    h5 = NextIteration(h4)                                        # low CLEAR
    c5 = NextIteration(c4)                                        # low CLEAR
    f6 = Exit(f2)                                                 # f32
    h6 = Exit(h2)                                                 # low CLEAR
    all: f32 = TensorArrayGatherV3(ys, steps, f6)                 # low CLEAR
    fetch1 = Identity(all)                                        # f32 PINNED
    fetch2 = Identity(h6)                                         # f32 PINNED
"""


def test_gp_10_an_lstm_by_hand_has_low_arrays_too() -> None:
    # Ours on purpose: grappler leaves arrays float32, with a Cast at each of their ends.
    check_precision(LSTM, outputs=("fetch1", "fetch2"), steps=5, casts=3)


def test_gp_20_a_training_loop_gives_the_same_loss() -> None:
    # What the loop adds up is the weight: it stays float32, and is cast for the product.
    text = """
        x: f32[8,4] = Placeholder
        y: f32[8,1] = Placeholder
        zero = Const(0)
        w: f32[4,1] = Const([[0.1],[-0.2],[0.3],[0.1]])       # f32
        loop: i32, f32, f32, f32 = While([zero, w, x, y], cond=@c, body=@b)   # T[1] f32; T[2] low
        last = MatMul(x, loop:1)                              # low ALLOW
        error = Sub(last, y)
        axes = Const([0, 1])
        squares = SquaredDifference(last, y)
        loss = Mean(squares, axes)
        fetch = Identity(loss)                                # f32 PINNED

        @c(i: i32, w: f32, x: f32, y: f32) -> (go=go)
          n = Const(100)
          go = Less(i, n)

        @b(i: i32, w: f32, x: f32, y: f32) -> (i1=i1, w1=w1, x1=x, y1=y)
          one = Const(1)
          rate = Const(0.01)
          i1 = AddV2(i, one)
          m = MatMul(x, w)                                    # low ALLOW
          error = Sub(m, y)
          gradient = MatMul(x, error, transpose_a=True)       # low ALLOW
          step = Mul(gradient, rate)
          w1 = Sub(w, step)                                   # f32
    """
    check_precision(text, outputs=("fetch",), not_run="compared below, as in the case")

    graph = graph_text.parse(text)
    random = np.random.default_rng(3)
    x = random.uniform(-1, 1, (8, 4)).astype(np.float32)
    feeds = {"x": x, "y": random.uniform(-1, 1, (8, 1)).astype(np.float32)}
    report = checks.checked_rewrite(graph, "half", feeds, options=OUT, not_run="compared below")
    before, after = (
        checks.run_graph(checks.imported(one), ["fetch:0"], feeds)["fetch:0"]
        for one in (graph, report.graph_def)
    )
    checks.compare("fetch", before, after, 1e-3)  # the tolerance of the case


# OF-8: both bodies and the faces of the functions are what the program is. Grappler's pass alone
# keeps all faces float32, with Casts inside each body and a weight that each step casts again.
OF_8 = """
    x: f32[4,8] = Placeholder
    p: bool[] = Placeholder
    zero = Const(0)
    w: f32[8,8] = Const(seed=1)                               # low
    first = MatMul(x, w)                                      # low ALLOW
    loop: i32, f32, f32 = While([zero, first, w], cond=@c, body=@b)   # T[1] low CLEAR; T[2] low
    y: f32 = If(p, [loop:1, w], then_branch=@t, else_branch=@e, Tout=[f32])   # Tin[0] low; Tin[1] low; Tout[0] low
    fetch = Identity(y)                                       # f32 PINNED

    @c(i: i32, x: f32, w: f32) -> (go=go)
      n = Const(6)
      go = Less(i, n)

    @b(i: i32, x: f32, w: f32) -> (i1=i1, x1=t, w1=w)
      one = Const(1)
      i1 = AddV2(i, one)
      m = MatMul(x, w)                                        # low ALLOW
      t = Tanh(m)                                             # low INFER

    @t(x: f32, w: f32) -> (y=m)
      m = MatMul(x, w)                                        # low ALLOW

    @e(x: f32, w: f32) -> (y=r)
      r = Relu(x)                                             # low CLEAR
"""  # noqa: E501


@pytest.mark.parametrize("p", [True, False])
def test_of_8_a_while_and_an_if_are_low_throughout(p: bool) -> None:
    check_precision(OF_8, feeds={"p": np.array(p)}, steps=6, casts=2)


@pytest.mark.parametrize("p", [True, False])
@pytest.mark.parametrize("dtype", checks.BOTH)
def test_of_9_the_default_pipeline_lowers_and_inlines_what_we_wrote(dtype: str, p: bool) -> None:
    # While and If carry the mark that TensorFlow turns them into Switch and Merge; grappler, on by
    # default, then meets our Casts and constants.
    graph = graph_text.parse(OF_8, dtype)
    for node in graph.node:
        if node.op in ("While", "If"):
            node.attr["_lower_using_switch_merge"].b = True
            node.attr["_num_original_outputs"].i = 3 if node.op == "While" else 1
    report = checks.checked_rewrite(graph, dtype, {"p": np.array(p)}, options=OUT, steps=6)

    assert report.graph_def is not None
    x = np.random.default_rng(5).uniform(-1, 1, (4, 8)).astype(np.float32)
    expected, actual = (
        checks.run_graph(checks.imported(one), ["fetch:0"], {"x": x, "p": np.array(p)}, optimize=on)
        for one, on in ((graph, False), (report.graph_def, True))
    )
    low = dtypes.LOW_PRECISIONS[dtype]
    steps = bounds.longest_low_path(report.graph_def, 6)
    bounds.assert_close_to_original(expected, actual, low, steps)
