"""How far off each op's result may be: see `program_bounds.py`, which runs whole programs.

Values are pairs of what a tensor is without any rounding and a bound of its error, per element.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from tensorflow.core.framework import types_pb2

from tests.property.graph_view import Node
from tf_amp_rewriter import dtypes

Array = NDArray[np.generic]
SINGLE = 2.0**-24
SINGLE_TINY = 2.0**-126  # smaller ones become 0 in TensorFlow's kernels
LOW = {
    types_pb2.DT_HALF: dtypes.LOW_PRECISIONS["half"],
    types_pb2.DT_BFLOAT16: dtypes.LOW_PRECISIONS["bfloat16"],
}
# Must stay float32: the error of a low one is beyond the bound.
DENIED = frozenset({"Exp", "Mean", "Square", "Sum"})


@dataclasses.dataclass(frozen=True)
class Value:
    """A tensor: what it is without any rounding, and how far it may be off.

    For a bool, an error of 1 says that it may come out otherwise.
    """

    center: Array
    error: Array

    @property
    def most(self) -> Array:
        return np.abs(self.center) + self.error


# What a node gives: a tensor, the elements of a list, or those of a TensorArray (at its flow).
Thing = Value | tuple["Value | None", ...]
Op = Callable[[Node, Sequence[Thing]], Sequence[Thing]]


def exact(center: object) -> Value:
    array = np.asarray(center)
    exact = array.astype(np.float64) if array.dtype.kind == "f" else array
    return Value(exact, np.zeros(array.shape))


def _rounded(node: Node, center: Array, amplified: Array, low: int = 2, single: int = 8) -> Value:
    """Returns what a node computes in its own type with `low` or `single` roundings."""
    own = LOW.get(node.out_types[0])  # type: ignore[call-overload]
    size = np.abs(center) + amplified
    if own is None or node.op in DENIED:
        return Value(center, amplified + single * (SINGLE * size + SINGLE_TINY))
    return Value(center, amplified + low * (own.epsilon * size + own.tiny))


def _cast(node: Node, inputs: Sequence[Value]) -> Sequence[Thing]:
    (x,) = inputs
    if node.type_of("DstT") in LOW:
        return [_rounded(node, x.center, x.error, low=1)]
    return [x]


def _moves(move: Callable[..., Array]) -> Op:
    """For what moves values: the errors move with them. `move` takes node, arrays and ints."""

    def op(node: Node, inputs: Sequence[Thing]) -> Sequence[Thing]:
        centers = [thing.center for thing in inputs if isinstance(thing, Value)]
        errors = [
            thing.center if thing.center.dtype.kind in "iu" else thing.error
            for thing in inputs
            if isinstance(thing, Value)
        ]
        moved, moved_errors = move(node, *centers), move(node, *errors)
        if isinstance(moved, list):
            return [Value(c, e) for c, e in zip(moved, moved_errors, strict=True)]
        return [Value(moved, moved_errors)]

    return op


def _slice(_: Node, x: Array, begin: Array, size: Array) -> Array:
    return x[tuple(slice(b, b + s) for b, s in zip(begin, size, strict=True))]


def _matmul(node: Node, inputs: Sequence[Value]) -> Sequence[Thing]:
    x, w = inputs
    amplified = np.abs(x.center) @ w.error + x.error @ w.most
    # Products are summed in float32: the sum is off by what its terms are.
    amplified = amplified + 2 * len(w.center) * SINGLE * (x.most @ w.most)
    return [_rounded(node, x.center @ w.center, amplified)]


def _product(node: Node, inputs: Sequence[Value]) -> Sequence[Thing]:
    x, y = inputs
    amplified = np.abs(x.center) * y.error + x.error * y.most
    return [_rounded(node, x.center * y.center, amplified, low=1)]


def _linear(function: Callable[..., Array]) -> Op:
    def op(node: Node, inputs: Sequence[Value]) -> Sequence[Thing]:
        x, y = inputs
        return [_rounded(node, function(x.center, y.center), x.error + y.error, low=1)]

    return op  # type: ignore[return-value]


def _squashes(function: Callable[[Array], Array], low: int) -> Op:
    """For functions with a slope of at most 1."""

    def op(node: Node, inputs: Sequence[Value]) -> Sequence[Thing]:
        (x,) = inputs
        return [_rounded(node, function(x.center), x.error, low)]

    return op  # type: ignore[return-value]


def _selects(function: Callable[..., Array]) -> Op:
    """For Maximum and its like: the result is off by no more than the inputs, where these count."""

    def op(_: Node, inputs: Sequence[Value]) -> Sequence[Thing]:
        x, y = inputs
        center = function(x.center, y.center)
        error = np.zeros(center.shape)
        for one in inputs:
            may_count = np.abs(one.center - center) <= x.error + y.error + one.error
            error = np.maximum(error, np.where(may_count, one.error, 0))
        return [Value(center, error)]

    return op  # type: ignore[return-value]


def _relu(_: Node, inputs: Sequence[Value]) -> Sequence[Thing]:
    (x,) = inputs
    return [Value(np.maximum(x.center, 0), np.where(x.center + x.error < 0, 0, x.error))]


def _exp(node: Node, inputs: Sequence[Value]) -> Sequence[Thing]:
    (x,) = inputs
    center = np.exp(x.center)
    return [_rounded(node, center, center * np.expm1(x.error))]


def _square(node: Node, inputs: Sequence[Value]) -> Sequence[Thing]:
    (x,) = inputs
    amplified = 2 * np.abs(x.center) * x.error + x.error**2
    return [_rounded(node, np.square(x.center), amplified)]


def _folds(function: Callable[..., Array], *, is_sum: bool) -> Op:
    def op(node: Node, inputs: Sequence[Value]) -> Sequence[Thing]:
        x, axes = inputs
        keep = node.proto.attr["keep_dims"].b
        axis = tuple(np.atleast_1d(axes.center).tolist())
        center = function(x.center, axis=axis, keepdims=keep)
        error = function(x.error, axis=axis, keepdims=keep)
        if not is_sum:
            return [Value(center, error)]
        # The terms of a sum are rounded relative to their own sizes, not to that of the sum.
        terms = function(x.most, axis=axis, keepdims=keep)
        return [_rounded(node, center, error + x.center.size * SINGLE * terms)]

    return op  # type: ignore[return-value]


def _compares(function: Callable[..., Array]) -> Op:
    def op(_: Node, inputs: Sequence[Value]) -> Sequence[Thing]:
        x, y = inputs
        slack = x.error + y.error
        distance = np.abs(np.subtract(x.center, y.center, dtype=np.float64))
        flips = (slack > 0) & (distance <= slack)
        return [Value(function(x.center, y.center), flips.astype(np.float64))]

    return op  # type: ignore[return-value]


def _select(_: Node, inputs: Sequence[Value]) -> Sequence[Thing]:
    chosen, x, y = inputs
    center = np.where(chosen.center, x.center, y.center)
    error = np.where(chosen.center, x.error, y.error)
    either = np.maximum(x.error, y.error) + np.abs(x.center - y.center)
    return [Value(center, np.where(chosen.error > 0, either, error))]


def _ints(function: Callable[..., Array]) -> Op:
    def op(_: Node, inputs: Sequence[Value]) -> Sequence[Thing]:
        error = np.max([one.error.max(initial=0.0) for one in inputs])
        return [Value(np.asarray(function(*(one.center for one in inputs))), np.asarray(error))]

    return op  # type: ignore[return-value]


def _add(node: Node, inputs: Sequence[Value]) -> Sequence[Thing]:
    is_float = inputs[0].center.dtype.kind == "f"
    return (_linear(np.add) if is_float else _ints(np.add))(node, inputs)


# ------------------------------------------------------------------------- lists

ZERO = exact(np.zeros((4, 4)))


def _filled(element: Value | None) -> Value:
    return ZERO if element is None else element


def _stacked(elements: Sequence[Value | None]) -> Value:
    if not elements:
        return exact(np.zeros((0, 4, 4)))
    filled = [_filled(element) for element in elements]
    return Value(np.stack([v.center for v in filled]), np.stack([v.error for v in filled]))


def _unstacked(value: Value) -> tuple[Value, ...]:
    return tuple(Value(c, e) for c, e in zip(value.center, value.error, strict=True))


def _set(elements: Sequence[Value | None], index: int, value: Value) -> tuple[Value | None, ...]:
    return tuple(value if i == index else old for i, old in enumerate(elements))


def _scattered(size: int, indices: Sequence[int], value: Value) -> tuple[Value | None, ...]:
    elements: tuple[Value | None, ...] = (None,) * size
    for index, one in zip(indices, _unstacked(value), strict=True):
        elements = _set(elements, index, one)
    return elements


def _concatenated(elements: Sequence[Value | None]) -> Value:
    whole = _stacked(elements)
    return Value(whole.center.reshape(-1, 4), whole.error.reshape(-1, 4))


def _split(value: Value) -> tuple[Value, ...]:
    center, error = value.center.reshape(-1, 4, 4), value.error.reshape(-1, 4, 4)
    return _unstacked(Value(center, error))


def _int(value: Value) -> int:
    return int(value.center)


OPS: Mapping[str, Callable[..., Sequence[Thing]]] = {
    "AddV2": _add,
    "BroadcastTo": _moves(lambda _, x, shape: np.broadcast_to(x, shape)),
    "Cast": _cast,
    "ConcatV2": _moves(lambda _, *x: np.concatenate(x[:-1], int(x[-1]))),
    "EmptyTensorList": lambda *_: [()],
    "Exp": _exp,
    "FloorMod": _ints(np.mod),
    "Greater": _compares(np.greater),
    "Identity": lambda _, x: x,
    "Less": _compares(np.less),
    "LogicalAnd": _ints(np.logical_and),
    "LoopCond": lambda _, x: x,
    "MatMul": _matmul,
    "Max": _folds(np.max, is_sum=False),
    "Maximum": _selects(np.maximum),
    "Mean": _folds(np.mean, is_sum=True),
    "Minimum": _selects(np.minimum),
    "Mul": _product,
    "Neg": lambda _, x: [Value(-x[0].center, x[0].error)],
    "Pack": _moves(lambda _, *x: np.stack(x)),
    "Range": _ints(np.arange),
    "Relu": _relu,
    "Reshape": _moves(lambda _, x, shape: x.reshape(shape)),
    "SelectV2": _select,
    "Sigmoid": _squashes(lambda x: 1 / (1 + np.exp(-x)), 3),
    "Slice": _moves(_slice),
    "Softsign": _squashes(lambda x: x / (1 + np.abs(x)), 3),
    "Split": _moves(lambda n, axis, x: np.split(x, n.proto.attr["num_split"].i, int(axis))),
    "Square": _square,
    "Sub": _linear(np.subtract),
    "Sum": _folds(np.sum, is_sum=True),
    "Tanh": _squashes(np.tanh, 2),
    "TensorArrayGatherV3": lambda _, x: [_stacked([x[2][i] for i in x[1].center])],
    "TensorArrayReadV3": lambda _, x: [x[2][_int(x[1])]],
    "TensorArrayScatterV3": lambda _, x: [_scattered(len(x[3]), x[1].center, x[2])],
    "TensorArrayV3": lambda _, x: [(), (None,) * _int(x[0])],
    "TensorArrayWriteV3": lambda _, x: [_set(x[3], _int(x[1]), x[2])],
    "TensorListConcatV2": lambda _, x: [_concatenated(x[0]), exact([4] * len(x[0]))],
    "TensorListFromTensor": lambda _, x: [_unstacked(x[0])],
    "TensorListGather": lambda _, x: [_stacked([x[0][i] for i in x[1].center])],
    "TensorListGetItem": lambda _, x: [_filled(x[0][_int(x[1])])],
    "TensorListPopBack": lambda _, x: [x[0][:-1], _filled(x[0][-1])],
    "TensorListPushBack": lambda _, x: [(*x[0], x[1])],
    "TensorListReserve": lambda _, x: [(None,) * _int(x[1])],
    "TensorListScatterV2": lambda _, x: [_scattered(_int(x[3]), x[1].center, x[0])],
    "TensorListSetItem": lambda _, x: [_set(x[0], _int(x[1]), x[2])],
    "TensorListSplit": lambda _, x: [_split(x[0])],
    "TensorListStack": lambda _, x: [_stacked(x[0])],
    "Transpose": _moves(lambda _, x, order: np.transpose(x, order)),
}
