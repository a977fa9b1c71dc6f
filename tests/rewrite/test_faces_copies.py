"""Copies for signatures: what is copied with a function, what is not, what that leaves behind."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from tensorflow.core.framework import graph_pb2, node_def_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

import tf_amp_rewriter
from tests import graph_text, loaders
from tests.checks import BOTH, assert_same_text
from tests.conftest import GetModel
from tests.rewrite.seen_functions import (
    TWICE,
    check_faces,
    check_whole,
    graph_in,
    saved_model,
    text_of,
)
from tf_amp_rewriter.rewrite import face_calls

pytestmark = [
    # TensorFlow's own, from loading and saving; ours still are errors.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorflow"),
    pytest.mark.filterwarnings("ignore::UserWarning:keras"),
]

# Two contractions with a call between them, and what that becomes.
BETWEEN = """
x: f32[2,8] = Placeholder
w: f32[8,8] = Const(seed=1)
m = MatMul(x, w)
a: f32 = PartitionedCall([m], Tout=[f32], f=@f)
n = MatMul(a, w)
out = Identity(n)
"""
BETWEEN_LOW = """
x: f32[2,8] = Placeholder
w: low[8,8] = Const(seed=1)
x/Cast_low = Cast(x, DstT=low)
m = MatMul(x/Cast_low, w)
a: low = PartitionedCall([m], Tout=[low], f=@f__amp)
n = MatMul(a, w)
n/Cast_float32 = Cast(n, DstT=f32)
out = Identity(n/Cast_float32)
"""


def test_what_has_no_low_op_of_its_own_is_low_in_the_copy_alone(tmp_path: Path) -> None:
    original = """
    @f(x: f32) -> (y=p)
      r = Relu(x)
      s = AddV2(r, x)
      p = MaxPool(s, ksize=[1,2,2,1], strides=[1,2,2,1], padding="VALID")

    @nobody_calls(x: f32) -> (y=a)
      a: f32 = PartitionedCall([x], Tout=[f32], f=@f)
    """
    check_faces(
        tmp_path,
        """
    x: f32[2,8,8,4] = Placeholder
    k: f32[3,3,4,4] = Const(seed=1)
    m = Conv2D(x, k, strides=[1,1,1,1], padding="SAME")
    a: f32 = PartitionedCall([m], Tout=[f32], f=@f)
    n = Conv2D(a, k, strides=[1,1,1,1], padding="SAME")
    out = Identity(n)
    """
        + original,
        """
    x: f32[2,8,8,4] = Placeholder
    k: low[3,3,4,4] = Const(seed=1)
    x/Cast_low = Cast(x, DstT=low)
    m = Conv2D(x/Cast_low, k, strides=[1,1,1,1], padding="SAME")
    a: low = PartitionedCall([m], Tout=[low], f=@f__amp)
    n = Conv2D(a, k, strides=[1,1,1,1], padding="SAME")
    n/Cast_float32 = Cast(n, DstT=f32)
    out = Identity(n/Cast_float32)

    @f__amp(x: low) -> (y=p)
      r = Relu(x)
      s = AddV2(r, x)
      p = MaxPool(s, ksize=[1,2,2,1], strides=[1,2,2,1], padding="VALID")
    """
        + original,
        visible=("f", "nobody_calls"),
    )


def test_what_a_copy_and_its_original_call_is_copied_and_what_signatures_alone_call_is_not(
    tmp_path: Path,
) -> None:
    original = """
@f(x: f32) -> (y=s)
  r: f32 = PartitionedCall([x], Tout=[f32], f=@shared)
  s = AddV2(r, x)

@shared(x: f32) -> (y=r)
  r = Relu(x)
"""
    check_faces(
        tmp_path,
        """
x: f32[2,8] = Placeholder
w: f32[8,8] = Const(seed=1)
m = MatMul(x, w)
a: f32 = PartitionedCall([m], Tout=[f32], f=@serves)
n = MatMul(a, w)
out = Identity(n)

@serves(x: f32) -> (y=b)
  a: f32 = PartitionedCall([x], Tout=[f32], f=@f)
  b: f32 = PartitionedCall([a], Tout=[f32], f=@shared)
"""
        + original,
        """
