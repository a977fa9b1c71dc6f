"""Batch norms as elementwise math: `y = x * f + o`, where `f` and `o` are computed from weights.

    f = gamma / sqrt(variance + epsilon)        o = beta - mean * f

`f` and `o` are computed in float32 and rounded once: a moving variance may be beyond the range of
half (146,335 in a ResNet-50), one over its root never is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tf_amp_rewriter.dtypes import HALF, LowPrecision
from tf_amp_rewriter.ops.rows import Category, OpRow, Output
from tf_amp_rewriter.patterns.moments import ADDS, MIN_EPSILON
from tf_amp_rewriter.patterns.view import View

_NAME: Final = "batch norm"
_NOTE: Final = "a batch norm computes its factor and its offset from weights in float32"
_SOURCE: Final = "numerics of norms"
_ROOTS: Final = frozenset({"Rsqrt", "Sqrt"})
_ARITHMETIC: Final = frozenset({"Add", "AddV2", "Mul", "Neg", "RealDiv", "Reciprocal", "Sub"})


def rows(view: View, low: LowPrecision) -> Iterator[tuple[int, OpRow]]:
    """Yields (node, row) for what the batch norms of a scope compute from weights.

    With an epsilon so small that one over its root is beyond half, a channel whose variance is 0
    would give NaN: there the product is float32, too.
    """
    if not view.scope.ops & _ROOTS:
        return
    for root, node in enumerate(view.scope.nodes):
        if node.op in _ROOTS and node.known and view.is_of_weights(root):
            members = _members(view, root)
            products = _products(view, {root, *members})
            if products:
                kept = products if low == HALF and _is_tiny(view, root) else set()
                for member in members | kept:
                    yield (
                        member,
                        OpRow(view.op(member), Category.KEEP, _SOURCE, pattern=_NAME, note=_NOTE),
                    )
                yield (
                    root,
                    OpRow(
                        node.op,
                        Category.DENY,
                        _SOURCE,
                        output=Output.LOW,
                        bounded=True,
                        pattern=_NAME,
                        note=_NOTE,
                    ),
                )


def _members(view: View, root: int) -> set[int]:
    """Returns what is computed from the root and weights alone, and what the root is of."""
    found: set[int] = set()
    sum_of_variance = view.operand(root, 0)[0]
    if view.op(sum_of_variance) in _ARITHMETIC:
        found.add(sum_of_variance)
    stack = [root]
    while stack:
        for user, _ in view.uses(stack.pop()):
            if user not in found and view.op(user) in _ARITHMETIC and view.is_of_weights(user):
                found.add(user)
                stack.append(user)
    return found


def _products(view: View, members: set[int]) -> set[int]:
    """Returns the nodes that multiply a value that is no weight by one of `members`."""
    return {
        user
        for member in members
        for user, _ in view.uses(member)
        if view.op(user) in ("Mul", "RealDiv") and user not in members
    }


def _is_tiny(view: View, root: int) -> bool:
    """Returns whether the epsilon under a root is beyond what half can divide by."""
    added = view.operand(root, 0)[0]
    if view.op(added) not in ADDS:
        return False
    values = [view.constant(added, side) for side in range(2)]
    return any(value is not None and value < MIN_EPSILON for value in values)
