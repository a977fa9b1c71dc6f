"""The inputs and outputs of nodes, from the definitions of their ops and their attributes.

A model has many nodes and few kinds of them: all nodes of one op whose attributes say the same have
the same ports, which are worked out once.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, Final

from tensorflow.core.framework import attr_value_pb2, node_def_pb2, op_def_pb2

from tf_amp_rewriter import errors
from tf_amp_rewriter.dtypes import DT_FLOAT, REF_OFFSET
from tf_amp_rewriter.ir import op_defs
from tf_amp_rewriter.ir import program as ir

_MAX_OUTPUTS: Final = 1_000_000

_Port = tuple[int, str, int]  # dtype, type attribute, index in it


@dataclasses.dataclass(frozen=True, slots=True)
class Ports:
    """The ports of a node, and which of its type attributes are float32.

    Attributes:
        op: the op type.
        ranges: output argument -> where its ports begin and end.
        attrs: (type attribute, index in it) of each type variable of the node.
        in_vars: data input -> index in `attrs`; `NO_VAR` where the input is not float32.
        out_vars: output -> likewise.
        in_types: dtype number per data input.
        out_types: dtype number per output.
    """

    op: str
    ranges: Mapping[str, tuple[int, int]]
    attrs: tuple[tuple[str, int], ...]
    in_vars: tuple[int, ...]
    out_vars: tuple[int, ...]
    in_types: tuple[int, ...]
    out_types: tuple[int, ...]


class PortTable:
    """The ports of the nodes of one graph.

    Ops are those of its function library, of TensorFlow's registry, and of its own list.
    """

    def __init__(
        self,
        library: Mapping[str, op_def_pb2.OpDef],
        own: Mapping[str, op_def_pb2.OpDef],
    ) -> None:
        """Takes the definitions by op: those of the function library, and the graph's own."""
        self._library = library
        self._own = own
        self._ops: dict[str, _Op | None] = {}
        self._found: dict[Hashable, Ports] = {}

    def get(self, proto: node_def_pb2.NodeDef, scope: str) -> Ports | None:
        """Returns the ports of a node of the function `scope`; None if nobody knows its op.

        Raises:
            errors.InputError: a type attribute is missing, a number is out of range.
        """
        op = self._op(proto.op)
        if op is None:
            return None
        attrs = proto.attr
        key = (
            op.name,
            len(proto.input) if op.limits_inputs else 0,
            *[read(attrs[name]) if name in attrs else None for name, read in op.attrs],
        )
        ports = self._found.get(key)
        if ports is None:
            ports = self._found[key] = _Reader(proto, op, scope).ports()
        return ports

    def _op(self, name: str) -> _Op | None:
        if name not in self._ops:
            op_def = self._library.get(name) or op_defs.registered(name) or self._own.get(name)
            self._ops[name] = None if op_def is None else _read(name, op_def)
        return self._ops[name]


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

    name: str
    inputs: tuple[_Arg, ...]
    outputs: tuple[_Arg, ...]
    defaults: Mapping[str, attr_value_pb2.AttrValue]
    portless: tuple[str, ...]  # type attributes that no input or output has
    attrs: tuple[tuple[str, Callable[[Any], Hashable]], ...]  # all that ports hang on; their values
    limits_inputs: bool  # a number attribute must not be larger than the number of inputs


def _read(name: str, op_def: op_def_pb2.OpDef) -> _Op:
    inputs = tuple(_read_arg(arg) for arg in op_def.input_arg)
    outputs = tuple(_read_arg(arg) for arg in op_def.output_arg)
    args = (*inputs, *outputs)
    with_port = {arg.type_attr for arg in args if not arg.number_attr}
    portless = tuple(a.name for a in op_def.attr if a.type == "type" and a.name not in with_port)
    attrs: dict[str, Callable[[Any], Hashable]] = dict.fromkeys(portless, _type_of)
    for arg in args:
        if arg.type_list_attr:
            attrs[arg.type_list_attr] = _types_of
            continue
        if arg.type_attr:
            attrs[arg.type_attr] = _type_of
        if arg.number_attr:
            attrs[arg.number_attr] = _number_of
    return _Op(
        name,
        inputs,
        outputs,
        {a.name: a.default_value for a in op_def.attr if a.HasField("default_value")},
        portless,
        tuple(attrs.items()),
        any(arg.number_attr for arg in inputs),
    )


