"""Text -> GraphDef: the inverse of `tf_amp_rewriter.ir.text`, for writing graphs in tests.

TensorFlow itself builds the graph, so it infers the shapes and refuses what does not fit: an
`AddV2` of f32 and f16 fails while the test is being read. Beyond the printed form the parser takes:

*   types where they are of use: only placeholders need one, a constant is `f32` or `i32` by itself;
    a type that stands there is checked, with its shape;
*   `Const(0.5)` filled to the shape in front, `Const([[1, 2], [3, 4]])`, and `Const(seed=3)`,
    random values from -1 to 1, or `Const(seed=3, scale=0.25)`, from -0.25 to 0.25;
*   attributes that no op definition has, such as `_lower_using_switch_merge=True`;
*   `low` for the low precision of the run: `a: low = Cast(x, DstT=low)`, `x/Cast_low`, `c/low`;
*   comments behind `#`, lines in any order, back edges into a `Merge`.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import math
import re
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import (
    attr_value_pb2,
    function_pb2,
    graph_pb2,
    op_def_pb2,
)
from tensorflow.python.framework import (
    function_def_to_graph,
    graph_to_function_def,
    op_def_library,
    op_def_registry,
)

SHORT_NAMES = {
    "f32": "float32", "f16": "half", "bf16": "bfloat16", "f64": "float64", "str": "string",
    "res": "resource", "var": "variant", "c64": "complex64", "c128": "complex128", "i4": "int4",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u4": "uint4", "u8": "uint8",
    "u16": "uint16", "u32": "uint32", "u64": "uint64",
}  # fmt: skip
SHORT_LOW = {"half": "f16", "bfloat16": "bf16"}
BRACKETS = {"(": 1, "[": 1, ")": -1, "]": -1}


@dataclasses.dataclass(frozen=True)
class Line:
    """One node of the text.

    Attributes:
        text: the line, for messages.
        name: name of the node.
        types: (short dtype, shape text or "") per output; empty where the text has none.
        op: op type.
        inputs: per input argument a name, or a list of names; the literal of a constant.
        controls: names of the control inputs.
        attrs: text of each attribute.
        comment: what stands behind `#`.
    """

    text: str
    name: str
    types: tuple[tuple[str, str], ...]
    op: str
    inputs: tuple[str | list[str], ...]
    controls: tuple[str, ...]
    attrs: dict[str, str]
    comment: str

    def needs(self) -> Iterator[str]:
        """Yields the references of all inputs."""
        if self.op == "Const":
            yield from self.controls
            return
        for entry in (*self.inputs, *self.controls):
            yield from entry if isinstance(entry, list) else [entry]


@dataclasses.dataclass(frozen=True)
class Section:
    """The main graph (empty head) or one function of the text."""

    head: str
    lines: tuple[Line, ...]

    @property
    def name(self) -> str:
        """Name of the function; empty for the main graph."""
        return self.head[1 : self.head.index("(")] if self.head else ""


def parse(text: str, low: str = "half") -> graph_pb2.GraphDef:
    """Returns the graph of `text`; the word `low` in it stands for the low precision `low`.

    Raises:
        ValueError: a line that can't be read, or that TensorFlow refuses; the note has the line.
    """
    main, *functions = sections(text, low)
    library = function_pb2.FunctionDefLibrary()
    for section in _callees_first(functions):
        library.function.append(_function(section, library))
    return _graph(main.lines, library).as_graph_def()


def sections(text: str, low: str = "half") -> list[Section]:
    """Returns the main graph, then the functions, of `text`."""
    heads = [""]
    lines: list[list[Line]] = [[]]
    for raw in inspect.cleandoc("\n" + text).splitlines():
        code, comment = _split_comment(raw)
        code = _resolve_low(code, low)
        if code.startswith("@"):
            heads.append(code)
            lines.append([])
        elif code:
            section = -1 if raw[0].isspace() else 0
            lines[section].append(_line(code.strip(), comment))
    return [Section(head, tuple(body)) for head, body in zip(heads, lines, strict=True)]


def _resolve_low(code: str, low: str) -> str:
    """Replaces the word `low` by the name of the low precision, as a type or in a node's name."""
    code = re.sub(r"(?<=[_/])low(?![A-Za-z0-9])", low, code)
    return re.sub(r"\blow\b", SHORT_LOW[low], code)


