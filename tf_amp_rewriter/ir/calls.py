"""Which functions a node calls, and how its ports map to their arguments and results."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

from tensorflow.core.framework import attr_value_pb2, node_def_pb2

from tf_amp_rewriter.ir import op_defs
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ops import calls as table


def callees(
    node: node_def_pb2.NodeDef, function_scopes: Mapping[str, int]
) -> tuple[ir.Callee, ...]:
    """Returns the functions that a node calls by a row of `ops/calls.py`.

    Args:
        node: the node.
        function_scopes: name -> scope, for the functions of its graph.
    """
    row = table.CALLS.get(node.op)
    if row is None:
        return ()
    return tuple(
        ir.Callee(
            function_scopes[function.name],
            row.first_input,
            attr not in row.predicates,
            row.tie is table.Tie.LOOP,
        )
        for attr, function in named_in(node)
        if function.name in function_scopes
    )


def named_in(
    node: node_def_pb2.NodeDef,
) -> Iterator[tuple[str, attr_value_pb2.NameAttrList]]:
    """Yields (attribute, function) for what a node calls by a row of `ops/calls.py`."""
    row = table.CALLS.get(node.op)
    if row is None:
        return
    for attr in row.functions:
        if attr in node.attr:
            yield attr, node.attr[attr].func
    if row.function_list in node.attr:
        for function in node.attr[row.function_list].list.func:
            yield row.function_list, function


def other_functions_in(program: ir.Program, scope: ir.Scope) -> Iterator[tuple[ir.Node, int]]:
    """Yields (node, scope of a function) where nodes of `scope` name functions in other ways."""
    functions = program.function_scopes[scope.graph]
    ops = {op for op in scope.ops if op in functions or _may_name_functions(op)}
    for node in scope.nodes if functions and ops else ():
        for name in _other_functions(node) if node.op in ops else ():
            if name in functions:
                yield node, functions[name]


def _other_functions(node: ir.Node) -> Iterator[str]:
    """Yields the names of functions that `node` names in any other way."""
    if node.proto is None:
        return
    yield node.op
    row = table.CALLS.get(node.op)
    known = (*row.functions, row.function_list) if row else ()
    for name, value in node.proto.attr.items():
        if name in known:
            continue
        kind = value.WhichOneof("value")
        if kind == "func":
            yield value.func.name
        elif kind == "list":
            yield from (func.name for func in value.list.func)


def functions_named_in(program: ir.Program, scope: ir.Scope) -> tuple[int, ...]:
    """Returns the scopes of all functions that nodes of `scope` name, in any way, each once."""
    named = [function for _, function in other_functions_in(program, scope)]
    return tuple(dict.fromkeys([*scope.callees, *named]))


@functools.cache
def _may_name_functions(op: str) -> bool:
    """Returns whether the definition of `op` has a function attribute, or nobody knows it."""
    op_def = op_defs.registered(op)
    return op_def is None or any(a.type in ("func", "list(func)") for a in op_def.attr)
