"""Who reads what in a scope, and which nodes run when a signature runs."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator

from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ops import handles


def origin(scope: ir.Scope, producer: int, port: int) -> tuple[int, int]:
    """Returns the output that an input gets through Identity ops."""
    while scope.nodes[producer].op == handles.IDENTITY:
        producer, port = scope.nodes[producer].inputs[0]
    return producer, port


def consumers_of(scope: ir.Scope) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Returns (node, port) -> (node, input) of all that read it."""
    readers = collections.defaultdict(list)
    for index, node in enumerate(scope.nodes):
        for position, source in enumerate(node.inputs):
            readers[source].append((index, position))
    return readers


def closure(roots: Iterable[int], near: Callable[[int], Iterable[int]]) -> set[int]:
    """Returns `roots` and all that `near` leads to from them, directly or not."""
    found = set(roots)
    stack = list(found)
    while stack:
        for number in near(stack.pop()):
            if number not in found:
                found.add(number)
                stack.append(number)
    return found


def ancestors_of_fetches(program: ir.Program, graph: int) -> frozenset[int]:
    """Returns the nodes of the main graph that run when a signature runs."""
    scope = program.main_scope(graph)
    index_of = {node.name: i for i, node in enumerate(scope.nodes)}

    def before(index: int) -> Iterator[int]:
        node = scope.nodes[index]
        yield from (producer for producer, _ in node.inputs)
        if node.proto is not None:
            yield from (index_of[ref[1:]] for ref in node.proto.input if ref.startswith("^"))

    fetches = program.graphs[graph].fetches
    return frozenset(closure([index_of[name.partition(":")[0]] for name in fetches], before))
