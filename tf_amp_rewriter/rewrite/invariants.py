"""Loop invariants that a loop reads in both precisions: a second one, to be cast before the loop.

Before (in the body `x` is read by a low MatMul and by a float32 op, so it would be cast at each
step):

    w: [i32, f32] = While([i, x], body=@body, cond=@cond)

    @body(i: i32, x: f32) -> (i=next, x=x)
      m: f32 = MatMul(x, x)
      e: f32 = Exp(x)

After, before any precision is decided again:

    w: [i32, f32, f32] = While([i, x, x], body=@body, cond=@cond)

    @body(i: i32, x: f32, x_1: f32) -> (i=next, x=x, x_1=x_1)
      m: f32 = MatMul(x_1, x_1)
      e: f32 = Exp(x)
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import Final

from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2

from tf_amp_rewriter.dtypes import DT_FLOAT
from tf_amp_rewriter.ir import outsiders, reach
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ir.flow import Flow
from tf_amp_rewriter.ops import calls as table
from tf_amp_rewriter.reasons import Decisions
from tf_amp_rewriter.rewrite import names

# Attributes of a loop, and of a function, with one shape for each value.
_SHAPES_OF_LOOP: Final = ("output_shapes", "_output_shapes")
_SHAPES_OF_FUNCTION: Final = "_input_shapes"


@dataclasses.dataclass(frozen=True)
class Mixed:
    """A loop invariant that is read in both precisions.

    Attributes:
        scope: index of the scope with the loop.
        node: index of the loop in it.
        argument: which value of the loop it is.
        readers: (node, input) of those in the body that read it low.
    """

    scope: int
    node: int
    argument: int
    readers: tuple[tuple[int, int], ...]


def mixed(flow: Flow, decisions: Decisions) -> list[Mixed]:
    """Returns the float32 loop invariants that low ops in the body read. Linear in the nodes.

    Loops that share a function with another call, or of which outsiders see one, are left out.
    """
    program = flow.program
    found: list[Mixed] = []
    if not flow.invariants:
        return found
    times_called = collections.Counter(
        callee.scope
        for scope in program.scopes
        for callees in scope.calls.values()
        for callee in callees
    )
    closed = set(times_called) - set(outsiders.faces(program))
    for index, scope in enumerate(program.scopes):
        for place, callees in scope.calls.items():
            if all(c.is_loop and c.scope in closed and times_called[c.scope] == 1 for c in callees):
                for callee in callees:
                    if callee.gives_results:
                        values = _mixed_values(flow, decisions, program.scopes[callee.scope])
                        found += [Mixed(index, place, *value) for value in values]
    return found


def _mixed_values(
    flow: Flow, decisions: Decisions, body: ir.Scope
) -> list[tuple[int, tuple[tuple[int, int], ...]]]:
    consumers = reach.consumers_of(body)
    values = []
    for argument in range(body.num_args):
        var = body.nodes[argument].out_vars[0]
        if var == ir.NO_VAR or flow.class_of[var] not in flow.invariants:
            continue
        if not decisions[flow.class_of[var]].low:
            low = tuple(
                (reader, position)
                for reader, position in consumers.get((argument, 0), ())
                if (read := body.nodes[reader].in_vars[position]) != ir.NO_VAR
                and decisions[flow.class_of[read]].low
            )
            if low:
                values.append((argument, low))
    return values


def split(program: ir.Program, places: Sequence[Mixed]) -> list[ir.GraphSource]:
    """Returns the graphs of `program` with a second loop invariant beside each of `places`.

    Linear in the number of nodes; the graphs of `program` are not changed.
    """
    graph_defs: dict[int, graph_pb2.GraphDef] = {}
    for place in places:
        scope = program.scopes[place.scope]
        if scope.graph not in graph_defs:
            graph_defs[scope.graph] = graph_pb2.GraphDef()
            graph_defs[scope.graph].CopyFrom(program.graphs[scope.graph].graph_def)
        _add(program, scope, place, graph_defs[scope.graph])
    return [
        dataclasses.replace(source, graph_def=graph_defs.get(graph, source.graph_def))
        for graph, source in enumerate(program.graphs)
    ]


def _add(program: ir.Program, scope: ir.Scope, place: Mixed, graph_def: graph_pb2.GraphDef) -> None:
    node = scope.nodes[place.node]
    proto = scope.protos_in(graph_def)[place.node - scope.num_args]
    _extend_loop(proto, node, place.argument)
    for callee in scope.calls[place.node]:
        body = program.scopes[callee.scope]
        function = body.function_in(graph_def)
        name = _extend_function(function, place.argument)
        if callee.gives_results:
            _extend_body(function, body, name, place.readers)


def _extend_loop(proto: node_def_pb2.NodeDef, node: ir.Node, argument: int) -> None:
    count = sum(not ref.startswith("^") for ref in proto.input)
    proto.input.insert(count, node.refs[argument])
    row = table.CALLS[node.op]
    proto.attr[row.output_types].list.type.append(DT_FLOAT)
    for attr in _SHAPES_OF_LOOP:
        if attr in proto.attr and argument < len(proto.attr[attr].list.shape):
            shapes = proto.attr[attr].list.shape
            shapes.add().CopyFrom(shapes[argument])


def _extend_function(function: function_pb2.FunctionDef, argument: int) -> str:
    """Adds an argument like `argument` to a function; returns its name."""
    signature = function.signature
    taken = {arg.name for arg in signature.input_arg} | {node.name for node in function.node_def}
    added = signature.input_arg.add()
    added.CopyFrom(signature.input_arg[argument])
    added.name = names.unique(signature.input_arg[argument].name, taken)
    if argument in function.arg_attr:
        attrs = function_pb2.FunctionDef.ArgAttrs()
        attrs.CopyFrom(function.arg_attr[argument])
        function.arg_attr[len(signature.input_arg) - 1].CopyFrom(attrs)
    if _SHAPES_OF_FUNCTION in function.attr:
        shapes = function.attr[_SHAPES_OF_FUNCTION].list.shape
        if argument < len(shapes):
            shapes.add().CopyFrom(shapes[argument])
    return added.name


def _extend_body(
    function: function_pb2.FunctionDef,
    body: ir.Scope,
    name: str,
    readers: Sequence[tuple[int, int]],
) -> None:
    """Gives the new argument back as a result, and to those that read it low."""
    result = function.signature.output_arg.add(type=DT_FLOAT)
    taken = {arg.name for arg in function.signature.output_arg}
    result.name = names.unique(name, taken)
    function.ret[result.name] = name
    for reader, position in readers:
        if body.nodes[reader].op == ir.RETVAL:  # handed on as another value, which is low
            function.ret[body.nodes[reader].name] = name
        else:
            function.node_def[reader - body.num_args].input[position] = name