def _read_arg(arg: op_def_pb2.OpDef.ArgDef) -> _Arg:
    return _Arg(arg.name, arg.type % REF_OFFSET, arg.type_attr, arg.number_attr, arg.type_list_attr)


_type_of: Final = operator.attrgetter("type")
_number_of: Final = operator.attrgetter("i")


def _types_of(value: attr_value_pb2.AttrValue) -> Hashable:
    return tuple(value.list.type)


@dataclasses.dataclass
class _Reader:
    """Works out the ports of one node; lives only as long as that takes."""

    proto: node_def_pb2.NodeDef
    op: _Op
    scope: str
    types: dict[str, int] = dataclasses.field(default_factory=dict)  # of the plain type attributes

    def ports(self) -> Ports:
        inputs: list[_Port] = []
        for arg in self.op.inputs:
            self.add_ports(arg, inputs, len(self.proto.input))
        outputs: list[_Port] = []
        ranges: dict[str, tuple[int, int]] = {}
        for arg in self.op.outputs:
            start = len(outputs)
            self.add_ports(arg, outputs, _MAX_OUTPUTS)
            ranges[arg.name] = (start, len(outputs))
        floats = [(a, i) for dtype, a, i in (*inputs, *outputs) if dtype == DT_FLOAT]
        attrs = tuple(dict.fromkeys([*floats, *self.portless_floats()]))
        numbers = {attr: number for number, attr in enumerate(attrs)}

        def variables(ports: list[_Port]) -> tuple[int, ...]:
            return tuple(numbers[a, i] if t == DT_FLOAT else ir.NO_VAR for t, a, i in ports)

        return Ports(
            self.op.name,
            ranges,
            attrs,
            variables(inputs),
            variables(outputs),
            tuple(dtype for dtype, _, _ in inputs),
            tuple(dtype for dtype, _, _ in outputs),
        )

    def portless_floats(self) -> Iterator[tuple[str, int]]:
        """Yields the float32 type attributes without a port (`VarHandleOp`, TensorLists)."""
        for attr in self.op.portless:
            if attr in self.proto.attr and self.proto.attr[attr].type == DT_FLOAT:
                yield attr, -1

    def add_ports(self, arg: _Arg, ports: list[_Port], limit: int) -> None:
        if arg.type_list_attr:
            listed = self.attr(arg.type_list_attr).list.type
            ports.extend((t % REF_OFFSET, arg.type_list_attr, i) for i, t in enumerate(listed))
            return
        if arg.type_attr and arg.type_attr not in self.types:
            self.types[arg.type_attr] = self.attr(arg.type_attr).type % REF_OFFSET
        dtype = self.types[arg.type_attr] if arg.type_attr else arg.type
        port = (dtype, arg.type_attr or ir.FIXED, -1)
        if arg.number_attr:
            ports.extend([port] * self.count(arg.number_attr, limit))
        else:
            ports.append(port)

    def count(self, name: str, limit: int) -> int:
        count = self.attr(name).i
        if not 0 <= count <= limit:
            raise self.error(f"attribute `{name}` is {count}, expected a number from 0 to {limit}")
        return count

    def attr(self, name: str) -> attr_value_pb2.AttrValue:
        if name in self.proto.attr:
            return self.proto.attr[name]
        if name in self.op.defaults:
            return self.op.defaults[name]
        raise self.error(
            f"attribute `{name}` is missing, expected one for op `{self.proto.op}`",
            "the model is damaged, or was made for another version of this op",
        )

    def error(self, message: str, hint: str = "") -> errors.InputError:
        return errors.InputError(message, hint, scope=self.scope, node=self.proto.name)
