"""The helpers can fail: each gets a rewriter that does what the check is there to find."""

from __future__ import annotations

import dataclasses

import pytest
from tensorflow.core.framework import graph_pb2

import tf_amp_rewriter
from tests import checks, graph_text
from tf_amp_rewriter.report.model import Report

TEXT = """
x: f32[4,4] = Placeholder
w: f32[4,4] = Const(0.3)
m = MatMul(x, w)         # low ALLOW
e = Exp(m)               # f32 DENY
a = AddV2(e, e)          # f32 INFER tainted by e
fetch = Identity(a)      # f32 PINNED
"""
GOOD = """
x: f32[4,4] = Placeholder
w: f16[4,4] = Const(0.3)
x/Cast_half = Cast(x, DstT=f16)
m = MatMul(x/Cast_half, w)
m/Cast_float32 = Cast(m, DstT=f32)
e = Exp(m/Cast_float32)
a = AddV2(e, e)
fetch = Identity(a)
"""


def use(monkeypatch: pytest.MonkeyPatch, text: str, again: str = "") -> None:
    """Replaces the rewriter by one that gives `text`, and `again` for the graph of `text`."""
    real = tf_amp_rewriter.rewrite_graph_def
    result = graph_text.parse(text)

    def rewrite(graph: graph_pb2.GraphDef, options: tf_amp_rewriter.Options) -> Report:
        report = real(graph, options)
        if graph == result:
            return dataclasses.replace(report, graph_def=graph_text.parse(again or text))
        return dataclasses.replace(report, graph_def=result)

    monkeypatch.setattr(tf_amp_rewriter, "rewrite_graph_def", rewrite, raising=False)


def test_a_right_result_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, GOOD)

    checks.check_precision(TEXT, dtypes=("half",), casts=2)
    checks.check_rewrite(TEXT, GOOD, dtypes=("half",))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("low ALLOW", "f32 ALLOW"),
        ("low ALLOW", "low INFER"),
        ("f32 DENY", "low DENY"),
        ("tainted by e", "tainted by m"),
        ("f32 INFER tainted by e", "f32 NOTHING_LOW"),
    ],
)
def test_a_wrong_claim_fails(right: str, wrong: str) -> None:
    with pytest.raises(AssertionError, match="half:"):
        checks.check_precision(TEXT.replace(right, wrong), dtypes=("half",))


def test_a_comment_that_claims_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="`no claim at all` is not"):
        checks.claims(TEXT.replace("low ALLOW", "no claim at all"))


def test_a_wrong_number_of_casts_fails() -> None:
    with pytest.raises(AssertionError):
        checks.check_precision(TEXT, casts=1)


def test_another_graph_fails() -> None:
    with pytest.raises(AssertionError, match="expected"):
        checks.check_rewrite(TEXT, GOOD.replace("0.3", "0.4"), dtypes=("half",))


WRONG = {
    "a weight that is not the rounded one": GOOD.replace("0.3", "0.31"),
    "a graph whose answer is NaN": GOOD.replace("w: f16[4,4] = Const(0.3)",
                                                "w: f16[4,4] = Const(nan)"),
    "an output that is low": GOOD.replace("fetch = Identity(a)",
                                          "down = Cast(a, DstT=f16)\nfetch = Identity(down)"),
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_wrong_answers_fail(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, text)

    with pytest.raises(AssertionError, match="fetch:0"):
        checks.check_precision(TEXT, dtypes=("half",))


def test_a_second_run_that_changes_something_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, GOOD, again=GOOD.replace("m/Cast_float32", "m/Cast_float32_1"))

    with pytest.raises(AssertionError, match="a second run changed"):
        checks.check_precision(TEXT, dtypes=("half",))


def test_an_input_that_is_changed_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    real = tf_amp_rewriter.rewrite_graph_def

    def rewrite(graph: graph_pb2.GraphDef, options: tf_amp_rewriter.Options) -> Report:
        report = real(graph, options)
        graph.node[0].device = "/device:CPU:0"
        return report

    monkeypatch.setattr(tf_amp_rewriter, "rewrite_graph_def", rewrite, raising=False)

    with pytest.raises(AssertionError, match="the input was changed"):
        checks.check_precision(TEXT, dtypes=("half",))
