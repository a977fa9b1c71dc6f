"""Functions written out with exponentials: float32 up to their end, and what follows may be low."""

from __future__ import annotations

import numpy as np
import pytest

from tests import checks, graph_text
from tests.checks import check_precision

EYE = "[[1,0,0,0],[0,1,0,0],[0,0,1,0],[0,0,0,1]]"
START = f"""
    x: f32[?,4] = Placeholder
    eye: f32[4,4] = Const({EYE})
    last = Const([1])
    one = Const(1.0)
    m = MatMul(x, eye)                       # low ALLOW
"""
SOFTMAX = (
    START
    + """
    e = Exp(INPUT)                           # f32 DENY
    s = Sum(e, last, keep_dims=True)         # f32 DENY
    """
)
SHIFTED = """
    top = Max(m, last, keep_dims=True)       # low CLEAR
    d = Sub(m, top)                          # low INFER
"""
FEEDS = {"x": np.float32([[11.5, 12, -3, 20], [-70, -60, -65, -66], [0, 0, 0, 0]])}
ENDS = {
    "a division": """
    p = RealDiv(e, s)                        # f32 DENY
    """,
    "a reciprocal": """
    r = Reciprocal(s)
    p = Mul(e, r)                            # f32 DENY
    """,
    "a guarded division": """
    eps = Const(1e-9)
    g = AddV2(s, eps)
    p = RealDiv(e, g)                        # f32 DENY
    """,
}
BEHIND = """
    twice = AddV2(p, p)
    y = Mul(m, p)                            # low INFER
    z = MatMul(y, eye)                       # low ALLOW
    fetch = Identity(z)                      # f32 PINNED
    fetch2 = Identity(twice)
"""


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("is_shifted", [False, True])
def test_a_softmax_that_is_written_out_taints_nothing(end: str, is_shifted: bool) -> None:
    text = (SHIFTED if is_shifted else "") + ENDS[end] + BEHIND
    text = SOFTMAX.replace("INPUT", "d" if is_shifted else "m") + text
    check_precision(text, feeds=FEEDS)


def test_the_report_says_what_it_is() -> None:
    text = SOFTMAX.replace("INPUT", "m") + ENDS["a division"] + BEHIND
    report = checks.checked_rewrite(graph_text.parse(text), "half", FEEDS)
    (reason,) = (t.reason for t in report.type_variables if t.node == "p")
    assert reason == "a softmax that is written out is computed in float32 to its end"


def test_a_masked_softmax_that_is_written_out_taints_nothing() -> None:
    check_precision(
        START
        + SHIFTED
        + """
        mask: bool[?,4] = Placeholder
        kept = Cast(mask, DstT=f32)
        ex = Exp(d)                          # f32 DENY
        e = Mul(ex, kept)
        s = Sum(e, last, keep_dims=True)     # f32 DENY
        p = RealDiv(e, s)                    # f32 DENY
        """
        + BEHIND,
        feeds={"x": FEEDS["x"], "mask": np.array([[True, False, True, True]] * 3)},
    )


def test_exponentials_over_another_sum_taint_what_follows() -> None:
    check_precision(
        SOFTMAX.replace("INPUT", "m")
        + """
        other = Exp(x)
        p = RealDiv(other, s)                # f32 TAINTED
        y = Mul(m, p)                        # f32 TAINTED
        fetch = Identity(y)                  # f32 PINNED
        """,
    )


LOGARITHMS = {
    "log-sum-exp": ("m", "l = Log(s)", lambda x: np.log(np.exp(x).sum(1, keepdims=True))),
    "log-sum-exp, shifted": (
        "d",
        "ls = Log(s)            # f32 DENY\n    l = AddV2(ls, top)",
        lambda x: np.log(np.exp(x).sum(1, keepdims=True)),
    ),
    "softplus": ("m", "e1 = AddV2(one, e)\n    l = Log(e1)", lambda x: np.logaddexp(0, x)),
    "softplus, log1p": ("m", "l = Log1p(e)", lambda x: np.logaddexp(0, x)),
}


@pytest.mark.parametrize("name", LOGARITHMS)
@pytest.mark.parametrize("dtype", checks.BOTH)
def test_logarithms_of_exponentials_taint_nothing(name: str, dtype: str) -> None:
    source, body, function = LOGARITHMS[name]
    text = SOFTMAX.replace("INPUT", source) + (SHIFTED if source == "d" else "")
    if "softplus" in name:
        text = text.replace("    s = Sum(e, last, keep_dims=True)         # f32 DENY\n", "")
    text += f"""
    {body}
    y = Mul(m, l)                            # low INFER
    fetch = Identity(y)                      # f32 PINNED
    """
    check_precision(text, dtypes=(dtype,), not_run="compared with float64 below")
    graph = graph_text.parse(text, dtype)
    report = checks.checked_rewrite(graph, dtype, not_run="compared with float64 here")
    assert report.graph_def is not None
    x = np.float32([[11.5, 12, -3, 20], [-7, -6, -6.5, -8], [80, 70, 60, 50], [0, 0, 0, 0]])

    graph_after = checks.imported(report.graph_def)
    actual = checks.run_graph(graph_after, ["fetch:0"], {"x": x})["fetch:0"]

    expected = x * function(x.astype(np.float64))
    unit = {"half": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    np.testing.assert_allclose(actual, expected, rtol=8 * unit, atol=16 * unit)


@pytest.mark.parametrize(
    ("guard", "kind"), [("1e-8", "f32 RANGE"), ("1e-6", "f32 RANGE"), ("1e-4", "low INFER")]
)
@pytest.mark.parametrize("call", ["Log(a)", "RealDiv(x1, a)", "Reciprocal(a)"])
def test_a_guard_that_half_would_change_stays_with_what_it_guards(
    guard: str, kind: str, call: str
) -> None:
    # 1e-6 moves by 1.3 %, 1e-8 to 0; what is above the smallest normal half is itself.
    then = "low INFER" if kind.startswith("low") else "f32 TAINTED"
    check_precision(
        START
        + f"""
        eps = Const({guard})
        r = Relu(m)
        x1 = Neg(r)
        a = AddV2(r, eps)                    # {kind}
        l = {call}                           # {then}
        y = MatMul(l, eye)                   # low ALLOW
        fetch = Identity(y)                  # f32 PINNED
        """,
        dtypes=("half",),
        not_run="the slope at 0 has no useful bound",
    )
