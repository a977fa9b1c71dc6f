"""Finds what no rewritten graph may have: a needless rounding, a chain of Casts, types that differ.

Knows nothing of the pass: it reads the rewritten protos (`graph_view.py`), with lists of its own of
the ops that move or select values.

A *needless rounding*: a value that an op computed in float32 is cast to the low precision, passes
only ops that move or select values, through calls, loops (also ones that run no step) and lists,
is cast up again, and then a float32 op, or the model's caller, reads it. Each value computed in
float32 is followed forward as one of three states

    EXACT     float32, not rounded yet
    ROUNDED   one of our Casts made it low
    RESTORED  cast to float32 again; whoever computes with it now reads a needless rounding

A value inside a list is followed with the list's handle (for a TensorArray: with its flow).
Functions have summaries, argument and state -> results and states, so that a value which one
caller passes in does not come out at another caller. Where a value is made inside a function, it
goes on at every caller. Values computed from constants alone are not followed: whoever wants them
low or float32 has them so at no cost, and the pass may round them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tensorflow.core.framework import graph_pb2, types_pb2

from tests.property import liveness
from tests.property.calls import (
    CONDITIONALS,
    Fact,
    Follow,
    Program,
    called,
    gives_predicate,
)
from tests.property.graph_view import ARGUMENT, Node, Port, Scope, view
from tests.property.op_bounds import DENIED

FLOAT = types_pb2.DT_FLOAT
LOW = (types_pb2.DT_HALF, types_pb2.DT_BFLOAT16)
FLOATS = (FLOAT, *LOW)

# op -> inputs whose values come out as they are; None for all inputs.
MOVES: Mapping[str, Sequence[int] | None] = {
    **dict.fromkeys(
        "Abs ConcatV2 Enter Exit Identity Maximum Merge Minimum Neg NextIteration Pack Relu "
        "StopGradient".split()
    ),
    **dict.fromkeys(
        "BroadcastTo ExpandDims GatherV2 Max Min Reshape Slice Squeeze StridedSlice Switch Tile "
        "Transpose Unpack".split(),
        (0,),
    ),
    "IdentityN": None,
    "Pad": (0,),
    "Select": (1, 2),
    "SelectV2": (1, 2),
    "Split": (1,),
    "SplitV": (0,),
    "TensorArrayGatherV3": (2,),
    "TensorArrayReadV3": (2,),
    "TensorArrayScatterV3": (2, 3),
    "TensorArrayWriteV3": (2, 3),
    "TensorListConcatLists": (0, 1),
    "TensorListConcatV2": (0,),
    "TensorListFromTensor": (0,),
    "TensorListGather": (0,),
    "TensorListGetItem": (0,),
    "TensorListPopBack": (0,),
    "TensorListPushBack": (0, 1),
    "TensorListResize": (0,),
    "TensorListScatterV2": (0,),
    "TensorListSetItem": (0, 2),
    "TensorListSplit": (0,),
    "TensorListStack": (0,),
}
# Outputs of these that are no values: an index, lengths.
VALUE_PORTS = {"Merge": (0,), "TensorListConcatV2": (0,)}
# Read a shape or a length, never a value.
BLIND = frozenset({"Rank", "Shape", "Size", "TensorArraySizeV3", "TensorListLength", "ZerosLike"})

LISTS = (
    "EmptyTensorList",
    "TensorListFromTensor",
    "TensorListReserve",
    "TensorListScatterV2",
    "TensorListSplit",
)


class State(enum.Enum):
    EXACT = "EXACT"
    ROUNDED = "ROUNDED"
    RESTORED = "RESTORED"


def violations(
    original: graph_pb2.GraphDef, rewritten: graph_pb2.GraphDef, outputs: Sequence[str]
) -> list[str]:
    """Returns a line for each thing that is wrong with `rewritten`; empty if nothing is.

    Args:
        original: the graph before; its Casts are its own affair.
        rewritten: the graph after.
        outputs: nodes of the main graph that give the outputs. A reader that none of them depends
            on never runs, so it reads no rounding.
    """
    program = Program(rewritten)
    old = {
        (scope.name, node.name)
        for scope in view(original).values()
        for node in scope.nodes.values()
        if node.op == "Cast"
    }
    ours = {
        (scope.name, node.name)
        for scope in program.scopes.values()
        for node in scope.nodes.values()
        if node.op == "Cast" and (scope.name, node.name) not in old
    }
    return [
        *_odd_casts(program, ours),
        *_low_denials(program),
        *_odd_calls(program),
        *_Elements(program).odd(),
        *_Roundings(program, ours, outputs).needless(),
    ]


def _odd_casts(program: Program, ours: set[tuple[str, str]]) -> Iterator[str]:
    for scope_name, name in sorted(ours):
        nodes = program.scopes[scope_name].nodes
        source = nodes[nodes[name].inputs[0][0]]
        if source.op in ("Cast", "Const"):
            yield f"{scope_name}/{name}: a Cast of the {source.op} `{source.name}`"


def _low_denials(program: Program) -> Iterator[str]:
    for scope in program.scopes.values():
        for node in scope.nodes.values():
            if node.op in DENIED and node.type_of("T") in LOW:
                yield f"{scope.name}/{node.name}: {node.op} computes in the low precision"


def _odd_calls(program: Program) -> Iterator[str]:
    for scope in program.scopes.values():
        returned = tuple(scope.nodes[name].out_types[port] for name, port in scope.results)
        if returned != scope.result_types:
            yield f"{scope.name} returns {returned}, its signature says {scope.result_types}"
        for node in scope.nodes.values():
            for name in called(node):
                callee = program.scopes[name]
                given = node.in_types[1 if node.op in CONDITIONALS else 0 :]
                taken = tuple(callee.nodes[arg].out_types[0] for arg in callee.arguments)
                if given != taken:
                    yield f"{scope.name}/{node.name} passes {given}, `{name}` takes {taken}"
                if not gives_predicate(node, name) and callee.result_types != node.out_types:
                    yield (
                        f"{scope.name}/{node.name} takes {node.out_types} of "
                        f"{callee.result_types} from `{name}`"
                    )
            for index, (producer, port) in enumerate(node.inputs):
                dtype = scope.nodes[producer].out_types[port]
                if dtype != node.in_types[index]:
                    yield f"{scope.name}/{node.name}: input {index} is of type {dtype}"


class _Roundings(Follow):
    """Facts are states of values that were computed in float32."""

    def __init__(
        self, program: Program, ours: set[tuple[str, str]], outputs: Sequence[str]
    ) -> None:
        super().__init__(program)
        self._ours = ours
        self._outputs = outputs
        self._live = {(scope, name) for scope, name, _ in liveness.live(program, outputs)}

    def needless(self) -> list[str]:
        constant = _computed_from_constants(self.program)
        for scope in self.program.scopes.values():
            seeds = [
                ((node.name, port), State.EXACT)
                for node in scope.nodes.values()
                if (scope.name, node.name) not in constant and self._computes(scope, node)
                for port, dtype in enumerate(node.out_types)
                if dtype == FLOAT
            ]
            self.follow(scope, seeds)
        return sorted(self.found)

    def _computes(self, scope: Scope, node: Node) -> bool:
        if node.op in MOVES or node.op in (ARGUMENT, "TensorArrayV3") or called(node):
            return False
        return (scope.name, node.name) not in self._ours

    def step(self, scope: Scope, node: Node, index: int, fact: object) -> Iterable[Fact]:
        if (scope.name, node.name) in self._ours:
            return [((node.name, 0), _after_cast(node, fact))]
        if node.op in BLIND:
            return []
        if node.op not in MOVES:
            if fact is State.RESTORED and (scope.name, node.name) in self._live:
                self.found[f"{scope.name}/{node.name} reads what was rounded needlessly"] = None
            return []
        carried = MOVES[node.op]
        if carried is not None and index not in carried:
            return []
        ports = VALUE_PORTS.get(node.op, range(len(node.out_types)))
        if node.op == "IdentityN":
            ports = (index,)
        return [((node.name, port), fact) for port in ports]

    def sink(self, scope: Scope, port: Port, fact: object) -> None:
        if fact is State.RESTORED and port[0] in self._outputs:
            self.found[f"{scope.name}/{port[0]} gives out what was rounded needlessly"] = None


def _after_cast(node: Node, fact: object) -> State:
    if node.type_of("DstT") in LOW:
        return State.ROUNDED
    return State.EXACT if fact is State.EXACT else State.RESTORED


def _computed_from_constants(program: Program) -> set[tuple[str, str]]:
    """Returns (scope, node) of all that no placeholder flows into."""
    reached = _Reached(program)
    for scope in program.scopes.values():
        for node in scope.nodes.values():
            if node.op == "Placeholder":
                reached.nodes.add((scope.name, node.name))
                reached.follow(scope, [((node.name, 0), None)])
    return {
        (scope.name, node.name)
        for scope in program.scopes.values()
        for node in scope.nodes.values()
        if (scope.name, node.name) not in reached.nodes
    }


class _Reached(Follow):
    """One fact: what a placeholder flows into."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.nodes: set[tuple[str, str]] = set()

    def step(self, scope: Scope, node: Node, index: int, fact: object) -> Iterable[Fact]:
        del index
        self.nodes.add((scope.name, node.name))
        return [((node.name, port), fact) for port in range(len(node.out_types))]


