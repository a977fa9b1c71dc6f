"""Norms in the spellings of Keras, TensorFlow, ONNX and PyTorch exports."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tests import checks, graph_text
from tests.checks import check_precision, check_unchanged
from tf_amp_rewriter import dtypes

HALF, BFLOAT16 = ("half",), ("bfloat16",)
EYE = "[[1,0,0,0],[0,1,0,0],[0,0,1,0],[0,0,0,1]]"
START = f"""
    x: f32[?,4] = Placeholder
    eye: f32[4,4] = Const({EYE})
    last = Const([1])
    eps = Const(1e-5)
    two = Const(2.0)
    zero = Const(0.0)
    scale = Const([1.0, 2.0, -1.0, 0.5])
    offset = Const([0.0, 1.0, -2.0, 0.25])
    m = MatMul(x, eye)                           # low ALLOW
"""
MOMENTS = """
    mean = Mean(m, last, keep_dims=True)         # f32 DENY
    sq = SquaredDifference(m, mean)              # f32 DENY
    var = Mean(sq, last, keep_dims=True)         # f32 DENY
    ve = AddV2(var, eps)                         # f32 INFER tainted by var
    rs = Rsqrt(ve)                               # f32 DENY
"""
END = """
    m2 = MatMul(y, eye)                          # low ALLOW
    fetch = Identity(m2)                         # f32 PINNED
