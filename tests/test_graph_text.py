"""The parser: print -> parse -> print gives the same text; what is wrong is refused."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.python.framework.convert_to_constants import (
    convert_variables_to_constants_v2,
)

from tests import graph_text
from tf_amp_rewriter.ir import text as ir_text

ROUND_TRIPS = {
    "contraction, activation, casts": """
        x: f32[8,8] = Placeholder
        w: f16[8,8] = Const(0.5)
        x/Cast_half: f16 = Cast(x, DstT=f16)
        a: f16 = MatMul(x/Cast_half, w, transpose_b=True)
        b: f16 = Relu(a)
        b/Cast_float32: f32 = Cast(b, DstT=f32)
        out: f32 = Identity(b/Cast_float32)
    """,
    "names in names": """
        a/b/c: f32[2] = Placeholder
        a/b: f32 = Relu(a/b/c)
        a: f32 = Relu(a/b)
        a_1: f32 = Relu(a)
    """,
    "convolution": """
        x: f32[1,8,8,3] = Placeholder
        w: f32[3,3,3,4] = Const(0.1)
        c: f32 = Conv2D(x, w, padding='SAME', strides=[1, 1, 1, 1])
        s: f32[4] = Const([1.0, 2.0, 3.0, 4.0])
        z: f32[4] = Const(0.0)
        n: f32, f32, f32, f32, f32, f32 = FusedBatchNormV3(c, s, z, z, s, is_training=False)
        p: f32 = MaxPool(n, ksize=[1, 2, 2, 1], padding='VALID', strides=[1, 2, 2, 1])
    """,
    "lists": """
        x: f32[4,4] = Placeholder
        axis: i32[] = Const(1)
        s: f32, f32 = Split(axis, x, num_split=2)
        c: f32 = ConcatV2([s, s:1, s], axis)
        i: f32, f32 = IdentityN([c, s:1])
        n: f32 = AddN([i:1, s])
    """,
    "a v1 loop": """
        x: f32[2] = Placeholder
        e: f32 = Enter(x, frame_name='loop')
        m: f32, i32 = Merge([e, n])
        t: bool[] = Const(True)
        c: bool = LoopCond(t)
        s: f32, f32 = Switch(m, c)
        r: f32 = Relu(s:1)
        n: f32 = NextIteration(r)
        out: f32 = Exit(s)
    """,
    "devices and controls": """
        x: f32[2] = Placeholder
        r: f32 = Relu(x, device='/device:CPU:0')
        i: f32 = Identity(r, ^x)
    """,
    "a tensor list": """
        x: f32[3,2] = Placeholder
        s: i32[1] = Const(2)
        l: var = TensorListFromTensor(x, s)
        out: f32 = TensorListStack(l, s, element_dtype=f32)
    """,
    "a variable": """
        v: res = VarHandleOp(dtype=f32, shape=[4], shared_name='v')
        r: f32 = ReadVariableOp(v, dtype=f32)
    """,
    "a slice": """
        x: f32[8,8] = Placeholder
        b: i32[2] = Const([0, 1])
        e: i32[2] = Const([4, 5])
        one: i32[2] = Const(1)
        s: f32 = StridedSlice(x, b, e, one, shrink_axis_mask=1)
    """,
    "functions that call each other": """
        x: f32[2,2] = Placeholder
        p: f32, f32 = PartitionedCall([x, x], Tout=[f32, f32], f=@outer)

        @inner(x: f32) -> (y=r)
          r: f32 = Relu(x)

        @outer(a: f32, b: f32) -> (c=q, d=a)
          q: f32 = StatefulPartitionedCall([b], Tout=[f32], f=@inner)
    """,
    "a while loop": """
        x: f32[2,2] = Placeholder
        k: i32[] = Const(0)
        w: i32, f32 = StatelessWhile([k, x], body=@body, cond=@cond)

        @cond(i: i32, x: f32) -> (go=l)
          n: i32[] = Const(3)
          l: bool = Less(i, n)

        @body(i: i32, x: f32) -> (j=a, y=r)
          one: i32[] = Const(1)
          a: i32 = AddV2(i, one)
          r: f32 = Relu(x)
    """,
}


def dedent(text: str) -> str:
    lines = text.strip("\n").splitlines()
    return "".join(line.removeprefix(" " * 8).rstrip() + "\n" for line in lines[:-1])


@pytest.mark.parametrize("source", ROUND_TRIPS.values(), ids=ROUND_TRIPS)
def test_printing_what_was_parsed_gives_the_text(source: str) -> None:
    expected = dedent(source)

    assert expected == ir_text.graph_text(graph_text.parse(source))


def keras_graph() -> graph_pb2.GraphDef:
    tf.keras.utils.set_random_seed(0)
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Input((8, 8, 3)),
            layers.Conv2D(4, 3),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.DepthwiseConv2D(3),
            layers.GlobalAveragePooling2D(),
            layers.LayerNormalization(),
            layers.Dense(5, activation="softmax"),
        ]
    )
    function = tf.function(lambda x: model(x, training=False))
    concrete = function.get_concrete_function(tf.TensorSpec([None, 8, 8, 3]))
    return convert_variables_to_constants_v2(concrete).graph.as_graph_def()


def test_a_frozen_keras_model_round_trips() -> None:
    printed = ir_text.graph_text(keras_graph(), max_values=10**6)

    assert len(printed.splitlines()) > 20
    assert printed == ir_text.graph_text(graph_text.parse(printed), max_values=10**6)


def test_low_stands_for_the_low_precision_in_types_and_names() -> None:
    source = """
    x: f32[2] = Placeholder
    x/Cast_low: low = Cast(x, DstT=low)
    c/low: low[2] = Const(1)
    slow: low = AddV2(x/Cast_low, c/low)   # low INFER
    """
    expected = """\
