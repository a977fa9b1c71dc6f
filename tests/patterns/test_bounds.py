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
