"""Low Einsums written out as products of matrices: the graphs, and their answers on CPU."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies
from numpy.typing import NDArray
from tensorflow.core.framework import graph_pb2

import tf_amp_rewriter
from tests import checks, graph_text, models_tf1
from tests.checks import check_rewrite, check_unchanged
from tf_amp_rewriter import dtypes as amp_dtypes
from tf_amp_rewriter.ops import conditions
from tf_amp_rewriter.rewrite import einsum

NEW_NODES = "checks.py has no bound for nodes that the original lacks; check_answers has one"
SIZES = dict(zip("abcdefij", (2, 3, 4, 5, 2, 3, 4, 3), strict=True))
SIZES |= {"B": 2, "T": 5, "S": 6, "N": 3, "H": 4}
# BatchMatMulV2 rounds the sum in float32 once, in bfloat16 up to twice.
ROUNDINGS = {"half": 1, "bfloat16": 2}
Array = NDArray[np.float32]


# --- the graphs ----------------------------------------------------------------------------------


def test_the_scores_of_attention() -> None:
    check_rewrite(
        """
        q: f32[?,?,4,8] = Placeholder
        k: f32[?,?,4,8] = Placeholder
        scores = Einsum([q, k], equation='BTNH,BSNH->BNTS')
        out = Identity(scores)
        """,
        """
        q: f32[?,?,4,8] = Placeholder
        k: f32[?,?,4,8] = Placeholder
        q/Cast_low = Cast(q, DstT=low)
        k/Cast_low = Cast(k, DstT=low)
        scores/left/Transpose/perm = Const([0, 2, 1, 3])
        scores/left/Transpose = Transpose(q/Cast_low, scores/left/Transpose/perm)
        scores/right/Transpose/perm = Const([0, 2, 1, 3])
        scores/right/Transpose = Transpose(k/Cast_low, scores/right/Transpose/perm)
        scores = BatchMatMulV2(scores/left/Transpose, scores/right/Transpose, adj_y=True)
        scores/Cast_float32 = Cast(scores, DstT=f32)
        out = Identity(scores/Cast_float32)
        """,
        not_run=NEW_NODES,
    )


def test_the_values_of_attention() -> None:
    check_rewrite(
        """
        p: f32[?,4,?,?] = Placeholder
        v: f32[?,?,4,8] = Placeholder
        mixed = Einsum([p, v], equation='acbe,aecd->abcd')
        out = Identity(mixed)
        """,
        """
        p: f32[?,4,?,?] = Placeholder
        v: f32[?,?,4,8] = Placeholder
        p/Cast_low = Cast(p, DstT=low)
        v/Cast_low = Cast(v, DstT=low)
        mixed/right/Transpose/perm = Const([0, 2, 1, 3])
        mixed/right/Transpose = Transpose(v/Cast_low, mixed/right/Transpose/perm)
        mixed/product = BatchMatMulV2(p/Cast_low, mixed/right/Transpose)
        mixed/perm = Const([0, 2, 1, 3])
        mixed = Transpose(mixed/product, mixed/perm)
        mixed/Cast_float32 = Cast(mixed, DstT=f32)
        out = Identity(mixed/Cast_float32)
        """,
        not_run=NEW_NODES,
    )


def test_a_dense_layer_is_one_product() -> None:
    check_rewrite(
        """
        x: f32[?,?,600] = Placeholder
        w: f32[600,3] = Const(0.5)
        y = Einsum([x, w], equation='abc,cd->abd')
        out = Identity(y)
        """,
        """
        x: f32[?,?,600] = Placeholder
        w: low[600,3] = Const(0.5)
        x/Cast_low = Cast(x, DstT=low)
        y = BatchMatMulV2(x/Cast_low, w)
        y/Cast_float32 = Cast(y, DstT=f32)
        out = Identity(y/Cast_float32)
        """,
    )


def test_shapes_with_two_unknown_dimensions_are_computed() -> None:
    check_rewrite(
        """
        x: f32[?,?,600] = Placeholder
        w: f32[600,2,3] = Const(0.5)
        y = Einsum([x, w], equation='abc,cde->abde')
        out = Identity(y)
        """,
        """
        x: f32[?,?,600] = Placeholder
        w: low[600,2,3] = Const(0.5)
        x/Cast_low = Cast(x, DstT=low)
        y/right/Reshape/shape = Const([600, 6])
        y/right/Reshape = Reshape(w, y/right/Reshape/shape)
        y/product = BatchMatMulV2(x/Cast_low, y/right/Reshape)
        y/left/Shape = Shape(x/Cast_low)
        y/left/Unpack = Unpack(y/left/Shape, num=3)
        y/shape/size = Const(2)
        y/shape/size_1 = Const(3)
        y/shape = Pack([y/left/Unpack, y/left/Unpack:1, y/shape/size, y/shape/size_1])
        y = Reshape(y/product, y/shape)
        y/Cast_float32 = Cast(y, DstT=f32)
        out = Identity(y/Cast_float32)
        """,
        not_run=NEW_NODES,
    )


def test_a_vector_is_a_matrix_of_one_column() -> None:
    check_rewrite(
        """
        x: f32[?,?,?] = Placeholder
        v: f32[?,?] = Placeholder
        y = Einsum([x, v], equation='bij,bj->bi')
        out = Identity(y)
        """,
        """
        x: f32[?,?,?] = Placeholder
        v: f32[?,?] = Placeholder
        x/Cast_low = Cast(x, DstT=low)
        v/Cast_low = Cast(v, DstT=low)
        y/right/ExpandDims/dim = Const(2)
        y/right/ExpandDims = ExpandDims(v/Cast_low, y/right/ExpandDims/dim)
        y/product = BatchMatMulV2(x/Cast_low, y/right/ExpandDims)
        y = Squeeze(y/product, squeeze_dims=[2])
        y/Cast_float32 = Cast(y, DstT=f32)
        out = Identity(y/Cast_float32)
        """,
        not_run=NEW_NODES,
    )


def test_names_that_are_taken() -> None:
    check_rewrite(
        """
        p: f32[?,?,?] = Placeholder
        y/product = Identity(p)
        y = Einsum([y/product, y/product], equation='bji,bjk->kbi')
        y/perm: f32 = Identity(y)
        """,
        """
        p: f32[?,?,?] = Placeholder
        p/Cast_low = Cast(p, DstT=low)
        y/product = Identity(p/Cast_low)
        y/product_1 = BatchMatMulV2(y/product, y/product, adj_x=True)
        y/perm_1 = Const([1, 0, 2])
        y = Transpose(y/product_1, y/perm_1)
        y/Cast_float32 = Cast(y, DstT=f32)
        y/perm: f32 = Identity(y/Cast_float32)
        """,
        not_run=NEW_NODES,
    )


def test_the_product_has_the_device_and_waits_for_what_the_einsum_waited_for() -> None:
    check_rewrite(
        """
        x: f32[?,?,?] = Placeholder
        before = NoOp
        y = Einsum([x, x], ^before, equation='bji,bjk->kbi', device='/cpu:0')
        after = Identity(x, ^y)
        out = Identity(y)
        """,
        """
        x: f32[?,?,?] = Placeholder
        before = NoOp
        x/Cast_low = Cast(x, DstT=low)
        y/product = BatchMatMulV2(x/Cast_low, x/Cast_low, ^before, adj_x=True, device='/cpu:0')
        y/perm = Const([1, 0, 2], device='/cpu:0')
        y = Transpose(y/product, y/perm, device='/cpu:0')
        y/Cast_float32 = Cast(y, DstT=f32, device='/cpu:0')
        after = Identity(x, ^y)
        out = Identity(y/Cast_float32)
        """,
        not_run=NEW_NODES,
    )


def test_in_a_function() -> None:
    """Its Transpose calls its output `y`: that is in every reference, and in the result's."""
    check_rewrite(
        """
        x: f32[?,4,?,?] = Placeholder
        v: f32[?,?,4,8] = Placeholder
        call: f32 = PartitionedCall([x, v], f=@attend, Tout=[f32])
        out = Identity(call)

        @attend(p: f32, v: f32) -> (mixed=again)
            mixed = Einsum([p, v], equation='BNTS,BSNH->BTNH')
            again = Einsum([p, mixed], equation='BNTS,BSNH->BTNH')
            exp = Exp(mixed)
        """,
        """
        x: f32[?,4,?,?] = Placeholder
        v: f32[?,?,4,8] = Placeholder
        x/Cast_low = Cast(x, DstT=low)
        v/Cast_low = Cast(v, DstT=low)
        call: low = PartitionedCall([x/Cast_low, v/Cast_low], f=@attend, Tout=[low])
        call/Cast_float32 = Cast(call, DstT=f32)
        out = Identity(call/Cast_float32)

        @attend(p: low, v: low) -> (mixed=again)
            mixed/right/Transpose/perm = Const([0, 2, 1, 3])
            mixed/right/Transpose = Transpose(v, mixed/right/Transpose/perm)
            mixed/product = BatchMatMulV2(p, mixed/right/Transpose)
            mixed/perm = Const([0, 2, 1, 3])
            mixed = Transpose(mixed/product, mixed/perm)
            mixed/Cast_float32 = Cast(mixed, DstT=f32)
            exp = Exp(mixed/Cast_float32)
            again/right/Transpose/perm = Const([0, 2, 1, 3])
            again/right/Transpose = Transpose(mixed, again/right/Transpose/perm)
            again/product = BatchMatMulV2(p, again/right/Transpose)
            again/perm = Const([0, 2, 1, 3])
            again = Transpose(again/product, again/perm)
        """,
        not_run=NEW_NODES,
    )


