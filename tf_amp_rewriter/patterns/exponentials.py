"""Functions that are written out with exponentials: softmax, log-sum-exp, softplus, sigmoid.

    softmax:      e / sum(e)             e = exp(x), or exp(x - max(x)), or that times a mask
    log-sum-exp:  log(sum(exp(x)))
    softplus:     log(1 + exp(x))
    sigmoid:      1 / (1 + exp(-x))

An exponential overflows half above 11, and its sum, too: both are computed in float32, up to the
division or logarithm. What that gives lies between 0 and 1, or is not much larger than x: it taints
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tf_amp_rewriter import dtypes
from tf_amp_rewriter.ops import handles
from tf_amp_rewriter.ops.exactness import HAND_ON
from tf_amp_rewriter.ops.rows import Category, OpRow, Output
from tf_amp_rewriter.patterns.view import RESHAPE, Place, View

_ADDS: Final = frozenset({"Add", "AddV2"})
_DIVIDES: Final = frozenset({"Div", "DivNoNan", "RealDiv"})
_INVERSES: Final = frozenset({"Inv", "Reciprocal"})
_LOGARITHMS: Final = frozenset({"Log", "Log1p"})
_MOVES: Final = HAND_ON | RESHAPE | {"BroadcastTo", "Squeeze", "Tile"}
_SOURCE: Final = "the range of the function"
_MAX_GUARDS: Final = 4  # what is added to a divisor so that it is not 0


def rows(view: View) -> Iterator[tuple[int, OpRow]]:
    """Yields (node, row) for the last node of each such function of a scope."""
    if "Exp" not in view.scope.ops:
        return
    for index, node in enumerate(view.scope.nodes):
        name = _name(view, index) if node.known else ""
        if name:
            yield (
                index,
                OpRow(
                    node.op,
                    Category.DENY,
                    _SOURCE,
                    bounded=True,
                    output=Output.LOW,
                    pattern=name,
                    note=f"a {name} that is written out is computed in float32 to its end",
                ),
            )


def _name(view: View, node: int) -> str:
    """Returns which function ends with a node; empty for none."""
    op = view.op(node)
    if op in _DIVIDES:
        if view.constant(node, 0) == 1 and _is_exp_plus_one(view, view.operand(node, 1, _MOVES)):
            return "sigmoid"
        divisor = view.operand(node, 1, _MOVES)
        return "softmax" if _is_sum_of(view, divisor, view.operand(node, 0, _MOVES)) else ""
    if op in _INVERSES:
        return "sigmoid" if _is_exp_plus_one(view, view.operand(node, 0, _MOVES)) else ""
    if op == "Mul":
        for side in range(2):
            inverse = view.operand(node, side, _MOVES)[0]
            if view.op(inverse) in _INVERSES:
                divisor = view.operand(inverse, 0, _MOVES)
                if _is_sum_of(view, divisor, view.operand(node, 1 - side, _MOVES)):
                    return "softmax"
    if op in _LOGARITHMS:
        argument = view.operand(node, 0, _MOVES)
        is_exp = op == "Log1p" and view.op(argument[0]) == "Exp"
        if is_exp or (op == "Log" and _is_exp_plus_one(view, argument)):
            return "softplus"
        summed = _summed(view, argument)
        return "log-sum-exp" if summed is not None and view.op(summed[0]) == "Exp" else ""
    return ""


def _is_exp_plus_one(view: View, place: Place) -> bool:
    node = place[0]
    return view.op(node) in _ADDS and any(
        view.constant(node, side) == 1 and view.op(view.operand(node, 1 - side)[0]) == "Exp"
        for side in range(2)
    )


def _is_sum_of(view: View, divisor: Place, terms: Place) -> bool:
    """Returns whether `divisor` is the sum of `terms`, and these are exponentials."""
    return _summed(view, divisor) == terms and _is_positive(view, terms[0])


def _summed(view: View, place: Place) -> Place | None:
    """Returns what a place is the sum of, but for a small constant that guards it."""
    for _ in range(_MAX_GUARDS):
        node = place[0]
        if view.op(node) == "Sum":
            return view.operand(node, 0, _MOVES)
        if view.op(node) not in _ADDS | {"Maximum"}:
            return None
        sides = [side for side in range(2) if (view.constant(node, side) or 0) > 0]
        if not sides:
            return None
        place = view.operand(node, 1 - sides[0], _MOVES)
    return None


def _is_positive(view: View, node: int) -> bool:
    """Returns whether a node gives exponentials, or some of them and 0."""
    if view.op(node) == "Exp":
        return True
    if view.op(node) != "Mul":
        return False
    sources = [view.scope.nodes[view.operand(node, side, _MOVES)[0]] for side in range(2)]
    masks = [s for s in sources if s.op == handles.CAST and s.in_types[0] == dtypes.DT_BOOL]
    return len(masks) == 1 and any(source.op == "Exp" for source in sources)
