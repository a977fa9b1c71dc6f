"""The one printer: GraphDef -> text, for error notes and tests. Reads protos, changes nothing.

One node a line, in the order of the proto; functions follow under their signature:

    x: f32[8,8] = Placeholder
    w: f16[8,8] = Const(0.5)
    x/Cast_half: f16 = Cast(x, DstT=f16)
    a: f16 = MatMul(x/Cast_half, w)
    c: f32, i32 = TopKV2(y, k, ^x)
    y: f32 = StatefulPartitionedCall([x, w], Tout=[f32], f=@body)

    @body(x: f32, w: f32) -> (y=a)
      a: f32 = MatMul(x, w)

`node:1` is output 1 of a node, also in functions, where protos say `node:output_name:0`. Left out
are attributes that the inputs imply, that hold the default, or that are internal (`_class`).
A constant whose values are all alike prints as one value, a long one as a hash of its values. Only
placeholders and constants have a shape: others have none in a proto.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from tensorflow.core.framework import (
    attr_value_pb2,
    function_pb2,
    graph_pb2,
    node_def_pb2,
    op_def_pb2,
    tensor_shape_pb2,
    types_pb2,
)
from tensorflow.python.framework import op_def_registry, tensor_util

from tf_amp_rewriter import dtypes

MAX_VALUES: Final = 16  # constants with more values, not all alike, print as a hash

_SHORT_NAMES: Final = {
    "FLOAT": "f32", "HALF": "f16", "BFLOAT16": "bf16", "DOUBLE": "f64", "STRING": "str",
    "RESOURCE": "res", "VARIANT": "var", "COMPLEX64": "c64", "COMPLEX128": "c128",
    "INT4": "i4", "INT8": "i8", "INT16": "i16", "INT32": "i32", "INT64": "i64",
    "UINT4": "u4", "UINT8": "u8", "UINT16": "u16", "UINT32": "u32", "UINT64": "u64",
}  # fmt: skip
_REF_SUFFIX: Final = "&"  # `f32&` is DT_FLOAT_REF
_IN_ANNOTATION: Final = {"Placeholder": ("dtype", "shape"), "Const": ("dtype", "value")}


def graph_text(graph: graph_pb2.GraphDef, max_values: int = MAX_VALUES) -> str:
    """Returns the text of a graph and of its function library.

    Args:
        graph: any GraphDef; ops that TensorFlow does not know are printed as they are.
        max_values: constants with more values, not all alike, print as a hash.
    """
    printer = _Printer(graph.library.function, max_values)
    parts = ["".join(printer.node(node) + "\n" for node in graph.node)]
    parts += [printer.function(function) for function in graph.library.function]
    return "\n".join(part for part in parts if part)


def node_text(node: node_def_pb2.NodeDef, library: Iterable[function_pb2.FunctionDef] = ()) -> str:
    """Returns the line of one node of a main graph; `library` tells what its op may be."""
    return _Printer(library, MAX_VALUES).node(node)


def function_text(
    function: function_pb2.FunctionDef, library: Iterable[function_pb2.FunctionDef] = ()
) -> str:
    """Returns the text of one function; `library` tells what ops in its body may be."""
    return _Printer(library, MAX_VALUES).function(function)


def dtype_text(dtype: int) -> str:
    """Returns the short name of a `DataType` number: `f32`, `f16`, `bf16`, `i32`, `res`, ..."""
    if dtype > dtypes.REF_OFFSET:
        return dtype_text(dtype - dtypes.REF_OFFSET) + _REF_SUFFIX
    name = types_pb2.DataType.Name(types_pb2.DataType.ValueType(dtype)).removeprefix("DT_")
    return _SHORT_NAMES.get(name, name.lower())


class _Printer:
    """Prints the nodes and functions of one library.

    Attributes:
        max_values: see `graph_text`.
    """

    def __init__(self, library: Iterable[function_pb2.FunctionDef], max_values: int) -> None:
        self._signatures = {function.signature.name: function.signature for function in library}
        self.max_values = max_values

    def node(
        self, node: node_def_pb2.NodeDef, ports: Mapping[str, Sequence[str]] | None = None
    ) -> str:
        """Returns `name: types = Op(arguments)`; `ports` is given in function bodies."""
        op_def = self._op_def(node.op)
        annotation = self._annotation(node, op_def)
        arguments = self._arguments(node, op_def, ports)
        head = f"{node.name}: {annotation}" if annotation else node.name
        return f"{head} = {node.op}" + (f"({', '.join(arguments)})" if arguments else "")

    def function(self, function: function_pb2.FunctionDef) -> str:
        """Returns `@name(arguments) -> (results)` and the nodes, indented."""
        ports = self._ports(function)
        arguments = ", ".join(
            f"{arg.name}: {_arg_type_text(arg)}" for arg in function.signature.input_arg
        )
        results = ", ".join(
            f"{arg.name}={_flat_name(function.ret[arg.name], ports)}"
            for arg in function.signature.output_arg
        )
        head = f"@{function.signature.name}({arguments}) -> ({results})\n"
        return head + "".join(f"  {self.node(node, ports)}\n" for node in function.node_def)

    def _op_def(self, op: str) -> op_def_pb2.OpDef | None:
        """Returns the definition of an op or a library function; None if nobody knows it."""
        if op in self._signatures:
            return self._signatures[op]
        known: op_def_pb2.OpDef | None = op_def_registry.get(op)  # type: ignore[no-untyped-call]
        return known

    def _ports(self, function: function_pb2.FunctionDef) -> dict[str, list[str]]:
        """Returns the output names of each node of a body, one entry a tensor."""
        ports = {}
        for node in function.node_def:
            op_def = self._op_def(node.op)
            if op_def is not None:
                ports[node.name] = [name for name, _ in _outputs(node, op_def)]
        return ports

    def _annotation(self, node: node_def_pb2.NodeDef, op_def: op_def_pb2.OpDef | None) -> str:
        if op_def is None:
            return ""
        types = ", ".join(dtype for _, dtype in _outputs(node, op_def))
        return types + _shape_of_source(node)

    def _arguments(
        self,
        node: node_def_pb2.NodeDef,
        op_def: op_def_pb2.OpDef | None,
        ports: Mapping[str, Sequence[str]] | None,
    ) -> list[str]:
        """Returns inputs, controls, attributes and device of a node, each as text."""
        data = [_flat_name(ref, ports) for ref in node.input if not ref.startswith("^")]
        arguments = data if op_def is None else _grouped(node, op_def, data)
        if node.op == "Const" and "value" in node.attr:
            arguments = [_tensor_text(node.attr["value"], self.max_values)]
        arguments += sorted(ref for ref in node.input if ref.startswith("^"))
        left_out = _implied(node, op_def)
        arguments += [
            f"{name}={_attr_text(node.attr[name], self.max_values)}"
            for name in sorted(node.attr)
            if name not in left_out and not name.startswith("_")
        ]
        return arguments + ([f"device={node.device!r}"] if node.device else [])


def _arg_type_text(arg: op_def_pb2.OpDef.ArgDef) -> str:
    return dtype_text(arg.type) if arg.type else arg.type_attr or arg.type_list_attr


def _flat_name(ref: str, ports: Mapping[str, Sequence[str]] | None) -> str:
    """Returns `node` or `node:port` for a reference; in bodies, from `node:output_name:index`."""
    parts = ref.split(":")
    if ports is None or len(parts) != 3:
        return ref.removesuffix(":0")
    node, output, index = parts
    names = ports.get(node, ())
    if output not in names:
        return ref
    port = list(names).index(output) + int(index)
    return f"{node}:{port}" if port else node


def _outputs(node: node_def_pb2.NodeDef, op_def: op_def_pb2.OpDef) -> list[tuple[str, str]]:
    """Returns output name and type of each output tensor."""
    outputs = []
    for arg in op_def.output_arg:
        suffix = _REF_SUFFIX if arg.is_ref else ""
        outputs += [
            (arg.name, dtype_text(dtype) + suffix) for dtype in _arg_types(node, op_def, arg)
        ]
    return outputs


def _arg_types(
    node: node_def_pb2.NodeDef, op_def: op_def_pb2.OpDef, arg: op_def_pb2.OpDef.ArgDef
) -> list[int]:
    """Returns the dtype number of each tensor that an argument of an op stands for."""
    if arg.type_list_attr:
        return list(_attr(node, op_def, arg.type_list_attr).list.type)
    dtype = arg.type or _attr(node, op_def, arg.type_attr).type
    return [dtype] * (_attr(node, op_def, arg.number_attr).i if arg.number_attr else 1)


def _attr(
    node: node_def_pb2.NodeDef, op_def: op_def_pb2.OpDef, name: str
) -> attr_value_pb2.AttrValue:
    """Returns an attribute or its default, without adding it to the proto as `node.attr` would."""
    if name in node.attr:
        return node.attr[name]
    defaults = (attr.default_value for attr in op_def.attr if attr.name == name)
    return next(defaults, attr_value_pb2.AttrValue())


def _shape_of_source(node: node_def_pb2.NodeDef) -> str:
    """Returns `[2,?]` for a placeholder or a constant; nothing where the rank is unknown."""
    if node.op == "Placeholder" and "shape" in node.attr:
        shape = node.attr["shape"].shape
    elif node.op == "Const" and "value" in node.attr:
        shape = node.attr["value"].tensor.tensor_shape
    else:
        return ""
    return "" if shape.unknown_rank else _shape_text(shape)


def _shape_text(shape: tensor_shape_pb2.TensorShapeProto) -> str:
    if shape.unknown_rank:
        return "*"
    return "[" + ",".join("?" if dim.size < 0 else str(dim.size) for dim in shape.dim) + "]"


def _grouped(
    node: node_def_pb2.NodeDef, op_def: op_def_pb2.OpDef, data: Sequence[str]
) -> list[str]:
    """Returns the data inputs, those of list arguments in brackets."""
    groups = []
    start = 0
    for arg in op_def.input_arg:
        end = start + len(_arg_types(node, op_def, arg))
        names = ", ".join(data[start:end])
        groups.append(f"[{names}]" if arg.number_attr or arg.type_list_attr else names)
        start = end
    return groups if start == len(data) else list(data)  # the node does not fit its definition


def _implied(node: node_def_pb2.NodeDef, op_def: op_def_pb2.OpDef | None) -> set[str]:
    """Returns the attributes that need no text."""
    if op_def is None:
        return set()
    implied = set(_IN_ANNOTATION.get(node.op, ()))
    for arg in op_def.input_arg:
        implied |= {arg.type_attr, arg.number_attr, arg.type_list_attr}
    for attr in op_def.attr:
        if attr.HasField("default_value") and _attr(node, op_def, attr.name) == attr.default_value:
            implied.add(attr.name)
    return implied


def _attr_text(value: attr_value_pb2.AttrValue, max_values: int) -> str:
    kind = value.WhichOneof("value")
    if kind == "list":
        entries = next((entries for _, entries in value.list.ListFields()), ())
        field = next((field.name for field, _ in value.list.ListFields()), "")
        return "[" + ", ".join(_entry_text(field, entry, max_values) for entry in entries) + "]"
    if kind == "placeholder":
        return f"${value.placeholder}"
    return "" if kind is None else _entry_text(kind, getattr(value, kind), max_values)


def _entry_text(kind: str, entry: object, max_values: int) -> str:
    """Returns the text of one attribute value; `kind` is the field of `AttrValue` it is from."""
    match kind, entry:
        case "type", int():
            return dtype_text(entry)
        case "shape", tensor_shape_pb2.TensorShapeProto():
            return _shape_text(entry)
        case "func", attr_value_pb2.NameAttrList():
            return f"@{entry.name}"
        case "tensor", _:
            value = attr_value_pb2.AttrValue(tensor=entry)  # type: ignore[arg-type]
            return _tensor_text(value, max_values)
        case _, bytes():
            return _bytes_text(entry)
        case _, float():
            return str(np.float32(entry))
        case _:
            return str(entry)


def _bytes_text(value: bytes) -> str:
    """Returns the text in quotes; with a leading `b` where it is not UTF-8."""
    try:
        return repr(value.decode())
    except UnicodeDecodeError:
        return repr(value)


def _tensor_text(value: attr_value_pb2.AttrValue, max_values: int) -> str:
    """Returns `0.5`, `[1, 2]` or `#3f2a9c1e` for one value, few, and many."""
    values: NDArray[np.generic] = tensor_util.MakeNdarray(value.tensor)
    if values.size and _is_uniform(values):
        return _value_text(values.reshape(-1)[0])
    if values.size <= max_values:
        return _nested_text(values)
    content = repr(values.tolist()).encode() if values.dtype == object else values.tobytes()
    return "#" + hashlib.sha256(content).hexdigest()[:8]


def _is_uniform(values: NDArray[np.generic]) -> bool:
    """Whether all values have the same bits: -0 is not 0, and a NaN is itself."""
    flat = np.ascontiguousarray(values).reshape(-1)
    if flat.dtype == object:
        return bool((flat == flat[0]).all())
    bits = flat.view(np.uint8).reshape(flat.size, -1)
    return bool((bits == bits[0]).all())


def _nested_text(values: NDArray[np.generic]) -> str:
    if values.ndim == 0:
        return _value_text(values[()])
    return "[" + ", ".join(_nested_text(np.asarray(row)) for row in values) + "]"


def _value_text(value: object) -> str:
    return _bytes_text(value) if isinstance(value, bytes) else str(value)