x: f32[2,8] = Placeholder
w: low[8,8] = Const(seed=1)
x/Cast_low = Cast(x, DstT=low)
m = MatMul(x/Cast_low, w)
a: low = PartitionedCall([m], Tout=[low], f=@serves)
n = MatMul(a, w)
n/Cast_float32 = Cast(n, DstT=f32)
out = Identity(n/Cast_float32)

@serves(x: low) -> (y=b)
  a: low = PartitionedCall([x], Tout=[low], f=@f__amp)
  b: low = PartitionedCall([a], Tout=[low], f=@shared__amp)

@f__amp(x: low) -> (y=s)
  r: low = PartitionedCall([x], Tout=[low], f=@shared__amp)
  s = AddV2(r, x)

@shared__amp(x: low) -> (y=r)
  r = Relu(x)
"""
        + original,
    )


def test_functions_that_implement_the_same_are_copied_together(tmp_path: Path) -> None:
    # outsiders reach `two` by its name alone: TensorFlow may put it in the place of `one`
    second_call = "b: f32 = PartitionedCall([a], Tout=[f32], f=@two)\n"
    second_call_low = "b: low = PartitionedCall([a], Tout=[low], f=@two__amp)\n"
    originals = """
@f(x: f32) -> (y=s)
  s: f32 = PartitionedCall([x], Tout=[f32], f=@one)

@one(x: f32) -> (y=r)
  r = Relu(x)

@two(x: f32) -> (y=r)
  z: f32[] = Const(0)
  r = Maximum(x, z)
"""

    def edit(graph: graph_pb2.GraphDef) -> None:
        for function in graph.library.function:
            name, _, is_copy = function.signature.name.partition("__")
            if name in ("one", "two"):
                function.attr["api_implements"].s = b"relu__amp" if is_copy else b"relu"

    check_faces(
        tmp_path,
        BETWEEN.replace("n = MatMul(a, w)", second_call + "n = MatMul(b, w)") + originals,
        BETWEEN_LOW.replace("n = MatMul(a, w)", second_call_low + "n = MatMul(b, w)")
        + """
@f__amp(x: low) -> (y=s)
  s: low = PartitionedCall([x], Tout=[low], f=@one__amp)

@one__amp(x: low) -> (y=r)
  r = Relu(x)

@two__amp(x: low) -> (y=r)
  z: low[] = Const(0)
  r = Maximum(x, z)