def test_for_a_gpu_it_stays_one_op() -> None:
    check_rewrite(
        """
        x: f32[?,?] = Placeholder
        y: f32[?,?] = Placeholder
        z = Einsum([x, y], equation='ij,jk->ik')
        out = Identity(z)
        """,
        """
        x: f32[?,?] = Placeholder
        y: f32[?,?] = Placeholder
        x/Cast_low = Cast(x, DstT=low)
        y/Cast_low = Cast(y, DstT=low)
        z = Einsum([x/Cast_low, y/Cast_low], equation='ij,jk->ik')
        z/Cast_float32 = Cast(z, DstT=f32)
        out = Identity(z/Cast_float32)
        """,
        device="gpu",
    )


def test_a_sum_of_few_terms_stays_one_op() -> None:
    check_rewrite(
        """
        x: f32[?,?] = Placeholder
        w: f32[8,3] = Const(0.5)
        z = Einsum([x, w], equation='ij,jk->ik')
        out = Identity(z)
        """,
        """
        x: f32[?,?] = Placeholder
        w: low[8,3] = Const(0.5)
        x/Cast_low = Cast(x, DstT=low)
        z = Einsum([x/Cast_low, w], equation='ij,jk->ik')
        z/Cast_float32 = Cast(z, DstT=f32)
        out = Identity(z/Cast_float32)
        """,
        feeds={"x": np.ones((2, 8), np.float32)},
    )


