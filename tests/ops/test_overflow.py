"""Where functions leave the range of half, and what they lose in bfloat16, on the CPU's kernels."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest
import tensorflow as tf

from tf_amp_rewriter import dtypes
from tf_amp_rewriter.ops import overflow

HALF, BFLOAT16 = dtypes.HALF, dtypes.BFLOAT16
# All positive finite halves, in order.
HALVES: Final = np.arange(1, 0x7C00, dtype=np.uint16).view(np.float16)
FEATURES: Final = {"Elu", "Selu", "Softplus", "Softsign"}
ONE_OVER: Final = {"Div", "DivNoNan", "RealDiv", "Xdivy"}


def result(row: overflow.Range, x: Any) -> np.ndarray:
    """What the op of a row gives for each of `x`."""
    op, one = getattr(tf.raw_ops, row.op), np.array(1, np.float16)
    with tf.device("/CPU:0"):
        if row.op == "Pow":
            return op(x=x, y=np.array(row.exponent, np.float16)).numpy()
        if row.op == "SquaredDifference":
            return op(x=x, y=0 * one).numpy()
        if row.op == "EuclideanNorm":
            return op(input=x[:, None], axis=[1]).numpy()
        if row.op == "L2Loss":
            return np.stack([op(t=part).numpy() for part in x[:, None]])
        if row.op == "Xlogy":
            return op(x=x, y=x).numpy()
        if row.op in ONE_OVER:
            return op(x=one, y=x).numpy()
        return op(**{"features" if row.op in FEATURES else "x": x}).numpy()


@pytest.mark.parametrize("row", overflow.RANGES, ids=lambda row: f"{row.op}-{row.exponent}")
def test_results_are_finite_within_the_range_and_not_just_outside_of_it(row: overflow.Range):
    least = row.smallest or float(HALVES[0])
    most = row.largest or float(HALVES[-1])
    x = HALVES if row.op != "L2Loss" else HALVES[np.abs(HALVES - most) < 8]

    finite = np.isfinite(result(row, x))

    np.testing.assert_array_equal(finite, (x >= least) & (x <= most))


def test_words_for_a_range():
    assert overflow.limits_of("Exp") == "beyond 11.09"
    assert overflow.limits_of("Reciprocal") == "below 1.5e-05"
    assert overflow.limits_of("Softplus") == ""
    assert overflow.limits_of("Pow") == (
        "with exponent 2 beyond 255.9, with exponent 3 beyond 40.31, with exponent -1 below 1.5e-05"
    )


def test_exp_magnifies_the_rounding_of_its_argument_in_bfloat16():
    """The relative error of exp(x) is the absolute one of x, which grows with x."""
    x = np.linspace(8.0, 16.0, 1001)[1:-1]
    rounded = x.astype(BFLOAT16.numpy).astype(np.float64)

    error = np.abs(np.exp(rounded) / np.exp(x) - 1)

    assert np.max(error) > 7 * BFLOAT16.epsilon
    assert np.max(np.abs(rounded / x - 1)) <= BFLOAT16.epsilon


def test_squares_in_bfloat16_ruin_a_variance_that_is_a_difference():
    """E[x^2] - E[x]^2 of data around 10: exact squares of rounded data keep it, rounded do not."""
    x = np.random.default_rng(0).normal(10.0, 0.3, (1000, 64)).astype(BFLOAT16.numpy)
    wide = x.astype(np.float64)
    with tf.device("/CPU:0"):
        squares = tf.cast(tf.raw_ops.Square(x=x), tf.float64).numpy()
    exact = np.var(wide, axis=1)

    found = np.mean(squares, axis=1) - np.mean(wide, axis=1) ** 2

    assert np.sqrt(np.mean((found / exact - 1) ** 2)) > 0.1