"""
        + originals,
        edit=edit,
    )
    for path in (tmp_path / "half_once", tmp_path / "bfloat16_once"):
        implemented = {
            function.signature.name: function.attr["api_implements"].s
            for function in graph_in(path).library.function
            if "api_implements" in function.attr
        }
        copies = {"one__amp": b"relu__amp", "two__amp": b"relu__amp"}
        assert implemented == {"one": b"relu", "two": b"relu", **copies}


@pytest.mark.parametrize("holder", ["f", "g"])
def test_a_large_constant_is_not_copied(holder: str, tmp_path: Path) -> None:
    width = face_calls.MAX_COPIED_BYTES // 8 // 4 + 8
    contraction = "  m = MatMul(x, big)\n  n = MatMul(m, big, transpose_b=True)"
    big = f"  big: f32[8,{width}] = Const(seed=3, scale=0.01)\n"
    call = "  n: f32 = PartitionedCall([x], Tout=[f32], f=@g)"
    f, g = (big + contraction, "  n = Relu(x)") if holder == "f" else (call, big + contraction)
    text = f"{BETWEEN}\n@f(x: f32) -> (y=n)\n{f}\n\n@g(x: f32) -> (y=n)\n{g}\n"
    saved_model(graph_text.parse(text), tmp_path / "model", ("f",))

    tf_amp_rewriter.rewrite_saved_model(tmp_path / "model", tmp_path / "out")

    names = [f.signature.name for f in graph_in(tmp_path / "out").library.function]
    assert sorted(names) == ["f", "g"]
    (call_node,) = [n for n in graph_in(tmp_path / "out").node if n.name == "a"]
    assert call_node.attr["Tout"].list.type[:] == [1]  # its face is float32 still


def test_without_signatures_functions_that_can_be_called_stand_for_them(tmp_path: Path) -> None:
    # `act` is called by `serve`, but can be called itself: it calls like a signature, too
    check_faces(
        tmp_path,
        """
        n = NoOp

        @serve(x: f32, w: f32) -> (y=n)
          m = MatMul(x, w)
          r: f32 = PartitionedCall([m, w], Tout=[f32], f=@act)
          n = MatMul(r, w)

        @act(x: f32, w: f32) -> (y=s)
          m = MatMul(x, w)
          r: f32 = PartitionedCall([m], Tout=[f32], f=@helper)
          s = MatMul(r, w)

        @helper(x: f32) -> (y=r)
          r = Relu(x)
        """,
        """
        n = NoOp

        @serve(x: f32, w: f32) -> (y=n/Cast_float32)
          x/Cast_low = Cast(x, DstT=low)
          w/Cast_low = Cast(w, DstT=low)
          m = MatMul(x/Cast_low, w/Cast_low)
          r: low = PartitionedCall([m, w/Cast_low], Tout=[low], f=@act__amp)
          n = MatMul(r, w/Cast_low)
          n/Cast_float32 = Cast(n, DstT=f32)

        @act(x: f32, w: f32) -> (y=s/Cast_float32)
          x/Cast_low = Cast(x, DstT=low)
          w/Cast_low = Cast(w, DstT=low)
          m = MatMul(x/Cast_low, w/Cast_low)
          r: low = PartitionedCall([m], Tout=[low], f=@helper__amp)
          s = MatMul(r, w/Cast_low)
          s/Cast_float32 = Cast(s, DstT=f32)

        @act__amp(x: low, w: low) -> (y=s)
          m = MatMul(x, w)
          r: low = PartitionedCall([m], Tout=[low], f=@helper__amp)
          s = MatMul(r, w)

        @helper(x: f32) -> (y=r)
          r = Relu(x)

        @helper__amp(x: low) -> (y=r)
          r = Relu(x)
        """,
        visible=("serve", "act", "helper"),
        runs=False,
    )


def test_a_pattern_with_the_name_of_the_original_holds_in_its_copy(tmp_path: Path) -> None:
    original = """
@f(x: f32) -> (y=s)
  r = Relu(x)
  q = Square(r)
  s = Relu(q)
"""
    check_faces(
        tmp_path,
        BETWEEN + original,
        BETWEEN_LOW
        + """
@f__amp(x: low) -> (y=s)
  r = Relu(x)
  r/Cast_float32 = Cast(r, DstT=f32)
  q = Square(r/Cast_float32)
  q/Cast_low = Cast(q, DstT=low)
  s = Relu(q/Cast_low)
"""
        + original,
        keep_float32=("^f/q$",),
    )


def test_bodies_of_loops_and_conditionals_are_copied_with_their_function(tmp_path: Path) -> None:
    original = """
@f(x: f32) -> (y=n)
  p: bool[] = Const(True)
  i: i32[] = Const(0)
  c: f32 = StatelessIf(p, [x], Tout=[f32], then_branch=@yes, else_branch=@no)
  l: i32, f32 = StatelessWhile([i, c], cond=@more, body=@body)
  n = Relu(l:1)

@yes(x: f32) -> (y=r)
  r = Relu(x)

@no(x: f32) -> (y=r)
  r = Neg(x)

@more(i: i32, x: f32) -> (t=t)
  n: i32[] = Const(3)
  t = Less(i, n)

@body(i: i32, x: f32) -> (j=j, y=r)
  one: i32[] = Const(1)
  j = AddV2(i, one)
  r = Relu(x)
"""
    check_faces(
        tmp_path,
        BETWEEN + original,
        BETWEEN_LOW
        + """
@f__amp(x: low) -> (y=n)
  p: bool[] = Const(True)
  i: i32[] = Const(0)
  c: low = StatelessIf(p, [x], Tout=[low], then_branch=@yes__amp, else_branch=@no__amp)
  l: i32, low = StatelessWhile([i, c], cond=@more__amp, body=@body__amp)
  n = Relu(l:1)

@yes__amp(x: low) -> (y=r)
  r = Relu(x)

@no__amp(x: low) -> (y=r)
  r = Neg(x)

@more__amp(i: i32, x: low) -> (t=t)
  n: i32[] = Const(3)
  t = Less(i, n)

@body__amp(i: i32, x: low) -> (j=j, y=r)
  one: i32[] = Const(1)
  j = AddV2(i, one)
  r = Relu(x)