def _split_comment(raw: str) -> tuple[str, str]:
    match = re.search(r"(^|\s)#\s?(.*)$", raw)
    return (raw[: match.start()].rstrip(), match[2].strip()) if match else (raw.rstrip(), "")


def _line(code: str, comment: str) -> Line:
    """Reads `name: types = Op(arguments)`."""
    match = re.fullmatch(r"([^\s:=]+)\s*(?::\s*([^=]+?))?\s*=\s*(\w+)\s*(?:\((.*)\))?", code)
    if match is None:
        raise ValueError(f"`{code}` is not `name: type = Op(inputs, attr=value)`")
    name, types, op, arguments = match.groups()
    inputs: list[str | list[str]] = []
    controls = []
    attrs = {}
    for argument in _split(arguments or ""):
        attr = re.match(r"(\w+)=(.*)$", argument)
        if attr is not None:
            attrs[attr[1]] = attr[2]
        elif argument.startswith("^"):
            controls.append(argument[1:])
        elif argument.startswith("[") and op != "Const":
            inputs.append(_split(argument[1:-1]))
        else:
            inputs.append(argument)
    pairs = tuple(_type_and_shape(one) for one in _split(types or ""))
    return Line(code, name, pairs, op, tuple(inputs), tuple(controls), attrs, comment)


def _split(text: str) -> list[str]:
    """Splits at the commas that stand outside brackets and quotes."""
    parts = [""]
    depth = 0
    quoted = ""
    for char in text:
        if quoted:
            quoted = "" if char == quoted else quoted
        elif char in "'\"":
            quoted = char
        depth += 0 if quoted else BRACKETS.get(char, 0)
        if char == "," and not depth and not quoted:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts if part.strip()]


def _type_and_shape(text: str) -> tuple[str, str]:
    short, bracket, rest = text.partition("[")
    return short, bracket + rest


def _callees_first(functions: Sequence[Section]) -> list[Section]:
    """Returns the functions such that what a body calls stands before it."""
    ordered: list[Section] = []
    waiting = list(functions)
    while waiting:
        names = {section.name for section in waiting}
        ready = [section for section in waiting if not _calls(section) & names]
        if not ready:
            raise ValueError(f"functions call each other in a ring: {sorted(names)}")
        ordered += ready
        waiting = [section for section in waiting if section not in ready]
    return ordered


def _calls(section: Section) -> set[str]:
    values = [value for line in section.lines for value in line.attrs.values()]
    return {name for value in values for name in re.findall(r"@([\w.\-]+)", value)}


def _function(
    section: Section, library: function_pb2.FunctionDefLibrary
) -> function_pb2.FunctionDef:
    """Builds `@name(argument: type, ...) -> (result=tensor, ...)` and its body."""
    match = re.fullmatch(r"@([\w.\-]+)\((.*)\)\s*->\s*\((.*)\)", section.head)
    if match is None:
        raise ValueError(f"`{section.head}` is not `@name(arg: type) -> (result=tensor)`")
    arguments = [_line(f"{argument} = Placeholder", "") for argument in _split(match[2])]
    graph = _graph((*arguments, *section.lines), library)
    inputs = [graph.get_tensor_by_name(f"{line.name}:0") for line in arguments]
    results = [result.split("=") for result in _split(match[3])]
    function = graph_to_function_def.graph_to_function_def(
        graph,
        graph.get_operations(),
        inputs,
        [graph.get_tensor_by_name(_tensor_name(ref)) for _, ref in results],
        [name for name, _ in results],
    )
    function.signature.name = match[1]
    function.signature.is_stateful = any(op.op_def.is_stateful for op in graph.get_operations())
    return function


def function_graph(function: function_pb2.FunctionDef) -> tf.Graph:
    """Returns the body of a function as TensorFlow reads it; raises if it refuses it."""
    return function_def_to_graph.function_def_to_graph(function)


def _graph(lines: Sequence[Line], library: function_pb2.FunctionDefLibrary) -> tf.Graph:
    """Builds the nodes, each as soon as its inputs exist."""
    graph = tf.Graph()
    built: set[str] = set()
    back_edges: list[tuple[str, int, str]] = []
    with graph.as_default():
        tf.graph_util.import_graph_def(graph_pb2.GraphDef(library=library), name="")
        waiting = list(lines)
        while waiting:
            postponed = [line for line in waiting if not _add(graph, line, built, back_edges)]
            if len(postponed) == len(waiting):
                missing = [ref for ref in waiting[0].needs() if _node(ref) not in built]
                raise ValueError(f"`{waiting[0].text}`: no node gives {missing}")
            waiting = postponed
        for merge, index, ref in back_edges:
            tensor = graph.get_tensor_by_name(_tensor_name(ref))
            graph.get_operation_by_name(merge)._update_input(index, tensor)
    return graph


