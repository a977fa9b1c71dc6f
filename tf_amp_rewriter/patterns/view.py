"""A scope as patterns look at it: what an op computes from, seen through ops that hand it on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from tf_amp_rewriter.dtypes import DT_FLOAT
from tf_amp_rewriter.ir import constants, reach
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ops import handles
from tf_amp_rewriter.ops.attrs import attr_of
from tf_amp_rewriter.ops.exactness import HAND_ON

Place = tuple[int, int]  # (node, port)

# Give on what they read in another shape.
RESHAPE: Final = frozenset({"ExpandDims", "Reshape", "Squeeze"})
_WEIGHTS: Final = frozenset({handles.CONSTANT, "ReadVariableOp"})
_MAX_STEPS: Final = 32  # more than a batch norm takes to compute from its weights


@dataclasses.dataclass(frozen=True)
class View:
    """One scope.

    Attributes:
        index: its index in the program.
        scope: the scope itself.
        readers: (node, port) -> (node, input) of all that read it.
        fetched: nodes of which outsiders see an output.
    """

    index: int
    scope: ir.Scope
    readers: Mapping[Place, Sequence[tuple[int, int]]]
    fetched: frozenset[int] = frozenset()

    def op(self, node: int) -> str:
        """Returns the op type of a node."""
        return self.scope.nodes[node].op

    def operand(self, node: int, position: int, through: frozenset[str] = HAND_ON) -> Place:
        """Returns the output that an input gets, seen through these ops."""
        place = self.scope.nodes[node].inputs[position]
        while self.op(place[0]) in through:
            place = self.scope.nodes[place[0]].inputs[0]
        return place

    def uses(self, node: int) -> list[tuple[int, int]]:
        """Returns (node, input) of all that read output 0 of a node, seen through `HAND_ON`."""
        found: list[tuple[int, int]] = []
        stack = [node]
        while stack:
            for reader, position in self.readers.get((stack.pop(), 0), ()):
                if self.op(reader) in HAND_ON:
                    stack.append(reader)
                else:
                    found.append((reader, position))
        return sorted(found)

    def is_fetched(self, node: int) -> bool:
        """Returns whether outsiders see a node, directly or through `HAND_ON`."""
        stack = [node]
        while stack:
            current = stack.pop()
            if current in self.fetched:
                return True
            readers = self.readers.get((current, 0), ())
            stack.extend(reader for reader, _ in readers if self.op(reader) in HAND_ON)
        return False

    def constant(self, node: int, position: int) -> float | None:
        """Returns the value that an input of one value is; None if it is no such constant."""
        source = self.scope.nodes[self.operand(node, position, HAND_ON | RESHAPE)[0]]
        if source.op != handles.CONSTANT or source.proto is None:
            return None
        tensor = attr_of(source.proto, "value").tensor
        if tensor.dtype != DT_FLOAT or constants.num_values(tensor) != 1:
            return None
        return float(np.float32(constants.values(tensor)[0]))

    def has_root(self, place: tuple[int, int]) -> bool:
        """Returns whether an input is computed from weights with a root, as in a batch norm."""
        stack = [self.scope.nodes[place[0]].inputs[place[1]][0]]
        for _ in range(_MAX_STEPS):
            if not stack:
                return False
            found = self.scope.nodes[stack.pop()]
            if found.op in ("Rsqrt", "Sqrt"):
                return True
            if found.op not in _WEIGHTS:
                stack.extend(producer for producer, _ in found.inputs)
        return False

    def is_of_weights(self, node: int) -> bool:
        """Returns whether a node computes from constants and variables alone, in a few steps."""
        stack = [node]
        for _ in range(_MAX_STEPS):
            if not stack:
                return True
            found = self.scope.nodes[stack.pop()]
            if found.op not in _WEIGHTS:
                if not found.inputs or not found.known:
                    return False
                stack.extend(producer for producer, _ in found.inputs)
        return False


def view(program: ir.Program, index: int) -> View:
    """Returns the view of one scope; linear in its nodes."""
    scope = program.scopes[index]
    fetches = program.graphs[scope.graph].fetches if scope.function < 0 else ()
    names = {tensor.partition(":")[0] for tensor in fetches}
    fetched = frozenset(i for i, node in enumerate(scope.nodes) if names and node.name in names)
    return View(index, scope, reach.consumers_of(scope), fetched)