"""
        + original,
    )


def test_what_a_dead_function_names_stays(tmp_path: Path) -> None:
    # a gradient op has a face to call, though nothing calls the function that the op is in
    originals = """
@f(x: f32) -> (y=r)
  r = Relu(x)

@dead(x: f32) -> (y=g)
  g: f32 = SymbolicGradient([x, x], Tout=[f32], f=@f)
"""
    check_faces(
        tmp_path,
        BETWEEN + originals,
        BETWEEN_LOW + "\n@f__amp(x: low) -> (y=r)\n  r = Relu(x)\n" + originals,
        visible=(),
    )


def test_each_meta_graph_has_its_own_copies(tmp_path: Path) -> None:
    # in the second one, the call is between float32 values
    function = "\n@f(x: f32) -> (y=r)\n  r = Relu(x)\n"
    second = """
    x: f32[2,8] = Placeholder
    a: f32 = PartitionedCall([x], Tout=[f32], f=@f)
    out = Identity(a)

    @f(x: f32) -> (y=r)
      r = Relu(x)
    """
    for dtype in BOTH:
        source, result = tmp_path / dtype, tmp_path / f"{dtype}_out"
        inputs = saved_model(graph_text.parse(BETWEEN + function), source, ("f",))
        saved_model(graph_text.parse(second), tmp_path / f"{dtype}_second", ("f",))
        both = proto_of(source)
        both.meta_graphs.append(proto_of(tmp_path / f"{dtype}_second").meta_graphs[0])
        both.meta_graphs[1].meta_info_def.tags[:] = ["serve", "second"]
        (source / "saved_model.pb").write_bytes(both.SerializeToString())

        tf_amp_rewriter.rewrite_saved_model(source, result, tf_amp_rewriter.Options(dtype=dtype))

        copy = "\n@f__amp(x: low) -> (y=r)\n  r = Relu(x)\n"
        wanted = (BETWEEN_LOW + function + copy, second)
        for text, meta_graph in zip(wanted, proto_of(result).meta_graphs, strict=True):
            expected = text_of(graph_text.parse(text, dtype))
            assert_same_text(expected, text_of(meta_graph.graph_def))
        for tags in (("serve",), ("serve", "second")):
            loaders.run_tf1(result, "serving_default", inputs, tags)


def test_a_main_graph_of_tensorflow_1_calls_copies_of_what_gradients_name(tmp_path: Path) -> None:
    originals = """
@f(x: f32) -> (y=s)
  r = Relu(x)
  s = AddV2(r, x)

@f_gradient(x: f32, dy: f32) -> (dx=d)
  d = ReluGrad(dy, x)
"""

    def edit(graph: graph_pb2.GraphDef) -> None:
        graph.library.gradient.add(function_name="f", gradient_func="f_gradient")

    check_faces(
        tmp_path,
        """
x: f32[2,8] = Placeholder
w: f32[8,8] = Const(seed=1)
m = MatMul(x, w)
r = Relu(m)
a: f32 = StatefulPartitionedCall([r], Tout=[f32], f=@f)
s = Relu(a)
n = MatMul(s, w)
out = Identity(n)
"""
        + originals,
        """
x: f32[2,8] = Placeholder
w: low[8,8] = Const(seed=1)
x/Cast_low = Cast(x, DstT=low)
m = MatMul(x/Cast_low, w)
r = Relu(m)
a: low = StatefulPartitionedCall([r], Tout=[low], f=@f__amp)
s = Relu(a)
n = MatMul(s, w)
n/Cast_float32 = Cast(n, DstT=f32)
out = Identity(n/Cast_float32)

@f__amp(x: low) -> (y=s)
  r = Relu(x)
  s = AddV2(r, x)
