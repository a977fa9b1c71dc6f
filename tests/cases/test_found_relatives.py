"""Relatives of the cases that came out wrong once: squares written twice, angles, overflow.

Each value is worked out in float64; rows of +-300 have squares beyond the range of half.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.case_answers import check_answer
from tests.checks import check_precision

EYE = "[[1,0,0,0],[0,1,0,0],[0,0,1,0],[0,0,0,1]]"
START = f"""
    x: f32[?,4] = Placeholder
    eye: f32[4,4] = Const({EYE})
    last = Const([-1])
    eps = Const(1e-6)
    m = MatMul(x, eye)                           # low ALLOW
"""
ROW = np.array([[300.0, -300.0, 300.0, -300.0]])
SQUARES = {
    "a difference": "mean = Mean(m, last, keep_dims=True)\na = Sub(m, mean)\nb = Sub(m, mean)",
    "a sum": "a = AddV2(m, eps)\nb = AddV2(m, eps)",
    "an absolute value": "a = Abs(m)\nb = Abs(m)",
    "an identity and a stopped gradient": "a = Identity(m)\nb = StopGradient(m)",
}


@pytest.mark.parametrize("name", SQUARES)
def test_a_square_of_what_is_written_twice_is_a_square(name: str) -> None:
    check_answer(
        START
        + SQUARES[name]
        + """
    sq = Mul(a, b)                               # f32 DENY
    ms = Mean(sq, last, keep_dims=True)          # f32 DENY
    ve = AddV2(ms, eps)                          # f32
    rs = Rsqrt(ve)                               # f32 DENY
    n = Mul(m, rs)
    m2 = MatMul(n, eye)                          # low ALLOW
    fetch = Identity(m2)                         # f32 PINNED
    """,
        ROW / 300,
        steps=1,
        x=ROW,
    )


ANGLES = {
    "MatMul": "a = MatMul(col, freqs)                      # f32",
    "Einsum": "a = Einsum([places, row], equation='i,j->ij')   # f32",
}


@pytest.mark.parametrize("op", ANGLES)
def test_a_contraction_that_computes_the_angles_of_positions_stays_float32(op: str) -> None:
    frequencies = np.array([1, 0.5, 0.25, 0.01])
    text = f"""
    x: f32[4,4] = Placeholder
    eye: f32[4,4] = Const({EYE})
    start = Const(4000.0)
    limit = Const(4004.0)
    step = Const(1.0)
    axis = Const(1)
    freqs: f32[1,4] = Const([[1, 0.5, 0.25, 0.01]])
    row: f32[4] = Const([1, 0.5, 0.25, 0.01])
    places = Range(start, limit, step)           # f32
    col = ExpandDims(places, axis)               # f32
    {ANGLES[op]}
    wave = Sin(a)                                # f32
    m = MatMul(x, eye)                           # low ALLOW
    sum = AddV2(m, wave)                         # low INFER
    m2 = MatMul(sum, eye)                        # low ALLOW
    fetch = Identity(m2)                         # f32 PINNED
    """
    values = np.sin(np.arange(4000, 4004)[:, None] * frequencies)
    check_answer(text, values, steps=1, x=np.zeros((4, 4)))


def test_an_angle_of_a_learned_feature_leaves_its_contraction_low() -> None:
    check_precision(
        START
        + """
    m2 = MatMul(m, eye)                          # low ALLOW
    wave = Sin(m2)                               # f32 KEEP
    m3 = MatMul(wave, eye)                       # low ALLOW
    fetch = Identity(m3)                         # f32 PINNED
    """
    )


def test_a_running_sum_as_a_product_with_a_triangle_gives_exact_positions() -> None:
    count = 4097
    check_answer(
        f"""
    mask: i32[1,{count}] = Placeholder
    ones: f32[{count},1] = Const(1)
    x = Cast(mask, DstT=f32)                     # f32
    sum = MatMul(x, ones)                        # f32 POSITION
    place = Cast(sum, DstT=i32)
    fetch = Identity(place)
    """,
        count,
        exact=True,
        mask=np.ones((1, count), np.int32),
    )


def test_a_contraction_of_squares_stays_float32_in_half() -> None:
    text = (
        START
        + """
    sq = Square(m)                               # f32 DENY
    same = Identity(sq)
    m2 = MatMul(same, eye)                       # PRODUCT
    root = Sqrt(m2)
    fetch = Identity(root)                       # f32 PINNED
    """
    )
    kept, low = text.replace("PRODUCT", "f32 CONDITION"), text.replace("PRODUCT", "low ALLOW")
    check_answer(kept, np.abs(ROW), ("half",), steps=1, x=ROW)
    check_answer(low, np.abs(ROW), ("bfloat16",), steps=1, x=ROW)


def test_what_is_computed_from_weights_alone_leaves_the_contraction_low() -> None:
    check_precision(
        """
    x: f32[2,4] = Placeholder
    w: f32[4,4] = Const(seed=1)
    positive = Exp(w)                            # f32 DENY
    m = MatMul(x, positive)                      # low ALLOW
    fetch = Identity(m)                          # f32 PINNED
    """
    )


def test_an_einsum_of_one_operand_is_a_sum_on_every_device() -> None:
    text = f"""
    x: f32[1,112,112,4] = Placeholder
    w: f32[1,1,4,4] = Const({EYE})
    conv = Conv2D(x, w, strides=[1,1,1,1], padding='SAME')   # low ALLOW
    count = Const(12544.0)
    sum = Einsum([conv], equation='bhwc->bc')    # f32 CONDITION
    out = RealDiv(sum, count)
    fetch = Identity(out)
    """
    check_answer(text, 8.0, steps=1, x=np.full((1, 112, 112, 4), 8.0))
