"""Seeded inputs of the op cases, float64 before they are rounded, in ranges that models have."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.gpu.comparisons import Make


def normal(*shape: int, scale: float = 1.0) -> Make:
    """Activations: both signs, most of them below 2."""
    return lambda random: scale * random.standard_normal(shape)


def positive(*shape: int) -> Make:
    """Magnitudes from 0.1 on: after a ReLU, a variance, a divisor."""
    return lambda random: 0.1 + np.abs(random.standard_normal(shape))


def above_one(*shape: int) -> Make:
    """Arguments of a logarithm that keep away from 1, near which it amplifies."""
    return lambda random: 1.5 + 4.0 * random.random(shape)


def scalar(value: float) -> Make:
    return lambda _: np.array(value)


def distinct(*shape: int) -> Make:
    """Different values after rounding too (multiples of 1/16 below 8), so that nothing ties."""
    count = int(np.prod(shape))
    return lambda random: (random.permutation(count).reshape(shape) - count // 2) / 16


def i32(*values: Any) -> NDArray[np.int32]:
    return np.array(values, np.int32)


def i64(*values: Any) -> NDArray[np.int64]:
    return np.array(values, np.int64)
