"""Cases C35, C36, C38 and C39 from the field: the user's wishes, names, ranges of constants."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tf_amp_rewriter
from tests import checks, graph_text
from tests.checks import check_precision, check_rewrite

NETWORK = """
    x: f32[8,8] = Placeholder
    w: f32[8,8] = Const(seed=1)
    b: f32[8] = Const(seed=2)
    half = Cast(x, DstT=low)
    back = Cast(half, DstT=f32)      # f32
    m = MatMul(back, w)              # f32 USER
    bias = BiasAdd(m, b)             # f32 USER
    relu = Relu(bias)                # f32 USER
    fetch = Identity(relu)           # f32
"""


@pytest.mark.parametrize("dtype", checks.BOTH)
def test_c35_with_every_op_denied_the_graph_comes_out_equal(dtype: str) -> None:
    graph = graph_text.parse(NETWORK, dtype)
    report = checks.checked_rewrite(graph, dtype, options={"deny_ops": ("*",)})

    assert graph == report.graph_def
    assert report.lowered_nothing
    assert report.casts == 0


def test_c35_the_report_says_that_the_user_denied_every_op() -> None:
    check_precision(NETWORK, deny_ops=("*",), casts=0)


def test_c36_denied_ops_and_patterns_keep_float32() -> None:
    check_precision(
        """
        x: f32[8,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        b: f32[8] = Const(seed=2)
        m = MatMul(x, w)                     # low ALLOW
        bias = BiasAdd(m, b)                 # low INFER
        block/residual/sub = Sub(bias, x)    # f32 USER
        add = AddV2(bias, x)                 # f32 USER
        mul = Mul(add, bias)                 # f32 USER
        m2 = MatMul(block/residual/sub, w)   # low ALLOW
        out1 = Identity(mul)                 # f32 PINNED
        out2 = Identity(m2)                  # f32 PINNED
        """,
        deny_ops=("AddV2", "Mul"),
        keep_float32=(".*residual.*",),
        casts=4,  # x, bias up, sub, m2 up
    )


def test_c36_a_pattern_that_matches_nothing_is_reported() -> None:
    graph = graph_text.parse(NETWORK)
    options = tf_amp_rewriter.Options(
        outputs=("fetch",), keep_float32=("attention",), deny_ops=("Conv2D",)
    )

    warnings = tf_amp_rewriter.rewrite_graph_def(graph, options).warnings

    assert any("attention" in warning for warning in warnings), warnings
    assert any("Conv2D" in warning for warning in warnings), warnings


def test_c38_names_that_exist_already_are_not_taken() -> None:
    check_rewrite(
        """
        x: f32[8,8] = Placeholder
        c: f32[8,8] = Const(0.5)
        x/Cast_low: f32[8,8] = Placeholder
        x/Cast_low_1: f32[8,8] = Placeholder
        c/low: f32[8,8] = Placeholder
        m/Cast_float32: f32[8,8] = Placeholder
        m = MatMul(x, c)
        out1 = Identity(m)
        out2 = Identity(c)
        """,
        """
        x: f32[8,8] = Placeholder
        c: f32[8,8] = Const(0.5)
        x/Cast_low: f32[8,8] = Placeholder
        x/Cast_low_1: f32[8,8] = Placeholder
        c/low: f32[8,8] = Placeholder
        m/Cast_float32: f32[8,8] = Placeholder
        x/Cast_low_2: low = Cast(x, DstT=low)
        c/low_1: low[8,8] = Const(0.5)
        m: low = MatMul(x/Cast_low_2, c/low_1)
        m/Cast_float32_1: f32 = Cast(m, DstT=f32)
        out1 = Identity(m/Cast_float32_1)
        out2 = Identity(c)
        """,
        outputs=("out1", "out2"),
    )


def test_c38_casts_of_two_ports_have_two_names() -> None:
    check_rewrite(
        """
        x: f32[8,8] = Placeholder
        w: f32[4,4] = Const(0.5)
        axis = Const(1)
        e = Exp(x)
        s: f32, f32 = Split(axis, e, num_split=2)
        l = Exp(s)
        r = Exp(s:1)
        m1 = MatMul(s, w)
        m2 = MatMul(s:1, w)
        out = IdentityN([m1, m2, l, r])
        """,
        """
        x: f32[8,8] = Placeholder
        w: low[4,4] = Const(0.5)
        axis = Const(1)
        e = Exp(x)
        s: f32, f32 = Split(axis, e, num_split=2)
        s/Cast_low = Cast(s, DstT=low)
        s/Cast_1_low = Cast(s:1, DstT=low)
        l = Exp(s)
        r = Exp(s:1)
        m1: low = MatMul(s/Cast_low, w)
        m2: low = MatMul(s/Cast_1_low, w)
        m1/Cast_float32 = Cast(m1, DstT=f32)
        m2/Cast_float32 = Cast(m2, DstT=f32)
        out = IdentityN([m1/Cast_float32, m2/Cast_float32, l, r])
        """,
    )


# C39: the values of the case, in float32; those of the second list fit half.
ALL = "[[1e-9, 2.9e-8, 3e-8, 0, 20000], [65519, 65520, -1e9, inf, nan]]"
FITTING = "[[1e-9, 2.9e-8, 3e-8, 0], [20000, 65519, inf, nan]]"


def weights(values: str, columns: int) -> str:
    return f"""
    x: f32[3,2] = Placeholder
    w: f32[2,{columns}] = Const({values})
    m = MatMul(x, w)         # PRODUCT
    fetch = Identity(m)      # f32 PINNED
    """


def test_c39_weights_beyond_half_stay_in_float32() -> None:
    text = weights(ALL, 5).replace("PRODUCT", "f32 RANGE")
    check_precision(text, dtypes=("half",), casts=0, ranges={"x": (0.1, 0.9)})


def test_c39_weights_within_range_are_rounded_to_nearest_even() -> None:
    text = weights(FITTING, 4).replace("PRODUCT", "low ALLOW")
    check_precision(text, dtypes=("half",), casts=2, ranges={"x": (0.1, 0.9)})
    check_precision(
        weights(ALL, 5).replace("PRODUCT", "low ALLOW"),
        dtypes=("bfloat16",),
        casts=2,
        ranges={"x": (0.1, 0.9)},
    )


def stored(values: str, columns: int, dtype: str) -> np.ndarray:
    report = checks.checked_rewrite(
        graph_text.parse(weights(values, columns)), dtype, ranges={"x": (0.1, 0.9)}
    )
    (node,) = (node for node in report.graph_def.node if node.name == "w")
    return tf.make_ndarray(node.attr["value"].tensor)


def test_c39_no_clamp_and_no_lift() -> None:
    expected = np.float16([[0, 0, 5.9604645e-08, 0], [20000, 65504, np.inf, np.nan]])

    np.testing.assert_array_equal(expected, stored(FITTING, 4, "half"))


def test_c39_bfloat16_rounds_to_nearest_even_too() -> None:
    # 1 + 2**-8 lies between 1 and 1 + 2**-7: the even neighbour is 1. 1 + 3 * 2**-8 lies between
    # 1 + 2**-7 and 1 + 2**-6: the even one is 1 + 2**-6; truncation would give 1 + 2**-7.
    values = f"[[{1 + 2**-8}, {1 + 3 * 2**-8}], [{1 + 2**-8 + 2**-20}, -1e9]]"

    actual = stored(values, 2, "bfloat16").astype(np.float64)

    np.testing.assert_array_equal([1, 1 + 2**-6], actual[0])
    assert actual[1, 0] == 1 + 2**-7
