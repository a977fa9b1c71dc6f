"""Follows facts about values forward through a program: calls, conditionals and loops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tensorflow.core.framework import graph_pb2

from tests.property.graph_view import Node, Port, Scope, view

CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
CONDITIONALS = frozenset({"Case", "If", "StatelessCase", "StatelessIf"})
LOOPS = frozenset({"StatelessWhile", "While"})

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


class Follow:
    """Follows facts forward through ops, calls and loops; subclasses say what one op does."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.found: dict[str, None] = {}
        self._summaries: dict[tuple[str, int, object], Results] = {}

    def step(self, scope: Scope, node: Node, index: int, fact: object) -> Iterable[Fact]:
        """Returns the facts at the outputs of a node (no call) that reads `fact` at an input."""
        raise NotImplementedError

    def sink(self, scope: Scope, port: Port, fact: object) -> None:
        """Is told of every fact in the main graph."""

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
                if results and not gives_predicate(node, place.name):
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
            if not scope.name:
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


def gives_predicate(node: Node, name: str) -> bool:
    return node.op in LOOPS and name == called(node)[0]
