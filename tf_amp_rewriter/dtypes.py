"""The two low precisions, and what fits in them.

Type numbers are those of TensorFlow's `DataType` enum (tensorflow/core/framework/types.proto); they
are repeated here so that this module needs no TensorFlow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tensorflow.core.framework import types_pb2

    DataType: TypeAlias = types_pb2.DataType.ValueType

DT_FLOAT: Final = cast("DataType", 1)
DT_DOUBLE: Final = cast("DataType", 2)
DT_INT32: Final = cast("DataType", 3)
DT_INT64: Final = cast("DataType", 9)
DT_STRING: Final = cast("DataType", 7)
DT_BOOL: Final = cast("DataType", 10)
DT_BFLOAT16: Final = cast("DataType", 14)
DT_HALF: Final = cast("DataType", 19)
DT_RESOURCE: Final = cast("DataType", 20)
DT_VARIANT: Final = cast("DataType", 21)
REF_OFFSET: Final = 100  # DT_FLOAT_REF is 101, and so on

# The share of a scalar, or of the norm of a tensor, that rounding may cost. A scalar such as an
# epsilon or a temperature that moves by more is not the same number any more: 1e-7 becomes 1.19e-7
# in half. A tensor that moves by more has lost its small values.
MAX_LOSS: Final = 0.01
# A tensor of which this share or more lies beyond the range is not that tensor any more when it is
# clamped. Source: OpenVINO's rule for constants in half.
MAX_CLAMPED: Final = 0.75

_HALF_BLOCK: Final = 1 << 15  # values: all that is worked out of them fits into the CPU's cache
_HALF_NORMAL: Final = np.float32(2.0**-14)  # the smallest that has all its bits
_DROPPED_BITS: Final = np.uint32(13)
_HALF_OFFSET: Final = np.uint32((112 << 23) - 0xFFF)


@dataclasses.dataclass(frozen=True)
class LowPrecision:
    """A 16-bit floating-point type.

    Attributes:
        name: the name in flags and reports, `half` or `bfloat16`.
        proto: TensorFlow's `DataType` number.
        numpy: the NumPy dtype, from `ml_dtypes` for bfloat16.
        max: the largest finite value.
        epsilon: the largest relative error of one rounding to nearest: 2**-11 in half, with its 11
            significant bits, 2**-8 in bfloat16, with its 8.
        tiny: the smallest positive value.
    """

    name: str
    proto: DataType
    numpy: np.dtype[np.generic]
    max: float
    epsilon: float
    tiny: float


HALF: Final = LowPrecision("half", DT_HALF, np.dtype(np.float16), 65504.0, 2.0**-11, 2.0**-24)
BFLOAT16: Final = LowPrecision(
    "bfloat16", DT_BFLOAT16, np.dtype(ml_dtypes.bfloat16), 3.3895313892515355e38, 2.0**-8, 2.0**-133
)
LOW_PRECISIONS: Final = {low.name: low for low in (HALF, BFLOAT16)}


def round_to(values: NDArray[np.float32], low: LowPrecision) -> NDArray[np.generic]:
    """Returns `values` rounded to nearest even in `low`; what overflows becomes infinite."""
    if low == HALF and values.ndim == 1 and values.size >= _HALF_BLOCK:
        return _halves(values)
    return _cast(values, low)


def _cast(values: NDArray[np.float32], low: LowPrecision) -> NDArray[np.generic]:
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(low.numpy)


def _halves(values: NDArray[np.float32]) -> NDArray[np.generic]:
    """Returns what `_cast` does, bit by bit; NumPy takes twice as long for weights.

    In the bits of a normal half are those of the float32, less 13 of its significand and with 112
    less in its exponent. Adding half of the last bit that stays, less one if that bit is even,
    rounds to nearest even; it may carry into the exponent.
    """
    result = np.empty(values.size, np.float16)
    for start in range(0, values.size, _HALF_BLOCK):
        block = values[start : start + _HALF_BLOCK]
        target = result[start : start + _HALF_BLOCK]
        magnitudes = np.abs(block)
        small = np.flatnonzero(magnitudes < _HALF_NORMAL)
        if small.size > block.size // 8 or not magnitudes.max() <= HALF.max:  # also a NaN
            target[:] = _cast(block, HALF)
            continue
        bits = block.view(np.uint32)
        rounded = bits >> _DROPPED_BITS
        rounded &= np.uint32(1)
        rounded += bits
        rounded -= _HALF_OFFSET
        signs = np.right_shift(bits, np.uint32(16), out=magnitudes.view(np.uint32))
        signs &= np.uint32(0x8000)
        rounded >>= _DROPPED_BITS
        rounded |= signs
        target.view(np.uint16)[:] = rounded  # cuts the sign of the float32 off
        target[small] = _cast(block[small], HALF)
    return result


@dataclasses.dataclass(frozen=True)
class Fit:
    """Whether values may be rounded to a low precision.

    Attributes:
        problem: why not; empty if they may.
        clamps: whether they may once what overflows is clamped to the largest finite value.
    """

    problem: str = ""
    clamps: bool = False


def misfit(values: NDArray[np.float32], low: LowPrecision, max_loss: float = MAX_LOSS) -> str:
    """Returns why `values` (float32, any shape) must not be rounded to `low`, or an empty string.

    1. A finite value must not become infinite.
    2. A tensor of one value must not change by more than `max_loss`, as a share of it.
    3. A tensor must not lose more than `max_loss` of its norm.
    """
    return fit(values, low, max_loss).problem


def fit(values: NDArray[np.float32], low: LowPrecision, max_loss: float = MAX_LOSS) -> Fit:
    """Returns what `misfit` says, and whether clamping would mend it."""
    return fit_of_chunks((values.reshape(-1),), values.size, low, max_loss)


def fit_of_chunks(
    chunks: Iterable[NDArray[np.float32]],
    size: int,
    low: LowPrecision,
    max_loss: float = MAX_LOSS,
) -> Fit:
    """Returns what `fit` does, for a tensor that comes in pieces.

    Args:
        chunks: the values, flat; taken to the end.
        size: how many values there are in all.
        low: the precision to round to.
        max_loss: the share that may be lost.
    """
    # 3: an error of at most `tiny / 2` a value can only matter where all values are small, so the
    # norms are of interest only as long as all have been
    small = low.tiny * np.sqrt(size) / (2 * max_loss) if max_loss > 0 else np.inf
    largest = squares = lost_squares = 0.0
    stored = beyond = 0
    first = np.float32(0)
    for chunk in chunks:
        if chunk.size == 0:
            continue
        first = chunk[0]
        stored += chunk.size
        peak = _largest_finite(chunk)
        largest = max(largest, peak)
        if overflows(peak, low):
            beyond += _count_beyond(chunk, low)
        elif largest < small:
            finite = chunk[np.isfinite(chunk)]
            lost = finite.astype(np.float64) - round_to(finite, low).astype(np.float64)
            squares += float(np.square(finite, dtype=np.float64).sum())
            lost_squares += float(np.square(lost).sum())
    # 1
    if overflows(largest, low):
        problem = f"holds {largest:.6g}, beyond the range of {low.name} ({low.max:.6g})"
        return Fit(problem, size == 1 or beyond < MAX_CLAMPED * stored)
    # 2
    if size == 1:
        return Fit(_scalar_misfit(first, low, max_loss))
    # 3
    if 0 < largest < small and squares > 0:
        share = np.sqrt(lost_squares / squares)
        if share > max_loss:
            return Fit(f"would lose {100 * share:.3g} % of its norm in {low.name}")
    return Fit()


def overflows(value: float, low: LowPrecision) -> bool:
    """Returns whether a finite value becomes infinite in `low`."""
    return not np.isfinite(float(round_to(np.array([value], np.float32), low)[0]))


def clamped(values: NDArray[np.float32], limit: float) -> NDArray[np.float32]:
    """Returns `values` with what is finite brought to between `-limit` and `limit`."""
    with np.errstate(invalid="ignore"):
        inside = np.clip(values, np.float32(-limit), np.float32(limit))
    return np.where(np.isinf(values), values, inside).astype(np.float32, copy=False)


def _count_beyond(values: NDArray[np.float32], low: LowPrecision) -> int:
    return int(np.count_nonzero(np.isfinite(values) & np.isinf(round_to(values, low))))


def _largest_finite(values: NDArray[np.float32]) -> float:
    largest = max(abs(float(values.max())), abs(float(values.min())))
    if np.isfinite(largest):
        return largest
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0))


def _scalar_misfit(value: np.float32, low: LowPrecision, max_loss: float) -> str:
    rounded = float(round_to(np.array([value]), low)[0])
    exact = float(value)
    if np.isfinite(exact) and abs(rounded - exact) > max_loss * abs(exact):
        return f"is {exact:.6g}, which {low.name} would make {rounded:.6g}"
    return ""