@pytest.mark.parametrize("equation", ["...j,jk->...k", "ij,jk->k"])
def test_without_a_plan_it_stays_float32(equation: str) -> None:
    check_unchanged(
        f"""
        x: f32[?,?] = Placeholder
        y: f32[?,?] = Placeholder
        z = Einsum([x, y], equation='{equation}')   # f32 CONDITION
        out = Identity(z)
        """,
        not_run="the bounds of checks.py read no `...`",
    )


def test_a_fetched_einsum_stays_as_it_is() -> None:
    check_unchanged(
        """
        x: f32[?,?] = Placeholder
        y: f32[?,?] = Placeholder
        out = Einsum([x, y], equation='ij,jk->ik')   # f32 PINNED
        """
    )


def test_the_docstring_shows_what_is_done() -> None:
    inputs = "q: low[?,?,4,8] = Placeholder\nk: low[?,?,4,8] = Placeholder\n"
    before, after = (
        graph_text.parse(inputs + re.sub("(?m)^    ", "", part), "half")
        for part in re.findall(r"\n\n((?:    .*\n)+)", einsum.__doc__ or "")
    )
    (node,) = (node for node in before.node if node.op == "Einsum")
    plan = einsum.einsum.plan(node.attr["equation"].s.decode())
    assert plan is not None
    place = einsum.Place(before.node, {node.name for node in before.node}, False, "")

    einsum.expand(node, plan, {}, amp_dtypes.HALF, place)

    assert sorted_text(after) == sorted_text(before)


def sorted_text(graph: graph_pb2.GraphDef) -> list[str]:
    return sorted(checks.ir_text.graph_text(graph).splitlines())


# --- the answers ---------------------------------------------------------------------------------


def values(labels: str, low: amp_dtypes.LowPrecision, seed: int, sizes: Mapping[str, int]) -> Array:
    """Returns positive and negative values that `low` can hold."""
    random = np.random.default_rng(seed).normal(0, 1, [sizes[label] for label in labels])
    return random.astype(low.numpy).astype(np.float32)


def check_close(equation: str, actual: Array, x: Array, y: Array, low: str) -> None:
    """Compares with float64: float32's rounding per term, then the roundings of the result."""
    left, right = x.astype(np.float64), y.astype(np.float64)
    expected = np.einsum(equation, left, right)
    sums = np.einsum(equation, np.abs(left), np.abs(right))
    precision = amp_dtypes.LOW_PRECISIONS[low]
    bound = ROUNDINGS[low] * (precision.epsilon * np.abs(expected) + precision.tiny)
    bound += x.size * 2.0**-24 * sums  # more terms than one sum has, each rounded in float32
    assert expected.shape == actual.shape
    assert np.all(np.abs(actual - expected) <= bound), np.max(np.abs(actual - expected) / bound)


