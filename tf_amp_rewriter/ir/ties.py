"""Which type variables calls, loops and kernels make equal."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from tf_amp_rewriter.ir import outsiders
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ops import handles
from tf_amp_rewriter.ops.attrs import attr_of
from tf_amp_rewriter.ops.rows import TIED_ATTRS

Pair = tuple[int, int]


def ties(program: ir.Program) -> Iterator[Pair]:
    """Yields pairs of type variables that must be equal. Linear in the number of nodes."""
    constants = [_index_of(program, graph) for graph in range(len(program.graphs))]
    for scope in program.scopes:
        for argument, name in outsiders.captured_arguments(program, scope).items():
            yield from _tie(
                scope.nodes[argument].out_vars[0], constants[scope.graph][name].out_vars[0]
            )
        for node in () if scope.ops.isdisjoint(TIED_ATTRS) else scope.nodes:
            if node.op in TIED_ATTRS:
                tied = [var for attr, _, var in node.attr_vars if attr in TIED_ATTRS[node.op]]
                yield from itertools.pairwise(tied)
        for index, callees in scope.calls.items():
            for callee in callees:
                yield from _call_ties(scope.nodes[index], callee, program.scopes[callee.scope])
        for ring in _rings(program, scope):
            yield from itertools.pairwise(ring)
    for group in outsiders.alternatives(program):
        for left, right in itertools.pairwise(group):
            yield from _face_ties(program.scopes[left], program.scopes[right])


def carried_arguments(program: ir.Program) -> Iterator[tuple[int, int]]:
    """Yields (scope, argument) of what functional loops carry, in body and condition, all types."""
    for functions, _, argument, is_invariant in _loop_values(program):
        if not is_invariant:
            yield from ((function.scope, argument) for function in functions)


def carried(program: ir.Program) -> Iterator[int]:
    """Yields a type variable of each float32 value that a loop carries from step to step."""
    for index, argument in carried_arguments(program):
        var = program.scopes[index].nodes[argument].out_vars[0]
        if var != ir.NO_VAR:
            yield var
    for scope in program.scopes:
        for ring in _rings(program, scope):
            yield ring[0]


def invariants(program: ir.Program) -> Iterator[int]:
    """Yields a type variable of each float32 value that a loop reads at every step, unchanged."""
    for _, body, argument, is_invariant in _loop_values(program):
        if is_invariant:
            yield from {*body.nodes[argument].out_vars} - {ir.NO_VAR}
    for scope in program.scopes:
        for node in scope.nodes if handles.ENTER in scope.ops else ():
            if node.proto is not None and node.op == handles.ENTER:
                is_invariant = attr_of(node.proto, "is_constant").b
                yield from {*node.out_vars} - {ir.NO_VAR} if is_invariant else ()


def _loop_values(
    program: ir.Program,
) -> Iterator[tuple[Sequence[ir.Callee], ir.Scope, int, bool]]:
    """Yields (functions, body, argument, whether it is invariant) for the values of all loops."""
    for scope in program.scopes:
        for callees in scope.calls.values():
            for callee in callees:
                if callee.is_loop and callee.gives_results:
                    body = program.scopes[callee.scope]
                    for argument, result in enumerate(body.results):
                        yield callees, body, argument, _way(body, result, argument) is not None


def _index_of(program: ir.Program, graph: int) -> Mapping[str, ir.Node]:
    return {node.name: node for node in program.main_scope(graph).nodes}


def _tie(left: int, right: int) -> Iterator[Pair]:
    if left != ir.NO_VAR and right != ir.NO_VAR:
        yield left, right


def _call_ties(node: ir.Node, callee: ir.Callee, body: ir.Scope) -> Iterator[Pair]:
    for argument in range(body.num_args):
        outside = node.in_vars[argument + callee.first_input]
        yield from _tie(outside, body.nodes[argument].out_vars[0])
    if callee.gives_results:
        for port, result in enumerate(body.results):
            given = body.nodes[result].in_vars[0]
            # in a loop, output i has the type variable of input i
            yield from _tie(node.out_vars[port], given)
            if callee.is_loop and given != ir.NO_VAR:
                # an invariant is one value all the way, so that it is free where it is a weight
                for var in _way(body, result, port) or ():
                    yield var, given


def _face_ties(left: ir.Scope, right: ir.Scope) -> Iterator[Pair]:
    for argument in range(left.num_args):
        yield from _tie(left.nodes[argument].out_vars[0], right.nodes[argument].out_vars[0])
    for one, other in zip(left.results, right.results, strict=True):
        yield from _tie(left.nodes[one].in_vars[0], right.nodes[other].in_vars[0])


def _way(body: ir.Scope, result: int, argument: int) -> list[int] | None:
    """Returns the type variables between argument and result if a loop only hands the value on."""
    way: list[int] = []
    producer, port = body.nodes[result].inputs[0]
    while body.nodes[producer].op == handles.IDENTITY:
        way.extend(body.nodes[producer].in_vars)
        producer, port = body.nodes[producer].inputs[0]
    return way if (producer, port) == (argument, 0) else None


def _rings(program: ir.Program, scope: ir.Scope) -> Iterator[list[int]]:
    """Yields the type variables of each value that a loop of control flow v1 carries.

    They are those of Merge, Enter, NextIteration, Switch and Exit. A Switch or Exit of another kind
    (a conditional) is not among them, nor is an Exit that is fetched: a Cast before it runs once.
    """
    rings: dict[int, list[int]] = {}  # by Merge and by Switch
    if handles.BACK_EDGES.isdisjoint(scope.ops):
        return
    for index, node in enumerate(scope.nodes):
        producers = [scope.nodes[producer] for producer, _ in node.inputs]
        if node.op in handles.MERGES and any(p.op in handles.BACK_EDGES for p in producers):
            given = [p.out_vars[port] for p, (_, port) in zip(producers, node.inputs, strict=True)]
            if ir.NO_VAR not in (node.out_vars[0], *given):
                rings[index] = [node.out_vars[0], *given]
    fetches = program.graphs[scope.graph].fetches if scope.function < 0 else ()
    fetched = {tensor.partition(":")[0] for tensor in fetches}
    for ops in (handles.SWITCHES, handles.EXITS):
        for index, node in enumerate(scope.nodes):
            is_part = node.op in handles.SWITCHES or node.name not in fetched
            if node.op in ops and is_part and node.inputs[0][0] in rings:
                ring = rings[node.inputs[0][0]]
                ring.append(node.in_vars[0])
                if node.op in handles.SWITCHES:
                    rings[index] = ring
    yield from {id(ring): ring for ring in rings.values()}.values()
