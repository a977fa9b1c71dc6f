"""Graphs and options that are not valid: each ends in `InputError`, which says what and where."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tensorflow.core.framework import graph_pb2, node_def_pb2

import tf_amp_rewriter
from tests import graph_text
from tf_amp_rewriter import errors

EXPORT_AGAIN = "\nhint: the model is damaged: export it again"
Edit = Callable[[node_def_pb2.NodeDef], object]


def graph() -> graph_pb2.GraphDef:
    """Returns `out = Split(Concat(Einsum(x, w), x))`, as TensorFlow writes it."""
    result = graph_pb2.GraphDef()
    _add(result, "x", "Placeholder", dtype=1)
    weight = _add(result, "w", "Const", dtype=1).attr["value"].tensor
    weight.dtype = 1
    for size in (4, 4):
        weight.tensor_shape.dim.add(size=size)
    weight.tensor_content = b"\0\0\0\x3f" * 16
    product = _add(result, "m", "Einsum", "x", "w", T=1)
    product.attr["N"].i = 2
    product.attr["equation"].s = b"ab,bc->ac"
    axis = _add(result, "axis", "Const", dtype=3).attr["value"].tensor
    axis.dtype = 3
    axis.int_val.append(1)
    joined = _add(result, "both", "ConcatV2", "m", "x", "axis", T=1, Tidx=3)
    joined.attr["N"].i = 2
    _add(result, "parts", "Split", "axis", "both", T=1).attr["num_split"].i = 2
    _add(result, "out", "Identity", "parts", T=1)
    return result


def calling_graph() -> graph_pb2.GraphDef:
    """Returns a graph whose `call` calls `f(a) -> b`, a Relu."""
    result = graph_pb2.GraphDef()
    _add(result, "x", "Placeholder", dtype=1)
    call = _add(result, "call", "PartitionedCall", "x")
    call.attr["f"].func.name = "f"
    call.attr["Tin"].list.type.append(1)
    call.attr["Tout"].list.type.append(1)
    function = result.library.function.add()
    function.signature.name = "f"
    function.signature.input_arg.add(name="a", type=1)
    function.signature.output_arg.add(name="b", type=1)
    body = function.node_def.add(name="r", op="Relu", input=["a"])
    body.attr["T"].type = 1
    function.ret["b"] = "r:activations:0"
    return result


def _add(
    graph_def: graph_pb2.GraphDef, name: str, op: str, *inputs: str, **types: int
) -> node_def_pb2.NodeDef:
    node = graph_def.node.add(name=name, op=op, input=inputs)
    for attr, dtype in types.items():
        node.attr[attr].type = dtype
    return node


def message_of(graph_def: graph_pb2.GraphDef, **options: tuple[str, ...]) -> str:
    with pytest.raises(tf_amp_rewriter.InputError) as caught:
        tf_amp_rewriter.rewrite_graph_def(graph_def, tf_amp_rewriter.Options(**options))
    return str(caught.value)


def test_the_graphs_are_valid_before_they_are_damaged() -> None:
    for graph_def in (graph(), calling_graph()):
        tf_amp_rewriter.rewrite_graph_def(graph_def)


@pytest.mark.parametrize(
    ("name", "edit", "message"),
    [
        (
            "w",
            lambda node: setattr(node.attr["value"].tensor, "tensor_content", b"\0" * 63),
            "w: its `value` has 63 bytes in `tensor_content`, expected 64 for the shape [4, 4]",
        ),
        (
            "w",
            lambda node: setattr(node.attr["value"].tensor.tensor_shape.dim[1], "size", -1),
            "w: its `value` has the shape [4, -1], expected no negative dimension",
        ),
        (
            "w",
            lambda node: setattr(node.attr["value"].tensor.tensor_shape.dim[1], "size", 10**10),
            "w: its `value` has the shape [4, 10000000000], expected at most 2147483648 values",
        ),
        (
            "axis",
            lambda node: node.attr["value"].tensor.tensor_shape.dim.add(size=10**10),
            "axis: its `value` has the shape [10000000000], expected at most 2147483648 values",
        ),
        (
            "m",
            lambda node: setattr(node.attr["equation"], "s", b"\xff\xfe"),
            "m: attribute `equation` is b'\\xff\\xfe', expected ASCII text",
        ),
        (
            "out",
            lambda node: node.input.__setitem__(0, "out"),
            "out: its inputs are in a cycle, or depend on one",
        ),
    ],
)
def test_what_the_pass_reads_as_data_is_checked(name: str, edit: Edit, message: str) -> None:
    graph_def = graph()
    edit(next(node for node in graph_def.node if node.name == name))

    assert message_of(graph_def) == message + EXPORT_AGAIN


def test_more_values_than_the_shape_has() -> None:
    graph_def = graph()
    weight = graph_def.node[1].attr["value"].tensor
    weight.tensor_content = b""
    weight.float_val.extend([0.5] * 17)

    assert message_of(graph_def) == (
        "w: its `value` has 17 values in `float_val`, expected at most 16 for the shape [4, 4]"
        + EXPORT_AGAIN
    )


def test_the_function_of_a_damaged_constant_is_named() -> None:
    graph_def = calling_graph()
    graph_def.library.function[0].node_def.append(graph().node[1])
    graph_def.library.function[0].node_def[1].attr["value"].tensor.tensor_content = b"\0"

    assert message_of(graph_def) == (
        "f/w: its `value` has 1 bytes in `tensor_content`, expected 64 for the shape [4, 4]"
        + EXPORT_AGAIN
    )


@pytest.mark.parametrize(
    ("name", "attr", "count", "message"),
    [
        ("both", "N", -1, "attribute `N` is -1, expected a number from 0 to 3"),
        ("both", "N", 10**12, "attribute `N` is 1000000000000, expected a number from 0 to 3"),
        ("both", "N", 3, "has 3 data inputs, expected 4 for op `ConcatV2`"),
        (
            "parts",
            "num_split",
            10**12,
            "attribute `num_split` is 1000000000000, expected a number from 0 to 1000000",
        ),
    ],
)
def test_numbers_of_ports_are_checked(name: str, attr: str, count: int, message: str) -> None:
    graph_def = graph()
    next(node for node in graph_def.node if node.name == name).attr[attr].i = count

    assert message_of(graph_def) == f"{name}: {message}"


def test_a_call_with_too_many_values() -> None:
    graph_def = calling_graph()
    call = graph_def.node[1]
    call.input.append("x")
    call.attr["Tin"].list.type.append(1)

    assert message_of(graph_def) == "call: calls `f` with 2 values, expected 1" + EXPORT_AGAIN


def test_a_call_that_takes_too_many_values() -> None:
    graph_def = calling_graph()
    graph_def.node[1].attr["Tout"].list.type.append(1)

    assert message_of(graph_def) == "call: takes 2 values from `f`, expected 1" + EXPORT_AGAIN


def test_a_loop_body_that_gives_too_few_values() -> None:
    graph_def = calling_graph()
    loop = graph_def.node[1]
    loop.Clear()
    loop.name, loop.op = "loop", "While"
    loop.input.append("x")
    loop.attr["T"].list.type.append(1)
    loop.attr["cond"].func.name = loop.attr["body"].func.name = "f"
    del graph_def.library.function[0].signature.output_arg[:]

    assert message_of(graph_def) == "loop: takes 1 values from `f`, expected 0" + EXPORT_AGAIN


def test_what_tensorflow_refuses_in_the_source_is_not_our_bug() -> None:
    graph_def = calling_graph()
    graph_def.library.function[0].signature.input_arg[0].type = 3
    graph_def.library.function[0].node_def[0].attr["T"].type = 3
    graph_def.library.function[0].signature.output_arg[0].type = 3

    assert message_of(graph_def) == (
        "the graph is not valid: `call` calls `f` with [1], expected [3]\n"
        "hint: the model is damaged, or was made by another version of TensorFlow: export it again"
    )


@pytest.mark.parametrize("flag", ["inputs", "outputs"])
@pytest.mark.parametrize("tensor", ["parts:x", "parts:-1", "parts:2", "parts:", "parts:\u00b2"])
def test_options_name_outputs_that_are_there(flag: str, tensor: str) -> None:
    assert message_of(graph(), **{flag: (tensor,)}) == (
        f"`{flag}` names `{tensor}`, but node `parts` has 2 outputs\n"
        "hint: name one of them as `parts:0`"
    )


@pytest.mark.parametrize("ref", ["parts:\u00b2", "parts:-1", f"parts:{'9' * 5000}"])
def test_a_reference_to_an_odd_port(ref: str) -> None:
    graph_def = graph()
    graph_def.node[-1].input[0] = ref

    assert message_of(graph_def) == f"out: input `{ref}` names no output of node `parts`"


# --- recursion -----------------------------------------------------------------------------------

UNROLL = (
    "hint: write the recursion as a loop (`tf.while_loop`), or as copies of the function down to "
    "the depth that the model needs"
)


def chain(length: int, last: str = "") -> graph_pb2.GraphDef:
    """Returns a graph that calls `f0`, which calls `f1`, and so on; the last one calls `last`."""
    result = calling_graph()
    (function,) = result.library.function
    result.node[1].attr["f"].func.name = "f0"
    body = node_def_pb2.NodeDef(name="r", op="PartitionedCall", input=["a"])
    for types in ("Tin", "Tout"):
        body.attr[types].list.type.append(1)
    for index in range(length):
        added = result.library.function.add()
        added.CopyFrom(function)
        added.signature.name = f"f{index}"
        called = f"f{index + 1}" if index + 1 < length else last
        if called:
            added.node_def[0].CopyFrom(body)
            added.node_def[0].attr["f"].func.name = called
            added.ret["b"] = "r:output:0"
    del result.library.function[0]
    return result


@pytest.mark.parametrize(
    ("length", "cycle"),
    [
        (1, "`f0` -> `f0`"),
        (2, "`f0` -> `f1` -> `f0`"),
        (5, "`f0` -> `f1` -> `f2` -> `f3` -> `f4` -> `f0`"),
        (2000, "`f0` -> `f1` -> `f2` -> (1995 more) -> `f1998` -> `f1999` -> `f0`"),
    ],
)
def test_functions_that_call_themselves_are_refused(length: int, cycle: str) -> None:
    assert message_of(chain(length, last="f0")) == (
        f"f0: calls itself: {cycle}; expected functions without recursion\n{UNROLL}"
    )


def test_the_cycle_is_named_and_not_the_way_into_it() -> None:
    message = message_of(chain(4, last="f2")).splitlines()[0]

    assert message == (
        "f2: calls itself: `f2` -> `f3` -> `f2`; expected functions without recursion"
    )


@pytest.mark.parametrize(
    ("op", "attr", "inputs", "types"),
    [
        ("StatelessIf", "else_branch", ["a"], ("Tin", "Tout")),
        ("StatelessCase", "branches", ["a"], ("Tin", "Tout")),
        ("StatelessWhile", "body", [], ("T",)),
        ("MapDataset", "f", ["a"], ("Targuments", "output_types")),  # an op that we don't follow
        ("AcmeCall", "body", [], ()),  # an op that nobody knows
        ("f", "", ["a"], ()),  # the function as an op
    ],
)
def test_whatever_names_the_function_is_a_call(
    op: str, attr: str, inputs: list[str], types: tuple[str, ...]
) -> None:
    graph_def = calling_graph()
    node = graph_def.library.function[0].node_def.add(name="again", op=op, input=inputs)
    if attr == "branches":
        node.attr[attr].list.func.add(name="f")
    elif attr:
        node.attr[attr].func.name = "f"
    for name in types:
        node.attr[name].list.SetInParent()
    if op == "StatelessIf":
        node.attr["Tcond"].type = 1

    assert message_of(graph_def).splitlines()[0] == (
        "f: calls itself: `f` -> `f`; expected functions without recursion"
    )


def test_a_nest_of_two_thousand_functions_is_no_recursion() -> None:
    report = tf_amp_rewriter.rewrite_graph_def(chain(2000))

    assert report.graph_def is not None
    assert len(report.graph_def.library.function) == 2000


def test_what_tensorflow_refuses_is_said_on_one_line_with_the_models_names() -> None:
    graph = graph_text.parse(
        """
        x: f32[4,4] = Placeholder
        product = MatMul(x, x)
        out = Identity(product)
        """,
        "half",
    )
    next(node for node in graph.node if node.name == "product").attr["transpose_a"].s = b"\xff"
    options = tf_amp_rewriter.Options(outputs=("out",))
    with pytest.raises(errors.InputError) as caught:
        tf_amp_rewriter.rewrite_graph_def(graph, options)
    message, hint = str(caught.value).splitlines()
    assert message == (
        "the graph is not valid: TensorFlow does not import the main graph: AttrValue had value "
        "with type 'string' when 'bool' expected for attr 'transpose_a' ; NodeDef: `product`"
    )
    assert hint.startswith("hint: the model is damaged")
