"""What is known about each op: the tables put together, and the row that holds for a request.

The rows stand in `allow.py`, `infer.py`, `clear.py`, `deny.py`, `keep.py` and `unserved.py`, those
of ops of other libraries in `custom.py`. An op without a row is unknown and stays float32; those
with a meaning of their own (in `meanings.py`, and the calls in `calls.py`) have none, as other
modules handle them.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from tf_amp_rewriter import dtypes
from tf_amp_rewriter.ops import allow, clear, custom, deny, infer, keep, unserved
from tf_amp_rewriter.ops.rows import Category, OpRow

ROWS: Final = (
    *allow.ROWS,
    *infer.ROWS,
    *clear.ROWS,
    *deny.ROWS,
    *keep.ROWS,
    *unserved.ROWS,
    *custom.ROWS,
)


def row_for(op: str, low: dtypes.LowPrecision, device: str) -> OpRow | None:
    """Returns the most specific row of `op`, or None for an op that no table has.

    A row with both dtype and device beats one with either of them, which beats one with neither. A
    row that names a device holds for that very `--device` only: one for `gpu` not under `any`.

    Args:
        op: the op type.
        low: the low precision asked for.
        device: the device asked for: `any`, `gpu` or `cpu`.
    """
    holding = [
        row
        for row in _rows_of_ops().get(op, ())
        if row.dtype in ("", low.name) and row.device in ("", device)
    ]
    return max(holding, key=specificity, default=None)


def is_in(op: str, category: Category) -> bool:
    """Returns whether a row of `op`, whatever it holds for, has this category."""
    return any(row.category is category for row in _rows_of_ops().get(op, ()))


def specificity(row: OpRow) -> int:
    """Returns how many of dtype and device `row` names."""
    return bool(row.dtype) + bool(row.device)


@functools.cache
def _rows_of_ops() -> Mapping[str, tuple[OpRow, ...]]:
    rows: dict[str, tuple[OpRow, ...]] = defaultdict(tuple)
    for row in ROWS:
        rows[row.op] += (row,)
    return dict(rows)
