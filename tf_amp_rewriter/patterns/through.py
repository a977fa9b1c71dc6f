"""Where a value comes from: seen through ops that move, select or compute single elements."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Final

from tf_amp_rewriter import dtypes
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ops import handles
from tf_amp_rewriter.ops.categories import is_in, row_for
from tf_amp_rewriter.ops.folds import FOLDS
from tf_amp_rewriter.ops.rows import Category
from tf_amp_rewriter.patterns.view import Place, View

# Read the shape of what they are given, or its type: no value.
_VALUELESS: Final = handles.SHAPE_READERS | {"OnesLike", "ZerosLike"}
_CATEGORIES: Final = (Category.CLEAR, Category.INFER)


def sources(scope: ir.Scope, place: Place) -> tuple[Place, ...]:
    """Returns what gives the values of an output, directly; nothing where an op ends the search.

    Contractions, sums, and ops whose results lie in a fixed range end it, and so do comparisons and
    a Cast of booleans. Indices, shapes and conditions give no values: they have another type.
    """
    node, port = scope.nodes[place[0]], place[1]
    if node.op == handles.CAST:
        return node.inputs if node.in_types[0] != dtypes.DT_BOOL else ()
    if not node.known or not _is_through(node.op) or port >= len(node.out_types):
        return ()
    if node.op == "IdentityN":
        return (node.inputs[port],)
    dtype = node.out_types[port]
    return tuple(
        source for source, of in zip(node.inputs, node.in_types, strict=True) if of == dtype
    )


def readers(view: View, node: int) -> Iterator[tuple[int, bool]]:
    """Yields (reader, whether values of `node` go on through it) for all that read a node."""
    for port in range(len(view.scope.nodes[node].out_types)):
        for reader, _ in view.readers.get((node, port), ()):
            outputs = range(len(view.scope.nodes[reader].out_types))
            yield (
                reader,
                any((node, port) in sources(view.scope, (reader, output)) for output in outputs),
            )


def is_contraction(op: str) -> bool:
    """Returns whether an op is a product of matrices, a convolution or their kind."""
    return is_in(op, Category.ALLOW)


@functools.cache
def _is_through(op: str) -> bool:
    if op in FOLDS:
        return True
    row = row_for(op, dtypes.HALF, "any")
    return (
        row is not None
        and row.category in _CATEGORIES
        and not (row.bounded or op in _VALUELESS or is_contraction(op))
    )
