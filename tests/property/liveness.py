"""Which values count: those that a model output depends on. The rest is never computed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tests.property.calls import CONDITIONALS, LOOPS, Program, called, gives_predicate
from tests.property.graph_view import Node, Port, Scope

Place = tuple[str, str, int]


def live(program: Program, outputs: Sequence[str]) -> set[Place]:
    """Returns (scope, node, port) of all that the nodes `outputs` of the main graph depend on.

    Of a call, only the results that count make the function's results count; a value that a loop
    carries counts if the loop's result does, or if the loop reads it for another that does.
    """
    found: set[Place] = set()
    stack: list[Place] = [("", name, 0) for name in outputs]
    while stack:
        place = stack.pop()
        if place not in found:
            found.add(place)
            stack += _needed(program, place)
            # An argument that counts does so for each caller of which a result counts: these
            # are looked at again, whichever was found first.
            stack += _passed(program, found, place)
    return found


def _needed(program: Program, place: Place) -> Iterator[Place]:
    scope, node = program.scopes[place[0]], program.scopes[place[0]].nodes[place[1]]
    if not called(node):
        yield from _at(scope, node.inputs)
        return
    if node.op in CONDITIONALS:
        yield from _at(scope, node.inputs[:1])
    if node.op in LOOPS:
        yield from _at(scope, [node.inputs[place[2]]])
    for name in called(node):
        callee = program.scopes[name]
        results = callee.results
        yield from _at(callee, results if gives_predicate(node, name) else [results[place[2]]])


def _passed(program: Program, found: set[Place], place: Place) -> Iterator[Place]:
    """Yields what callers pass for arguments that count."""
    scope = program.scopes[place[0]]
    if place[1] in scope.arguments:
        for caller, node in program.callers.get(scope.name, ()):
            if any((caller.name, node.name, port) in found for port in range(len(node.out_types))):
                yield from _of_argument(program, caller, node, scope.arguments.index(place[1]))
    node = scope.nodes[place[1]]
    for name in called(node):
        for index, argument in enumerate(program.scopes[name].arguments):
            if (name, argument, 0) in found:
                yield from _of_argument(program, scope, node, index)


def _of_argument(program: Program, scope: Scope, node: Node, index: int) -> Iterator[Place]:
    yield from _at(scope, [node.inputs[index + (node.op in CONDITIONALS)]])
    if node.op in LOOPS:  # also what the step before gave
        body = program.scopes[called(node)[1]]
        yield from _at(body, [body.results[index]])


def _at(scope: Scope, ports: Iterable[Port]) -> Iterator[Place]:
    return ((scope.name, name, port) for name, port in ports)
