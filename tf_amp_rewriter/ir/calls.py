"""Which functions a node calls, and how its ports map to their arguments and results."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator

from tf_amp_rewriter.ir import op_defs
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ops import calls as table
from tf_amp_rewriter.ops.attrs import attr_of


@dataclasses.dataclass(frozen=True, slots=True)
class Callee:
    """One function that a node calls.

    Attributes:
        scope: index of the function's scope.
        first_input: index of the node's data input that is argument 0.
        gives_results: whether the function's results are the node's outputs.
        is_loop: whether argument i, result i, input i and output i are one loop-carried value.
    """

    scope: int
    first_input: int
    gives_results: bool
    is_loop: bool


def callees(program: ir.Program, scope: ir.Scope, node: ir.Node) -> Iterator[Callee]:
    """Yields the functions that `node` calls by a row of `ops/calls.py`."""
    row = table.CALLS.get(node.op)
    if row is None or node.proto is None:
        return
    named = [(name, attr_of(node.proto, name).func.name) for name in row.functions]
    if row.function_list:
        functions = attr_of(node.proto, row.function_list).list.func
        named += [(row.function_list, function.name) for function in functions]
    scopes = program.function_scopes[scope.graph]
    for attr_name, function in named:
        if function in scopes:
            is_predicate = attr_name in row.predicates
            loop = row.tie is table.Tie.LOOP
            yield Callee(scopes[function], row.first_input, not is_predicate, loop)


def other_functions(node: ir.Node) -> Iterator[str]:
    """Yields the names of functions that `node` names in any other way."""
    if node.proto is None:
        return
    yield node.op
    if not _may_name_functions(node.op):
        return
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
    functions = program.function_scopes[scope.graph]
    if not functions:
        return ()
    found: dict[int, None] = {}
    may_name: dict[str, bool] = {}  # asked once an op and not once a node
    for node in scope.nodes:
        may = may_name.get(node.op)
        if may is None:
            may = may_name[node.op] = node.op in functions or _may_name_functions(node.op)
        for name in _functions_named_by(node) if may else ():
            if name in functions:
                found[functions[name]] = None
    return tuple(found)


def _functions_named_by(node: ir.Node) -> Iterator[str]:
    row = table.CALLS.get(node.op)
    if row is not None and node.proto is not None:
        yield from (attr_of(node.proto, name).func.name for name in row.functions)
        if row.function_list:
            yield from (func.name for func in attr_of(node.proto, row.function_list).list.func)
    yield from other_functions(node)


@functools.cache
def _may_name_functions(op: str) -> bool:
    """Returns whether the definition of `op` has a function attribute, or nobody knows it."""
    op_def = op_defs.registered(op)
    return op_def is None or any(a.type in ("func", "list(func)") for a in op_def.attr)
