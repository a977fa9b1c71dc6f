"""Masks that outsiders feed: how low they are is known to nobody, so the scores stay float32.

A mask is fed if what outsiders give reaches the scores, through whatever ops, and no contraction
has a part in it: what a contraction computes are scores themselves. What a constant makes of a fed
mask of 0 and 1, such as (1 - mask) * -10000, is the constant's: `attention` looks at its range.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray
from tensorflow.python.framework import tensor_util

from tf_amp_rewriter.ir import constants, outsiders
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ops import handles
from tf_amp_rewriter.ops.attrs import attr_of
from tf_amp_rewriter.ops.exactness import HAND_ON, SOFTMAX
from tf_amp_rewriter.ops.rows import Category, OpRow
from tf_amp_rewriter.ops.sums import ADDITIONS
from tf_amp_rewriter.patterns import through
from tf_amp_rewriter.patterns.view import RESHAPE, Place, View

# Where scores and a mask meet.
_JOINS: Final = ADDITIONS | {"Maximum", "Minimum", "Select", "SelectV2"}
# Hand on a constant, to where it meets what is fed.
_SPREADS: Final = HAND_ON | RESHAPE | {"BroadcastTo", "Cast", "Enter", "Tile"}
_MAX_NODES: Final = 256  # behind one Softmax, and that make one mask
_MAX_VALUES: Final = 4096  # of a constant that is looked at
# What is multiplied by as much is 0 or 1, or all scores would be as large.
_MIN_SENTINEL: Final = 1000.0
_SOURCE: Final = "numerics of softmax"
_NOTE: Final = "a mask that is fed meets attention scores, and may be beyond the range of half"

_Point = tuple[int, int, int]  # (scope, node, port)
# scope -> (scope of the caller, its node, its first input that is an argument, whether it loops)
_Callers = Mapping[int, list[tuple[int, int, int, bool]]]


def rows(view: View, program: ir.Program, pattern: str) -> Iterator[tuple[int, OpRow]]:
    """Yields (node, row) for the nodes where scores meet what outsiders feed; linear in nodes."""
    callers: _Callers | None = None
    known: dict[Place, bool] = {}
    done: set[Place] = set()
    for node in view.scope.nodes:
        if node.op != SOFTMAX:
            continue
        stack = [node.inputs[0]]
        for _ in range(_MAX_NODES):
            if not stack:
                break
            place = stack.pop()
            if place in done:
                continue
            done.add(place)
            found = _sources(view.scope, place)
            op = view.op(place[0])
            if op in _JOINS:
                callers = _callers(program) if callers is None else callers
                for source in found:
                    if source not in known:
                        known[source] = _is_fed(program, (view.index, *source), callers)
                if any(known[source] for source in found):
                    yield place[0], OpRow(op, Category.DENY, _SOURCE, pattern=pattern, note=_NOTE)
                found = tuple(source for source in found if not known[source])
            stack += found


def _callers(program: ir.Program) -> _Callers:
    callers = collections.defaultdict(list)
    for index, scope in enumerate(program.scopes):
        for node, callees in scope.calls.items():
            for callee in callees:
                call = (index, node, callee.first_input, callee.is_loop)
                callers[callee.scope].append(call)
    return callers


def _is_fed(program: ir.Program, start: _Point, callers: _Callers) -> bool:
    """Returns whether outsiders give a value, and no contraction has a part in it."""
    stack, seen, is_fed = [start], {start}, False
    while stack and len(seen) < _MAX_NODES:
        point = stack.pop()
        scope = program.scopes[point[0]]
        node = scope.nodes[point[1]]
        if through.is_contraction(node.op):
            return False
        if node.op == ir.ARG:
            if point[1] in outsiders.captured_arguments(program, scope):
                continue
            is_fed |= not callers.get(point[0])
        is_fed |= node.op in handles.PLACEHOLDERS
        points = dict.fromkeys(_before(program, point, callers))
        fresh = [before for before in points if before not in seen]
        seen.update(fresh)
        stack += fresh
    return is_fed


def _before(program: ir.Program, point: _Point, callers: _Callers) -> Iterator[_Point]:
    """Yields what gives the values of an output, across the faces of functions."""
    index, number, port = point
    scope = program.scopes[index]
    node = scope.nodes[number]
    if node.op == ir.ARG:
        for caller, call, first, is_loop in callers.get(index, ()):
            inputs = program.scopes[caller].nodes[call].inputs
            if first + number < len(inputs):
                yield (caller, *inputs[first + number])
            if is_loop and number < scope.num_results:
                yield (index, *scope.nodes[scope.results[number]].inputs[0])
    elif number in scope.calls:
        for callee in scope.calls[number]:
            called = program.scopes[callee.scope]
            if callee.gives_results and port < called.num_results:
                yield (callee.scope, *called.nodes[called.results[port]].inputs[0])
            if callee.is_loop and callee.first_input + port < len(node.inputs):
                yield (index, *node.inputs[callee.first_input + port])
    else:
        yield from ((index, *source) for source in _sources(scope, (number, port)))


def _sources(scope: ir.Scope, place: Place) -> tuple[Place, ...]:
    if _is_of_constant(scope, scope.nodes[place[0]]):
        return ()
    return through.sources(scope, place)


def _is_of_constant(scope: ir.Scope, node: ir.Node) -> bool:
    """Returns whether a constant tells the range of what is fed: 1 - mask, or mask * -10000."""
    if node.op == "Sub":
        return any(_is_one(scope, place) for place in node.inputs)
    if node.op != "Mul":
        return False
    found = (_values(scope, place) for place in node.inputs)
    return any(v is not None and bool(np.all(np.abs(v) >= _MIN_SENTINEL)) for v in found)


def _is_one(scope: ir.Scope, place: Place) -> bool:
    number = _origin(scope, place)
    values = _values(scope, place)
    return scope.nodes[number].op == "OnesLike" or (
        values is not None and bool(np.all(values == 1))
    )


def _values(scope: ir.Scope, place: Place) -> NDArray[np.float64] | None:
    """Returns the values of a small constant of numbers, or of a tensor filled with one."""
    node = scope.nodes[_origin(scope, place)]
    if node.op == "Fill":
        node = scope.nodes[_origin(scope, node.inputs[1])]
    if node.op != handles.CONSTANT or node.proto is None:
        return None
    tensor = attr_of(node.proto, "value").tensor
    if not 0 < constants.num_values(tensor) <= _MAX_VALUES:
        return None
    values = tensor_util.MakeNdarray(tensor)
    return values.astype(np.float64) if values.dtype.kind in "fiuV" else None


def _origin(scope: ir.Scope, place: Place) -> int:
    while scope.nodes[place[0]].op in _SPREADS:
        place = scope.nodes[place[0]].inputs[0]
    return place[0]