def einsum_graph(equation: str, y: Array | None) -> graph_pb2.GraphDef:
    """Builds an Einsum of inputs of unknown sizes; of a constant, if the second one is given."""
    graph = tf.Graph()
    with graph.as_default():
        ranks = [len(labels) for labels in equation.partition("->")[0].split(",")]
        first = tf.compat.v1.placeholder(tf.float32, [None] * ranks[0], "x")
        second = (
            tf.compat.v1.placeholder(tf.float32, [None] * ranks[1], "y")
            if y is None
            else tf.constant(y, name="y")
        )
        tf.identity(tf.raw_ops.Einsum(inputs=[first, second], equation=equation, name="z"), "out")
    return graph.as_graph_def()


def check_answers(equation: str, low: str, static: bool, sizes: Mapping[str, int] = SIZES) -> None:
    """Rewrites one Einsum, however short its sum, and runs it."""
    labels = equation.partition("->")[0].split(",")
    precision = amp_dtypes.LOW_PRECISIONS[low]
    x, y = (values(one, precision, seed, sizes) for seed, one in enumerate(labels))
    feeds = {"x": x} if static else {"x": x, "y": y}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(conditions.EINSUM_DEPTHS, low, 0)
        report = checks.checked_rewrite(
            einsum_graph(equation, y if static else None),
            low,
            not_run=NEW_NODES,
            options={"outputs": ("out",)},
        )
    assert report.graph_def is not None

    actual = checks.run_graph(checks.imported(report.graph_def), ["out:0"], feeds)["out:0"]

    assert "Einsum" not in {node.op for node in report.graph_def.node}
    check_close(equation, actual, x, y, low)


EQUATIONS = """BTNH,BSNH->BNTS BNTS,BSNH->BTNH aecd,abcd->acbe acbe,aecd->abcd ij,jc->ic ij,jc->ci
    ji,cj->ci abc,cd->abd cd,abc->abd abc,cde->abde abcd,cde->abe abcd,cdef->abef abc,cde->adbe
    abcd,cdef->feba bij,bj->bi bj,bji->ib bj,bj->b bj,bj-> j,j-> abic,bcd->abid baic,bcd->baid
    abdec,bcfd->abfe abcdef,fedcba->abc abcd,dcba-> aBbc,Bcd->aBbd""".split()


@pytest.mark.parametrize("low", checks.BOTH)
@pytest.mark.parametrize("equation", EQUATIONS)
def test_answers_with_unknown_sizes(equation: str, low: str) -> None:
    check_answers(equation, low, static=False)


@pytest.mark.parametrize("low", checks.BOTH)
@pytest.mark.parametrize("equation", EQUATIONS)
def test_answers_with_a_weight(equation: str, low: str) -> None:
    check_answers(equation, low, static=True)


@pytest.mark.parametrize("low", checks.BOTH)
@pytest.mark.parametrize("equation", ["BTNH,BSNH->BNTS", "abc,cde->abde", "bij,bj->bi"])
def test_a_deep_sum_of_positive_terms(equation: str, low: str) -> None:
    """TensorFlow's Einsum is off by up to 15 % here, or stalls."""
    sizes = {**SIZES, equation.partition(",")[0][-1]: 4096}
    check_answers(equation, low, static=False, sizes=sizes)


@pytest.mark.parametrize("equation", ["abc,cde->abde", "abcd,cde->abe", "bij,bj->bi", "ij,jc->ci"])
@pytest.mark.parametrize("empty", "abcij")
def test_an_empty_batch(equation: str, empty: str) -> None:
    check_answers(equation, "half", static=False, sizes={**SIZES, empty: 0})


@strategies.composite
def equations(draw: strategies.DrawFn) -> str:
    labels = draw(strategies.lists(strategies.sampled_from("abcdef"), unique=True, min_size=1))
    places = [draw(strategies.sampled_from(("xy", "xo", "yo", "xyo"))) for _ in labels]
    if "xy" not in places:
        places[0] = "xy"  # something must be summed
    chosen = [
        [label for label, place in zip(labels, places, strict=True) if part in place]
        for part in "xyo"
    ]
    x, y, output = ("".join(draw(strategies.permutations(part))) for part in chosen)
    return f"{x},{y}->{output}"


@hypothesis.settings(max_examples=60, deadline=None, derandomize=True, database=None)
@hypothesis.given(equations(), strategies.booleans())
def test_answers_of_random_equations(equation: str, static: bool) -> None:
    check_answers(equation, "bfloat16", static)


