"""Bounds beyond the range: Minimum(x, 1e9) of a low x is x, and so is Minimum(x, 65504).

The lowest or highest finite value bounds no finite value of the low precision, as the constant
does not. Bounds on the other side, which all values pass, do not count: Minimum(x, -1e9) is -1e9.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from tf_amp_rewriter import dtypes
from tf_amp_rewriter.dtypes import LowPrecision
from tf_amp_rewriter.ir import constants
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ops import handles
from tf_amp_rewriter.ops.attrs import attr_of
from tf_amp_rewriter.ops.rows import Category, OpRow
from tf_amp_rewriter.patterns.view import View

# (op, input) -> the sign of a constant there that bounds nothing when it is large.
_SIGNS: Final[Mapping[tuple[str, int], int]] = {
    ("ClipByValue", 1): -1,
    ("ClipByValue", 2): 1,
    ("Maximum", 0): -1,
    ("Maximum", 1): -1,
    ("Minimum", 0): 1,
    ("Minimum", 1): 1,
}
_SOURCE: Final = "the range of the low precision"
_NOTE: Final = "no finite value is beyond either bound"


def rows(view: View, low: LowPrecision) -> Iterator[tuple[int, OpRow]]:
    """Yields (node, row) for the constants of a scope that are bounds beyond the range."""
    if view.scope.ops.isdisjoint({op for op, _ in _SIGNS}):
        return
    for index, node in enumerate(view.scope.nodes):
        if node.op != handles.CONSTANT or node.proto is None or node.out_vars[0] == ir.NO_VAR:
            continue
        readers = view.readers.get((index, 0), ())
        signs = {_SIGNS.get((view.op(reader), position), 0) for reader, position in readers}
        if len(signs) != 1 or 0 in signs or index in view.fetched:
            continue
        values = constants.values(attr_of(node.proto, "value").tensor) * np.float32(signs.pop())
        if values.size and all(
            dtypes.overflows(float(v), low) and v > 0 for v in np.unique(values)
        ):
            yield (
                index,
                OpRow(
                    handles.CONSTANT,
                    Category.CLEAR,
                    _SOURCE,
                    saturate=True,
                    limit=low.max,
                    pattern="bound",
                    note=_NOTE,
                ),
            )
