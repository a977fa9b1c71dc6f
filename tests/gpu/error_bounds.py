"""How far a low-precision kernel may be from the reference on the same inputs, derived per kind.

u is the largest relative error of one rounding to nearest: 2**-11 in half, 2**-8 in bfloat16 (8
significant bits). e = 2**-24 is that of float32. All bounds hold element by element, in absolute
terms; to each comes one smallest number of the low type for results that are subnormal.

1. CLEAR moves or selects values: no error at all (`exactly`).
2. A function of one rounding: computed in float32 and rounded, u |y|, and half of that for the
   float32 functions' own errors, some e (`rounded(1)`). A kernel that is written as a formula of n
   steps, each of which rounds to the low type, and none of which amplifies what it gets, has n of
   them (`rounded(n)`); n is read off the formula, which the table names.
3. A contraction of K terms that is summed in float32 and rounded once: the sum is within
   K e M, M being the sum of the magnitudes |x| |w|; rounding gives u |y| more (`contracted`).
   Where the kernel sums in the low type: K u M in the worst case; for independent roundings
   sqrt(K) (sqrt(2 ln 2N) + 3) u M for the worst of N results (as in `tests/bounds.py`). The smaller
   one holds. Products of two low values are exact in float32; a sum in the low type rounds the
   product, too: K more roundings, none of which is more than u of its term: u M.
   Eigen's matrix product on CPU stores bfloat16 by truncation, measured on TensorFlow 2.21: always
   in BatchMatMulV3, in the others where oneDNN is off (`TF_ENABLE_ONEDNN_OPTS=0`). That is 2 u, and
   always towards zero.
4. Softmax, p = exp(s) / sum exp(s), s = x - max rounded to the low type, which moves s by u |s| and
   so exp(s) by that share; exp, the sum and the quotient round once each; the sum's terms carry
   errors of their own: u p (|s| + 1 + sum p (|s| + 1) + 2). For the logarithm likewise, absolutely.
5. Elu and Selu are exp(x) - 1 in the low type, as TensorFlow's relu_op_functor.h has it: exp rounds
   by u of 1, and the difference keeps that error however small it is (`rounded(n, offset=1)`).
6. Softplus is exp(x) below the threshold t = ln(2 u) + 2, and x above -t (softplus_op.h). Below,
   what is left out is exp(x) / 2 of the result at most: exp(t) / 2 = e^2 u, 7.4 roundings. Above,
   it is exp(-x) <= exp(t) = 2 e^2 u, absolutely.
7. A recurrent cell of T steps with weights so small that its gain is below 1 (row sums of the
   recurrent weights below 0.1): each step rounds at most 10 times along its longest chain (product
   with x and h, their sum, bias; three for a sigmoid; two products and a sum for the cell; tanh and
   one product for the output), each by u of the largest magnitude met: 10 T u M.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tf_amp_rewriter import dtypes

FLOAT32_UNIT: Final = 2.0**-24
CELL_ROUNDINGS: Final = 10

Array = NDArray[Any]


@dataclasses.dataclass(frozen=True)
class Measured:
    """One output of one case.

    Attributes:
        low: the low precision.
        device: where the low kernel ran.
        inputs: the rounded inputs, in float64.
        exact: the reference.
        index: which output of the op it is.
        reference: computes the reference of all outputs for other inputs.
    """

    low: dtypes.LowPrecision
    device: str
    inputs: tuple[Array, ...]
    exact: Array
    index: int
    reference: Callable[[Sequence[Array]], list[Array]]

    @property
    def unit(self) -> float:
        """The largest relative error of one rounding."""
        return float(ml_dtypes.finfo(self.low.numpy).eps) / 2

    @property
    def magnitudes(self) -> Array:
        """What the op gives for the magnitudes of its inputs: M for a contraction."""
        of_all = self.reference([np.abs(array) for array in self.inputs])
        return np.abs(of_all[self.index].astype(np.float64))


Bound = Callable[[Measured], Array]


def exactly(measured: Measured) -> Array:
    """No error: the kernel moves or selects values."""
    return np.zeros_like(measured.exact)


def rounded(steps: int, offset: float = 0.0) -> Bound:
    """A formula of `steps` roundings, of which none amplifies; half a one for float32's own.

    Args:
        steps: how many.
        offset: magnitude of an intermediate value that the last step subtracts from: its rounding
            stays as it is, however small the result.
    """
    return lambda measured: (steps + 0.5) * measured.unit * (np.abs(measured.exact) + offset)


def contracted(terms: int, low_on: str = "", extra: int = 0, truncated: bool = False) -> Bound:
    """A sum of `terms` products.

    Args:
        terms: how many products one result sums.
        low_on: `cpu` or `both` where the kernel sums in the low type there, not in float32.
        extra: further roundings of the result.
        truncated: whether it is a matrix product, which CPU may truncate to bfloat16.
    """

    def bound(measured: Measured) -> Array:
        store = _stored(measured, truncated) + extra * measured.unit
        if low_on not in ("both", measured.device):
            sums = (terms + 1) * FLOAT32_UNIT * measured.magnitudes
        else:
            likely = math.sqrt(terms) * (math.sqrt(2 * math.log(2 * measured.exact.size)) + 3)
            sums = (min(terms, likely) + 1) * measured.unit * measured.magnitudes
        return store * (np.abs(measured.exact) + sums) + sums

    return bound


def _stored(measured: Measured, truncated: bool) -> float:
    by_truncation = truncated and measured.device == "cpu" and measured.low == dtypes.BFLOAT16
    return measured.unit * (2 if by_truncation else 1)


def softplus(measured: Measured) -> Array:
    """See 6, and log1p(exp(x)) between: the error of exp reaches the result by a factor below 1."""
    cut = math.e**2 * measured.unit
    above = np.where(measured.inputs[0] > 0, 2 * cut, 0.0)
    return (2.5 * measured.unit + cut) * np.abs(measured.exact) + above


def batch_norm(measured: Measured) -> Array:
    """Computed in float32 from float32 statistics; x - mean is at most 16 times the result."""
    in_float32 = 16 * FLOAT32_UNIT * np.max(np.abs(measured.exact))
    return 1.5 * measured.unit * np.abs(measured.exact) + in_float32


def softmax(measured: Measured) -> Array:
    """See 4."""
    p, shift = measured.exact, _shift(measured)
    shared = np.sum(p * (shift + 1), axis=-1, keepdims=True)
    return 1.5 * measured.unit * p * (shift + 1 + shared + 2)


def log_softmax(measured: Measured) -> Array:
    """See 4: the shift, the logarithm of the sum and their difference, each rounded."""
    y, shift = measured.exact, _shift(measured)
    shared = np.sum(np.exp(y) * (shift + 1), axis=-1, keepdims=True)
    log_of_sum = np.abs(np.abs(y) - shift)
    return 1.5 * measured.unit * (shift + shared + 1 + log_of_sum + np.abs(y))


def cell(steps: int) -> Bound:
    """A recurrent cell that runs for `steps` steps: see 7."""

    def bound(measured: Measured) -> Array:
        largest = max(1.0, float(np.max(np.abs(measured.exact))))
        roundings = CELL_ROUNDINGS * steps
        return np.full_like(measured.exact, roundings * measured.unit * largest)

    return bound


def _shift(measured: Measured) -> Array:
    x = measured.inputs[0]
    return np.max(x, axis=-1, keepdims=True) - x
