"""Protos -> `Program`.

On entry the graphs may hold anything; on exit every input is resolved, every name is unique and
every float32 port has its type variable, or `InputError` names the place.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence

from tensorflow.core.framework import attr_value_pb2, function_pb2, node_def_pb2, op_def_pb2

from tf_amp_rewriter import errors
from tf_amp_rewriter.dtypes import DT_FLOAT, REF_OFFSET
from tf_amp_rewriter.ir import op_defs
from tf_amp_rewriter.ir import program as ir

Ports = list[tuple[int, str, int]]  # (dtype, type attribute, index in it) per port


def program(graphs: Sequence[ir.GraphSource]) -> ir.Program:
    """Returns the typed view of `graphs`. Linear in the number of nodes.

    Raises:
        errors.InputError: an input names no node or port, a name stands twice, a type attribute is
            missing, a list of types has the wrong length.
    """
    type_vars: list[ir.TypeVar] = []
    scopes: list[ir.Scope] = []
    function_scopes = []
    for graph_index, source in enumerate(graphs):
        library = source.graph_def.library.function
        op_defs = collections.ChainMap(
            {function.signature.name: function.signature for function in library},
            _Registry(),
            dict(source.op_defs),
        )
        main = _ScopeBuilder(graph_index, -1, "", op_defs, len(scopes), type_vars)
        scopes.append(main.build(source.graph_def.node, None))
        names: dict[str, int] = {}
        for index, function in enumerate(library):
            name = function.signature.name
            if name in names:
                raise errors.InputError("stands twice in the function library", scope=name)
            names[name] = len(scopes)
            body = _ScopeBuilder(graph_index, index, name, op_defs, len(scopes), type_vars)
            scopes.append(body.build(function.node_def, function))
        function_scopes.append(names)
    return ir.Program(tuple(graphs), tuple(scopes), tuple(type_vars), tuple(function_scopes))


class _Registry(dict[str, op_def_pb2.OpDef]):
    """TensorFlow's registered op definitions, looked up once each."""

    def __missing__(self, op: str) -> op_def_pb2.OpDef:
        found = op_defs.registered(op)
        if found is None:
            raise KeyError(op)
        self[op] = found
        return found

    def __contains__(self, op: object) -> bool:
        return op_defs.registered(str(op)) is not None


