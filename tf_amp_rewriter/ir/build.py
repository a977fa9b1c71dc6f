"""Protos -> `Program`.

On entry the graphs may hold anything; on exit every input is resolved, every name is unique and
every float32 port has its type variable, or `InputError` names the place.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tensorflow.core.framework import attr_value_pb2, function_pb2, node_def_pb2, op_def_pb2

from tf_amp_rewriter import errors
from tf_amp_rewriter.dtypes import DT_FLOAT, REF_OFFSET
from tf_amp_rewriter.ir import calls, constants, op_defs, recursion
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ops import calls as call_table
from tf_amp_rewriter.ops import einsum, handles
from tf_amp_rewriter.ops.attrs import attr_of

Ports = list[tuple[int, str, int]]  # (dtype, type attribute, index in it) per port

_EXPORT_AGAIN: Final = "the model is damaged: export it again"
_MAX_OUTPUTS: Final = 1_000_000
_MAX_PORT_DIGITS: Final = 9
# The ops whose attributes the pass reads as data, with what is wrong with those of a node.
_PROBLEMS: Final[Mapping[str, Callable[[node_def_pb2.NodeDef], str]]] = {
    handles.CONSTANT: lambda proto: constants.problem(attr_of(proto, "value").tensor),
    einsum.EINSUM: lambda proto: einsum.problem(attr_of(proto, "equation").s),
}


def program(graphs: Sequence[ir.GraphSource]) -> ir.Program:
    """Returns the typed view of `graphs`. Linear in the number of nodes.

    Raises:
        errors.InputError: an input names no node or port, a name stands twice, a type attribute is
            missing, a list of types has the wrong length, a constant or an equation is damaged, a
            function calls itself.
    """
    type_vars: list[ir.TypeVar] = []
    scopes: list[ir.Scope] = []
    function_scopes = []
    for graph_index, source in enumerate(graphs):
        library = source.graph_def.library.function
        ops = _Ops({f.signature.name: f.signature for f in library}, source.op_defs)
        names: dict[str, int] = {}
        for index, function in enumerate(library, len(scopes) + 1):
            if function.signature.name in names:
                name = function.signature.name
                raise errors.InputError("stands twice in the function library", scope=name)
            names[function.signature.name] = index
        main = _ScopeBuilder(graph_index, -1, "", ops, names, len(scopes), type_vars)
        scopes.append(main.build(source.graph_def.node, None))
        for index, (name, function) in enumerate(zip(names, library, strict=True)):
            body = _ScopeBuilder(graph_index, index, name, ops, names, len(scopes), type_vars)
            face = source.inner.get(name, "")
            scopes.append(body.build(function.node_def, function, face))
        function_scopes.append(names)
    result = ir.Program(tuple(graphs), tuple(scopes), tuple(type_vars), tuple(function_scopes))
    recursion.expect_none(result)
    return result


def port_number(text: str) -> int | None:
    """Returns the number of a port as a reference has it; None if that is not one."""
    is_number = text.isascii() and text.isdigit() and len(text) <= _MAX_PORT_DIGITS
    return int(text) if is_number else None


@dataclasses.dataclass(frozen=True, slots=True)
class _Arg:
    """One argument of an op definition, read from the proto once per op and not once per node."""

    name: str
    type: int
    type_attr: str
    number_attr: str
    type_list_attr: str


@dataclasses.dataclass(frozen=True, slots=True)
class _Op:
    """An op definition, likewise."""

    inputs: tuple[_Arg, ...]
    outputs: tuple[_Arg, ...]
    defaults: Mapping[str, attr_value_pb2.AttrValue]
    portless: tuple[str, ...]  # type attributes that no input or output has


class _Ops:
    """Op definitions of one graph: its function library, TensorFlow's registry, its own list."""

    def __init__(
        self,
        library: Mapping[str, op_def_pb2.OpDef],
        own: Mapping[str, op_def_pb2.OpDef],
    ) -> None:
        self._library = library
        self._own = own
        self._known: dict[str, _Op | None] = {}

    def get(self, op: str) -> _Op | None:
        if op not in self._known:
            op_def = self._library.get(op) or op_defs.registered(op) or self._own.get(op)
            self._known[op] = None if op_def is None else _read(op_def)
        return self._known[op]


