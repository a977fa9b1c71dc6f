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
may, nothing can be said: `UndecidedError`.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tests.property.calls import CALLS, CONDITIONALS, LOOPS, called
from tests.property.graph_view import Node, Port, Scope, view
from tests.property.op_bounds import LOW, OPS, Array, Thing, Value, exact


class UndecidedError(Exception):
    """A float that decides a branch or a loop is too near to the limit."""


class _DeadError(Exception):
    """A value of a branch that was not taken."""


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
        UndecidedError: which way the program goes depends on roundings.
        KeyError: an op without a row, or a constant that the original does not have.
    """
    program = _Program(view(graph_def), originals)
    given = {name: exact(value) for name, value in feeds.items()}
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)  # one chain of nodes is one chain of calls
    try:
        frame = _Run(program, program.scopes[""], given)
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
            return exact(tf.make_ndarray(node.proto.attr["value"].tensor))
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
                return [self._merge(node, steps), exact(np.int32(0))]
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
            except _DeadError:
                continue
        raise _DeadError(node.name)

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
            raise _DeadError
        return self._thing


def _decided(thing: Thing) -> Array:
    assert isinstance(thing, Value)
    if thing.error.any():
        raise UndecidedError
    return thing.center
