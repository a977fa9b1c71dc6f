"""Protos -> `Program`.

On entry the graphs may hold anything; on exit every input is resolved, every name is unique and
every float32 port has its type variable, or `InputError` names the place.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tensorflow.core.framework import function_pb2, node_def_pb2, op_def_pb2

from tf_amp_rewriter import errors
from tf_amp_rewriter.dtypes import DT_FLOAT
from tf_amp_rewriter.ir import calls, constants, ports, recursion
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ops import calls as call_table
from tf_amp_rewriter.ops import einsum, handles
from tf_amp_rewriter.ops.attrs import attr_of

_Vars = tuple[int, ...]
_AttrVars = tuple[tuple[str, int, int], ...]

_NO_VARS: Final[_AttrVars] = ()
_EXPORT_AGAIN: Final = "the model is damaged: export it again"
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
        table = ports.PortTable({f.signature.name: f.signature for f in library}, source.op_defs)
        names: dict[str, int] = {}
        for index, function in enumerate(library, len(scopes) + 1):
            if function.signature.name in names:
                name = function.signature.name
                raise errors.InputError("stands twice in the function library", scope=name)
            names[function.signature.name] = index
        main = _ScopeBuilder(graph_index, -1, "", table, names, len(scopes), type_vars)
        scopes.append(main.build(source.graph_def.node, None))
        for index, (name, function) in enumerate(zip(names, library, strict=True)):
            body = _ScopeBuilder(graph_index, index, name, table, names, len(scopes), type_vars)
            face = source.inner.get(name, "")
            scopes.append(body.build(function.node_def, function, face))
        function_scopes.append(names)
    result = ir.Program(tuple(graphs), tuple(scopes), tuple(type_vars), tuple(function_scopes))
    recursion.expect_none(result)
    return result


def _has_odd_names(names: Sequence[str]) -> bool:
    """Returns whether a name may be read as a reference to something else."""
    text = "".join(names)
    return ":" in text or "^" in text


def port_number(text: str) -> int | None:
    """Returns the number of a port as a reference has it; None if that is not one."""
    is_number = text.isascii() and text.isdigit() and len(text) <= _MAX_PORT_DIGITS
    return int(text) if is_number else None


@dataclasses.dataclass
class _ScopeBuilder:
    """Builds one scope; lives only as long as that takes."""

    graph: int
    function: int
    name: str
    table: ports.PortTable
    function_scopes: Mapping[str, int]
    scope_index: int
    type_vars: list[ir.TypeVar]
    names: list[str] = dataclasses.field(default_factory=list)
    index_of: dict[str, int] = dataclasses.field(default_factory=dict)
    node_ports: list[ports.Ports | None] = dataclasses.field(default_factory=list)
    places: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)  # by reference

    def build(
        self,
        protos: Sequence[node_def_pb2.NodeDef],
        function: function_pb2.FunctionDef | None,
        face: str = "",
    ) -> ir.Scope:
        args = list(function.signature.input_arg) if function else []
        self.index_names([arg.name for arg in args], protos)
        self.node_ports = [
            *(None for _ in args),
            *(self.table.get(proto, self.name) for proto in protos),
        ]
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
        if all(p < index for index, node in enumerate(nodes) for p, _ in node.inputs):
            return  # as most are written
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
        self.names = names
        if not _has_odd_names(names):
            self.places = {name: (index, 0) for index, name in enumerate(names)}

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
        name, texts = self.names[index], tuple(proto.input)
        refs = tuple([ref for ref in texts if not ref.startswith("^")])
        places = self.places
        inputs = tuple([places.get(ref) or self.resolve(name, ref) for ref in refs])
        for ref in texts[len(refs) :]:
            self.resolve(name, ref)
        found = self.node_ports[index]
        if found is None:
            return self.unknown_node(index, proto, inputs, refs)
        if len(found.in_vars) != len(refs):
            raise self.error(
                name,
                f"has {len(refs)} data inputs, expected {len(found.in_vars)} for op `{found.op}`",
            )
        if found.op in _PROBLEMS:
            self.expect_valid(proto, found.op)
        in_vars, out_vars, attr_vars = found.in_vars, found.out_vars, _NO_VARS
        if found.attrs:
            in_vars, out_vars, attr_vars = self.variables(index, found)
        in_types, out_types = found.in_types, found.out_types
        return ir.Node(
            name, found.op, proto, inputs, refs, in_vars, out_vars, out_types, in_types, attr_vars
        )

    def variables(self, index: int, found: ports.Ports) -> tuple[_Vars, _Vars, _AttrVars]:
        """Adds the type variables of a node; returns those of its ports, and all of them."""
        first = len(self.type_vars)
        for attr, position in found.attrs:
            self.new_var(index, attr, position)
        return (
            tuple([var if var == ir.NO_VAR else first + var for var in found.in_vars]),
            tuple([var if var == ir.NO_VAR else first + var for var in found.out_vars]),
            tuple([(attr, i, var) for var, (attr, i) in enumerate(found.attrs, first)]),
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

    def expect_valid(self, proto: node_def_pb2.NodeDef, op: str) -> None:
        problem = _PROBLEMS[op](proto)
        if problem:
            raise self.error(proto.name, problem, _EXPORT_AGAIN)

    def new_var(self, node: int, attr: str, index: int) -> int:
        self.type_vars.append(ir.TypeVar(self.scope_index, node, attr, index))
        return len(self.type_vars) - 1

    def resolve(self, reader: str, ref: str) -> tuple[int, int]:
        """Returns (node, port) of an input such as `a`, `a:1`, `a:output:0` or `^a`."""
        if ref in self.places:
            return self.places[ref]
        name, _, rest = ref.removeprefix("^").partition(":")
        index = self.index_of.get(name)
        if index is None:
            raise self.error(reader, f"input `{ref}` names no node")
        port = 0 if not rest or ref.startswith("^") else self.port(index, rest)
        if port is None:
            raise self.error(reader, f"input `{ref}` names no output of node `{name}`")
        place = self.places[ref] = (index, port)
        return place

    def port(self, index: int, text: str) -> int | None:
        """Returns the port that a reference names (`1`, `output:0`); None if there is none."""
        output, _, digits = text.rpartition(":")
        number = 0 if digits == "0" else port_number(digits)
        found = self.node_ports[index]
        if number is None or not output or found is None:
            return number
        start, end = found.ranges.get(output, (0, 0))
        return start + number if number < end - start else None

    def error(self, node: str, message: str, hint: str = "") -> errors.InputError:
        return errors.InputError(message, hint, scope=self.name, node=node)