def _read(op_def: op_def_pb2.OpDef) -> _Op:
    args = [*op_def.input_arg, *op_def.output_arg]
    with_port = {arg.type_attr for arg in args if not arg.number_attr}
    return _Op(
        tuple(_read_arg(arg) for arg in op_def.input_arg),
        tuple(_read_arg(arg) for arg in op_def.output_arg),
        {a.name: a.default_value for a in op_def.attr if a.HasField("default_value")},
        tuple(a.name for a in op_def.attr if a.type == "type" and a.name not in with_port),
    )


def _read_arg(arg: op_def_pb2.OpDef.ArgDef) -> _Arg:
    return _Arg(arg.name, arg.type % REF_OFFSET, arg.type_attr, arg.number_attr, arg.type_list_attr)


@dataclasses.dataclass(frozen=True, slots=True)
class _Ports:
    """The ports of one node, and where those of each named output begin and end."""

    inputs: Ports
    outputs: Ports
    ranges: Mapping[str, tuple[int, int]]


@dataclasses.dataclass
class _ScopeBuilder:
    """Builds one scope; lives only as long as that takes."""

    graph: int
    function: int
    name: str
    ops: _Ops
    function_scopes: Mapping[str, int]
    scope_index: int
    type_vars: list[ir.TypeVar]
    index_of: dict[str, int] = dataclasses.field(default_factory=dict)
    ports: list[_Ports | None] = dataclasses.field(default_factory=list)

    def build(
        self,
        protos: Sequence[node_def_pb2.NodeDef],
        function: function_pb2.FunctionDef | None,
        face: str = "",
    ) -> ir.Scope:
        args = list(function.signature.input_arg) if function else []
        self.index_names([arg.name for arg in args], protos)
        self.ports = [*(None for _ in args), *(self.ports_of(proto) for proto in protos)]
        nodes = [self.arg(index, arg) for index, arg in enumerate(args)]
        nodes += [self.node(len(args) + offset, proto) for offset, proto in enumerate(protos)]
        results = list(function.signature.output_arg) if function else []
        for result in results:
            assert function is not None
            nodes.append(self.result(len(nodes), result, function))
        self.expect_no_cycle(nodes)
        return ir.Scope(
            self.graph,
            self.function,
            self.name,
            tuple(nodes),
            len(args),
            len(results),
            self.calls(nodes),
            frozenset([node.op for node in nodes]),
            face,
        )

    def calls(self, nodes: Sequence[ir.Node]) -> Mapping[int, tuple[ir.Callee, ...]]:
        return {
            index: calls.callees(node.proto, self.function_scopes)
            for index, node in enumerate(nodes)
            if node.op in call_table.CALLS and node.proto is not None
        }

    def expect_no_cycle(self, nodes: Sequence[ir.Node]) -> None:
        """Refuses what would let those who follow inputs run in circles; loops may go round."""
        waits: list[int] = []
        readers: list[list[int]] = [[] for _ in nodes]
        for index, node in enumerate(nodes):
            producers = [p for p, _ in node.inputs if nodes[p].op not in handles.BACK_EDGES]
            waits.append(len(producers))
            for producer in producers:
                readers[producer].append(index)
        ready = [index for index, count in enumerate(waits) if count == 0]
        for index in ready:  # grows
            for reader in readers[index]:
                waits[reader] -= 1
                if waits[reader] == 0:
                    ready.append(reader)
        if len(ready) < len(nodes):
            stuck = next(index for index, count in enumerate(waits) if count)
            raise self.error(
                nodes[stuck].name, "its inputs are in a cycle, or depend on one", _EXPORT_AGAIN
            )

    def index_names(self, args: Sequence[str], protos: Sequence[node_def_pb2.NodeDef]) -> None:
        names = [*args, *(proto.name for proto in protos)]
        self.index_of = {name: index for index, name in enumerate(names)}
        if len(self.index_of) != len(names):
            twice = next(n for n, count in collections.Counter(names).items() if count > 1)
            raise self.error(twice, "two nodes have this name, expected one")

    def arg(self, index: int, arg: op_def_pb2.OpDef.ArgDef) -> ir.Node:
        var = self.new_var(index, "T", -1) if arg.type == DT_FLOAT else ir.NO_VAR
        return ir.Node(arg.name, ir.ARG, None, (), (), (), (var,), (arg.type,), ())

    def result(
        self, index: int, result: op_def_pb2.OpDef.ArgDef, function: function_pb2.FunctionDef
    ) -> ir.Node:
        if result.name not in function.ret:
            raise self.error(result.name, "this result of the function has no value in `ret`")
        ref = function.ret[result.name]
        var = self.new_var(index, "T", -1) if result.type == DT_FLOAT else ir.NO_VAR
        inputs = (self.resolve(result.name, ref),)
        return ir.Node(result.name, ir.RETVAL, None, inputs, (ref,), (var,), (), (), (result.type,))

    def node(self, index: int, proto: node_def_pb2.NodeDef) -> ir.Node:
        refs = tuple([ref for ref in proto.input if not ref.startswith("^")])
        inputs = tuple([self.resolve(proto.name, ref) for ref in refs])
        for ref in proto.input[len(refs) :]:
            self.resolve(proto.name, ref)
        ports = self.ports[index]
        if ports is None:
            return self.unknown_node(index, proto, inputs, refs)
        in_ports, out_ports = ports.inputs, ports.outputs
        if len(in_ports) != len(refs):
            raise self.error(
                proto.name,
                f"has {len(refs)} data inputs, expected {len(in_ports)} for op `{proto.op}`",
            )
        seen: dict[tuple[str, int], int] = {}
        for dtype, attr, position in (*in_ports, *out_ports):
            if dtype == DT_FLOAT and (attr, position) not in seen:
                seen[attr, position] = self.new_var(index, attr, position)
        self.add_portless(index, proto, seen)
        self.expect_valid(proto)
        return ir.Node(
            proto.name,
            proto.op,
            proto,
            inputs,
            refs,
            tuple([seen[a, i] if dt == DT_FLOAT else ir.NO_VAR for dt, a, i in in_ports]),
            tuple([seen[a, i] if dt == DT_FLOAT else ir.NO_VAR for dt, a, i in out_ports]),
            tuple([dtype for dtype, _, _ in out_ports]),
            tuple([dtype for dtype, _, _ in in_ports]),
            tuple([(attr, position, var) for (attr, position), var in seen.items()]),
        )

    def unknown_node(
        self,
        index: int,
        proto: node_def_pb2.NodeDef,
        inputs: tuple[tuple[int, int], ...],
        refs: tuple[str, ...],
    ) -> ir.Node:
        """Returns a node of an op that nobody knows: all that it reads or gives keeps its dtype."""
        fixed = self.new_var(index, ir.FIXED, -1)
        return ir.Node(
            proto.name,
            proto.op,
            proto,
            inputs,
            refs,
            (fixed,) * len(refs),
            (fixed,),
            (),
            (0,) * len(refs),
            known=False,
        )

    def add_portless(
        self, index: int, proto: node_def_pb2.NodeDef, seen: dict[tuple[str, int], int]
    ) -> None:
        """Adds variables for type attributes without a port (`VarHandleOp`, TensorLists)."""
        op = self.ops.get(proto.op)
        assert op is not None
        for attr in op.portless:
            value = proto.attr[attr].type if attr in proto.attr else 0
            if value == DT_FLOAT and (attr, -1) not in seen:
                seen[attr, -1] = self.new_var(index, attr, -1)

    def expect_valid(self, proto: node_def_pb2.NodeDef) -> None:
        find_problem = _PROBLEMS.get(proto.op)
        problem = find_problem(proto) if find_problem else ""
        if problem:
            raise self.error(proto.name, problem, _EXPORT_AGAIN)

    def new_var(self, node: int, attr: str, index: int) -> int:
        self.type_vars.append(ir.TypeVar(self.scope_index, node, attr, index))
        return len(self.type_vars) - 1

    def ports_of(self, proto: node_def_pb2.NodeDef) -> _Ports | None:
        op = self.ops.get(proto.op)
        if op is None:
            return None
        types: dict[str, int] = {}  # of the plain type attributes, each read once
        inputs: Ports = []
        for arg in op.inputs:
            self.add_ports(proto, op, arg, types, inputs, len(proto.input))
        outputs: Ports = []
        ranges: dict[str, tuple[int, int]] = {}
        for arg in op.outputs:
            start = len(outputs)
            self.add_ports(proto, op, arg, types, outputs, _MAX_OUTPUTS)
            ranges[arg.name] = (start, len(outputs))
        return _Ports(inputs, outputs, ranges)

    def add_ports(
        self,
        proto: node_def_pb2.NodeDef,
        op: _Op,
        arg: _Arg,
        types: dict[str, int],
        ports: Ports,
        limit: int,
    ) -> None:
        if arg.type_list_attr:
            listed = self.attr(proto, op, arg.type_list_attr).list.type
            ports.extend((t % REF_OFFSET, arg.type_list_attr, i) for i, t in enumerate(listed))
            return
        if arg.type_attr and arg.type_attr not in types:
            types[arg.type_attr] = self.attr(proto, op, arg.type_attr).type % REF_OFFSET
        dtype = types[arg.type_attr] if arg.type_attr else arg.type
        port = (dtype, arg.type_attr or ir.FIXED, -1)
        if arg.number_attr:
            ports.extend([port] * self.count(proto, op, arg.number_attr, limit))
        else:
            ports.append(port)

    def count(self, proto: node_def_pb2.NodeDef, op: _Op, name: str, limit: int) -> int:
        count = self.attr(proto, op, name).i
        if not 0 <= count <= limit:
            raise self.error(
                proto.name, f"attribute `{name}` is {count}, expected a number from 0 to {limit}"
            )
        return count

    def attr(self, proto: node_def_pb2.NodeDef, op: _Op, name: str) -> attr_value_pb2.AttrValue:
        if name in proto.attr:
            return proto.attr[name]
        if name in op.defaults:
            return op.defaults[name]
        raise self.error(
            proto.name,
            f"attribute `{name}` is missing, expected one for op `{proto.op}`",
            "the model is damaged, or was made for another version of this op",
        )

    def resolve(self, reader: str, ref: str) -> tuple[int, int]:
        """Returns (node, port) of an input such as `a`, `a:1`, `a:output:0` or `^a`."""
        name, _, rest = ref.removeprefix("^").partition(":")
        index = self.index_of.get(name)
        if index is None:
            raise self.error(reader, f"input `{ref}` names no node")
        if not rest or ref.startswith("^"):
            return index, 0
        output, _, digits = rest.rpartition(":")
        number = port_number(digits)
        if number is not None:
            ports = self.ports[index]
            if not output or ports is None:
                return index, number
            start, end = ports.ranges.get(output, (0, 0))
            if number < end - start:
                return index, start + number
        raise self.error(reader, f"input `{ref}` names no output of node `{name}`")

    def error(self, node: str, message: str, hint: str = "") -> errors.InputError:
        return errors.InputError(message, hint, scope=self.name, node=node)
