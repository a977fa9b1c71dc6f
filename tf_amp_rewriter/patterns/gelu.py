"""GELU in its tanh form: x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2.

The cube overflows half above 40, where tanh is 1 in any precision: a positive sum of powers that
overflows is infinite with the sign of x, and tanh of that is 1 or -1. So the square and the cube,
unsafe by themselves, may be low here.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Final

from tf_amp_rewriter.ops.exactness import HAND_ON
from tf_amp_rewriter.ops.rows import Category, OpRow
from tf_amp_rewriter.patterns.view import Place, View

_FACTOR: Final = math.sqrt(2 / math.pi)
_COEFFICIENTS: Final = {1: _FACTOR, 3: 0.044715 * _FACTOR}
_TOLERANCE: Final = 1e-3  # 0.7978845 is often written with fewer digits
_ADDS: Final = frozenset({"Add", "AddV2"})
_DIVISIONS: Final = frozenset({"Div", "RealDiv"})
_MAX_NODES: Final = 16  # of one argument
_SOURCE: Final = "tanh is 1 from 9 on in float32"

Polynomial = Mapping[int, float]  # power of x -> its coefficient


def rows(view: View) -> Iterator[tuple[int, OpRow]]:
    """Yields (node, row) for the powers in every GELU of a scope."""
    if "Tanh" not in view.scope.ops:
        return
    for index, node in enumerate(view.scope.nodes):
        if node.op == "Tanh":
            for power in _powers(view, index):
                yield power, OpRow(view.op(power), Category.INFER, _SOURCE, pattern="GELU")


def _powers(view: View, tanh: int) -> list[int]:
    """Returns the nodes that square or cube x, if the argument of `tanh` is that of a GELU."""
    argument = view.operand(tanh, 0)
    region = _region(view, argument[0])
    squares = [node for node in region if _power(view, node)]
    for x in dict.fromkeys(view.operand(node, 0) for node in squares):
        parts = _Parts(view, x, {})
        found = parts.polynomial(argument)
        if found is None or set(found) != set(_COEFFICIENTS):
            continue
        if all(math.isclose(found[n], _COEFFICIENTS[n], rel_tol=_TOLERANCE) for n in found):
            high = [node for node, known in parts.known.items() if known and max(known) > 1]
            inside = {*high, tanh}
            is_seen = any(view.is_fetched(node) for node in high)
            readers = {reader for node in high for reader, _ in view.uses(node)}
            if not is_seen and readers <= inside:
                return [node for node in high if _power(view, node)]
    return []


def _region(view: View, root: int) -> list[int]:
    """Returns the arithmetic nodes that `root` is computed by, nearest first."""
    found: list[int] = []
    stack = [root]
    while stack and len(found) < _MAX_NODES:
        node = stack.pop(0)
        if node in found or view.op(node) not in _ADDS | _DIVISIONS | {"Mul", "Pow", "Square"}:
            continue
        found.append(node)
        count = len(view.scope.nodes[node].inputs)
        stack += [view.operand(node, position)[0] for position in range(count)]
    return found


def _power(view: View, node: int) -> int:
    """Returns 2 or 3 for a node that squares or cubes what it reads, else 0."""
    op = view.op(node)
    if op == "Square":
        return 2
    if op == "Mul":
        return 2 if view.operand(node, 0) == view.operand(node, 1) else 0
    exponent = view.constant(node, 1) if op == "Pow" else None
    return int(exponent) if exponent in (2.0, 3.0) else 0


@dataclasses.dataclass(frozen=True)
class _Parts:
    """What the nodes of an expression are as polynomials of x.

    Attributes:
        view: the scope.
        x: where x comes from.
        known: node -> its polynomial; None for what is none with positive coefficients.
    """

    view: View
    x: Place
    known: dict[int, Polynomial | None]

    def polynomial(self, place: Place) -> Polynomial | None:
        if place == self.x:
            return {1: 1.0}
        node = place[0]
        if node not in self.known:
            self.known[node] = None  # also what stands in a cycle, or is one too many
            if len(self.known) <= 2 * _MAX_NODES:
                self.known[node] = self._of_node(node)
        return self.known[node]

    def _of_node(self, node: int) -> Polynomial | None:
        op = self.view.op(node)
        power = _power(self.view, node)
        if power:
            base = self._of_input(node, 0)
            square = _product(base, base)
            return square if power == 2 else _product(square, base)
        if op == "Mul":
            return _product(self._of_input(node, 0), self._of_input(node, 1))
        if op in _ADDS:
            return _sum(self._of_input(node, 0), self._of_input(node, 1))
        if op in _DIVISIONS:
            divisor = self.view.constant(node, 1)
            factor = {0: 1 / divisor} if divisor is not None and divisor > 0 else None
            return _product(self._of_input(node, 0), factor)
        return None

    def _of_input(self, node: int, position: int) -> Polynomial | None:
        value = self.view.constant(node, position)
        if value is not None:
            return {0: value} if value > 0 else None
        return self.polynomial(self.view.operand(node, position, HAND_ON))


def _sum(left: Polynomial | None, right: Polynomial | None) -> Polynomial | None:
    if left is None or right is None:
        return None
    return {n: left.get(n, 0.0) + right.get(n, 0.0) for n in {*left, *right}}


def _product(left: Polynomial | None, right: Polynomial | None) -> Polynomial | None:
    if left is None or right is None:
        return None
    result: dict[int, float] = {}
    for n, a in left.items():
        for m, b in right.items():
            result[n + m] = result.get(n + m, 0.0) + a * b
    return result if max(result) <= 3 else None
