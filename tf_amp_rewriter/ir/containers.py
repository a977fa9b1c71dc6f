"""Which ops work on one and the same list, array or stack.

Their element types must be equal. Source: tensorflow/core/kernels/list_kernels.h and
tensor_array_ops.cc of TensorFlow 2.21, which compare the type of an op with that of the container
when the op runs; an import does not see it.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from tf_amp_rewriter.dtypes import DT_RESOURCE, DT_VARIANT
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ir.handles import Handles, Port, hands_on
from tf_amp_rewriter.ops import containers as table
from tf_amp_rewriter.ops import handles as handle_ops


@dataclasses.dataclass(frozen=True)
class Container:
    """One container of float32 tensors, or several that one op may get.

    Attributes:
        type_vars: the type variables of its elements, which must be equal.
        ports: (scope, node, output) of all that gives its handle, arguments and results included.
        blocked: why its elements must stay float32; empty if they may become low.
    """

    type_vars: tuple[int, ...]
    ports: tuple[Port, ...]
    blocked: str


def find(program: ir.Program, handles: Handles, faces: Mapping[int, str]) -> list[Container]:
    """Returns all containers of float32 tensors. Linear in the number of nodes.

    Args:
        program: the program.
        handles: where its handles flow.
        faces: scopes of functions that others than the program call, with the reason.
    """
    type_vars: dict[int, list[int]] = collections.defaultdict(list)
    for port, var in _elements(program):
        if port in handles.tokens:  # not in a damaged graph, where the input is no handle
            type_vars[_group(handles, port)].append(var)
    if not type_vars:
        return []
    blocked: dict[int, str] = {}
    for port, reason in _blocked(program, handles, faces):
        blocked.setdefault(_group(handles, port), reason)
    ports: dict[int, list[Port]] = collections.defaultdict(list)
    for place in handles.tokens:
        ports[_group(handles, place)].append(place)
    return [
        Container(tuple(found), tuple(ports[group]), blocked.get(group, ""))
        for group, found in type_vars.items()
    ]


def _group(handles: Handles, port: Port) -> int:
    return handles.sets.find(handles.tokens[port])


def _elements(program: ir.Program) -> Iterator[tuple[Port, int]]:
    """Yields a handle of each op on a container of float32 tensors, and the type variable."""
    for scope_index, scope in enumerate(program.scopes):
        nodes = () if scope.ops.isdisjoint(table.ELEMENT_TYPES) else scope.nodes
        for index, node in enumerate(nodes):
            attr = table.ELEMENT_TYPES.get(node.op)
            if attr:
                for name, _, var in node.attr_vars:
                    if name == attr:
                        yield _handle(scope_index, index, node), var


def _handle(scope: int, index: int, node: ir.Node) -> Port:
    """Returns where an op on a container gives its handle, or else where it gets it."""
    for port, dtype in enumerate(node.out_types):
        if dtype in (DT_RESOURCE, DT_VARIANT):
            return scope, index, port
    position = next(i for i, t in enumerate(node.in_types) if t in (DT_RESOURCE, DT_VARIANT))
    return (scope, *node.inputs[position])


def _blocked(
    program: ir.Program, handles: Handles, faces: Mapping[int, str]
) -> Iterator[tuple[Port, str]]:
    """Yields the handles that come from or go to what this version can't follow."""
    for use in handles.uses:
        scope = program.scopes[use.scope]
        node = scope.nodes[use.node]
        if node.op == ir.RETVAL:
            if use.scope in faces:
                yield use.port, f"function `{scope.name}` gives its handle away"
        elif node.op not in table.ELEMENT_TYPES:
            yield use.port, f"op `{node.op}` uses its handle"
    for port in handles.tokens:
        scope = program.scopes[port[0]]
        node = scope.nodes[port[1]]
        if node.op == ir.ARG:
            if port[0] in faces:
                yield port, f"function `{scope.name}` gets its handle from outside"
        elif not (scope.calls.get(port[1]) or _is_followed(node, port[2])):
            yield port, f"op `{node.op}` gives its handle"
    yield from _fetched(program, handles)


def _is_followed(node: ir.Node, port: int) -> bool:
    if port >= len(node.out_types):
        return node.op == ir.RETVAL
    return node.op in handle_ops.FORWARDERS or hands_on(node.op, node.out_types[port])


def _fetched(program: ir.Program, handles: Handles) -> Iterator[tuple[Port, str]]:
    for graph, source in enumerate(program.graphs):
        names: Sequence[str] = sorted(tensor.partition(":")[0] for tensor in source.fetches)
        index_of = {node.name: i for i, node in enumerate(program.main_scope(graph).nodes)}
        scope = program.main_index(graph)
        for name in names:
            node = program.scopes[scope].nodes[index_of[name]]
            for port in range(len(node.out_types)):
                if (scope, index_of[name], port) in handles.tokens:
                    yield (scope, index_of[name], port), "the model gives its handle away"
