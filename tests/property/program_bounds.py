"""Runs a program in float64 and bounds how far each of its values may be off, element by element.

`tests/rounding.py` derives bounds for graphs without calls and loops, a number per tensor; this is
the same derivation for programs: the graph is executed, calls, loops and lists included, on pairs
of a value and a bound e of its error. For a node that computes f:

    e(out) = A(e(inputs)) + r * (u * (|out| + A) + tiny)

*   A is how much f can amplify what is already there, element by element: |x| @ e_w + e_x @ (|w| +
    e_w) for a product of matrices, e for what moves, selects or squashes, and so on.
*   r counts the roundings of a kernel, and u is the relative error of one: 2**-11 in half, 2**-8 in
    bfloat16, where the node's own type is low, 2**-24 elsewhere; tiny is what a rounding near 0 can
    lose. A denied op is granted 2**-24 whatever its type, so that a low one is found.
*   A weight is taken from the original by its name; where it is low it is off by one rounding.

Where a comparison may come out otherwise, what it selects may be either. Where a loop or a branch
may, nothing can be said: `Undecided`.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.core.framework import graph_pb2, types_pb2

from tests.property.graph_view import Node, Port, Scope, view
from tests.property.rounding_checker import CALLS, CONDITIONALS, DENIED, LOOPS, called
from tf_amp_rewriter import dtypes

Array = NDArray[np.generic]
SINGLE = 2.0**-24
LOW = {
    types_pb2.DT_HALF: dtypes.LOW_PRECISIONS["half"],
    types_pb2.DT_BFLOAT16: dtypes.LOW_PRECISIONS["bfloat16"],
}


class Undecided(Exception):
    """A float that decides a branch or a loop is too near to the limit."""


class _Dead(Exception):
    """A value of a branch that was not taken."""


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
Weights = Mapping[tuple[str, str], Array]


def weights(graph_def: graph_pb2.GraphDef) -> dict[tuple[str, str], Array]:
    """Returns the values of all constants of a graph by scope and name."""
    return {
        (scope.name, node.name): tf.make_ndarray(node.proto.attr["value"].tensor)
        for scope in view(graph_def).values()
        for node in scope.nodes.values()
        if node.op == "Const"
    }


def run(
    graph_def: graph_pb2.GraphDef,
    originals: Weights,
    feeds: Mapping[str, Array],
    outputs: Sequence[str],
) -> list[Value]:
    """Runs a graph and returns the outputs with their bounds.

    Args:
        graph_def: the original or the rewritten graph.
        originals: the constants of the original.
        feeds: the value of each placeholder.
        outputs: names of nodes.

    Raises:
        Undecided: which way the program goes depends on roundings.
        KeyError: an op without a row, or a constant that the original does not have.
    """
    program = _Program(view(graph_def), originals)
    exact = {name: _exact(value) for name, value in feeds.items()}
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)  # one chain of nodes is one chain of calls
    try:
        frame = _Run(program, program.scopes[""], exact)
        found = [frame.value((name, 0), ()) for name in outputs]
    finally:
        sys.setrecursionlimit(limit)
    return [thing for thing in found if isinstance(thing, Value)]


@dataclasses.dataclass(frozen=True)
class _Program:
    scopes: Mapping[str, Scope]
    originals: Weights

    def call(self, name: str, arguments: Sequence[Thing]) -> list[Thing]:
        scope = self.scopes[name]
        frame = _Run(self, scope, dict(zip(scope.arguments, arguments, strict=True)))
        return [frame.value(port, ()) for port in scope.results]

    def constant(self, scope: str, node: Node) -> Value:
        if node.type_of("dtype") not in LOW:
            return _exact(tf.make_ndarray(node.proto.attr["value"].tensor))
        low = LOW[node.type_of("dtype")]
        scope = re.sub(r"__amp(_\d+)?$", "", scope)
        name = re.sub(r"/(half|bfloat16)(_\d+)?$", "", node.name)
        center = self.originals[scope, name].astype(np.float64)
        return Value(center, low.epsilon * np.abs(center) + low.tiny)


class _Run:
    """One call of a function, or the main graph: every value on demand, each computed once."""

    def __init__(self, program: _Program, scope: Scope, given: Mapping[str, Thing]) -> None:
        self._program = program
        self._scope = scope
        self._given = given
        self._known: dict[tuple[str, tuple[int, ...]], Sequence[Thing]] = {}

    def value(self, port: Port, steps: tuple[int, ...]) -> Thing:
        """Returns a value; `steps` counts the steps of the frames of v1 loops around it."""
        key = (port[0], steps)
        if key not in self._known:
            self._known[key] = self._outputs(self._scope.nodes[port[0]], steps)
        return self._known[key][port[1]]

    def _outputs(self, node: Node, steps: tuple[int, ...]) -> Sequence[Thing]:
        for control in node.controls:
            self.value((control, 0), steps)  # raises if the branch was not taken
        match node.op:
            case "Placeholder" | "_Arg":
                return [self._given[node.name]]
            case "Const":
                return [self._program.constant(self._scope.name, node)]
            case "Enter":
                return [self.value(node.inputs[0], steps[:-1])]
            case "Exit":
                return [self._exit(node, steps)]
            case "Merge":
                return [self._merge(node, steps), _exact(np.int32(0))]
            case "Switch":
                taken = int(_decided(self.value(node.inputs[1], steps)))
                return _Taken(self.value(node.inputs[0], steps), taken)
        inputs = [self.value(port, steps) for port in node.inputs]
        if called(node):
            return self._call(node, inputs)
        return OPS[node.op](node, inputs)

    def _exit(self, node: Node, steps: tuple[int, ...]) -> Thing:
        """Runs a v1 loop: its values of step i are those behind `steps`, i."""
        switch = self._scope.nodes[node.inputs[0][0]]
        step = 0
        while _decided(self.value(switch.inputs[1], (*steps, step))):
            step += 1
        return self.value(switch.inputs[0], (*steps, step))

    def _merge(self, node: Node, steps: tuple[int, ...]) -> Thing:
        for port in node.inputs:
            source = self._scope.nodes[port[0]]
            if source.op == "NextIteration":
                if steps[-1] > 0:
                    return self.value(source.inputs[0], (*steps[:-1], steps[-1] - 1))
                continue
            if source.op == "Enter" and self._has_back_edge(node) and steps[-1] > 0:
                continue
            try:
                return self.value(port, steps)
            except _Dead:
                continue
        raise _Dead(node.name)

    def _has_back_edge(self, node: Node) -> bool:
        return any(self._scope.nodes[name].op == "NextIteration" for name, _ in node.inputs)

    def _call(self, node: Node, inputs: Sequence[Thing]) -> Sequence[Thing]:
        program, names = self._program, called(node)
        if node.op in LOOPS:
            values = list(inputs)
            while _decided(program.call(names[0], values)[0]):
                values = program.call(names[1], values)
            return values
        if node.op in CONDITIONALS:
            index = int(_decided(inputs[0]))
            if node.op not in ("Case", "StatelessCase"):
                index = 1 - index  # the branch for True is named first
            elif not 0 <= index < len(names):
                index = len(names) - 1
            return program.call(names[index], inputs[1:])
        assert node.op in CALLS
        return program.call(names[0], inputs)


class _Taken(Sequence[Thing]):
    """The outputs of a Switch, of which one is dead."""

    def __init__(self, thing: Thing, taken: int) -> None:
        self._thing = thing
        self._taken = taken

    def __len__(self) -> int:
        return 2

    def __getitem__(self, port: int) -> Thing:  # type: ignore[override]
        if port != self._taken:
            raise _Dead
        return self._thing


def _exact(center: object) -> Value:
    array = np.asarray(center)
    exact = array.astype(np.float64) if array.dtype.kind == "f" else array
    return Value(exact, np.zeros(array.shape))


def _decided(thing: Thing) -> Array:
    assert isinstance(thing, Value)
    if thing.error.any():
        raise Undecided
    return thing.center


# ------------------------------------------------------------------------- ops

Op = Callable[[Node, Sequence[Thing]], Sequence[Thing]]


def _rounded(node: Node, center: Array, amplified: Array, low: int = 2, single: int = 8) -> Value:
    """Returns what a node computes in its own type with `low` or `single` roundings."""
    own = LOW.get(node.out_types[0])  # type: ignore[call-overload]
    size = np.abs(center) + amplified
    if own is None or node.op in DENIED:
        return Value(center, amplified + single * SINGLE * size)
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

ZERO = _exact(np.zeros((4, 4)))


def _filled(element: Value | None) -> Value:
    return ZERO if element is None else element


def _stacked(elements: Sequence[Value | None]) -> Value:
    if not elements:
        return _exact(np.zeros((0, 4, 4)))
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
    "EmptyTensorList": lambda _, x: [()],
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
    "TensorListConcatV2": lambda _, x: [_concatenated(x[0]), _exact([4] * len(x[0]))],
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
