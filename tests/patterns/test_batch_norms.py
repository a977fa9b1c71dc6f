"""Batch norms as elementwise math."""

from __future__ import annotations

import pytest

from tests import checks, graph_text
from tests.checks import check_precision

BATCH_NORM = """
    x: f32[2,4,4,3] = Placeholder
    w: f32[3,3,3,4] = Const(seed=1)
    gamma: f32[4] = Const(seed=3)
    beta: f32[4] = Const(seed=4)
    mean: f32[4] = Const(seed=5)
    var = Const([0.5, 1.0, 2.0, 146335.0])   # f32
    eps = Const(1e-3)
    ve = AddV2(var, eps)                     # f32 KEEP
    rs = Rsqrt(ve)                           # f32 DENY
    f = Mul(rs, gamma)                       # f32 KEEP
    mf = Mul(mean, f)                        # f32 KEEP
    o = Sub(beta, mf)                        # f32 KEEP
    conv = Conv2D(x, w, strides=[1,1,1,1], padding='SAME')   # low ALLOW
    p = Mul(conv, f)                         # low INFER
    y = AddV2(p, o)                          # low INFER
    relu = Relu(y)                           # low CLEAR
    fetch = Identity(relu)                   # f32 PINNED
"""


def test_factor_and_offset_are_computed_in_float32_and_rounded_once() -> None:
    check_precision(BATCH_NORM, casts=4)  # of x, f, o and the output


@pytest.mark.parametrize("dtype", checks.BOTH)
def test_the_report_says_what_they_are_for(dtype: str) -> None:
    report = checks.checked_rewrite(graph_text.parse(BATCH_NORM, dtype), dtype)
    reasons = {t.node: t.reason for t in report.type_variables}
    assert "batch norm" in reasons["o"]
    assert "batch norm" in reasons["rs"]


def test_a_root_of_weights_that_scales_no_data_is_no_batch_norm() -> None:
    check_precision(
        BATCH_NORM.replace("p = Mul(conv, f)", "p = AddV2(conv, f)")
        .replace("mf = Mul(mean, f)                        # f32 KEEP", "mf = Mul(mean, gamma)")
        .replace("# f32 KEEP", "")
    )


def test_a_tiny_epsilon_keeps_the_product_float32_in_half() -> None:
    # One over its root is beyond half: in a channel that is 0 it would be multiplied by 0.
    text = BATCH_NORM.replace("Const(1e-3)", "Const(1e-12)").replace("# low INFER", "# f32")
    text = text.replace("relu = Relu(y)                           # low CLEAR", "relu = Relu(y)")
    check_precision(text, dtypes=("half",))