"""
SHIFTED = MOMENTS + "    d = Sub(m, mean)\n"
# What is gone or made anew in the rewritten graph has no comment.
SPELLINGS = {
    "direct": SHIFTED
    + """
    n = Mul(d, rs)                               # low INFER
    s = Mul(n, scale)                            # low INFER
    y = AddV2(s, offset)                         # low INFER
    """,
    "the scale on the root": SHIFTED
    + """
    f = Mul(rs, scale)
    s = Mul(d, f)                                # low INFER
    y = AddV2(s, offset)                         # low INFER
    """,
    "spread, as Keras 3 has it": MOMENTS
    + """
    f = Mul(rs, scale)
    p = Mul(m, f)
    neg = Neg(mean)
    q = Mul(neg, f)
    o = AddV2(q, offset)
    y = AddV2(p, o)                              # low INFER
    """,
    "spread, as tf.nn.batch_normalization has it": MOMENTS
    + """
    f = Mul(rs, scale)
    p = Mul(m, f)
    q = Mul(mean, f)
    o = Sub(offset, q)
    y = AddV2(p, o)                              # low INFER
    """,
    "spread, with the product negated": MOMENTS
    + """
    f = Mul(scale, rs)
    p = Mul(f, m)
    q = Mul(f, mean)
    neg = Neg(q)
    o = AddV2(offset, neg)
    y = AddV2(o, p)                              # low INFER
    """,
    "squares of what is read once more": """
    mean = Mean(m, last, keep_dims=True)         # f32 DENY
    d = Sub(m, mean)                             # f32 DENY
    sq = Pow(d, two)                             # f32 DENY
    var = Mean(sq, last, keep_dims=True)         # f32 DENY
    ve = AddV2(var, eps)                         # f32 INFER tainted by var
    std = Sqrt(ve)                               # f32 DENY
    n = RealDiv(d, std)                          # low INFER
    s = Mul(n, scale)                            # low INFER
    y = AddV2(s, offset)                         # low INFER
    """,
    "the variance as a difference of means": """
    mean = Mean(m, last, keep_dims=True)         # f32 DENY
    sq = Square(m)                               # f32 DENY
    ms = Mean(sq, last, keep_dims=True)          # f32 DENY
    mm = Square(mean)                            # f32 DENY
    diff = Sub(ms, mm)                           # f32 INFER tainted by ms
    var = Maximum(diff, zero)                    # f32 TAINTED
    ve = AddV2(var, eps)                         # f32 TAINTED
    rs = Rsqrt(ve)                               # f32 DENY
    d = Sub(m, mean)                             # low INFER
    n = Mul(rs, d)                               # low INFER
    s = Mul(n, scale)                            # low INFER
    y = AddV2(s, offset)                         # low INFER
    """,
    "through ops that hand on": """
    mean = Mean(m, last, keep_dims=True)         # f32 DENY
    stop = StopGradient(mean)
    copy = Identity(m)
    sq = SquaredDifference(stop, copy)           # f32 DENY
    var = Mean(sq, last, keep_dims=True)         # f32 DENY
    ve = AddV2(eps, var)                         # f32 INFER tainted by var
    rs = Rsqrt(ve)                               # f32 DENY
    same = Identity(rs)
    d = Sub(copy, stop)                          # low INFER
    n = Mul(d, same)                             # low INFER
    s = Mul(n, scale)                            # low INFER
    y = AddV2(s, offset)                         # low INFER
    """,
}  # fmt: skip
ROWS = np.array(
    [[300, -300, 300, -300], [3, 3, 3, 3], [300, 300, 300, 300], [1, 2, 3, 5], [-0.1, 0, 0.2, 0]],
    np.float32,
)
SCALE, OFFSET = np.array([1, 2, -1, 0.5]), np.array([0, 1, -2, 0.25])


def layer_norm(rows: NDArray[np.float32], dtype: str) -> NDArray[np.float64]:
    """The definition, in float64, of what the low precision holds of the rows."""
    x = dtypes.round_to(rows, dtypes.LOW_PRECISIONS[dtype]).astype(np.float64)
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * SCALE + OFFSET


def answer(text: str, dtype: str) -> NDArray[np.float32]:
    feeds = {"x": ROWS}
    report = checks.checked_rewrite(graph_text.parse(text, dtype), dtype, feeds)
    return checks.run_graph(checks.imported(report.graph_def), ["fetch:0"], feeds)["fetch:0"]


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("dtype", checks.BOTH)
def test_a_layer_norm_has_float32_moments_and_ends_low(name: str, dtype: str) -> None:
    text = START + SPELLINGS[name] + END
    check_precision(text, dtypes=(dtype,), feeds={"x": ROWS})

    bound = {"half": 2e-3, "bfloat16": 2e-2}[dtype] * 4  # its results are within +-4
    expected = layer_norm(ROWS, dtype)
    if name != "the variance as a difference of means":  # 300 in float32: the original is as wrong
        np.testing.assert_allclose(answer(text, dtype), expected, rtol=0, atol=bound)
    rows = slice(3, 5)
    np.testing.assert_allclose(answer(text, dtype)[rows], expected[rows], rtol=0, atol=bound)


def test_a_tiny_epsilon_keeps_a_norm_float32_to_its_end_in_half() -> None:
    # 1 / sqrt(1e-12) is 1e6: half has no such number. What reads the norm is low all the same.
    text = START.replace("1e-5", "1e-12") + MOMENTS
    text += """
    d = Sub(m, mean)                             # D
    n = Mul(d, rs)                               # N
    s = Mul(n, scale)                            # S
    y = AddV2(s, m)                              # low INFER
    """
    whole = text.replace("# D", "# f32 KEEP").replace("# N", "# f32 KEEP")
    whole = whole.replace("# S", "# f32 NOTHING_LOW").replace(
        "INFER tainted by var", "RANGE by eps"
    )
    low = text.replace("# D", "# low INFER").replace("# N", "# low INFER")
    low = low.replace("# S", "# low INFER")

    check_precision(whole + END, dtypes=HALF, feeds={"x": ROWS})
    check_precision(low + END, dtypes=BFLOAT16, feeds={"x": ROWS})


def test_an_rms_norm_ends_low() -> None:
    check_precision(
        START
        + """
        sq = Square(m)                           # f32 DENY
        ms = Mean(sq, last, keep_dims=True)      # f32 DENY
        me = AddV2(ms, eps)                      # f32 INFER tainted by ms
        rs = Rsqrt(me)                           # f32 DENY
        n = Mul(m, rs)                           # low INFER
        y = Mul(n, scale)                        # low INFER
        """
        + END,
        feeds={"x": ROWS},
    )


def test_an_rms_norm_with_its_scale_on_the_root_is_spelled_directly() -> None:
    check_precision(
        START
        + """
        sq = Mul(m, m)                           # f32 DENY
        ms = Mean(sq, last, keep_dims=True)      # f32 DENY
        me = AddV2(ms, eps)                      # f32 INFER tainted by ms
        rs = Rsqrt(me)                           # f32 DENY
        f = Mul(rs, scale)
        y = Mul(m, f)                            # low INFER
        """
        + END,
        feeds={"x": ROWS},
    )


def test_a_euclidean_norm_of_many_values_has_no_place_in_half() -> None:
    # The root of a sum grows with the number of values: 1 over it would be subnormal.
    text = (
        START
        + """
        least = Const(1e-12)
        sq = Square(m)                           # f32 DENY
        sum = Sum(sq, last, keep_dims=True)      # f32 DENY
        most = Maximum(sum, least)               # f32 TAINTED by sum
        rs = Rsqrt(most)                         # f32 DENY
        y = Mul(m, rs)                           # Y
        z = AddV2(y, m)                          # low INFER
        """
        + END.replace("MatMul(y", "MatMul(z")
    )
    feeds = {"x": ROWS}
    half = text.replace("# Y", "# f32 KEEP").replace("f32 TAINTED by sum", "f32 RANGE by least")

    check_precision(half, dtypes=HALF, feeds=feeds)
    check_precision(text.replace("# Y", "# low INFER"), dtypes=BFLOAT16, feeds=feeds)


@pytest.mark.parametrize("axes", ["[1, 2]", "[1, 2, 3]", "[2, 4]"])
def test_instance_and_group_norms_are_norms_over_other_axes(axes: str) -> None:
    groups = axes == "[2, 4]"
    shape = "[2, 4, 4, 2, 2]" if groups else "[2, 4, 4, 4]"
    check_precision(
        f"""
        x: f32[2,4,4,4] = Placeholder
        w: f32[1,1,4,4] = Const(seed=1)
        axes = Const({"[1, 2, 4]" if groups else axes})
        shape = Const({shape})
        back = Const([2, 4, 4, 4])
        eps = Const(1e-3)
        scale: f32[4] = Const(seed=2)
        offset: f32[4] = Const(seed=3)
        conv = Conv2D(x, w, strides=[1,1,1,1], padding='SAME')   # low ALLOW
        m = Reshape(conv, shape)                 # low CLEAR
        mean = Mean(m, axes, keep_dims=True)     # f32 DENY
        sq = SquaredDifference(m, mean)          # f32 DENY
        var = Mean(sq, axes, keep_dims=True)     # f32 DENY
        ve = AddV2(var, eps)                     # f32 INFER tainted by var
        rs = Rsqrt(ve)                           # f32 DENY
        d = Sub(m, mean)                         # low INFER
        n = Mul(d, rs)                           # low INFER
        r = Reshape(n, back)                     # low CLEAR
        s = Mul(r, scale)                        # low INFER
        y = AddV2(s, offset)                     # low INFER
        out = Conv2D(y, w, strides=[1,1,1,1], padding='SAME')    # low ALLOW
        fetch = Identity(out)                    # f32 PINNED
        """
    )


SPREAD = START + SPELLINGS["spread, as Keras 3 has it"] + END


def test_a_norm_of_a_float32_value_stays_as_it_is() -> None:
    text = SPREAD.replace("m = MatMul(x, eye)", "m = Exp(x)")
    text = text.replace("# low INFER", "# f32 KEEP").replace("# low ALLOW\n", "\n")
    check_precision(text, casts=2, feeds={"x": ROWS[3:]})
    check_unchanged(text.replace("MatMul(y, eye)", "Neg(y)"), feeds={"x": ROWS[3:]})


def test_a_step_of_a_norm_that_is_fetched_stays() -> None:
    text = SPREAD.replace("# low INFER", "# f32 KEEP").replace(
        "p = Mul(m, f)", "p = Mul(m, f)  # f32 PINNED"
    )
    check_precision(text, feeds={"x": ROWS[3:]}, outputs=("fetch", "p"))


@pytest.mark.parametrize(
    "change",
    [
        ("mean = Mean(m, last", "other = Mul(m, m)\nmean = Mean(other, last"),
        ("SquaredDifference(m, mean)", "SquaredDifference(offset, mean)"),
        ("neg = Neg(mean)", "neg = Abs(mean)"),
        ("y = AddV2(p, o)", "extra = Add(p, m)\ny = AddV2(extra, o)"),
        ("y = AddV2(p, o)", "extra = Add(p, rs)\nt = AddV2(p, o)\ny = AddV2(extra, t)"),
    ],
)
def test_what_only_looks_like_a_norm_is_tainted_by_its_root(change: tuple[str, str]) -> None:
    text = SPREAD.replace(*change).replace("# low INFER", "# f32 TAINTED")
    check_precision(text, feeds={"x": ROWS[3:]})


@pytest.mark.parametrize(
    "line", ["seen = Identity(f)", "seen = Identity(p)\nagain = Identity(seen)"]
)
def test_an_inner_step_that_is_handed_on_elsewhere_stays(line: str) -> None:
    text = SPREAD.replace("# low INFER", "# f32 KEEP").replace("y = AddV2", line + "\ny = AddV2")
    check_precision(text, feeds={"x": ROWS[3:]}, outputs=("fetch", "seen"))


def test_an_inner_step_that_only_the_norm_reads_through_an_identity_goes() -> None:
    text = SPREAD.replace("p = Mul(m, f)", "same = Identity(f)\np = Mul(m, same)")
    check_precision(text, feeds={"x": ROWS})


def test_an_inner_step_that_others_wait_for_stays() -> None:
    text = SPREAD.replace("# low INFER", "# f32 KEEP")
    text = text.replace("fetch =", "other = Identity(zero, ^q)\nfetch =")
    check_precision(text, feeds={"x": ROWS[3:]})


def test_an_inner_step_beside_which_others_are_placed_stays() -> None:
    graph = graph_text.parse(SPREAD, "half")
    end = next(node for node in graph.node if node.name == "m2")
    end.attr["_class"].list.s.append(b"loc:@q")
    report = checks.checked_rewrite(graph, "half", {"x": ROWS[3:]})

    assert report.graph_def is not None
    assert "q" in {node.name for node in report.graph_def.node}


def test_what_an_inner_step_waited_for_is_waited_for() -> None:
    text = SPREAD.replace("q = Mul(neg, f)", "seen = Identity(zero)\nq = Mul(neg, f, ^seen)")
    for dtype in checks.BOTH:
        graph = checks.checked_rewrite(graph_text.parse(text, dtype), dtype, {"x": ROWS}).graph_def
        assert "^seen" in {node.name: node for node in graph.node}["y"].input


def test_an_inner_step_that_the_user_keeps_stays() -> None:
    text = SPREAD.replace("# low INFER", "# f32").replace(
        "p = Mul(m, f)", "p = Mul(m, f)  # f32 USER"
    )
    check_precision(text, feeds={"x": ROWS[3:]}, keep_float32=("^p$",))