x: f32[2] = Placeholder
x/Cast_bfloat16: bf16 = Cast(x, DstT=bf16)
c/bfloat16: bf16[2] = Const(1)
slow: bf16 = AddV2(x/Cast_bfloat16, c/bfloat16)
"""

    assert expected == ir_text.graph_text(graph_text.parse(source, "bfloat16"))


def test_lines_may_stand_in_any_order() -> None:
    graph = graph_text.parse("b = Relu(a)\na: f32[2] = Placeholder")

    assert ir_text.graph_text(graph) == "a: f32[2] = Placeholder\nb: f32 = Relu(a)\n"


def test_types_follow_from_the_text_in_front() -> None:
    graph = graph_text.parse("a = Const(1)\nb = Const(0.5)\nc: f16 = Cast(b)")

    expected = "a: i32[] = Const(1)\nb: f32[] = Const(0.5)\nc: f16 = Cast(b, DstT=f16)\n"
    assert expected == ir_text.graph_text(graph)


def test_a_scale_makes_random_values_smaller() -> None:
    graph = graph_text.parse("a: f32[9] = Const(seed=1)\nb: f32[9] = Const(seed=1, scale=0.25)")
    full, scaled = (tf.make_ndarray(node.attr["value"].tensor) for node in graph.node)

    np.testing.assert_array_equal(full / 4, scaled)


def test_attributes_that_no_op_defines_are_set_as_they_stand() -> None:
    text = "a: f32[2] = Placeholder\nb = Relu(a, _is_on=True, _number=3, _word='so')"
    (_, relu) = graph_text.parse(text).node

    assert (relu.attr["_is_on"].b, relu.attr["_number"].i, relu.attr["_word"].s) == (True, 3, b"so")


REFUSED = {
    "two types": ("x: f32[2] = Placeholder\ny: f16[2] = Placeholder\na = AddV2(x, y)", TypeError),
    "two shapes": ("x: f32[2] = Placeholder\ny: f32[3] = Placeholder\na = AddV2(x, y)", ValueError),
    "a wrong type": ("x: f32[2] = Placeholder\na: f16 = Relu(x)", ValueError),
    "a wrong shape": ("x: f32[2] = Placeholder\na: f32[3] = Relu(x)", ValueError),
    "no such input": ("x: f32[2] = Placeholder\na = Relu(y)", ValueError),
    "no such op": ("x: f32[2] = Placeholder\na = Rely(x)", ValueError),
    "no such attribute": ("x: f32[2] = Placeholder\na = Relu(x, alpha=1)", ValueError),
    "not a line": ("x: f32[2]", ValueError),
    "a hash": ("c: f32[17] = Const(#12345678)", ValueError),
    "too few inputs": ("x: f32[2] = Placeholder\na = AddV2(x)", ValueError),
    "a wrong body": (
        "x: f32[2] = Placeholder\n@f(x: f32, y: f16) -> (z=a)\n  a = AddV2(x, y)",
        TypeError,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("source", "error"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_text_is_refused(source: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        graph_text.parse(source)
