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

from tests.property.graph_view import ARGUMENT, Node, Port, Scope, view

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

CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
CONDITIONALS = frozenset({"Case", "If", "StatelessCase", "StatelessIf"})
LOOPS = frozenset({"StatelessWhile", "While"})
DENIED = frozenset({"Exp", "Mean", "Square", "Sum"})
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


Fact = tuple[Port, object]
Results = frozenset[tuple[int, object]]


class Program:
    """Scopes with the call edges between them.

    Attributes:
        scopes: the main graph and the functions by name.
        callers: function -> the nodes that call it, with their scopes.
    """

    def __init__(self, graph_def: graph_pb2.GraphDef) -> None:
        self.scopes = view(graph_def)
        self.callers: dict[str, list[tuple[Scope, Node]]] = {}
        for scope in self.scopes.values():
            for node in scope.nodes.values():
                for name in called(node):
                    self.callers.setdefault(name, []).append((scope, node))


def called(node: Node) -> tuple[str, ...]:
    """Returns the functions that a node calls; of a loop, the body last."""
    if node.op in CALLS:
        return (node.function("f"),)
    if node.op in LOOPS:
        return node.function("cond"), node.function("body")
    if node.op in ("If", "StatelessIf"):
        return node.function("then_branch"), node.function("else_branch")
    if node.op in CONDITIONALS:
        return tuple(function.name for function in node.proto.attr["branches"].list.func)
    return ()


def violations(original: graph_pb2.GraphDef, rewritten: graph_pb2.GraphDef) -> list[str]:
    """Returns a line for each thing that is wrong with `rewritten`; empty if nothing is.

    Args:
        original: the graph before; its Casts are its own affair.
        rewritten: the graph after. What no node reads in the main graph counts as an output.
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
        *_Roundings(program, ours).needless(),
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
                if not _gives_predicate(node, name) and callee.result_types != node.out_types:
                    yield (
                        f"{scope.name}/{node.name} takes {node.out_types} of "
                        f"{callee.result_types} from `{name}`"
                    )
            for index, (producer, port) in enumerate(node.inputs):
                dtype = scope.nodes[producer].out_types[port]
                if dtype != node.in_types[index]:
                    yield f"{scope.name}/{node.name}: input {index} is of type {dtype}"


class _Follow:
    """Follows facts forward through ops, calls and loops; subclasses say what one op does."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.found: dict[str, None] = {}
        self._summaries: dict[tuple[str, int, object], Results] = {}

    def step(self, scope: Scope, node: Node, index: int, fact: object) -> Iterable[Fact]:
        """Returns the facts at the outputs of a node (no call) that reads `fact` at an input."""
        raise NotImplementedError

    def sink(self, scope: Scope, port: Port, fact: object) -> None:
        """Is told of a fact at an output of the main graph that no node reads."""

    def follow(self, scope: Scope, seeds: Iterable[Fact]) -> None:
        """Follows facts that were made in `scope`, also up to all callers."""
        seen: set[tuple[str, Fact]] = set()
        stack = [(scope, seed) for seed in seeds]
        while stack:
            place, seed = stack.pop()
            if (place.name, seed) in seen:
                continue
            seen.add((place.name, seed))
            results = self._inside(place, [seed])
            for caller, node in self.program.callers.get(place.name, ()):
                if results and not _gives_predicate(node, place.name):
                    out = self._around(node, results) if node.op in LOOPS else results
                    stack += [(caller, ((node.name, index), fact)) for index, fact in out]

    def _inside(self, scope: Scope, seeds: Iterable[Fact]) -> Results:
        """Follows facts inside one scope and what it calls; returns those that it returns."""
        seen: set[Fact] = set()
        stack = list(seeds)
        while stack:
            port, fact = stack.pop()
            if (port, fact) in seen:
                continue
            seen.add((port, fact))
            readers = scope.readers.get(port, ())
            if not readers and not scope.name:
                self.sink(scope, port, fact)
            for name, index in readers:
                stack += self._reads(scope, scope.nodes[name], index, fact)
        return frozenset(
            (index, fact)
            for index, result in enumerate(scope.results)
            for port, fact in seen
            if port == result
        )

    def _reads(self, scope: Scope, node: Node, index: int, fact: object) -> Iterable[Fact]:
        if not called(node):
            return self.step(scope, node, index, fact)
        if node.op in LOOPS:
            out = self._around(node, frozenset({(index, fact)}))
        elif node.op in CONDITIONALS:
            if index == 0:
                return []
            out = self._of_all(called(node), index - 1, fact)
        else:
            out = self._of_all(called(node), index, fact)
        return [((node.name, port), after) for port, after in out]

    def _of_all(self, names: Sequence[str], index: int, fact: object) -> Results:
        return frozenset().union(*(self.summary(name, index, fact) for name in names))

    def _around(self, node: Node, entering: Results) -> Results:
        """Returns what a loop gives: what enters, if it runs no step, and all that steps make."""
        cond, body = called(node)
        known = entering
        while True:
            for index, fact in known:
                self.summary(cond, index, fact)
            more = known.union(*(self.summary(body, index, fact) for index, fact in known))
            if more == known:
                return known
            known = more

    def summary(self, name: str, index: int, fact: object) -> Results:
        """Returns what a function returns of a fact that its argument `index` has."""
        key = (name, index, fact)
        if key not in self._summaries:
            scope = self.program.scopes[name]
            self._summaries[key] = self._inside(scope, [((scope.arguments[index], 0), fact)])
        return self._summaries[key]


def _gives_predicate(node: Node, name: str) -> bool:
    return node.op in LOOPS and name == called(node)[0]


class _Roundings(_Follow):
    """Facts are states of values that were computed in float32."""

    def __init__(self, program: Program, ours: set[tuple[str, str]]) -> None:
        super().__init__(program)
        self._ours = ours

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
            if fact is State.RESTORED:
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
        if fact is State.RESTORED:
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


class _Reached(_Follow):
    """One fact: what a placeholder flows into."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.nodes: set[tuple[str, str]] = set()

    def step(self, scope: Scope, node: Node, index: int, fact: object) -> Iterable[Fact]:
        del index
        self.nodes.add((scope.name, node.name))
        return [((node.name, port), fact) for port in range(len(node.out_types))]


# ------------------------------------------------------------------------- lists


class _Elements(_Follow):
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
