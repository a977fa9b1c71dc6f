"""A bound that no value of the low precision reaches keeps nothing in float32."""

from __future__ import annotations

import numpy as np
import pytest

from tests.checks import check_precision

TEXT = """
    x: f32[4,2] = Placeholder
    w: f32[2,2] = Const([[1, 0], [0, 1]])
    low = Const(-77777.0)
    high = Const(88888.0)
    m = MatMul(x, w)             # low ALLOW
    y = {call}                   # {precision}
    fetch = Identity(y)          # f32 PINNED
"""
FEEDS = {"x": np.float32([[6e4, -6e4], [0, -0.0], [65504, -65504], [1, -1]])}


@pytest.mark.parametrize(
    "call", ["ClipByValue(m, low, high)", "Minimum(m, high)", "Maximum(low, m)"]
)
def test_xt_03_a_bound_beyond_the_range_of_half(call: str) -> None:
    check_precision(TEXT.format(call=call, precision="low CLEAR"), feeds=FEEDS, casts=2)


@pytest.mark.parametrize(
    "call", ["Minimum(m, low)", "Maximum(m, high)", "ClipByValue(m, low, low)"]
)
def test_a_bound_that_every_value_passes_stays_float32(call: str) -> None:
    text = TEXT.format(call=call, precision="f32 RANGE")
    check_precision(text, dtypes=("half",), feeds=FEEDS)


def test_a_bound_that_another_op_reads_stays_float32() -> None:
    text = TEXT.format(call="Minimum(m, high)", precision="f32 RANGE")
    check_precision(
        text + "    z = Mul(m, high)   # f32 RANGE\n    fetch2 = Identity(z)\n", dtypes=("half",)
    )


@pytest.mark.parametrize(
    ("between", "step"),
    [
        ("", "Greater(y, limit)"),
        ("r = Reshape(y, shape)", "LessEqual(limit, r)"),
        ("s = Sub(y, m)\n    a = Abs(s)", "Equal(a, limit)"),
        ("", "Floor(y)"),
        ("", "Sign(y)"),
        ("", "Where(y)"),
    ],
)
def test_a_bound_that_a_step_behind_it_sees_stays_float32(between: str, step: str) -> None:
    text = TEXT.format(call="Maximum(m, low)", precision="f32 RANGE")
    text += f"""
    shape = Const([8])
    limit = Const(-70000.0)
    {between}
    fetch2 = {step}
    """
    check_precision(text, dtypes=("half",), feeds=FEEDS)


def test_a_step_behind_a_contraction_does_not_see_the_bound() -> None:
    text = TEXT.format(call="Maximum(m, low)", precision="low CLEAR")
    text += """
    n = MatMul(y, w)             # low ALLOW
    zero = Const(0.0)
    fetch2 = Greater(n, zero)
    """
    check_precision(
        text, dtypes=("half",), feeds={"x": np.float32([[2, -3], [1, 4], [5, -6], [-7, -8]])}
    )


@pytest.mark.parametrize(
    "value",
    [
        "t = SelectV2(keep, m, inf)",
        "t0 = SelectV2(keep, m, inf)\n    t = Max(t0, axis, keep_dims=True)",
    ],
)
def test_what_meets_its_bound_because_it_is_infinite_stays_float32(value: str) -> None:
    # 1e9 where it is masked, and so 10000 at the end; 65504 would give 0.65.
    check_precision(
        f"""
        x: f32[2,2] = Placeholder
        keep: bool[2,2] = Placeholder
        w: f32[2,2] = Const([[1, 0], [0, 1]])
        inf = Const(inf)
        axis = Const(1)
        high = Const(1e9)
        small = Const(1e-5)
        m = MatMul(x, w)             # low ALLOW
        {value}
        y = Minimum(t, high)         # f32 RANGE
        z = Mul(y, small)
        fetch = Identity(z)          # f32 PINNED
        """,
        dtypes=("half",),
        feeds={"x": np.ones((2, 2), np.float32), "keep": np.array([[True, False], [True, True]])},
    )
