"""The bias of a contraction folded into the batch norm behind it."""

from __future__ import annotations

import pytest

from tests import checks, graph_text
from tests.case_answers import check_answer
from tests.checks import check_precision, check_rewrite, check_unchanged

CONV = """
    x: f32[2,4,4,3] = Placeholder
    w: f32[3,3,3,4] = Const(seed=1)
    b: f32[4] = Const(seed=2)
    gamma: f32[4] = Const(seed=3)
    beta: f32[4] = Const(seed=4)
    mean: f32[4] = Const(seed=5)
    var = Const([0.5, 1.0, 2.0, 146335.0])
    eps = Const(1e-3)
    ve = AddV2(var, eps)
    rs = Rsqrt(ve)
    f = Mul(rs, gamma)
    mf = Mul(mean, f)
    o = Sub(beta, mf)
    conv = Conv2D(x, w, strides=[1,1,1,1], padding='SAME')   # low ALLOW
"""
FOLDED = {
    "BiasAdd": """
    a = BiasAdd(conv, b)
    p = Mul(a, f)                # low INFER
    y = AddV2(p, o)              # low INFER
    """,
    "AddV2": """
    a = AddV2(b, conv)
    p = Mul(f, a)                # low INFER
    y = AddV2(o, p)              # low INFER
    """,
    "Sub": """
    a = BiasAdd(conv, b)
    p = Mul(a, f)                # low INFER
    y = Sub(p, mf)               # low INFER
    """,
}
END = """
    relu = Relu(y)               # low CLEAR
    fetch = Identity(relu)       # f32 PINNED
"""


def test_the_offset_is_computed_in_float32_and_rounded_once() -> None:
    check_rewrite(
        """
        x: f32[2,3] = Placeholder
        w: f32[3,4] = Const(seed=1)
        b: f32[4] = Const(seed=2)
        v = Const([0.5, 1.0, 2.0, 4.0])
        f = Rsqrt(v)
        o: f32[4] = Const(seed=4)
        m = MatMul(x, w)
        a = BiasAdd(m, b)
        p = Mul(a, f)
        y = AddV2(p, o)
        fetch = Identity(y)
        """,
        """
        x: f32[2,3] = Placeholder
        w: low[3,4] = Const(seed=1)
        b: f32[4] = Const(seed=2)
        v: f32[4] = Const([0.5, 1.0, 2.0, 4.0])
        f: f32 = Rsqrt(v)
        o: f32[4] = Const(seed=4)
        m: low = MatMul(x/Cast_low, w)
        p: low = Mul(m, f/Cast_low)
        y: low = AddV2(p, y/offset/Cast_low)
        fetch: f32 = Identity(y/Cast_float32)
        y/bias: f32 = Mul(b, f)
        y/offset: f32 = AddV2(y/bias, o)
        x/Cast_low: low = Cast(x, DstT=low)
        f/Cast_low: low = Cast(f, DstT=low)
        y/offset/Cast_low: low = Cast(y/offset, DstT=low)
        y/Cast_float32: f32 = Cast(y, DstT=f32)
        """,
    )


@pytest.mark.parametrize("form", FOLDED)
def test_a_bias_before_a_batch_norm_vanishes(form: str) -> None:
    text = CONV + FOLDED[form] + END
    check_precision(text)
    for dtype in checks.BOTH:
        graph = checks.checked_rewrite(graph_text.parse(text, dtype), dtype).graph_def
        assert "a" not in {node.name for node in graph.node}


@pytest.mark.parametrize(
    "change",
    [
        ("Mul(a, f)", "Mul(a, conv)"),  # the factor is no weight
        ("Mul(a, f)", "Mul(a, gamma)"),  # it is no batch norm
        ("relu = Relu(y)", "also = Relu(a)\nz = AddV2(y, also)\nrelu = Relu(z)"),  # one more reader
        ("relu = Relu(y)", "also = Relu(p)\nz = AddV2(y, also)\nrelu = Relu(z)"),
        ("fetch =", "waits = Identity(w, ^a)\nfetch ="),
    ],
)
def test_a_bias_that_is_of_use_elsewhere_stays(change: tuple[str, str]) -> None:
    text = (CONV + FOLDED["BiasAdd"] + END).replace(
        "BiasAdd(conv, b)", "BiasAdd(conv, b)  # low INFER"
    )
    check_precision(text.replace(*change))