@dataclasses.dataclass
class _ScopeBuilder:
    """Builds one scope; lives only as long as that takes."""

    graph: int
    function: int
    name: str
    op_defs: Mapping[str, op_def_pb2.OpDef]
    scope_index: int
    type_vars: list[ir.TypeVar]

    def build(
        self,
        protos: Iterable[node_def_pb2.NodeDef],
        function: function_pb2.FunctionDef | None,
    ) -> ir.Scope:
        protos = list(protos)
        args = list(function.signature.input_arg) if function else []
        index_of = self._index_names([arg.name for arg in args], protos)
        nodes: list[ir.Node] = [self._arg(i, arg) for i, arg in enumerate(args)]
        outputs = [self._ports(proto, is_input=False) for proto in protos]
        for offset, (proto, out_ports) in enumerate(zip(protos, outputs, strict=True)):
            resolve = functools.partial(self._resolve, proto.name, index_of, protos, len(args))
            nodes.append(self._node(len(args) + offset, proto, out_ports, resolve))
        results = list(function.signature.output_arg) if function else []
        for result in results:
            assert function is not None
            resolve = functools.partial(self._resolve, result.name, index_of, protos, len(args))
            nodes.append(self._result(len(nodes), result, function, resolve))
        return ir.Scope(self.graph, self.function, self.name, tuple(nodes), len(args), len(results))

    def _index_names(
        self, args: Sequence[str], protos: Sequence[node_def_pb2.NodeDef]
    ) -> dict[str, int]:
        names = [*args, *(proto.name for proto in protos)]
        index_of = {name: index for index, name in enumerate(names)}
        if len(index_of) != len(names):
            twice = next(n for n, count in collections.Counter(names).items() if count > 1)
            raise self._error(twice, "two nodes have this name, expected one")
        return index_of

    def _arg(self, index: int, arg: op_def_pb2.OpDef.ArgDef) -> ir.Node:
        var = self._new_var(index, "T", -1) if arg.type == DT_FLOAT else ir.NO_VAR
        return ir.Node(arg.name, ir.ARG, None, (), (), (), (var,), (arg.type,), ())

    def _result(
        self,
        index: int,
        result: op_def_pb2.OpDef.ArgDef,
        function: function_pb2.FunctionDef,
        resolve: functools.partial[tuple[int, int]],
    ) -> ir.Node:
        if result.name not in function.ret:
            raise self._error(result.name, "this result of the function has no value in `ret`")
        ref = function.ret[result.name]
        var = self._new_var(index, "T", -1) if result.type == DT_FLOAT else ir.NO_VAR
        return ir.Node(
            result.name, ir.RETVAL, None, (resolve(ref),), (ref,), (var,), (), (), (result.type,)
        )

    def _node(
        self,
        index: int,
        proto: node_def_pb2.NodeDef,
        out_ports: Ports | None,
        resolve: functools.partial[tuple[int, int]],
    ) -> ir.Node:
        refs = tuple(ref for ref in proto.input if not ref.startswith("^"))
        inputs = tuple(resolve(ref) for ref in refs)
        for ref in proto.input[len(refs) :]:
            resolve(ref)
        if out_ports is None:  # nobody knows this op: all that it reads or gives keeps its dtype
            fixed = self._new_var(index, ir.FIXED, -1)
            in_vars = (fixed,) * len(refs)
            return ir.Node(
                proto.name,
                proto.op,
                proto,
                inputs,
                refs,
                in_vars,
                (fixed,),
                (),
                (0,) * len(refs),
                known=False,
            )
        in_ports = self._ports(proto, is_input=True) or []
        if len(in_ports) != len(refs):
            raise self._error(
                proto.name,
                f"has {len(refs)} data inputs, expected {len(in_ports)} for op `{proto.op}`",
            )
        seen: dict[tuple[str, int], int] = {}
        for dtype, attr, position in [*in_ports, *out_ports]:
            if dtype == DT_FLOAT and (attr, position) not in seen:
                seen[attr, position] = self._new_var(index, attr, position)
        self._add_portless(index, proto, seen)
        in_vars = tuple(seen[a, i] if dt == DT_FLOAT else ir.NO_VAR for dt, a, i in in_ports)
        out_vars = tuple(seen[a, i] if dt == DT_FLOAT else ir.NO_VAR for dt, a, i in out_ports)
        out_types = tuple(dtype for dtype, _, _ in out_ports)
        in_types = tuple(dtype for dtype, _, _ in in_ports)
        attr_vars = tuple((attr, i, var) for (attr, i), var in seen.items())
        return ir.Node(
            proto.name,
            proto.op,
            proto,
            inputs,
            refs,
            in_vars,
            out_vars,
            out_types,
            in_types,
            attr_vars,
        )

    def _add_portless(
        self, index: int, proto: node_def_pb2.NodeDef, seen: dict[tuple[str, int], int]
    ) -> None:
        """Adds variables for type attributes without a port (`VarHandleOp`, TensorLists)."""
        for attr in _type_attrs(self.op_defs[proto.op]):
            value = proto.attr[attr].type if attr in proto.attr else 0
            if value == DT_FLOAT and (attr, -1) not in seen:
                seen[attr, -1] = self._new_var(index, attr, -1)

    def _new_var(self, node: int, attr: str, index: int) -> int:
        self.type_vars.append(ir.TypeVar(self.scope_index, node, attr, index))
        return len(self.type_vars) - 1

    def _ports(self, proto: node_def_pb2.NodeDef, *, is_input: bool) -> Ports | None:
        op_def = self.op_defs.get(proto.op)
        if op_def is None:
            return None
        ports: Ports = []
        for arg in op_def.input_arg if is_input else op_def.output_arg:
            self._add_ports(proto, op_def, arg, ports)
        return ports

    def _add_ports(
        self,
        proto: node_def_pb2.NodeDef,
        op_def: op_def_pb2.OpDef,
        arg: op_def_pb2.OpDef.ArgDef,
        ports: Ports,
    ) -> None:
        if arg.type_list_attr:
            types = self._attr(proto, op_def, arg.type_list_attr).list.type
            ports.extend((t % REF_OFFSET, arg.type_list_attr, i) for i, t in enumerate(types))
            return
        count = self._attr(proto, op_def, arg.number_attr).i if arg.number_attr else 1
        if arg.type_attr:
            dtype, attr = self._attr(proto, op_def, arg.type_attr).type, arg.type_attr
        else:
            dtype, attr = arg.type, ir.FIXED
        ports.extend([(dtype % REF_OFFSET, attr, -1)] * count)

    def _attr(
        self, proto: node_def_pb2.NodeDef, op_def: op_def_pb2.OpDef, name: str
    ) -> attr_value_pb2.AttrValue:
        if name in proto.attr:
            return proto.attr[name]
        for attr in op_def.attr:
            if attr.name == name and attr.HasField("default_value"):
                return attr.default_value
        raise self._error(
            proto.name,
            f"attribute `{name}` is missing, expected one for op `{proto.op}`",
            "the model is damaged, or was made for another version of this op",
        )

    def _resolve(
        self,
        reader: str,
        index_of: Mapping[str, int],
        protos: Sequence[node_def_pb2.NodeDef],
        num_args: int,
        ref: str,
    ) -> tuple[int, int]:
        name, _, rest = ref.removeprefix("^").partition(":")
        index = index_of.get(name)
        if index is None:
            raise self._error(reader, f"input `{ref}` names no node")
        if ref.startswith("^") or index < num_args:
            return index, 0
        if not rest:
            return index, 0
        port = self._port(protos[index - num_args], rest)
        if port is None:
            raise self._error(reader, f"input `{ref}` names no output of node `{name}`")
        return index, port

    def _port(self, producer: node_def_pb2.NodeDef, text: str) -> int | None:
        """Returns the port of `3` (main graph) or `output:3` (functions); None if there is none."""
        output, _, index = text.rpartition(":")
        if not index.isdigit():
            return None
        op_def = self.op_defs.get(producer.op)
        if not output or op_def is None:
            return int(index)
        offset = 0
        for arg in op_def.output_arg:
            ports: Ports = []
            self._add_ports(producer, op_def, arg, ports)
            if arg.name == output:
                return offset + int(index) if int(index) < len(ports) else None
            offset += len(ports)
        return None

    def _error(self, node: str, message: str, hint: str = "") -> errors.InputError:
        return errors.InputError(message, hint, scope=self.name, node=node)


def _type_attrs(op_def: op_def_pb2.OpDef) -> tuple[str, ...]:
    return tuple(attr.name for attr in op_def.attr if attr.type == "type")