# ------------------------------------------------------------------------- lists


class _Elements(Follow):
    """Facts are dtypes of elements, at the handles of lists and at the flows of TensorArrays."""

    def odd(self) -> list[str]:
        for scope in self.program.scopes.values():
            for node in scope.nodes.values():
                if node.op in LISTS:
                    fact = node.type_of("element_dtype")
                    self.follow(scope, [((node.name, 0), fact)])
                elif node.op == "TensorArrayV3":
                    fact = node.type_of("dtype")
                    self.follow(scope, [((node.name, port), fact) for port in (0, 1)])
        return sorted(self.found)

    def step(self, scope: Scope, node: Node, index: int, fact: object) -> Iterable[Fact]:
        if node.op.startswith("TensorArray"):
            attr = "dtype" if "dtype" in node.proto.attr else "T"
            self._compare(scope, node, attr, fact)
            return [((node.name, 0), fact)] if index == 3 else []
        if node.op.startswith("TensorList") and "element_dtype" in node.proto.attr:
            self._compare(scope, node, "element_dtype", fact)
        kind = node.in_types[index]
        return [
            ((node.name, port), fact)
            for port, out in enumerate(node.out_types)
            if out == kind and node.op in MOVES
        ]

    def _compare(self, scope: Scope, node: Node, attr: str, fact: object) -> None:
        if node.type_of(attr) != fact and not node.op.startswith("TensorArraySize"):
            self.found[
                f"{scope.name}/{node.name}: elements of {node.type_of(attr)}, the list's of {fact}"
            ] = None