def _node(ref: str) -> str:
    return ref.split(":")[0]


def _tensor_name(ref: str) -> str:
    return ref if re.search(r":\d+$", ref) else f"{ref}:0"


def _add(
    graph: tf.Graph, line: Line, built: set[str], back_edges: list[tuple[str, int, str]]
) -> bool:
    """Adds a node to the graph; False if an input does not exist yet."""
    missing = [ref for ref in line.needs() if _node(ref) not in built]
    inputs = line.inputs
    if missing:
        entries = inputs[0] if line.op == "Merge" else []
        known = [ref for ref in entries if ref not in missing]
        if not known:
            return False
        back_edges += [(line.name, i, ref) for i, ref in enumerate(entries) if ref in missing]
        inputs = ([known[0] if ref in missing else ref for ref in entries],)
    try:
        _apply(graph, line, inputs)
    except Exception as error:
        error.add_note(f"in the line `{line.text}`")
        raise
    built.add(line.name)
    return True


def _apply(graph: tf.Graph, line: Line, inputs: Sequence[str | list[str]]) -> None:
    op_def = op_def_registry.get(line.op)
    if op_def is None:
        raise ValueError(f"unknown op `{line.op}`")
    keywords = _attributes(line, op_def)
    if line.op == "Const":
        value = _constant(line)
        keywords |= {"value": value, "dtype": value.dtype}
    else:
        keywords |= _tensors(graph, op_def, inputs)
    controls = [graph.get_operation_by_name(name) for name in line.controls]
    device = ast.literal_eval(line.attrs.get("device", "''"))
    with graph.control_dependencies(controls), graph.device(device or None):
        # A name that ends in `/` is taken as it is: nothing is appended to make it unique.
        op_def_library.apply_op(line.op, name=line.name + "/", **keywords)
    op = graph.get_operation_by_name(line.name)
    for name in sorted(set(line.attrs) - {attr.name for attr in op_def.attr}):
        if name.startswith("_"):
            op._set_attr(name, _private_attr(line.attrs[name]))
    _check_types(line, op)


def _attributes(line: Line, op_def: op_def_pb2.OpDef) -> dict[str, object]:
    """Returns the attributes in the text, those that the annotation tells, and the defaults."""
    given = {
        attr.name: _attr(attr.type, line.attrs[attr.name])
        for attr in op_def.attr
        if attr.name in line.attrs
    }
    public = {name for name in line.attrs if not name.startswith("_")}
    extra = public - set(given) - {"device", "scale", "seed"}
    if extra:
        raise ValueError(f"op `{line.op}` has no attribute {sorted(extra)}")
    given |= _types_of_outputs(line, op_def, given)
    implied = {arg.type_attr or arg.type_list_attr for arg in op_def.input_arg}
    given = {name: value for name, value in given.items() if name not in implied}
    defaults = {
        attr.name: _default(attr.default_value)
        for attr in op_def.attr
        if attr.HasField("default_value") and attr.name not in given and attr.name not in implied
    }
    return given | defaults


def _default(value: attr_value_pb2.AttrValue) -> object:
    """Returns the default of an attribute as the Python value that TensorFlow takes for it."""
    match value.WhichOneof("value"):
        case "list":
            entries = [entry for _, values in value.list.ListFields() for entry in values]
            return [tf.as_dtype(e) for e in value.list.type] or entries
        case "type":
            return tf.as_dtype(value.type)
        case "shape":
            return tf.TensorShape(value.shape)
        case kind:
            return getattr(value, str(kind))


def _tensors(
    graph: tf.Graph, op_def: op_def_pb2.OpDef, inputs: Sequence[str | list[str]]
) -> dict[str, object]:
    """Returns the input tensors by the names of the op's arguments."""
    if len(inputs) != len(op_def.input_arg):
        raise ValueError(f"{len(inputs)} inputs, but `{op_def.name}` has {len(op_def.input_arg)}")

    def tensor(ref: str) -> tf.Tensor:
        return graph.get_tensor_by_name(_tensor_name(ref))

    return {
        arg.name: [tensor(ref) for ref in entry] if isinstance(entry, list) else tensor(entry)
        for arg, entry in zip(op_def.input_arg, inputs, strict=True)
    }