"""
        + originals,
        visible=(),
        edit=edit,
    )


# --- nothing unreachable is left -----------------------------------------------------------------


def proto_of(directory: Path) -> saved_model_pb2.SavedModel:
    return saved_model_pb2.SavedModel.FromString((directory / "saved_model.pb").read_bytes())


def unreachable(meta_graph: meta_graph_pb2.MetaGraphDef) -> set[str]:
    """Returns the functions that neither the main graph nor the object graph leads to."""
    functions = {f.signature.name: f for f in meta_graph.graph_def.library.function}
    queue = [*meta_graph.object_graph_def.concrete_functions]
    queue += [r.gradient_func for r in meta_graph.graph_def.library.registered_gradients]
    queue += named_in(meta_graph.graph_def.node)
    found: set[str] = set()
    while queue:
        name = queue.pop()
        if name not in found:
            found.add(name)
            queue += named_in(functions[name].node_def)
    return set(functions) - found


def named_in(nodes: Iterable[node_def_pb2.NodeDef]) -> list[str]:
    values = [value for node in nodes for value in node.attr.values()]
    functions = [value.func for value in values if value.HasField("func")]
    functions += [function for value in values for function in value.list.func]
    return [function.name for function in functions]


@pytest.mark.parametrize("name", ["tf_keras", "resaved_tower", "resaved_rnn", "tf_keras_plain"])
def test_every_function_can_be_reached(name: str, model: GetModel, tmp_path: Path) -> None:
    original = model(name)
    again = tmp_path / "again"
    loaders.resave(original.path, again)
    for number, source in enumerate((original.path, again)):
        result = tmp_path / f"out{number}"
        assert [unreachable(m) for m in proto_of(source).meta_graphs] == [set()]

        tf_amp_rewriter.rewrite_saved_model(source, result)

        assert [unreachable(m) for m in proto_of(result).meta_graphs] == [set()]


def test_a_second_rewrite_in_the_other_precision_copies_nothing_either(tmp_path: Path) -> None:
    inputs = saved_model(graph_text.parse(TWICE), tmp_path / "model", ("f",))
    path = tmp_path / "model"
    for number, dtype in enumerate((*BOTH, *reversed(BOTH))):
        source, path = path, tmp_path / f"out{number}"
        tf_amp_rewriter.rewrite_saved_model(source, path, tf_amp_rewriter.Options(dtype=dtype))

    names = [f.signature.name for f in graph_in(path).library.function]
    assert names == ["f", "f__amp"]
    first = loaders.run_tf1(tmp_path / "out0", "serving_default", inputs)
    last = loaders.run_tf1(path, "serving_default", inputs)
    np.testing.assert_array_equal(first["out"], last["out"])
    assert graph_in(tmp_path / "out0") == graph_in(path)


def test_a_function_that_only_its_own_callers_give_and_take_is_not_copied(tmp_path: Path) -> None:
    text = """
    x: f32[2,8] = Placeholder
    a: f32 = PartitionedCall([x], Tout=[f32], f=@f)
    out = Identity(a)

    @f(x: f32) -> (y=r)
      r = Relu(x)
    """
    check_whole(tmp_path, text, text)


def test_a_function_that_is_low_for_outsiders_too_is_not_copied(tmp_path: Path) -> None:
    """All that call it give it a low value: a copy would have the same precisions."""
    check_faces(
        tmp_path,
        """
        x: f32[2,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        m = MatMul(x, w)
        a: f32 = PartitionedCall([m], Tout=[f32], f=@leaf)
        n = MatMul(a, w)
        out = Identity(n)

        @leaf(x: f32) -> (y=r)
          r = Relu(x)

        @f(x: f32) -> (y=n)
          w: f32[8,8] = Const(seed=2)
          m = MatMul(x, w)
          a: f32 = PartitionedCall([m], Tout=[f32], f=@leaf)
          n = MatMul(a, w)
        """,
        """
        x: f32[2,8] = Placeholder
        w: low[8,8] = Const(seed=1)
        x/Cast_low = Cast(x, DstT=low)
        m = MatMul(x/Cast_low, w)
        a: low = PartitionedCall([m], Tout=[low], f=@leaf)
        n = MatMul(a, w)
        n/Cast_float32 = Cast(n, DstT=f32)
        out = Identity(n/Cast_float32)

        @leaf(x: low) -> (y=r)
          r = Relu(x)

        @f(x: f32) -> (y=n/Cast_float32)
          w: low[8,8] = Const(seed=2)
          x/Cast_low = Cast(x, DstT=low)
          m = MatMul(x/Cast_low, w)
          a: low = PartitionedCall([m], Tout=[low], f=@leaf)
          n = MatMul(a, w)
          n/Cast_float32 = Cast(n, DstT=f32)
        """,
    )