@pytest.mark.parametrize("low", checks.BOTH)
def test_answers_in_a_function(low: str) -> None:
    text = """
        x: f32[?,?,?] = Placeholder
        y: f32[?,?,?] = Placeholder
        call: f32 = PartitionedCall([x, y], f=@f, Tout=[f32])
        out = Identity(call)

        @f(x: f32, y: f32) -> (z=z)
            z = Einsum([x, y], equation='abc,cde->adbe')
    """
    precision = amp_dtypes.LOW_PRECISIONS[low]
    x, y = values("abc", precision, 0, SIZES), values("cde", precision, 1, SIZES)
    report = checks.checked_rewrite(graph_text.parse(text), low, not_run=NEW_NODES)
    assert report.graph_def is not None
    ops = [node.op for node in report.graph_def.library.function[0].node_def]

    actual = checks.run_graph(checks.imported(report.graph_def), ["out:0"], {"x": x, "y": y})

    assert {"BatchMatMulV2", "Unpack", "Mul", "Pack"} <= set(ops)
    check_close("abc,cde->adbe", actual["out:0"], x, y, low)


@pytest.mark.parametrize("low", checks.BOTH)
def test_answers_in_a_loop_of_control_flow_v1(low: str) -> None:
    """Constants must be in the frame of the loop, or TensorFlow refuses to run it."""
    precision = amp_dtypes.LOW_PRECISIONS[low]
    x, y = values("abc", precision, 0, SIZES), values("cda", precision, 1, SIZES)
    graph = tf.Graph()
    with graph.as_default(), models_tf1.control_flow_v1():
        first = tf.compat.v1.placeholder(tf.float32, [None, None, None], "x")
        second = tf.compat.v1.placeholder(tf.float32, [None, None, None], "y")

        def step(index: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return index + 1, tf.einsum("abc,cde->adbe", first, second)

        start = (tf.constant(0), tf.zeros([0, 0, 0, 0]))
        shapes = (tf.TensorShape([]), tf.TensorShape([None] * 4))
        _, z = tf.compat.v1.while_loop(lambda index, _: index < 3, step, start, shapes)
        tf.identity(z, "out")
    report = checks.checked_rewrite(
        graph.as_graph_def(), low, not_run=NEW_NODES, options={"outputs": ("out",)}
    )
    assert report.graph_def is not None

    actual = checks.run_graph(checks.imported(report.graph_def), ["out:0"], {"x": x, "y": y})

    assert "BatchMatMulV2" in {node.op for node in report.graph_def.node}
    check_close("abc,cde->adbe", actual["out:0"], x, y, low)


class Projection(tf.Module):
    """Projects to heads and back, with weights that are variables."""

    def __init__(self, to_heads: Array, back: Array) -> None:
        super().__init__()
        self.to_heads = tf.Variable(to_heads)
        self.back = tf.Variable(back)

    @tf.function(input_signature=[tf.TensorSpec([None, None, 600], name="x")])
    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        heads = tf.einsum("abc,cde->abde", x, self.to_heads)
        return tf.einsum("abcd,cde->abe", heads, self.back)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorflow")
@pytest.mark.parametrize("low", checks.BOTH)
def test_a_saved_model_with_weights(low: str, tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    weights: Sequence[Array] = [
        random.normal(0, 0.04, shape).astype(np.float32) for shape in ((600, 4, 8), (4, 8, 600))
    ]
    x = random.normal(0, 1, (2, 3, 600)).astype(np.float32)
    module = Projection(*weights)
    tf.saved_model.save(module, tmp_path / "in", signatures=module.__call__)
    options = tf_amp_rewriter.Options(dtype=low)

    report = tf_amp_rewriter.rewrite_saved_model(tmp_path / "in", tmp_path / "out", options)
    tf_amp_rewriter.rewrite_saved_model(tmp_path / "out", tmp_path / "again", options)

    assert report.contractions == report.contractions_low == 2
    actual = tf.saved_model.load(tmp_path / "out").signatures["serving_default"](tf.constant(x))
    expected = np.einsum("abc,cdf,dfe->abe", x.astype(np.float64), *weights)
    precision = amp_dtypes.LOW_PRECISIONS[low]
    # x, both weights, the heads and the result are rounded: random errors of a sum of 32 products.
    error = np.sqrt(np.mean((next(iter(actual.values())) - expected) ** 2))
    assert error <= 2 * precision.epsilon * np.sqrt(np.mean(expected**2))
    names = [tmp_path / name / "saved_model.pb" for name in ("out", "again")]
    assert names[0].read_bytes() == names[1].read_bytes()
