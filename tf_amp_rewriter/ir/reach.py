"""Who reads what in a scope, and which nodes run when a signature runs."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ops import exactness, handles

_IDENTITIES: Final = frozenset({handles.IDENTITY})


def origin(
    scope: ir.Scope, producer: int, port: int, through: frozenset[str] = _IDENTITIES
) -> tuple[int, int]:
    """Returns the output that an input gets through Identity ops, or those of `through`."""
    while scope.nodes[producer].op in through:
        producer, port = scope.nodes[producer].inputs[0]
    return producer, port


def are_same(
    scope: ir.Scope, left: tuple[int, int], right: tuple[int, int], steps: int = 4
) -> bool:
    """Returns whether two outputs have the same value: one output, or the same computation twice.

    A computation that is repeated in more than `steps` ops is not seen as the same.
    """
    left, right = (origin(scope, *place, exactness.HAND_ON) for place in (left, right))
    if left == right:
        return True
    first, second = scope.nodes[left[0]], scope.nodes[right[0]]
    if steps == 0 or first.op != second.op or left[1] != right[1]:
        return False
    if first.op not in exactness.REPEATABLE or first.proto is None or second.proto is None:
        return False
    return (
        len(first.inputs) == len(second.inputs)
        and {k: v for k, v in first.proto.attr.items() if k[0] != "_"}
        == {k: v for k, v in second.proto.attr.items() if k[0] != "_"}
        and all(
            are_same(scope, *pair, steps - 1)
            for pair in zip(first.inputs, second.inputs, strict=True)
        )
    )


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
