"""Rounding to half in blocks gives, bit by bit, what NumPy gives for each value."""

import numpy as np
import pytest

from tf_amp_rewriter import dtypes

# Significands around every place where rounding to 10 bits changes its mind, and some others.
SIGNIFICANDS = np.unique(
    np.concatenate(
        [
            (np.arange(0, 1 << 23, 1 << 12)[:, None] + np.array([-1, 0, 1])).reshape(-1)
            % (1 << 23),
            np.random.default_rng(0).integers(0, 1 << 23, 1 << 15),
        ]
    )
).astype(np.uint32)


def bits_of(values):
    return dtypes.round_to(values, dtypes.HALF).view(np.uint16)


def expected_bits(values):
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(np.float16).view(np.uint16)


@pytest.mark.parametrize("exponent", [0, 1, 101, 102, 103, 111, 112, 113, 127, 141, 142, 143, 255])
@pytest.mark.parametrize("sign", [0, 1])
def test_values_of_one_exponent(exponent, sign):
    bits = SIGNIFICANDS + np.uint32((sign << 31) | (exponent << 23))
    values = bits.view(np.float32)
    assert values.size > 1 << 15
    np.testing.assert_array_equal(bits_of(values), expected_bits(values))


@pytest.mark.parametrize("odd", [0.0, -0.0, 3e-8, -6e-5, 65519.0, 65520.0, 1e6, np.inf, np.nan])
def test_a_few_odd_values_among_normal_ones(odd):
    values = np.linspace(-2, 2, 100_001, dtype=np.float32)
    values[[0, 77, 50_000, 100_000]] = odd
    np.testing.assert_array_equal(bits_of(values), expected_bits(values))


def test_views_with_gaps():
    values = np.linspace(-2, 2, 200_000, dtype=np.float32)[::2]
    np.testing.assert_array_equal(bits_of(values), expected_bits(values))
