"""Functions that outsiders see, where calls from inside gain: a float32 face, the body behind it.

Before (`f` is named by a signature or the object graph, and `g` calls it as well):

    @f(x: f32, w: f32) -> (y=r)
      m: f32 = MatMul(x, w)
      r: f32 = Relu(m)

    @g(x: f32, w: f32) -> (y=b)
      a: f32 = PartitionedCall([x, w], Tout=[f32], f=@f)
      b: f32 = PartitionedCall([a, w], Tout=[f32], f=@f)

After, before any precision is decided:

    @f(x: f32, w: f32) -> (y=PartitionedCall)
      PartitionedCall: f32 = PartitionedCall([x, w], Tout=[f32], f=@f__amp)

    @f__amp(x: f32, w: f32) -> (y=r)
      m: f32 = MatMul(x, w)
      r: f32 = Relu(m)

    @g(x: f32, w: f32) -> (y=b)
      a: f32 = PartitionedCall([x, w], Tout=[f32], f=@f__amp)
      b: f32 = PartitionedCall([a, w], Tout=[f32], f=@f__amp)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from tensorflow.core.framework import attr_value_pb2, function_pb2, graph_pb2, node_def_pb2

from tf_amp_rewriter.ir import op_defs
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ops import calls as table
from tf_amp_rewriter.rewrite import names

_SUFFIX: Final = "__amp"
# What ties a function to others by their names: they would not fit the inner function.
_TIES_TO_OTHERS: Final = ("forward_function_name", "backward_function_name")


def split(source: ir.GraphSource, functions: Collection[str]) -> ir.GraphSource:
    """Returns `source` with the bodies of some functions moved behind their faces.

    Each of `functions` keeps its name, signature and attributes, and becomes one call of a new
    function `NAME__amp`, to which the calls from inside go, too. All that names it in another way
    than by a row of `ops/calls.py` still names the face. Linear in the number of nodes.

    Args:
        source: the graph; it is not changed, and returned as it is if there are no `functions`.
        functions: names of functions in its library, of those that `face_calls.candidates` gives.
    """
    if not functions:
        return source
    library = source.graph_def.library.function
    taken = {function.signature.name for function in library}
    inner = {
        function.signature.name: names.unique(function.signature.name + _SUFFIX, taken)
        for function in library
        if function.signature.name in functions
    }
    inside = _inside_calls(source.graph_def, inner)
    graph_def = graph_pb2.GraphDef()
    graph_def.CopyFrom(source.graph_def)
    del graph_def.library.function[:]
    for function in library:
        name = function.signature.name
        if name in inner:
            graph_def.library.function.append(_face(function, inner[name], inside[name]))
        body = graph_def.library.function.add()
        body.CopyFrom(function)
        if name in inner:
            body.signature.name = inner[name]
            for attr in _TIES_TO_OTHERS:
                if attr in body.attr:
                    del body.attr[attr]
    for nodes in _bodies(graph_def):
        for node in nodes:
            for called in _called(node):
                called.name = inner.get(called.name, called.name)
    behind = {inner_name: name for name, inner_name in inner.items()}
    return dataclasses.replace(source, graph_def=graph_def, inner={**source.inner, **behind})


def _inside_calls(
    graph_def: graph_pb2.GraphDef, functions: Collection[str]
) -> Mapping[str, list[node_def_pb2.NodeDef]]:
    """Returns the nodes that call each function by a row of `ops/calls.py`."""
    found: dict[str, list[node_def_pb2.NodeDef]] = {name: [] for name in functions}
    for nodes in _bodies(graph_def):
        for node in nodes:
            for function in _called(node):
                if function.name in found:
                    found[function.name].append(node)
    return found


def _bodies(graph_def: graph_pb2.GraphDef) -> Iterator[Iterable[node_def_pb2.NodeDef]]:
    yield graph_def.node
    for function in graph_def.library.function:
        yield function.node_def


def _called(node: node_def_pb2.NodeDef) -> Iterator[attr_value_pb2.NameAttrList]:
    """Yields the attributes of a node that name the functions it calls."""
    row = table.CALLS.get(node.op)
    if row is None:
        return
    for name in row.functions:
        if name in node.attr:
            yield node.attr[name].func
    if row.function_list in node.attr:
        yield from node.attr[row.function_list].list.func


def _face(
    function: function_pb2.FunctionDef, inner: str, inside: Sequence[node_def_pb2.NodeDef]
) -> function_pb2.FunctionDef:
    """Returns `function` with a call of `inner` as its body."""
    face = function_pb2.FunctionDef()
    face.CopyFrom(function)
    del face.node_def[:]
    face.ret.clear()
    call = face.node_def.add(op=_call_op(function, inside))
    call.name = names.unique(call.op, {argument.name for argument in function.signature.input_arg})
    call.input.extend(argument.name for argument in function.signature.input_arg)
    call.attr["Tin"].list.type.extend(a.type for a in function.signature.input_arg)
    call.attr["Tout"].list.type.extend(a.type for a in function.signature.output_arg)
    call.attr["f"].func.name = inner
    for sample in [n for n in inside if n.op in (table.CALL, table.STATEFUL_CALL)][:1]:
        for setting in table.CALL_SETTINGS:
            if setting in sample.attr:
                call.attr[setting].CopyFrom(sample.attr[setting])
    for port, result in enumerate(function.signature.output_arg):
        face.ret[result.name] = f"{call.name}:output:{port}"
    if function.control_ret:
        # One for all: whoever waits for an effect of the function waits for the call.
        face.control_ret.clear()
        face.control_ret[call.name] = call.name
        face.signature.control_output[:] = [call.name]
    return face


def _call_op(function: function_pb2.FunctionDef, inside: Sequence[node_def_pb2.NodeDef]) -> str:
    """Returns the op that calls a function: as calls from inside do, and as its effects need."""
    stateful = function.signature.is_stateful or bool(function.control_ret)
    for node in inside:
        op_def = op_defs.registered(node.op)
        stateful = stateful or op_def is None or op_def.is_stateful
    return table.STATEFUL_CALL if stateful else table.CALL
