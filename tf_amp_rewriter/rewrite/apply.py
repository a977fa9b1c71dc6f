"""Decisions -> `Edited`: new protos, and what becomes of each weight.

On entry the protos are read-only; on exit they are as before, and the copies that are returned
agree in all dtypes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from tensorflow.core.framework import function_pb2, graph_pb2

from tf_amp_rewriter.dtypes import DT_FLOAT, LowPrecision
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ir.flow import Flow
from tf_amp_rewriter.ir.variables import Object
from tf_amp_rewriter.reasons import Decisions
from tf_amp_rewriter.rewrite import full_types, gradients, scopes


@dataclasses.dataclass(frozen=True)
class Edited:
    """The rewritten graphs.

    Attributes:
        graph_defs: the new graphs, in the order of `Program.graphs`.
        conversions: checkpoint key -> new precision of its tensor.
        clamped: keys of those in which what overflows becomes the largest finite value.
        objects: nodes of the object graphs whose variables are low now.
        casts: number of Casts inserted.
        converted: (scope, node) of constants that are low now.
        copied: (scope, node) of constants that exist in both precisions now.
    """

    graph_defs: Sequence[graph_pb2.GraphDef]
    conversions: Mapping[str, LowPrecision]
    clamped: frozenset[str]
    objects: frozenset[Object]
    casts: int
    converted: frozenset[tuple[int, int]]
    copied: frozenset[tuple[int, int]]


def apply(flow: Flow, decisions: Decisions, low: LowPrecision, device: str) -> Edited:
    """Returns the rewritten graphs. Linear in the number of nodes.

    Args:
        flow: the program graph.
        decisions: the precision of each class.
        low: the low precision.
        device: where it will run: `any`, `gpu` or `cpu`.
    """
    program = flow.program
    graph_defs = [graph_pb2.GraphDef() for _ in program.graphs]
    for copy, source in zip(graph_defs, program.graphs, strict=True):
        copy.CopyFrom(source.graph_def)
    is_low = [decisions[number].low for number in flow.class_of]
    pinned = flow.pinned

    casts = 0
    converted: set[tuple[int, int]] = set()
    copied: set[tuple[int, int]] = set()
    for index, scope in enumerate(program.scopes):
        result = scopes.edit(
            scope,
            graph_defs[scope.graph],
            is_low.__getitem__,
            lambda var: flow.class_of[var] in pinned,
            lambda var: len(flow.members[flow.class_of[var]]) > 1,
            lambda var: decisions[flow.class_of[var]],
            low,
            device,
        )
        casts += result.casts
        converted.update((index, node) for node in result.converted)
        copied.update((index, node) for node in result.copied)

    for index in _low_scopes_with_gradients(program, is_low):
        scope = program.scopes[index]
        library = program.graphs[scope.graph].graph_def.library
        gradients.sever(scope.protos_in(graph_defs[scope.graph]), library)
    now_low = [v for v in flow.variables if is_low[v.type_vars[0]]]
    for variable in now_low:
        for scope_index, argument in variable.handle_args:
            scope = program.scopes[scope_index]
            _set_handle_dtypes(scope.function_in(graph_defs[scope.graph]), argument, low)
    for container in flow.containers:
        if is_low[container.type_vars[0]]:
            for scope_index, node, port in container.ports:
                scope = program.scopes[scope_index]
                _set_element_type(scope, node, port, graph_defs[scope.graph], low)
    return Edited(
        tuple(graph_defs),
        {key: low for variable in now_low for key in variable.keys},
        frozenset(
            key
            for variable in now_low
            if decisions[flow.class_of[variable.type_vars[0]]].limit
            for key in variable.keys
        ),
        frozenset(place for variable in now_low for place in variable.objects),
        casts,
        frozenset(converted),
        frozenset(copied),
    )


def _low_scopes_with_gradients(program: ir.Program, is_low: Sequence[bool]) -> list[int]:
    """Returns the scopes with anything low in graphs that register gradients."""
    with_gradients = [bool(g.graph_def.library.registered_gradients) for g in program.graphs]
    if not any(with_gradients):
        return []
    low = {place.scope for var, place in enumerate(program.type_vars) if is_low[var]}
    return [index for index in sorted(low) if with_gradients[program.scopes[index].graph]]


def _set_handle_dtypes(
    function: function_pb2.FunctionDef, argument: int, low: LowPrecision
) -> None:
    """Sets what an argument says about what is behind its handle, if it says anything."""
    if argument in function.arg_attr:
        attrs = function.arg_attr[argument].attr
        if "_handle_dtypes" in attrs:
            types = attrs["_handle_dtypes"].list.type
            types[:] = [low.proto if t == DT_FLOAT else t for t in types]


def _set_element_type(
    scope: ir.Scope, index: int, port: int, graph: graph_pb2.GraphDef, low: LowPrecision
) -> None:
    """Sets what an output says about the elements of the list that it gives."""
    node = scope.nodes[index]
    if node.proto is None:
        function = scope.function_in(graph)
        if node.op == ir.ARG:
            full_types.lower(function.signature.input_arg[index].experimental_full_type, low)
            _set_handle_dtypes(function, index, low)
        else:
            result = function.signature.output_arg[index - scope.results.start]
            full_types.lower(result.experimental_full_type, low)
        return
    outputs = scope.protos_in(graph)[index - scope.num_args].experimental_type.args
    if port < len(outputs):
        full_types.lower(outputs[port], low)
