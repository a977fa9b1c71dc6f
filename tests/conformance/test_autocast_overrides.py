"""AutoCast's cases on what users overrule (AC-*), in our words."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf

import tf_amp_rewriter
from tests import checks, graph_text
from tests.checks import BOTH, check_precision
from tf_amp_rewriter.ops.conditions import NodeFacts

NETWORK = """
    x: f32[4,8] = Placeholder
    w: f32[8,8] = Const(seed=1, scale=0.2)
    m = MatMul(x, w)           # low ALLOW
    e = Exp(m)                 # EXP
    m2 = MatMul(e, w)          # low ALLOW
    fetch = Identity(m2)       # f32 PINNED
"""


@pytest.fixture
def rule_on_constants() -> Iterator[None]:
    """Keeps float32 every Mul that multiplies by a vector of 8."""

    @tf_amp_rewriter.register_rule("Mul")
    def decide(facts: NodeFacts) -> tf_amp_rewriter.OpRule:
        is_kept = facts.input_shapes[1] == (8,)
        return tf_amp_rewriter.OpRule("keep" if is_kept else "infer", reason="the test's rule")

    yield
    tf_amp_rewriter.unregister_rule("Mul")


@pytest.mark.usefixtures("rule_on_constants")
def test_ac_19_a_rule_of_the_users_own_looks_at_the_node() -> None:
    check_precision(
        """
        x: f32[4,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        c: f32[8] = Const(seed=2)
        s = Const(0.5)
        m = MatMul(x, w)             # low ALLOW
        scaled = Mul(m, s)           # low INFER
        m2 = MatMul(scaled, w)       # low ALLOW
        wide = Mul(m2, c)            # f32 USER
        m3 = MatMul(wide, w)         # low ALLOW
        fetch = Identity(m3)         # f32 PINNED
        """,
        casts=4,
    )


def test_ac_21_a_node_that_is_forced_is_low_whatever_its_op_is() -> None:
    check_precision(NETWORK.replace("EXP", "low"), force_low=("^e$",), casts=2)


def test_ac_21_forcing_a_node_beats_excluding_its_op_type() -> None:
    text = NETWORK.replace("EXP", "low")
    check_precision(text, force_low=("^e$",), deny_ops=("Exp",), casts=2)


def test_ac_21_an_op_type_that_is_allowed_is_low_wherever_it_is() -> None:
    check_precision(NETWORK.replace("EXP", "low"), allow_ops=("Exp",), casts=2)


def test_ac_21_a_constant_that_does_not_fit_is_not_forced() -> None:
    # Ours on purpose: there, forcing beats the limit on constants. Forced into half, 70000 would be
    # infinite; the report says what stayed, and `saturate` clamps it.
    text = """
    x: f32[4,2] = Placeholder
    w: f32[2,2] = Const(seed=1)
    c: f32[2] = Const([70000, 1])
    m = MatMul(x, w)           # low ALLOW
    add = AddV2(m, c)          # f32
    fetch = Identity(add)      # f32 PINNED
    """
    check_precision(text, dtypes=("half",), force_low=("^add$",))
    options = tf_amp_rewriter.Options(force_low=("^add$",), outputs=("fetch",))
    warnings = tf_amp_rewriter.rewrite_graph_def(graph_text.parse(text), options).warnings

    assert any("`force_low`" in warning and "`add`" in warning for warning in warnings), warnings


def constants(text: str, dtype: str, **options: object) -> dict[str, np.ndarray]:
    report = checks.checked_rewrite(
        graph_text.parse(text, dtype), dtype, options=options, not_run="clamped on purpose"
    )
    assert report.graph_def is not None
    return {
        node.name: tf.make_ndarray(node.attr["value"].tensor)
        for node in report.graph_def.node
        if node.op == "Const"
    }


# Most values fit: of a vector that lies beyond half as a whole, clamping would leave nothing.
BIG = """
    x: f32[4,4] = Placeholder
    w: f32[4,4] = Const(seed=1)
    c: f32[4] = Const([70000, -70000, 1, 2])
    m = MatMul(x, w)
    add = AddV2(m, c)
    high = Mul(m, c)
    out1 = Identity(add)
    out2 = Identity(high)
"""
CLAMPED = np.float16([65504, -65504, 1, 2])
EXACT = np.float32([70000, -70000, 1, 2])


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        ((), {"c": CLAMPED}),
        (("^add$", "^high$"), {"c": EXACT}),
        (("^high$",), {"c": EXACT, "c/half": CLAMPED}),
    ],
    ids=["low readers", "float32 readers", "both"],
)
def test_ac_42_a_constant_beyond_half_is_clamped_where_that_is_asked_for(
    kept: tuple[str, ...], expected: dict[str, np.ndarray]
) -> None:
    found = constants(BIG, "half", saturate=True, keep_float32=kept)
    del found["w"]

    assert set(found) == set(expected)
    for name, values in expected.items():
        assert found[name].dtype == values.dtype
        np.testing.assert_array_equal(values, found[name])


def test_ac_43_nothing_is_clamped_that_fits() -> None:
    text = BIG.replace("70000, -70000", "131072, -262144")
    stored = constants(text, "bfloat16", saturate=True)["c"]

    assert stored.dtype == tf.bfloat16.as_numpy_dtype
    np.testing.assert_array_equal([131072, -262144, 1, 2], stored.astype(np.float64))


@pytest.mark.parametrize("dtype", BOTH)
def test_xt_04_the_float32_minimum_is_clamped_where_that_is_asked_for(dtype: str) -> None:
    text = """
    x: f32[1,2] = Placeholder
    w: f32[2,2] = Const([[1, 0], [0, 1]])
    c = Const(-3.4028235e38)
    m = MatMul(x, w)
    top = Maximum(m, c)
    fetch = Identity(top)
    """
    stored = constants(text, dtype, saturate=True)["c"].astype(np.float64)

    np.testing.assert_array_equal(-tf_amp_rewriter.Options(dtype=dtype).low.max, stored)