def test_a_bias_that_is_fetched_stays() -> None:
    text = CONV + FOLDED["BiasAdd"].replace("(conv, b)", "(conv, b)  # f32 PINNED") + END
    text = text.replace("# low INFER", "").replace("# low CLEAR", "")
    check_precision(text, outputs=("fetch", "a"))


def test_a_float32_batch_norm_keeps_its_bias() -> None:
    text = CONV.replace("Conv2D(x, w, strides=[1,1,1,1], padding='SAME')   # low ALLOW", "Exp(x)")
    text = text.replace("[2,4,4,3]", "[2,4,4,4]") + FOLDED["BiasAdd"] + END
    check_unchanged(text.replace("# low INFER", "").replace("# low CLEAR", ""))


def test_a_bias_of_channels_first_stays() -> None:
    text = (
        CONV
        + """
    t = Transpose(conv, perm)
    a = BiasAdd(t, b, data_format='NCHW')   # low INFER
    p = Mul(a, fc)
    y = AddV2(p, oc)
    """
        + END
    )
    text = text.replace(
        "    conv =",
        """
    perm = Const([0, 3, 1, 2])
    chan = Const([4, 1, 1])
    fc = Reshape(f, chan)
    oc = Reshape(o, chan)
    conv =""",
    )
    check_precision(text, not_run="the CPU has no BiasAdd of channels first")


def test_of_batch_norms_in_a_row_each_keeps_its_offset() -> None:
    text = """
    x: f32[1,2] = Placeholder
    eye: f32[2,2] = Const([[1, 0], [0, 1]])
    four = Const(4.0)
    half = Rsqrt(four)
    b = Const([10.0, 20.0])
    o = Const([0.25, 0.5])
    c = Const([1.0, 1.0])
    m = MatMul(x, eye)
    a = AddV2(m, b)
    p = Mul(a, half)
    y = AddV2(p, o)
    q = Mul(y, half)
    z = AddV2(q, c)
    m2 = MatMul(z, eye)
    fetch = Identity(m2)
    """
    # ((1 + 10) / 2 + 0.25) / 2 + 1, ((2 + 20) / 2 + 0.5) / 2 + 1
    check_answer(text, [[3.875, 6.75]], x=[[1.0, 2.0]])


def test_integer_arithmetic_of_the_same_form_is_none_of_it() -> None:
    text = (CONV + FOLDED["BiasAdd"] + END).replace(
        "    relu =",
        """
    i: i32[] = Placeholder
    one = Const(1)
    two = Const(2)
    j = AddV2(i, one)
    k = Mul(j, two)
    l = AddV2(k, one)
    count = Identity(l)
    relu =""",
    )
    check_precision(text)


def test_what_the_bias_waited_for_is_waited_for() -> None:
    text = (CONV + FOLDED["BiasAdd"] + END).replace("BiasAdd(conv, b)", "BiasAdd(conv, b, ^seen)")
    text = text.replace("    conv =", "    seen = Identity(eps)\n    conv =")
    for dtype in checks.BOTH:
        graph = checks.checked_rewrite(graph_text.parse(text, dtype), dtype).graph_def
        assert "^seen" in {node.name: node for node in graph.node}["p"].input


def test_a_bias_beside_which_others_are_placed_stays() -> None:
    graph = graph_text.parse(CONV + FOLDED["BiasAdd"] + END, "half")
    end = next(node for node in graph.node if node.name == "relu")
    end.attr["_class"].list.s.append(b"loc:@a")
    report = checks.checked_rewrite(graph, "half")

    assert report.graph_def is not None
    assert "a" in {node.name for node in report.graph_def.node}
