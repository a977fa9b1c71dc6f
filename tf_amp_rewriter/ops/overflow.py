"""Where functions leave the range of half: a finite argument, and a result that is not finite.

bfloat16 has the range of float32, so what is here is no reason to keep an op float32 in bfloat16.
The ops that are DENY for it are DENY in bfloat16 all the same, for what they do to a rounded
argument: Exp turns the error of its argument into |x| times the relative error of its result
(4 % at 10), and the difference of two sums of squares, which a variance may be, loses far more than
one rounding of the squares. `tests/ops/test_overflow.py` measures all of this.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final


@dataclasses.dataclass(frozen=True)
class Range:
    """The arguments of half for which the CPU's kernel gives a finite result.

    Attributes:
        op: the op type.
        largest: the largest argument; None if there is none.
        smallest: the smallest positive argument; None if there is none.
        exponent: of Pow, the other argument.
    """

    op: str
    largest: float | None = None
    smallest: float | None = None
    exponent: float | None = None


# Source of all rows: measured on CPU, TF 2.21, all positive halves.
RANGES: Final[tuple[Range, ...]] = (
    # Grow faster than their argument.
    Range("Cosh", largest=11.78125),
    Range("EuclideanNorm", largest=255.875),
    Range("Exp", largest=11.0859375),
    Range("Expm1", largest=11.0859375),
    Range("L2Loss", largest=255.875),
    Range("Lgamma", largest=8180.0),
    Range("Pow", largest=255.875, exponent=2.0),
    Range("Pow", largest=40.3125, exponent=3.0),
    Range("Selu", largest=62336.0),
    Range("Sinh", largest=11.78125),
    Range("Square", largest=255.875),
    Range("SquaredDifference", largest=255.875),
    Range("Xlogy", largest=7356.0),
    # Grow towards 0: 1 over it, or over a subnormal number.
    Range("Digamma", smallest=1.531839370727539e-05),
    Range("Div", smallest=1.531839370727539e-05),
    Range("DivNoNan", smallest=1.531839370727539e-05),
    Range("Inv", smallest=1.531839370727539e-05),
    Range("Pow", smallest=1.531839370727539e-05, exponent=-1.0),
    Range("RealDiv", smallest=1.531839370727539e-05),
    Range("Reciprocal", smallest=1.531839370727539e-05),
    Range("Xdivy", smallest=1.531839370727539e-05),
    # Finite for all of half, 0 and what is below it apart.
    Range("Elu"),
    Range("Erf"),
    Range("Erfc"),
    Range("Log"),
    Range("Log1p"),
    Range("Rsqrt"),
    Range("Sigmoid"),
    Range("Softplus"),
    Range("Softsign"),
    Range("Sqrt"),
    Range("Tanh"),
)


def limits_of(op: str) -> str:
    """Returns in words where `op` overflows half, such as `beyond 11.09`; empty if nowhere."""
    return ", ".join(
        (f"with exponent {row.exponent:g} " if row.exponent is not None else "")
        + (f"beyond {row.largest:.4g}" if row.largest else f"below {row.smallest:.2g}")
        for row in _rows_of().get(op, ())
    )


def _rows_of() -> Mapping[str, list[Range]]:
    rows: dict[str, list[Range]] = {}
    for row in RANGES:
        if row.largest or row.smallest:
            rows.setdefault(row.op, []).append(row)
    return rows
