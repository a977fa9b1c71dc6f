"""Which functions with a face do signatures call, too, and which of these calls gain from a copy.

`candidates` looks at the graph alone, and so is cheap for a model without such calls; `gaining`
looks at what was decided with all candidates copied.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from tensorflow.core.framework import function_pb2

from tf_amp_rewriter.dtypes import DT_FLOAT
from tf_amp_rewriter.ir import outsiders, reach
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ir.flow import Flow
from tf_amp_rewriter.ops import handles
from tf_amp_rewriter.reasons import Decisions
from tf_amp_rewriter.rewrite import faces

Names = Sequence[frozenset[str]]  # of functions, per graph
# A function is only copied if it holds no large constants: they would be in the model twice.
MAX_COPIED_BYTES: Final = 1_000_000


def candidates(program: ir.Program) -> Names:
    """Returns, per graph, the functions with a face that a signature's call may gain to get round.

    Outsiders see such a function, or an op that we don't follow names it; and a call gives it
    something, or takes something from it, that is more than what the caller's own outsiders give
    and take. The body of a loop, and the condition, may be one, too: its face would cost Casts at
    each step. Functions that TensorFlow puts in each other's place (`api_implements`) are none, nor
    are large ones, and those whose signature leaves a type open. Linear in the number of nodes.
    """
    shared = faces.shared(program)
    whole = {index for index in shared if not _can_be_copied(program, index)}
    if len(shared) == len(whole):
        return tuple(frozenset() for _ in program.graphs)
    whole |= _large(program)
    fed = [frozenset(t.partition(":")[0] for t in source.feeds) for source in program.graphs]

    def may_be_low(end: _End) -> bool:
        is_input = end.scope.function < 0 and end.node.name in fed[end.scope.graph]
        return end.of_loop or not (is_input or end.node.op in handles.PLACEHOLDERS)

    return _by_graph(program, (i for i in _touched(program, may_be_low, whole) if i in shared))


def gaining(
    flow: Flow, decisions: Decisions, candidates: Names, without: tuple[Flow, Decisions]
) -> Names:
    """Returns, per graph, the `candidates` that are worth copying. Linear in the number of nodes.

    With the copy a Cast is saved: an argument is low that some call gives low, or a result that
    some call reads low; or a loop carries something low. And it has something low that would not be
    so without it, or what it calls has.

    Args:
        flow: the program with copies of all candidates.
        decisions: what was decided for it.
        candidates: see `candidates`.
        without: the same, of the program without copies.
    """
    program = flow.program

    def is_low(var: int) -> bool:
        return var != ir.NO_VAR and decisions[flow.class_of[var]].low

    def saves_a_cast(end: _End) -> bool:
        costs_none = end.node.op == handles.CONSTANT or is_low(end.var)
        return is_low(end.call_var) and (end.of_loop or costs_none)

    callers: dict[int, list[int]] = defaultdict(list)
    for index, scope in enumerate(program.scopes):
        for callee in scope.callees:
            callers[callee].append(index)
    changed = _changed(flow, decisions, without)
    worth = reach.closure(changed, lambda index: callers.get(index, ()))
    touched = [program.scopes[i] for i in _touched(program, saves_a_cast, ()) & worth]
    return tuple(
        names & {scope.face for scope in touched if scope.graph == graph}
        for graph, names in enumerate(candidates)
    )


def _changed(flow: Flow, decisions: Decisions, without: tuple[Flow, Decisions]) -> set[int]:
    """Returns the copies that are not decided as their originals are in the program without."""
    originals = {(scope.graph, scope.face) for scope in flow.program.scopes if scope.face}

    def low(of: Flow, by: Decisions) -> dict[tuple[int, str], set[tuple[int, str, int]]]:
        found: dict[tuple[int, str], set[tuple[int, str, int]]] = {}
        for var, place in enumerate(of.program.type_vars):
            scope = of.program.scopes[place.scope]
            key = (scope.graph, scope.face or scope.name)
            is_meant = scope.face or of is not flow
            if is_meant and key in originals and by[of.class_of[var]].low:
                found.setdefault(key, set()).add((place.node, place.attr, place.index))
        return found

    before, now = low(*without), low(flow, decisions)
    return {
        index
        for index, scope in enumerate(flow.program.scopes)
        if scope.face
        and now.get((scope.graph, scope.face)) != before.get((scope.graph, scope.face))
    }


def _by_graph(program: ir.Program, functions: Iterable[int]) -> Names:
    result: list[set[str]] = [set() for _ in program.graphs]
    for index in functions:
        result[program.scopes[index].graph].add(program.scopes[index].name)
    return tuple(map(frozenset, result))


def _can_be_copied(program: ir.Program, index: int) -> bool:
    scope = program.scopes[index]
    function = _function_of(program, scope)
    ports = [*function.signature.input_arg, *function.signature.output_arg]
    is_open = any(not port.type or port.number_attr or port.is_ref for port in ports)
    has_float = any(port.type == DT_FLOAT for port in ports)
    is_replaced = outsiders.IMPLEMENTS in function.attr
    return has_float and not (is_open or is_replaced)


def _large(program: ir.Program) -> set[int]:
    """Returns the functions that are large, or that large ones would be copied with."""
    copied_with = _copied_with(program)
    large = [
        index
        for index, scope in enumerate(program.scopes)
        if scope.function >= 0 and _function_of(program, scope).ByteSize() > MAX_COPIED_BYTES
    ]
    return reach.closure(large, lambda index: copied_with.get(index, ()))


def _copied_with(program: ir.Program) -> Mapping[int, Sequence[int]]:
    """Returns function -> those of which a copy needs a copy of it, too; see `faces.split`."""
    with_face = set(outsiders.faces(program))
    result: dict[int, list[int]] = defaultdict(list)
    for index, scope in enumerate(program.scopes):
        for callee in scope.callees:
            if callee not in with_face:
                result[callee].append(index)
    for group in outsiders.alternatives(program):
        for index in group:
            result[index].extend(group)
    return result


def _function_of(program: ir.Program, scope: ir.Scope) -> function_pb2.FunctionDef:
    return scope.function_in(program.graphs[scope.graph].graph_def)


@dataclasses.dataclass(frozen=True, slots=True)
class _End:
    """What gives an argument of a call or reads one of its results, past Identity ops.

    Attributes:
        scope: the caller.
        call_var: type variable of the call.
        node: the node at the end.
        var: its type variable there.
        of_loop: whether the call is a loop.
    """

    scope: ir.Scope
    call_var: int
    node: ir.Node
    var: int
    of_loop: bool


def _touched(
    program: ir.Program, matters: Callable[[_End], bool], whole: Collection[int]
) -> set[int]:
    """Returns the functions with a call that has an end that matters.

    Where the end is an argument or a result of the caller, it counts only if the caller is such a
    function, too: it only hands on what its own callers give and take. Not so in loops, which
    hand to their next step.

    Args:
        program: the program.
        matters: whether an end matters.
        whole: functions that never count.
    """
    found: set[int] = set()
    passed_on: dict[int, list[int]] = {}  # caller -> those that it hands on to
    for index in faces.serving(program):
        for callee, end in _ends(program, program.scopes[index]):
            if callee in whole or not matters(end):
                continue
            if end.node.op in (ir.ARG, ir.RETVAL) and not end.of_loop:
                passed_on.setdefault(index, []).append(callee)
            else:
                found.add(callee)
    return reach.closure(found, lambda index: passed_on.get(index, ()))


def _ends(program: ir.Program, scope: ir.Scope) -> Iterator[tuple[int, _End]]:
    """Yields (function, end) for all float32 values of the calls in `scope`.

    Not for what the loader binds to a constant when outsiders call: it need not be float32 there.
    """
    readers: Mapping[tuple[int, int], Sequence[tuple[int, int]]] | None = None
    for index, callees in scope.calls.items():
        node = scope.nodes[index]
        for callee in callees:
            bound = _bound_inputs(program, callee)
            for var, end, end_var in _givers(scope, node, callee.first_input, bound):
                yield callee.scope, _End(scope, var, end, end_var, callee.is_loop)
            if callee.gives_results:
                readers = readers or reach.consumers_of(scope)
                for var, end, end_var in _takers(scope, index, readers):
                    yield callee.scope, _End(scope, var, end, end_var, callee.is_loop)


def _bound_inputs(program: ir.Program, callee: ir.Callee) -> Collection[int]:
    scope = program.scopes[callee.scope]
    original = program.scopes[program.function_scopes[scope.graph][scope.face or scope.name]]
    arguments = outsiders.captured_arguments(program, original)
    return [callee.first_input + argument for argument in arguments]


def _givers(
    scope: ir.Scope, node: ir.Node, first_input: int, but: Collection[int]
) -> Iterator[tuple[int, ir.Node, int]]:
    for position in range(first_input, len(node.inputs)):
        var, place = node.in_vars[position], node.inputs[position]
        if var != ir.NO_VAR and position not in but:
            producer, port = reach.origin(scope, *place)
            end = scope.nodes[producer]
            port = port if end.known else 0
            if port < len(end.out_vars):  # a damaged graph, which `flow` refuses
                yield var, end, end.out_vars[port]


def _takers(
    scope: ir.Scope, index: int, readers: Mapping[tuple[int, int], Sequence[tuple[int, int]]]
) -> Iterator[tuple[int, ir.Node, int]]:
    for port, var in enumerate(scope.nodes[index].out_vars):
        stack = [(index, port)] if var != ir.NO_VAR else []
        while stack:
            for reader, position in readers.get(stack.pop(), ()):
                end = scope.nodes[reader]
                if end.op == handles.IDENTITY:
                    stack.append((reader, 0))
                else:
                    yield var, end, end.in_vars[position]
