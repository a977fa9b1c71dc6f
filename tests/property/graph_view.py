"""A GraphDef with its function library, with every input resolved to a node and a port.

Made from the protos and TensorFlow's op definitions alone: what the property tests see of a graph
has nothing in common with the package's own view of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2, op_def_pb2
from tensorflow.python.framework import op_def_registry

ARGUMENT = "_Arg"
Port = tuple[str, int]


@dataclasses.dataclass(frozen=True)
class Node:
    """One node; an argument of a function is a node of op `_Arg`.

    Attributes:
        name: the name inside its scope.
        op: the op type.
        proto: its proto; empty for an argument.
        inputs: the data inputs.
        controls: names of the control inputs.
        out_types: dtype number of each output.
        in_types: dtype number of each input.
    """

    name: str
    op: str
    proto: node_def_pb2.NodeDef
    inputs: tuple[Port, ...]
    controls: tuple[str, ...]
    out_types: tuple[int, ...]
    in_types: tuple[int, ...]

    def type_of(self, attr: str) -> int:
        return int(self.proto.attr[attr].type)

    def function(self, attr: str) -> str:
        return str(self.proto.attr[attr].func.name)


@dataclasses.dataclass(frozen=True)
class Scope:
    """The main graph (its name is empty) or the body of one function.

    Attributes:
        name: name of the function.
        nodes: all nodes by name, arguments first.
        arguments: names of the argument nodes.
        results: what the function returns.
        result_types: their dtype numbers, as its signature says.
        readers: port -> (name of a reader, index of its input).
    """

    name: str
    nodes: Mapping[str, Node]
    arguments: tuple[str, ...]
    results: tuple[Port, ...]
    result_types: tuple[int, ...]
    readers: Mapping[Port, Sequence[tuple[str, int]]]


def view(graph_def: graph_pb2.GraphDef) -> dict[str, Scope]:
    """Returns the scopes of `graph_def` by name."""
    main = {node.name: _node(node, _main_port) for node in graph_def.node}
    scopes = {"": _scope("", main, (), (), ())}
    for function in graph_def.library.function:
        scopes[function.signature.name] = _function(function)
    return scopes


def _function(function: function_pb2.FunctionDef) -> Scope:
    signature = function.signature
    op_of = {node.name: node for node in function.node_def}
    arguments = {
        arg.name: Node(arg.name, ARGUMENT, node_def_pb2.NodeDef(), (), (), (arg.type,), ())
        for arg in signature.input_arg
    }

    def port(ref: str) -> Port:
        name, *rest = ref.split(":")
        if not rest:
            return name, 0
        return name, _first_port(op_of[name], rest[0]) + int(rest[1])

    nodes = arguments | {node.name: _node(node, port) for node in function.node_def}
    results = tuple(port(function.ret[arg.name]) for arg in signature.output_arg)
    types = tuple(arg.type for arg in signature.output_arg)
    return _scope(signature.name, nodes, tuple(arguments), results, types)


def _scope(
    name: str,
    nodes: Mapping[str, Node],
    arguments: tuple[str, ...],
    results: tuple[Port, ...],
    result_types: tuple[int, ...],
) -> Scope:
    readers: dict[Port, list[tuple[str, int]]] = {}
    for node in nodes.values():
        for index, port in enumerate(node.inputs):
            readers.setdefault(port, []).append((node.name, index))
    return Scope(name, nodes, arguments, results, result_types, readers)


def _main_port(ref: str) -> Port:
    name, _, port = ref.partition(":")
    return name, int(port or 0)


def _node(proto: node_def_pb2.NodeDef, port: object) -> Node:
    op_def = op_def_registry.get(proto.op)
    assert op_def is not None, f"unknown op `{proto.op}`"
    data = [ref for ref in proto.input if not ref.startswith("^")]
    return Node(
        proto.name,
        proto.op,
        proto,
        tuple(port(ref) for ref in data),  # type: ignore[operator]
        tuple(ref[1:] for ref in proto.input if ref.startswith("^")),
        _types(proto, op_def.output_arg),
        _types(proto, op_def.input_arg),
    )


def _first_port(proto: node_def_pb2.NodeDef, output: str) -> int:
    """Returns the port at which the output argument `output` of an op begins."""
    op_def = op_def_registry.get(proto.op)
    first = 0
    for arg in op_def.output_arg:
        if arg.name == output:
            return first
        first += len(_types(proto, [arg]))
    raise ValueError(f"`{proto.op}` has no output `{output}`")


def _types(proto: node_def_pb2.NodeDef, args: Sequence[op_def_pb2.OpDef.ArgDef]) -> tuple[int, ...]:
    """Returns the dtype numbers of the tensors that the arguments of an op stand for."""
    types: list[int] = []
    for arg in args:
        if arg.type_list_attr:
            types += proto.attr[arg.type_list_attr].list.type
            continue
        one = proto.attr[arg.type_attr].type if arg.type_attr else arg.type
        types += [one] * (proto.attr[arg.number_attr].i if arg.number_attr else 1)
    return tuple(types)
