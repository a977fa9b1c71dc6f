"""`saturate`: what overflows is clamped to the largest finite value, and nothing else changes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import tf_amp_rewriter
from tests import checks, graph_text, loaders
from tests.checks import check_precision
from tf_amp_rewriter import dtypes
from tf_amp_rewriter.ops.rows import Category, OpRow
from tf_amp_rewriter.reasons import Kind
from tf_amp_rewriter.rules import ranges
from tf_amp_rewriter.rules.rule import Role, Rule

ASKED = {"saturate": True}
CLAMPED = "clamped on purpose: no bound holds"
LARGEST = {"half": 65504.0, "bfloat16": 3.3895313892515355e38}


def stored(text: str, dtype: str, name: str) -> np.ndarray:
    report = checks.checked_rewrite(
        graph_text.parse(text, dtype), dtype, options=ASKED, not_run=CLAMPED
    )
    assert report.graph_def is not None
    (node,) = (node for node in report.graph_def.node if node.name == name)
    return tf.make_ndarray(node.attr["value"].tensor)


def weights(values: str, columns: int) -> str:
    return f"""
    x: f32[3,2] = Placeholder
    w: f32[2,{columns}] = Const({values})
    m = MatMul(x, w)         # low ALLOW
    fetch = Identity(m)      # f32 PINNED
    """


def test_finite_values_are_clamped_and_others_stay_what_they_are() -> None:
    text = weights("[[70000, -1e9, inf, -inf, nan], [65519, 65520, 3e-8, 0, -1]]", 5)
    actual = stored(text, "half", "w")

    top = 65504
    expected = [[top, -top, np.inf, -np.inf, np.nan], [top, top, np.float16(3e-8), 0, -1]]
    np.testing.assert_array_equal(actual, np.float16(expected))


def test_bfloat16_clamps_the_float32_minimum() -> None:
    actual = stored(weights("[[-3.4028235e38, 1], [2, 1e38]]", 2), "bfloat16", "w")
    assert float(actual[0, 0]) == -LARGEST["bfloat16"]


@pytest.mark.parametrize("dtype", checks.BOTH)
def test_xt_04_the_float32_minimum_is_stored_as_the_lowest_finite_value(dtype: str) -> None:
    text = """
    x: f32[2,2] = Placeholder
    w: f32[2,2] = Const(seed=1)
    least = Const(-3.4028235e38)
    m = MatMul(x, w)             # low ALLOW
    y = Maximum(m, least)        # low CLEAR
    fetch = Identity(y)          # f32 PINNED
    """
    check_precision(text, dtypes=(dtype,), saturate=True)
    assert float(stored(text, dtype, "least")) == -LARGEST[dtype]


def test_ac_42_each_reader_gets_its_own() -> None:
    # A low reader gets +-65504, one in float32 the original; both: two copies.
    text = """
    x: f32[3,2] = Placeholder
    w: f32[2,2] = Const([[70000, -70000], [1, 2]])
    m = MatMul(x, w)         # low ALLOW
    e = Cosh(w)
    fetch = Identity(m)      # f32 PINNED
    fetch2 = Identity(e)
    """
    np.testing.assert_array_equal(
        stored(text, "half", "w/half"), np.float16([[65504, -65504], [1, 2]])
    )
    np.testing.assert_array_equal(stored(text, "half", "w"), np.float32([[70000, -70000], [1, 2]]))


def test_what_computes_with_the_original_still_stays_float32_to_its_end() -> None:
    check_precision(
        """
        x: f32[3,2] = Placeholder
        w: f32[2,2] = Const(seed=1)
        big = Const(1e9)
        s = Mul(x, big)          # f32 RANGE
        m = MatMul(x, w)         # low ALLOW
        y = AddV2(m, s)          # f32 TAINTED
        fetch = Identity(y)      # f32 PINNED
        """,
        dtypes=("half",),
        saturate=True,
    )


def test_what_moves_a_clamped_weight_moves_it_clamped() -> None:
    text = """
    x: f32[3,2] = Placeholder
    w: f32[4] = Const([70000, -70000, 1, 2])
    shape = Const([2, 2])
    r = Reshape(w, shape)        # low FREE
    m = MatMul(x, r)             # low ALLOW
    fetch = Identity(m)          # f32 PINNED
    """
    check_precision(text, dtypes=("half",), saturate=True, not_run=CLAMPED)
    np.testing.assert_array_equal(stored(text, "half", "w"), np.float16([65504, -65504, 1, 2]))


def test_xt_38_a_weight_that_is_mostly_out_of_range_is_no_weight_any_more() -> None:
    # Three of four values lie beyond: clamped they would all be the same.
    kept = weights("[[70000, 80000], [90000, 1]]", 2).replace("low ALLOW", "f32 RANGE")
    check_precision(kept, dtypes=("half",), saturate=True)
    low = weights("[[70000, 80000], [3, 1]]", 2)
    check_precision(low, dtypes=("half",), saturate=True, not_run=CLAMPED)


def test_xt_05_what_would_vanish_is_not_lifted() -> None:
    # coremltools lifts 1e-10 to the smallest subnormal, 600 times as much: float32 keeps it.
    check_precision(
        """
        x: f32[2,2] = Placeholder
        w: f32[2,2] = Const(seed=1)
        tiny = Const(1e-10)
        m = MatMul(x, w)         # low ALLOW
        y = RealDiv(m, tiny)     # f32 RANGE
        fetch = Identity(y)      # f32 PINNED
        """,
        dtypes=("half",),
        saturate=True,
    )


def test_the_share_that_may_be_lost_can_be_set() -> None:
    values = np.float32([1e-7])  # 1.19e-7 in half
    assert "which half would make" in dtypes.misfit(values, dtypes.HALF)
    assert dtypes.misfit(values, dtypes.HALF, max_loss=0.2) == ""
    small = np.float32([3e-8, 1e-7, 4e-8])
    assert "of its norm" in dtypes.misfit(small, dtypes.HALF)
    assert dtypes.misfit(small, dtypes.HALF, max_loss=0.9) == ""


def test_a_row_about_a_weight_beats_the_flag() -> None:
    rule = Rule(Category.CLEAR, Role.CONSTANT, Kind.FREE, eligible=True)
    too_large = dtypes.Fit("holds 70000, beyond the range of half (65504)", clamps=True)

    def fitted(wish: bool | None, flag: bool) -> Rule:
        row = OpRow("Const", Category.CLEAR, "a rules file", saturate=wish, max_loss=0.2)
        assert ranges.fit_of_constant(np.float32([1e-7]), dtypes.HALF, row) == dtypes.Fit()
        return ranges.fitted(rule, too_large, row, tf_amp_rewriter.Options(saturate=flag))

    assert fitted(True, False).limit == 65504
    assert fitted(True, False).asked
    assert fitted(False, True) == dataclasses.replace(
        rule, eligible=False, kind=Kind.RANGE, detail=too_large.problem
    )
    assert fitted(None, True).eligible
    assert not fitted(None, False).eligible


class _Scaled(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable([[70000.0, 1.0], [2.0, -1e9]], name="w")

    @tf.function(input_signature=[tf.TensorSpec((None, 2), tf.float32)])
    def serve(self, x: tf.Tensor) -> tf.Tensor:
        return tf.matmul(x, self.w)


def test_variables_are_clamped_and_named(tmp_path: Path) -> None:
    module = _Scaled()
    tf.saved_model.save(module, str(tmp_path / "in"), signatures=module.serve)

    options = tf_amp_rewriter.Options(saturate=True)
    report = tf_amp_rewriter.rewrite_saved_model(tmp_path / "in", tmp_path / "out", options)
    inputs = {"x": np.float32([[1e-3, 0], [0, 1e-3]])}
    (answer,) = loaders.run_tf2(tmp_path / "out", "serving_default", inputs).values()

    np.testing.assert_allclose(answer, [[65.504, 1e-3], [2e-3, -65.504]], rtol=2e-3)
    (warning,) = (text for text in report.warnings if "clamped" in text)
    assert warning.startswith("1 weight was clamped")
    assert "w/.ATTRIBUTES/VARIABLE_VALUE` to 65504" in warning
    (weight,) = report.weights
    assert weight.precision == "half"
    assert "holds 1e+09 is clamped to 65504" in weight.reason
