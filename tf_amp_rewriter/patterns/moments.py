"""The moments of a norm: the mean of x, that of its squares, and what stands before the root."""

from __future__ import annotations

import dataclasses
from typing import Final

from tf_amp_rewriter.ir import reach
from tf_amp_rewriter.ops.exactness import HAND_ON
from tf_amp_rewriter.patterns.view import RESHAPE, Place, View

ADDS: Final = frozenset({"Add", "AddV2"})
DIVIDES: Final = frozenset({"Div", "RealDiv"})
# Through these a tensor of one value a row is followed.
SMALL: Final = HAND_ON | RESHAPE
# 1 / sqrt(epsilon) stays below 65504 in half, with room for a factor of 2.
MIN_EPSILON: Final = 1e-9
_MEANS: Final = frozenset({"Mean"})
_MAX_GUARDS: Final = 6


@dataclasses.dataclass(frozen=True)
class Moments:
    """How a root was computed from x.

    Attributes:
        x: what is normalised.
        mean: the node of its mean, or what that is seen through; None in an RMS norm.
        nodes: the squares, what they are of where that is x - mean, and their mean.
        roots: the root, and the divisor made of it.
        epsilon: what is added to the mean of the squares at least, or is the least that it can be.
        is_sum: whether it is the sum of the squares, and not their mean.
    """

    x: Place
    mean: Place | None
    nodes: tuple[int, ...]
    epsilon: float
    is_sum: bool
    roots: tuple[int, ...] = ()


def of_root(view: View, root: int) -> Moments | None:
    """Returns what a root is the root of, if that is a mean or sum of squares."""
    epsilon, place = 0.0, view.operand(root, 0, SMALL)
    scaled = False
    for _ in range(_MAX_GUARDS):
        node = place[0]
        op = view.op(node)
        if op in {"Mean", "Sum"}:
            return _of_reduction(view, node, epsilon, op == "Sum" and not scaled)
        if op == "Sub":
            return _of_difference(view, node, epsilon)
        sides = (
            [(side, view.constant(node, 1 - side)) for side in range(2)]
            if _is_two(view, node)
            else []
        )
        side, value = next(((s, v) for s, v in sides if v is not None), (0, None))
        if value is None or value < 0:
            return None
        if op in ADDS:
            epsilon += value
        elif op == "Maximum":
            epsilon = max(epsilon, value)
        elif op == "Mul" or (op in DIVIDES and side == 0):
            scaled, epsilon = True, 0.0
        else:
            return None
        place = view.operand(node, side, SMALL)
    return None


def _is_two(view: View, node: int) -> bool:
    return len(view.scope.nodes[node].inputs) == 2


def _of_reduction(view: View, reduction: int, epsilon: float, is_sum: bool) -> Moments | None:
    """Returns the moments whose last is this mean (or sum) of squares."""
    square = view.operand(reduction, 0)[0]
    nodes = (reduction, square)
    if view.op(square) == "SquaredDifference":
        for side in range(2):
            mean = view.operand(square, side, SMALL)
            x = view.operand(square, 1 - side)
            if _is_mean_of(view, mean, x):
                return Moments(x, mean, nodes, epsilon, is_sum)
        return None
    base = _squared(view, square)
    if base is None:
        return None
    centred = centred_of(view, base[0])
    if centred is None:
        return Moments(base, None, nodes, epsilon, is_sum)
    x, mean = centred
    factors = {
        view.operand(square, side)[0] for side in range(2 if view.op(square) == "Mul" else 1)
    }
    return Moments(x, mean, (*nodes, *sorted(factors)), epsilon, is_sum)


def _of_difference(view: View, difference: int, epsilon: float) -> Moments | None:
    """Returns the moments of mean(x^2) - mean(x)^2."""
    left, right = (view.operand(difference, side, SMALL)[0] for side in range(2))
    if view.op(left) not in _MEANS:
        return None
    square = view.operand(left, 0)[0]
    x, mean = _squared(view, square), _squared(view, right, SMALL)
    if x is None or mean is None or not _is_mean_of(view, mean, x):
        return None
    nodes = (left, square, right)
    return Moments(x, mean, nodes, epsilon, False)


def _squared(view: View, node: int, through: frozenset[str] = HAND_ON) -> Place | None:
    """Returns what a node is the square of."""
    op = view.op(node)
    if op == "Square":
        return view.operand(node, 0, through)
    if op == "Pow" and view.constant(node, 1) == 2:
        return view.operand(node, 0, through)
    if op == "Mul":
        inputs = view.scope.nodes[node].inputs
        is_square = reach.are_same(view.scope, inputs[0], inputs[1])
        return view.operand(node, 0, through) if is_square else None
    return None


def centred_of(view: View, node: int) -> tuple[Place, Place] | None:
    """Returns x and its mean, if a node is their difference."""
    if view.op(node) != "Sub":
        return None
    x, mean = view.operand(node, 0), view.operand(node, 1, SMALL)
    return (x, mean) if _is_mean_of(view, mean, x) else None


def _is_mean_of(view: View, mean: Place, x: Place) -> bool:
    return view.op(mean[0]) in _MEANS and view.operand(mean[0], 0) == x
