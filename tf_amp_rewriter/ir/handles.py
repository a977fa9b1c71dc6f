"""Where handles flow: resources and variants, through calls, loops and conditionals.

Handles of variables, lists, arrays and stacks are values like others; which ops work on one and the
same thing is a question of where its handle goes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tf_amp_rewriter.dtypes import DT_RESOURCE, DT_VARIANT
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ir.union import UnionFind
from tf_amp_rewriter.ops import calls as call_table
from tf_amp_rewriter.ops import categories, containers, handles
from tf_amp_rewriter.ops.rows import Category

Port = tuple[int, int, int]  # scope, node, port

_HANDLES: Final = frozenset({DT_RESOURCE, DT_VARIANT})


@dataclasses.dataclass(frozen=True, slots=True)
class Use:
    """One input of a node that gets a handle and does more with it than pass it on.

    Attributes:
        port: where the handle comes from.
        scope: index of the node's scope.
        node: index of the node in it.
        position: index of the data input.
    """

    port: Port
    scope: int
    node: int
    position: int


@dataclasses.dataclass(frozen=True)
class Handles:
    """All handles of a program.

    Attributes:
        sets: which tokens are handles of one thing.
        tokens: port -> token; the results of a function count as ports too.
        uses: all uses, in the order of scopes and nodes.
    """

    sets: UnionFind
    tokens: Mapping[Port, int]
    uses: Sequence[Use]


def follow(program: ir.Program) -> Handles:
    """Returns where the handles of `program` flow. Linear in the number of nodes."""
    follower = _Follower(program)
    for index, scope in enumerate(program.scopes):
        follower.visit(index, scope)
    return Handles(follower.sets, follower.tokens, tuple(follower.uses))


class _Follower:
    """Collects ties and uses, scope by scope; lives only as long as `follow`."""

    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self.sets = UnionFind.of_size(0)
        self.tokens: dict[Port, int] = {}
        self.uses: list[Use] = []

    def visit(self, scope_index: int, scope: ir.Scope) -> None:
        for index, node in enumerate(scope.nodes):
            if node.op in containers.ELEMENT_TYPES:
                self.visit_container((scope_index, index), node)
            for callee in scope.calls.get(index, ()):
                self.visit_results((scope_index, index), node, callee)
            for position, (producer, port) in enumerate(node.inputs):
                types = scope.nodes[producer].out_types
                dtype = types[port] if port < len(types) else node.in_types[position]
                if dtype not in _HANDLES:
                    continue
                source = (scope_index, producer, port)
                targets = self.targets((scope_index, index), scope, node, position, dtype)
                for target in targets or ():
                    self.tie(source, target)
                if not targets or node.op in containers.ELEMENT_TYPES or node.op == ir.RETVAL:
                    self.token(source)
                    self.uses.append(Use(source, scope_index, index, position))

    def visit_container(self, place: tuple[int, int], node: ir.Node) -> None:
        ports = [port for port, dtype in enumerate(node.out_types) if dtype in _HANDLES]
        for port in ports:
            self.tie((*place, ports[0]), (*place, port))

    def visit_results(self, place: tuple[int, int], node: ir.Node, callee: ir.Callee) -> None:
        """Ties what a call gives to what its function gives, which may have made it."""
        if callee.gives_results:
            results = self.program.scopes[callee.scope].results
            for port, (dtype, result) in enumerate(zip(node.out_types, results, strict=False)):
                if dtype in _HANDLES:
                    self.tie((*place, port), (callee.scope, result, 0))

    def targets(
        self, place: tuple[int, int], scope: ir.Scope, node: ir.Node, position: int, dtype: int
    ) -> list[Port]:
        """Returns the ports that have the handle of an input; empty if the op keeps it."""
        if node.op in handles.FORWARDERS:
            return [(*place, position)]
        if node.op == ir.RETVAL:
            return [(*place, 0)]
        if node.op in call_table.CALLS:
            return list(self.call_targets(place, scope, position))
        if hands_on(node.op, dtype):
            same = [port for port, other in enumerate(node.out_types) if other == dtype]
            return [(*place, port) for port in same]
        return []

    def call_targets(
        self, place: tuple[int, int], scope: ir.Scope, position: int
    ) -> Iterator[Port]:
        for callee in scope.calls[place[1]]:
            argument = position - callee.first_input
            body = self.program.scopes[callee.scope]
            if not 0 <= argument < body.num_args:
                return
            yield callee.scope, argument, 0
            if callee.is_loop:
                yield *place, position

    def token(self, port: Port) -> int:
        if port not in self.tokens:
            self.tokens[port] = self.sets.add()
        return self.tokens[port]

    def tie(self, left: Port, right: Port) -> None:
        self.sets.union(self.token(left), self.token(right))


def hands_on(op: str, dtype: int) -> bool:
    """Returns whether all handles of this dtype that `op` reads or gives are of one thing."""
    if op in handles.SWITCHES or op in handles.MERGES or op in containers.ELEMENT_TYPES:
        return True
    # Variants are moved about like other values: a Pack of lists, a Reshape of it.
    return dtype == DT_VARIANT and categories.is_in(op, Category.CLEAR)
