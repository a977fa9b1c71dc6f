"""Bounds beyond the range: Minimum(x, 1e9) of a low x is x, and so is Minimum(x, 65504).

The lowest or highest finite value bounds no finite value of the low precision, as the constant
does not. Bounds on the other side, which all values pass, do not count: Minimum(x, -1e9) is -1e9.

An infinite value does meet the bound. So one of another value is not the same where x may be
infinite on purpose, nor where a comparison asks whether the bound was met.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import numpy as np

from tf_amp_rewriter import dtypes
from tf_amp_rewriter.dtypes import LowPrecision
from tf_amp_rewriter.ir import constants
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ops import handles
from tf_amp_rewriter.ops.attrs import attr_of
from tf_amp_rewriter.ops.exactness import EXACT_READERS, SINGULAR
from tf_amp_rewriter.ops.rows import Category, OpRow
from tf_amp_rewriter.patterns import through
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
_STEPS: Final = EXACT_READERS | {"Where"}
_FLOATS: Final = frozenset({dtypes.DT_BFLOAT16, dtypes.DT_DOUBLE, dtypes.DT_FLOAT, dtypes.DT_HALF})
_MAX_NODES: Final = 64  # that one bound is followed to; beyond, it stays what it is
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
        if (
            values.size
            and all(dtypes.overflows(float(v), low) and v > 0 for v in np.unique(values))
            and not _is_met(view, index)
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


def _is_met(view: View, constant: int) -> bool:
    """Returns whether the model may meet this bound, or asks whether it did."""
    nodes = {reader for reader, _ in view.readers[constant, 0]}

    def before(node: int) -> Iterable[int]:
        found = view.scope.nodes[node]
        outputs = range(len(found.out_types))
        return {s for port in outputs for s, _ in through.sources(view.scope, (node, port))}

    def behind(node: int) -> Iterable[int]:
        return {reader for reader, goes_on in through.readers(view, node) if goes_on}

    return _leads_to(nodes, before, lambda node: _is_infinite(view, node)) or _leads_to(
        nodes, behind, lambda node: any(_steps(view, r) for r, _ in through.readers(view, node))
    )


def _leads_to(
    nodes: set[int], near: Callable[[int], Iterable[int]], is_sought: Callable[[int], bool]
) -> bool:
    """Returns whether `near` leads from `nodes` to what is sought, or to too many nodes."""
    stack, seen = list(nodes), set(nodes)
    while stack:
        current = stack.pop()
        if is_sought(current) or len(seen) > _MAX_NODES:
            return True
        fresh = [node for node in near(current) if node not in seen]
        seen.update(fresh)
        stack += fresh
    return False


def _is_infinite(view: View, node: int) -> bool:
    """Returns whether a node makes infinities: a constant, or an op that has a pole."""
    found = view.scope.nodes[node]
    if found.op != handles.CONSTANT or found.proto is None or found.out_vars[0] == ir.NO_VAR:
        return found.op in SINGULAR
    return bool(np.isinf(constants.values(attr_of(found.proto, "value").tensor)).any())


def _steps(view: View, node: int) -> bool:
    """Returns whether a node compares what it reads, or rounds it to integers."""
    found = view.scope.nodes[node]
    return found.op in _STEPS or (found.op == handles.CAST and found.out_types[0] not in _FLOATS)
