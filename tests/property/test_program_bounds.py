"""The bounds of programs: what TensorFlow computes is within, what is wrong is beyond."""

from __future__ import annotations

import numpy as np
import pytest

from tests import checks, graph_text
from tests.property import program_bounds
from tests.property.answers import compare_answers
from tests.property.programs import Example

LOOP = """
    x: f32[4,4] = Placeholder
    y: f32[4,4] = Placeholder
    n: i32[] = Placeholder
    zero = Const(0)
    shape = Const([4, 4])
    five = Const(5)
    l: var = TensorListReserve(shape, five, element_dtype={list})
    {start}
    w: i32, i32, {type}, var = While([zero, n, {carried}, l], cond=@cond, body=@body)
    two = Const(2)
    first: {list} = TensorListGetItem(w:3, zero, shape, element_dtype={list})
    last: {list} = TensorListGetItem(w:3, two, shape, element_dtype={list})
    out = Exp(first)
    out_last = Exp(last)

    @cond(i: i32[], n: i32[], a: {type}[4,4], l: var) -> (go=p)
      p = Less(i, n)

    @body(i: i32[], n: i32[], a: {type}[4,4], l: var) -> (j=k, m=n, b=t, o=s)
      one = Const(1)
      k = AddV2(i, one)
      w: {type}[4,4] = Const(seed=1, scale=0.5)
      p = MatMul(a, w)
      t = Tanh(p)
      {write}
"""
ORIGINAL = LOOP.format(
    type="f32",
    list="f32",
    start="",
    carried="x",
    write="e = Exp(t)\n      s: var = TensorListSetItem(l, i, e)",
)
LOW = {
    "type": "low",
    "start": "d = Cast(x, DstT=low)",
    "carried": "d",
}
RIGHT = LOOP.format(
    **LOW,
    list="f32",
    write="u = Cast(t, DstT=f32)\n      e = Exp(u)\n      s: var = TensorListSetItem(l, i, e)",
)
WRONG = {
    "an op that is gone": RIGHT.replace("t = Tanh(p)", "t = Identity(p)"),
    "another weight": RIGHT.replace("seed=1", "seed=2"),
    "another element": RIGHT.replace("SetItem(l, i,", "SetItem(l, k,"),
    "one step less": RIGHT.replace(
        "p = Less(i, n)", "one = Const(1)\n      j = AddV2(i, one)\n      p = Less(j, n)"
    ),
}
DENIED_LOW = LOOP.format(
    **LOW,
    list="f32",
    write="e = Exp(t)\n      u = Cast(e, DstT=f32)\n      s: var = TensorListSetItem(l, i, u)",
)


def compare(rewritten: str, dtype: str, number: int, original: str = ORIGINAL) -> None:
    example = Example(original, 1, number, ("out", "out_last"))
    compare_answers(graph_text.parse(original, dtype), graph_text.parse(rewritten, dtype), example)


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("dtype", checks.BOTH)
def test_right_answers_are_within_the_bound(dtype: str, number: int) -> None:
    compare(RIGHT, dtype, number)


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG.keys())
@pytest.mark.parametrize("dtype", checks.BOTH)
def test_wrong_answers_are_beyond_it(dtype: str, text: str) -> None:
    with pytest.raises(AssertionError, match="the bound is"):
        compare(text, dtype, 3)


@pytest.mark.parametrize("dtype", checks.BOTH)
def test_a_low_exp_of_small_values_is_beyond_it(dtype: str) -> None:
    """Where its argument's own error is small, Exp near 1 shows its rounding."""
    original, rewritten = (t.replace("scale=0.5", "scale=0.05") for t in (ORIGINAL, DENIED_LOW))
    with pytest.raises(AssertionError, match="the bound is"):
        compare(rewritten, dtype, 3, original)


def test_nothing_is_said_where_roundings_decide_the_way() -> None:
    text = """
    x: f32[4,4] = Placeholder
    t = Tanh(x)
    axes = Const([0, 1])
    most = Max(t, axes)
    p = Less(most, most)
    out = If(p, [x], then_branch=@f, else_branch=@f, Tout=[f32])

    @f(a: f32[4,4]) -> (b=a)
    """
    graph = graph_text.parse(text)
    feeds = {"x": np.ones((4, 4), np.float32)}

    with pytest.raises(program_bounds.UndecidedError):
        program_bounds.run(graph, program_bounds.weights(graph), feeds, ["out"])


def test_what_a_near_comparison_selects_may_be_either() -> None:
    text = """
    x: f32[2] = Placeholder
    t = Tanh(x)
    u = Neg(x)
    p = Less(t, x)
    out = SelectV2(p, x, u)
    """
    graph = graph_text.parse(text)
    feeds = {"x": np.array([0.0001, 0.5], np.float32)}

    (value,) = program_bounds.run(graph, program_bounds.weights(graph), feeds, ["out"])
    np.testing.assert_array_equal(feeds["x"], value.center)
    np.testing.assert_array_equal([2 * feeds["x"][0], 0], value.error)