def _types_of_outputs(
    line: Line, op_def: op_def_pb2.OpDef, given: dict[str, object]
) -> dict[str, object]:
    """Returns the type attributes that only the annotation can tell, and a placeholder's shape."""
    implied = {arg.type_attr for arg in op_def.input_arg} | set(given)
    types: dict[str, object] = {
        arg.type_attr: _dtype(short)
        for arg, (short, _) in zip(op_def.output_arg, line.types, strict=False)
        if arg.type_attr and arg.type_attr not in implied
    }
    if line.op == "Placeholder":
        shape = line.types[0][1]
        types["shape"] = _shape(shape or "*")
    return types


def _dtype(text: str) -> tf.DType:
    short = text.removesuffix("&")
    dtype = tf.as_dtype(SHORT_NAMES.get(short, short))
    return tf.as_dtype(dtype.as_datatype_enum + 100) if text.endswith("&") else dtype


def _shape(text: str) -> tf.TensorShape:
    if text == "*":
        return tf.TensorShape(None)
    return tf.TensorShape([None if d == "?" else int(d) for d in _split(text.strip()[1:-1])])


def _attr(kind: str, text: str) -> object:
    """Returns the value of an attribute of type `kind`, as in an op definition."""
    if kind.startswith("list("):
        return [_attr(kind[5:-1], entry) for entry in _split(text.strip()[1:-1])]
    match kind:
        case "type":
            return _dtype(text)
        case "shape":
            return _shape(text)
        case "func":
            return text.removeprefix("@")
        case "string":
            return ast.literal_eval(text) if text[:1] in "'\"b" else text
        case "float":
            return float(text)
        case _:
            return ast.literal_eval(text)


def _private_attr(text: str) -> attr_value_pb2.AttrValue:
    """Returns an attribute that is in no op definition: its literal tells its kind."""
    value = ast.literal_eval(text)
    match value:
        case bool():
            return attr_value_pb2.AttrValue(b=value)
        case int():
            return attr_value_pb2.AttrValue(i=value)
        case _:
            return attr_value_pb2.AttrValue(s=str(value).encode())


def _constant(line: Line) -> tf.compat.v1.TensorProto:
    """Returns the tensor that the literal and the annotation describe."""
    short, shape_text = line.types[0] if line.types else ("", "")
    shape = _shape(shape_text).as_list() if shape_text else None
    if "seed" in line.attrs:
        random = np.random.default_rng(int(line.attrs["seed"]))
        scale = float(line.attrs.get("scale", "1"))
        literal: object = scale * random.uniform(-1, 1, shape)
    elif not line.inputs or str(line.inputs[0]).startswith("#"):
        raise ValueError("the values of this constant are not in the text")
    else:
        names = {"inf": math.inf, "nan": math.nan, "__builtins__": {}}
        literal = eval(str(line.inputs[0]), names)
    if not short:
        kind = np.asarray(literal).dtype.kind
        short = {"f": "f32", "i": "i32", "b": "bool"}.get(kind, "str")
    dtype = _dtype(short)
    values = np.asarray(literal, object if dtype == tf.string else None)
    if short in ("f16", "bf16"):  # as a rewriter has it: float32 first, then rounded
        values = values.astype(np.float32)
    with np.errstate(over="ignore"):
        values = values.astype(dtype.as_numpy_dtype)
    if shape is not None:
        values = np.broadcast_to(values, shape) if values.ndim == 0 else values.reshape(shape)
    return tf.make_tensor_proto(values, dtype, values.shape)


def _check_types(line: Line, op: tf.Operation) -> None:
    """Compares the annotation with what TensorFlow inferred."""
    if line.types and len(line.types) != len(op.outputs):
        raise ValueError(f"{len(line.types)} types, but `{op.name}` has {len(op.outputs)} outputs")
    for (short, shape), output in zip(line.types, op.outputs, strict=False):
        if _dtype(short) != output.dtype:
            raise ValueError(f"`{op.name}` is {output.dtype.name}, but the text says {short}")
        if shape and not _shape(shape).is_compatible_with(output.shape):
            raise ValueError(f"`{op.name}` has shape {output.shape}, but the text says {shape}")
