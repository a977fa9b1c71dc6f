"""Attention: scores, a mask, and the Softmax that makes probabilities of them.

A mask is a value so low that its probability is 0, and often too low for half. Two forms are known:

    selected:  Softmax(Select(mask, scores, -1e9))
    added:     Softmax(scores + (1 - mask) * -1e9)

What is selected meets no arithmetic before the Softmax takes the maximum off: the lowest finite
value gives the same probabilities, 0 beside any other score and all the same where all is masked.
What is added must leave room for the scores: -65504 - 30 is minus infinity in half, and a row of
these alone is not a number. So a constant that is added is clamped only where the user asks, to a
share of the range that leaves as much for the scores.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tf_amp_rewriter import dtypes
from tf_amp_rewriter.dtypes import HALF, LowPrecision
from tf_amp_rewriter.ir import constants
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ops import handles
from tf_amp_rewriter.ops.attrs import attr_of
from tf_amp_rewriter.ops.exactness import HAND_ON, SOFTMAX
from tf_amp_rewriter.ops.rows import Category, OpRow
from tf_amp_rewriter.patterns import fed_masks
from tf_amp_rewriter.patterns.view import RESHAPE, View

ADDS: Final = frozenset({"Add", "AddV2"})
SELECTS: Final = frozenset({"Select", "SelectV2"})
# Give the elements of their first input, some of them, or some of them often.
MOVES: Final = (
    HAND_ON
    | RESHAPE
    | {"BroadcastTo", "Enter", "GatherV2", "MatrixBandPart", "Slice", "StridedSlice", "Tile"}
    | {"Transpose"}
)
# Where the mask is made of a constant, before it meets the scores.
_MAKES: Final = MOVES | {"Cast", "Fill", "Mul", "Neg"}
# Between the scores with their mask and the Softmax.
_AFTER: Final = ADDS | HAND_ON | RESHAPE
_MAX_NODES: Final = 256  # that one constant reaches
_NAME: Final = "attention mask"
_SOURCE: Final = "numerics of softmax"
_SELECTED: Final = "the Softmax behind a Select gives the same probabilities"
_ADDED: Final = "it is added to attention scores, for which it leaves room"
_ROOT: Final = "the root of an integer fits; it is computed in float32"

# A selected constant that is as near to the lowest finite value gets a share where all is masked:
# exp(-104) is 0 in float32.
_NEAR: Final = 128.0


@dataclasses.dataclass(frozen=True)
class Mask:
    """A constant that masks attention scores.

    Attributes:
        node: the Const.
        values: its values.
        softmaxes: the Softmax nodes that it reaches -> how often it is added on the way.
        is_added: whether it is added to the scores, not selected.
        is_moved: whether something hands it on to where it meets the scores.
    """

    node: int
    values: NDArray[np.float32]
    softmaxes: Mapping[int, int]
    is_added: bool
    is_moved: bool


def rows(view: View, program: ir.Program, low: LowPrecision) -> Iterator[tuple[int, OpRow]]:
    """Yields (node, row) for constants that mask, for masks that are fed, and for scales."""
    if SOFTMAX not in view.scope.ops:
        return
    found = list(_masks(view))
    selected = [m for m in found if not m.is_added]
    lowest = _lowest_by_softmax(selected, low)
    for mask in selected:
        # two different ones in a row that is all masked would be told apart
        if _is_sentinel(mask.values, low) and all(len(lowest[s]) == 1 for s in mask.softmaxes):
            row = _row(low.max, mask.is_moved, _SELECTED)
            yield mask.node, dataclasses.replace(row, saturate=True)
    added = [m for m in found if m.is_added]
    counts = collections.Counter[int]()
    for mask in added:
        counts.update(mask.softmaxes)
    for mask in added:
        count = max(counts[softmax] for softmax in mask.softmaxes)
        yield mask.node, _row(low.max / (count + 1), True, _ADDED)
    if low == HALF:
        yield from fed_masks.rows(view, program, _NAME)
        yield from _roots(view)


def _row(limit: float, in_place: bool, note: str) -> OpRow:
    return OpRow(
        handles.CONSTANT,
        Category.CLEAR,
        _SOURCE,
        limit=limit,
        in_place=in_place,
        pattern=_NAME,
        note=note,
    )


def _lowest_by_softmax(masks: list[Mask], low: LowPrecision) -> Mapping[int, set[float]]:
    """Returns Softmax -> the constants selected for it that are the lowest finite value, or near.

    -65504 fits half, but where it is selected it is told from -1e9 only as long as that is lower.
    """
    found = collections.defaultdict[int, set[float]](set)
    for mask in masks:
        finite = mask.values[np.isfinite(mask.values)]
        for value in {float(v) for v in finite if v < _NEAR - low.max}:
            for softmax in mask.softmaxes:
                found[softmax].add(value)
    return found


# ---------------------------------------------------------------- masks that are constant


def _masks(view: View) -> Iterator[Mask]:
    for index, node in enumerate(view.scope.nodes):
        if node.op == handles.CONSTANT and node.proto is not None and node.out_vars[0] != ir.NO_VAR:
            mask = _selected(view, index) or _added(view, index)
            if mask is not None:
                tensor = attr_of(node.proto, "value").tensor
                yield dataclasses.replace(mask, values=constants.values(tensor))


def _is_sentinel(values: NDArray[np.float32], low: LowPrecision) -> bool:
    """Returns whether all values are one, negative, finite, and beyond the range."""
    first = float(values[0]) if values.size else 0.0
    return -np.inf < first < 0 and dtypes.overflows(first, low) and bool(np.all(values == first))


def _mask(node: int, softmaxes: Mapping[int, int], is_added: bool, is_moved: bool) -> Mask | None:
    if not softmaxes:
        return None
    return Mask(node, np.zeros(0, np.float32), softmaxes, is_added, is_moved)


def _selected(view: View, constant: int) -> Mask | None:
    """Returns the mask that a constant is, if all that reads it selects it for a Softmax."""
    softmaxes: set[int] = set()
    stack = [(constant, False)]  # node, whether it is behind a Select
    seen = {constant}
    is_moved = False
    while stack:
        current, is_behind = stack.pop()
        if current in view.fetched:
            return None
        for reader, position in view.readers.get((current, 0), ()):
            op = view.op(reader)
            if op == SOFTMAX and is_behind:
                softmaxes.add(reader)
            elif op in SELECTS and position > 0:
                _push(stack, seen, (reader, True))
            elif (op in MOVES and position == 0) or (op == "Fill" and not is_behind):
                is_moved |= not is_behind
                _push(stack, seen, (reader, is_behind))
            else:
                return None
        if len(seen) > _MAX_NODES:
            return None
    return _mask(constant, dict.fromkeys(softmaxes, 1), False, is_moved)


def _push(stack: list[tuple[int, bool]], seen: set[int], entry: tuple[int, bool]) -> None:
    if entry[0] not in seen:
        seen.add(entry[0])
        stack.append(entry)


def _added(view: View, constant: int) -> Mask | None:
    """Returns the mask that a constant is, if all that is made of it is added for a Softmax."""
    made, joins = {constant}, set[int]()
    stack = [constant]
    while stack:
        current = stack.pop()
        if current in view.fetched:
            return None
        for reader, position in view.readers.get((current, 0), ()):
            if view.op(reader) in ADDS | {"Sub"} and not _is_all_of(view, reader, made):
                joins.add(reader)
            elif _is_made(view, reader, position, made):
                if reader not in made:
                    made.add(reader)
                    stack.append(reader)
            else:
                return None
        if len(made) > _MAX_NODES:
            return None
    softmaxes, times = collections.Counter[int](), {constant: 1}
    for join in sorted(joins - made):
        behind = _softmaxes_behind(view, join)
        if behind is None:
            return None
        softmaxes.update(dict.fromkeys(behind, _times(view, join, made, times)))
    return _mask(constant, softmaxes, True, True)


def _times(view: View, node: int, made: set[int], known: dict[int, int]) -> int:
    """Returns how often the constant that `made` is made of is added up in a node, at most."""
    if node not in known:
        known[node] = 0  # in a loop: once for all its steps
        sources = view.scope.nodes[node].inputs
        known[node] = sum(_times(view, s, made, known) for s, _ in sources if s in made)
    return known[node]


def _is_made(view: View, reader: int, position: int, made: set[int]) -> bool:
    """Returns whether a node that reads a part of a mask makes another part of it."""
    op = view.op(reader)
    if op in ADDS | {"Sub"}:
        return True
    if op in SELECTS:  # between it and 0, say
        other = view.operand(reader, 3 - position, MOVES | {"Fill"}) if position else None
        return other is not None and (
            other[0] in made or view.op(other[0]) in {handles.CONSTANT, "ZerosLike"}
        )
    return op in _MAKES and (position == 0 or op in {"Fill", "Mul"})


def _is_all_of(view: View, node: int, made: set[int]) -> bool:
    return all(source in made for source, _ in view.scope.nodes[node].inputs)


def _softmaxes_behind(view: View, join: int) -> set[int] | None:
    """Returns the Softmax nodes that read a sum; None if something else does."""
    softmaxes: set[int] = set()
    stack, seen = [join], {join}
    while stack:
        current = stack.pop()
        if current in view.fetched:
            return None
        for reader, position in view.readers.get((current, 0), ()):
            op = view.op(reader)
            if op == SOFTMAX:
                softmaxes.add(reader)
            elif op in _AFTER and (position == 0 or op in ADDS):
                if reader not in seen:
                    seen.add(reader)
                    stack.append(reader)
            else:
                return None
        if len(seen) > _MAX_NODES:
            return None
    return softmaxes


# ---------------------------------------------------------------- the scale of the scores


def _roots(view: View) -> Iterator[tuple[int, OpRow]]:
    """Yields the roots of sizes by which scores are divided."""
    for index, node in enumerate(view.scope.nodes):
        if node.op in {"Rsqrt", "Sqrt"} and node.known:
            cast = view.scope.nodes[view.operand(index, 0)[0]]
            if cast.op == handles.CAST and cast.in_types[0] == dtypes.DT_INT32:
                row = OpRow(node.op, Category.KEEP, _SOURCE, bounded=True, note=_ROOT)
                yield index, dataclasses.replace(row, pattern="attention scale")
