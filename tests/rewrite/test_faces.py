"""Functions that outsiders and signatures call: text by text, and how a split edits a graph."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from tensorflow.core.framework import function_pb2, graph_pb2
from tensorflow.core.protobuf import saved_model_pb2

import tf_amp_rewriter
from tests import graph_text
from tests.rewrite.seen_functions import (
    TWICE,
    check_faces,
    check_whole,
    saved_model,
)
from tf_amp_rewriter.ir import build, check
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ir import text as ir_text
from tf_amp_rewriter.rewrite import face_calls, faces

# --- graphs --------------------------------------------------------------------------------------


def test_calls_of_a_signature_go_to_a_copy_without_the_float32_face(tmp_path: Path) -> None:
    check_faces(
        tmp_path,
        TWICE,
        """
        x: f32[2,8] = Placeholder
        w: low[8,8] = Const(seed=1)
        x/Cast_low = Cast(x, DstT=low)
        a: low = PartitionedCall([x/Cast_low, w], Tout=[low], f=@f__amp)
        b: low = PartitionedCall([a, w], Tout=[low], f=@f__amp)
        b/Cast_float32 = Cast(b, DstT=f32)
        out = Identity(b/Cast_float32)

        @f(x: f32, w: f32) -> (y=r/Cast_float32)
          x/Cast_low = Cast(x, DstT=low)
          w/Cast_low = Cast(w, DstT=low)
          m = MatMul(x/Cast_low, w/Cast_low)
          r = Relu(m)
          r/Cast_float32 = Cast(r, DstT=f32)

        @f__amp(x: low, w: low) -> (y=r)
          m = MatMul(x, w)
          r = Relu(m)
        """,
    )


def test_with_every_op_denied_nothing_is_copied(tmp_path: Path) -> None:
    check_whole(tmp_path, TWICE, TWICE, deny_ops=("*",))


def test_a_pattern_that_names_a_node_of_the_function_still_finds_it(tmp_path: Path) -> None:
    check_whole(tmp_path, TWICE, TWICE, keep_float32=("^f/m$",))


def test_a_call_between_float32_values_gains_nothing(tmp_path: Path) -> None:
    check_whole(
        tmp_path,
        """
        x: f32[2,8] = Placeholder
        e = Exp(x)
        a: f32 = PartitionedCall([e], Tout=[f32], f=@f)
        s = Sigmoid(a)
        out = Identity(s)

        @f(x: f32) -> (y=m)
          w: f32[8,8] = Const(seed=1)
          m = MatMul(x, w)
        """,
        """
        x: f32[2,8] = Placeholder
        e = Exp(x)
        a: f32 = PartitionedCall([e], Tout=[f32], f=@f)
        s = Sigmoid(a)
        out = Identity(s)

        @f(x: f32) -> (y=m/Cast_float32)
          w: low[8,8] = Const(seed=1)
          x/Cast_low = Cast(x, DstT=low)
          m = MatMul(x/Cast_low, w)
          m/Cast_float32 = Cast(m, DstT=f32)
        """,
        deny_ops=("Sigmoid", "Exp"),
    )


def test_a_face_that_only_hands_on_float32_keeps_those_behind_it_whole(tmp_path: Path) -> None:
    # `f` is called by the signature's own function alone; `g`, likewise, by `f`
    check_whole(
        tmp_path,
        """
        x: f32[2,8] = Placeholder
        a: f32 = PartitionedCall([x], Tout=[f32], f=@f)
        out = Identity(a)

        @f(x: f32) -> (y=i)
          a: f32 = PartitionedCall([x], Tout=[f32], f=@g)
          i = Identity(a)

        @g(x: f32) -> (y=m)
          w: f32[8,8] = Const(seed=1)
          m = MatMul(x, w)
        """,
        """
        x: f32[2,8] = Placeholder
        a: f32 = PartitionedCall([x], Tout=[f32], f=@f)
        out = Identity(a)

        @f(x: f32) -> (y=i)
          a: f32 = PartitionedCall([x], Tout=[f32], f=@g)
          i = Identity(a)

        @g(x: f32) -> (y=m/Cast_float32)
          w: low[8,8] = Const(seed=1)
          x/Cast_low = Cast(x, DstT=low)
          m = MatMul(x/Cast_low, w)
          m/Cast_float32 = Cast(m, DstT=f32)
        """,
        visible=("f", "g"),
    )


def test_of_two_functions_only_the_one_that_gains_is_copied(tmp_path: Path) -> None:
    # `denied` is called between float32 values; what `f` gives is read low
    check_faces(
        tmp_path,
        """
        x: f32[2,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        e: f32 = PartitionedCall([x], Tout=[f32], f=@denied)
        s = Exp(e)
        a: f32 = PartitionedCall([s], Tout=[f32], f=@f)
        m = MatMul(a, w)
        out = Identity(m)

        @denied(x: f32) -> (y=e)
          e = Exp(x)

        @f(x: f32) -> (y=m)
          w: f32[8,8] = Const(seed=2)
          m = MatMul(x, w)
        """,
        """
        x: f32[2,8] = Placeholder
        w: low[8,8] = Const(seed=1)
        e: f32 = PartitionedCall([x], Tout=[f32], f=@denied)
        s = Exp(e)
        s/Cast_low = Cast(s, DstT=low)
        a: low = PartitionedCall([s/Cast_low], Tout=[low], f=@f__amp)
        m = MatMul(a, w)
        m/Cast_float32 = Cast(m, DstT=f32)
        out = Identity(m/Cast_float32)

        @denied(x: f32) -> (y=e)
          e = Exp(x)

        @f(x: f32) -> (y=m/Cast_float32)
          w: low[8,8] = Const(seed=2)
          x/Cast_low = Cast(x, DstT=low)
          m = MatMul(x/Cast_low, w)
          m/Cast_float32 = Cast(m, DstT=f32)

        @f__amp(x: low) -> (y=m)
          w: low[8,8] = Const(seed=2)
          m = MatMul(x, w)
        """,
        visible=("denied", "f"),
    )


def test_nests_of_three_faces(tmp_path: Path) -> None:
    check_faces(
        tmp_path,
        """
        x: f32[2,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        m = MatMul(x, w)
        a: f32 = PartitionedCall([m], Tout=[f32], f=@f)
        n = MatMul(a, w)
        out = Identity(n)

        @f(x: f32) -> (y=a)
          a: f32 = PartitionedCall([x], Tout=[f32], f=@g)

        @g(x: f32) -> (y=a)
          a: f32 = PartitionedCall([x], Tout=[f32], f=@h)

        @h(x: f32) -> (y=m)
          w: f32[8,8] = Const(seed=2)
          m = MatMul(x, w)
        """,
        """
        x: f32[2,8] = Placeholder
        w: low[8,8] = Const(seed=1)
        x/Cast_low = Cast(x, DstT=low)
        m = MatMul(x/Cast_low, w)
        a: low = PartitionedCall([m], Tout=[low], f=@f__amp)
        n = MatMul(a, w)
        n/Cast_float32 = Cast(n, DstT=f32)
        out = Identity(n/Cast_float32)

        @f(x: f32) -> (y=a)
          a: f32 = PartitionedCall([x], Tout=[f32], f=@g)

        @f__amp(x: low) -> (y=a)
          a: low = PartitionedCall([x], Tout=[low], f=@g__amp)

        @g(x: f32) -> (y=a)
          a: f32 = PartitionedCall([x], Tout=[f32], f=@h)

        @g__amp(x: low) -> (y=a)
          a: low = PartitionedCall([x], Tout=[low], f=@h__amp)

        @h(x: f32) -> (y=m/Cast_float32)
          w: low[8,8] = Const(seed=2)
          x/Cast_low = Cast(x, DstT=low)
          m = MatMul(x/Cast_low, w)
          m/Cast_float32 = Cast(m, DstT=f32)

        @h__amp(x: low) -> (y=m)
          w: low[8,8] = Const(seed=2)
          m = MatMul(x, w)
        """,
        visible=("f", "g", "h"),
    )


BRANCHES = """
x: f32[2,8] = Placeholder
p: bool[] = Placeholder
w: f32[8,8] = Const(seed=1)
m = MatMul(x, w)
a: f32 = StatelessIf(p, [m], Tout=[f32], then_branch=@f, else_branch=@g)
n = MatMul(a, w)
out = Identity(n)

@f(x: f32) -> (y=m)
  w: f32[8,8] = Const(seed=2)
  m = MatMul(x, w)

@g(x: f32) -> (y=m)
  w: f32[8,8] = Const(seed=3)
  m = MatMul(x, w, transpose_b=True)
"""


def test_a_branch_that_outsiders_see(tmp_path: Path) -> None:
    # the face of one branch would keep the other, and the conditional, float32
    check_faces(
        tmp_path,
        BRANCHES,
        """
        x: f32[2,8] = Placeholder
        p: bool[] = Placeholder
        w: low[8,8] = Const(seed=1)
        x/Cast_low = Cast(x, DstT=low)
        m = MatMul(x/Cast_low, w)
        a: low = StatelessIf(p, [m], Tout=[low], then_branch=@f__amp, else_branch=@g)
        n = MatMul(a, w)
        n/Cast_float32 = Cast(n, DstT=f32)
        out = Identity(n/Cast_float32)

        @f(x: f32) -> (y=m/Cast_float32)
          w: low[8,8] = Const(seed=2)
          x/Cast_low = Cast(x, DstT=low)
          m = MatMul(x/Cast_low, w)
          m/Cast_float32 = Cast(m, DstT=f32)

        @f__amp(x: low) -> (y=m)
          w: low[8,8] = Const(seed=2)
          m = MatMul(x, w)

        @g(x: low) -> (y=m)
          w: low[8,8] = Const(seed=3)
          m = MatMul(x, w, transpose_b=True)
        """,
    )


# --- what a split keeps --------------------------------------------------------------------------


def source_of(text: str, edit: Any = None, **facts: Any) -> ir.GraphSource:
    graph = graph_text.parse(text)
    if edit:
        edit(graph)
    return ir.GraphSource(graph, fetches=frozenset({"out"}), **facts)


def function_of(graph: graph_pb2.GraphDef, name: str) -> function_pb2.FunctionDef:
    (function,) = [f for f in graph.library.function if f.signature.name == name]
    return function


def split(source: ir.GraphSource, functions: Collection[str]) -> ir.GraphSource:
    """Returns the source with copies; checks that it was not changed, and that the new one fits."""
    before = source.graph_def.SerializeToString(deterministic=True)
    program = build.program([source])

    result = faces.split(program, 0, functions)

    assert before == source.graph_def.SerializeToString(deterministic=True)
    assert check.check(result) == []
    return result


def test_without_functions_the_source_itself_comes_back() -> None:
    source = source_of(TWICE)

    assert faces.split(build.program([source]), 0, frozenset()) is source


def test_the_copy_stands_behind_its_original_and_keeps_what_is_known_of_that() -> None:
    source = source_of(TWICE, visible=frozenset({"f"}), captured={"f": ("", "w")})

    result = split(source, {"f"})

    names = [f.signature.name for f in result.graph_def.library.function]
    assert names == ["f", "f__amp"]
    assert result.inner == {"f__amp": "f"}
    assert (result.visible, result.captured) == (source.visible, source.captured)


def test_a_name_that_is_taken_is_not_used() -> None:
    source = source_of(
        """
        x: f32[2,8] = Placeholder
        a: f32 = PartitionedCall([x], Tout=[f32], f=@f)
        out: f32 = PartitionedCall([a], Tout=[f32], f=@f__amp)

        @f(x: f32) -> (y=r)
          r = Relu(x)

        @f__amp(x: f32) -> (y=r)
          r = Relu(x)
        """,
        visible=frozenset({"f", "f__amp"}),
    )

    assert split(source, {"f"}).inner == {"f__amp_1": "f"}
    assert split(source, {"f", "f__amp"}).inner == {"f__amp_1": "f", "f__amp__amp": "f__amp"}


def test_a_copy_is_as_its_original_but_for_its_ties_to_other_functions() -> None:
    def edit(graph: graph_pb2.GraphDef) -> None:
        function = function_of(graph, "f")
        function.signature.is_stateful = True
        function.signature.description = "ours"
        function.attr["_noinline"].b = True
        function.attr["_input_shapes"].list.shape.add()
        function.attr["forward_function_name"].s = b"forward"
        function.arg_attr[0].attr["_user_specified_name"].s = b"x"
        function.resource_arg_unique_id[1] = 7
        function.signature.control_output.extend(["r", "m"])
        function.control_ret["r"] = "r"
        function.control_ret["m"] = "m"
        (call,) = [node for node in graph.node if node.name == "a"]
        call.attr["config_proto"].s = b"config"

    source = source_of(TWICE, edit, visible=frozenset({"f"}))

    result = split(source, {"f"})

    expected = function_of(source.graph_def, "f")
    assert function_of(result.graph_def, "f") == expected
    copy = function_pb2.FunctionDef()
    copy.CopyFrom(expected)
    copy.signature.name = "f__amp"
    del copy.attr["forward_function_name"]
    assert function_of(result.graph_def, "f__amp") == copy
    (call,) = [node for node in result.graph_def.node if node.name == "a"]
    assert call.attr["config_proto"].s == b"config"


def test_calls_of_every_kind_go_to_the_copy_and_other_names_do_not() -> None:
    source = source_of(
        """
        x: f32[8] = Placeholder
        p: bool[] = Placeholder
        i: i32[] = Placeholder
        a: f32 = StatefulPartitionedCall([x], Tout=[f32], f=@f)
        b: f32 = StatelessIf(p, [a], Tout=[f32], then_branch=@f, else_branch=@g)
        c: f32 = StatelessCase(i, [b], Tout=[f32], branches=[@f, @g])
        d: f32 = StatelessWhile([c], cond=@c, body=@f)
        grad: f32 = SymbolicGradient([d, d], Tout=[f32], f=@f)
        out = Identity(grad)

        @f(x: f32) -> (y=r)
          r = Relu(x)

        @g(x: f32) -> (y=a)
          a: f32 = PartitionedCall([x], Tout=[f32], f=@f)

        @c(x: f32) -> (y=t)
          t = Const(True)
        """
    )

    text = ir_text.graph_text(split(source, {"f"}).graph_def)

    assert text.count("=@f__amp") == 4
    assert "branches=[@f__amp, @g]" in text
    assert text.count("=@f)") == 1
    assert "SymbolicGradient([d, d], Tout=[f32], f=@f)" in text


# --- who is a candidate --------------------------------------------------------------------------


def candidates_of(source: ir.GraphSource) -> set[str]:
    (found,) = face_calls.candidates(build.program([source]))
    return set(found)


GRADIENT = """
x: f32[2,8] = Placeholder
w: f32[8,8] = Const(seed=1)
m = MatMul(x, w)
a: f32 = PartitionedCall([m], Tout=[f32], f=@f)
grad: f32 = SymbolicGradient([a, a], Tout=[f32], f=@f)
out = Identity(grad)

@f(x: f32) -> (y=r)
  r = Relu(x)
"""


def test_a_function_that_an_op_names_which_is_not_followed_has_a_face_too() -> None:
    assert candidates_of(source_of(GRADIENT)) == {"f"}


def test_a_function_that_nothing_but_its_calls_names_has_no_face() -> None:
    assert candidates_of(source_of(TWICE)) == set()


def test_a_function_that_tensorflow_replaces_by_another_is_no_candidate() -> None:
    def edit(graph: graph_pb2.GraphDef) -> None:
        function_of(graph, "f").attr["api_implements"].s = b"lstm"

    assert candidates_of(source_of(GRADIENT, edit)) == set()


def test_a_function_without_float32_is_no_candidate() -> None:
    source = source_of(
        """
        x: i32[8] = Placeholder
        n: i32 = PartitionedCall([x], Tout=[i32], f=@f)
        m: i32 = PartitionedCall([n], Tout=[i32], f=@f)
        out = Identity(m)

        @f(x: i32) -> (y=r)
          r = Neg(x)
        """,
        visible=frozenset({"f"}),
    )

    assert candidates_of(source) == set()


def test_a_visible_function_that_is_called_with_too_few_values_is_refused(tmp_path: Path) -> None:
    graph = graph_text.parse(TWICE)
    saved_model(graph, tmp_path / "model", ("f",))
    content = (tmp_path / "model" / "saved_model.pb").read_bytes()
    damaged = saved_model_pb2.SavedModel.FromString(content)
    (call,) = [n for n in damaged.meta_graphs[0].graph_def.node if n.name == "b"]
    del call.input[1], call.attr["Tin"].list.type[1]
    (tmp_path / "model" / "saved_model.pb").write_bytes(damaged.SerializeToString())

    with pytest.raises(tf_amp_rewriter.InputError) as caught:
        tf_amp_rewriter.rewrite_saved_model(tmp_path / "model", tmp_path / "out")

    assert str(caught.value) == (
        f"{tmp_path / 'model'}: b: calls `f` with 1 values, expected 2\n"
        "hint: the model is damaged: export it again"
    )
