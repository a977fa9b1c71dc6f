"""Cases C29 to C32 from the field on frozen graphs; whole-model tests have the variables.

What is for a GPU runs as `tests/gpu_simulation.py` has it.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests import checks, graph_text
from tests.case_answers import DEVICES
from tests.checks import check_precision, check_rewrite, check_unchanged

EMBEDDING = """
    table: f32[1000,64] = Const(seed=1)
    ids: i32[3] = Placeholder
    w: f32[64,64] = Const(seed=2)
    axis = Const(0)
    rows = GatherV2(table, ids, axis)
    hidden = MatMul(rows, w)
    logits = MatMul(hidden, table, transpose_b=True)
    fetch = Identity(logits)
"""


@pytest.mark.parametrize("device", DEVICES)
def test_c29_a_tied_embedding_is_stored_once_and_never_cast_whole(device: str) -> None:
    check_rewrite(
        EMBEDDING,
        """
        table: low[1000,64] = Const(seed=1)
        ids: i32[3] = Placeholder
        w: low[64,64] = Const(seed=2)
        axis = Const(0)
        rows: low = GatherV2(table, ids, axis)
        hidden: low = MatMul(rows, w)
        logits: low = MatMul(hidden, table, transpose_b=True)
        logits/Cast_float32 = Cast(logits, DstT=f32)
        fetch = Identity(logits/Cast_float32)
        """,
        device=device,
    )


@pytest.mark.parametrize("dtype", checks.BOTH)
def test_c29_gathered_rows_are_the_rounded_float32_rows(dtype: str) -> None:
    graph = graph_text.parse(EMBEDDING)
    report = checks.checked_rewrite(graph, dtype)
    feeds = {"ids": np.array([0, 7, 999], np.int32)}

    expected = checks.run_graph(checks.imported(graph), ["rows:0"], feeds)["rows:0"]
    actual = checks.run_graph(checks.imported(report.graph_def), ["rows:0"], feeds)["rows:0"]
    rounded = expected.astype(tf.as_dtype(dtype).as_numpy_dtype)
    np.testing.assert_array_equal(rounded.astype(np.float32), actual.astype(np.float32))


@pytest.mark.parametrize("device", DEVICES)
def test_c30_a_shared_constant_with_a_split_verdict_exists_twice(device: str) -> None:
    check_rewrite(
        """
        x: f32[4,64] = Placeholder
        c: f32[64,64] = Const(seed=1)
        m = MatMul(x, c)
        e = Exp(c)
        out1 = Identity(m)
        out2 = Identity(e)
        out3 = Identity(c)
        """,
        """
        x: f32[4,64] = Placeholder
        c: f32[64,64] = Const(seed=1)
        c/low: low[64,64] = Const(seed=1)
        x/Cast_low = Cast(x, DstT=low)
        m: low = MatMul(x/Cast_low, c/low)
        m/Cast_float32 = Cast(m, DstT=f32)
        e = Exp(c)
        out1 = Identity(m/Cast_float32)
        out2 = Identity(e)
        out3 = Identity(c)
        """,
        device=device,
    )


@pytest.mark.parametrize("device", DEVICES)
def test_c30_a_constant_that_is_itself_an_output_keeps_its_name_and_type(device: str) -> None:
    check_rewrite(
        """
        x: f32[4,64] = Placeholder
        c: f32[64,64] = Const(seed=1)
        m = MatMul(x, c)
        out1 = Identity(m)
        """,
        """
        x: f32[4,64] = Placeholder
        c: f32[64,64] = Const(seed=1)
        c/low: low[64,64] = Const(seed=1)
        x/Cast_low = Cast(x, DstT=low)
        m: low = MatMul(x/Cast_low, c/low)
        m/Cast_float32 = Cast(m, DstT=f32)
        out1 = Identity(m/Cast_float32)
        """,
        outputs=("out1", "c"),
        device=device,
    )


@pytest.mark.parametrize("device", DEVICES)
def test_c31a_an_integer_cast_is_read_in_float32_by_arithmetic(device: str) -> None:
    check_precision(
        """
        i: i32[8,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        scale = Const(0.01)
        k = Cast(i, DstT=f32)     # f32
        s = Mul(k, scale)         # f32 NOTHING_LOW
        m = MatMul(s, w)          # low ALLOW
        fetch = Identity(m)       # f32 PINNED
        """,
        ranges={"i": (0, 5000)},
        casts=2,
        device=device,
    )


def test_c31a_the_bytes_of_an_image_are_scaled_in_what_holds_them() -> None:
    # 255 / 255 is 1 in every type; bytes are exact in half, and in bfloat16 up to 256
    check_precision(
        """
        x: u8[1,8,8,3] = Placeholder
        scale = Const(0.003921569)
        mean: f32[3] = Const([0.485, 0.456, 0.406])
        w: f32[3,3,3,4] = Const(seed=1)
        f = Cast(x, DstT=f32)
        unit = Mul(f, scale)
        centred = Sub(unit, mean)
        conv = Conv2D(centred, w, strides=[1,1,1,1], padding='SAME')   # low ALLOW
        fetch = Identity(conv)                                         # f32 PINNED
        """,
        feeds={"x": np.random.default_rng(5).integers(0, 256, (1, 8, 8, 3)).astype(np.uint8)},
    )


def test_c31a_large_integers_are_scaled_before_they_are_low() -> None:
    # 100000 is beyond half, and 100001 is 99840 in bfloat16
    text = """
    x: i32[2,4] = Placeholder
    scale = Const(1e-5)
    base = Const(-1.0)
    eye: f32[4,4] = Const([[1,0,0,0],[0,1,0,0],[0,0,1,0],[0,0,0,1]])
    f = Cast(x, DstT=f32)
    unit = Mul(f, scale)
    centred = AddV2(unit, base)
    m = MatMul(centred, eye)               # low ALLOW
    fetch = Identity(m)                    # f32 PINNED
    """
    x = np.array([[100000, 100001, 100100, 200000], [0, 150000, 100010, 99990]], np.int32)
    for dtype, tolerance in (("half", 2.0**-11), ("bfloat16", 2.0**-8)):
        report = checks.checked_rewrite(graph_text.parse(text, dtype), dtype, {"x": x})
        graph = checks.imported(report.graph_def)
        actual = checks.run_graph(graph, ["fetch:0"], {"x": x})["fetch:0"]
        # relative to each value: the difference was taken in float32
        np.testing.assert_allclose(actual, x * 1e-5 - 1, rtol=2 * tolerance, atol=2e-7)


LOSSY = """
    x: f32[2,1] = Placeholder
    h = Cast(x, DstT=f16)
    y = Cast(h, DstT=f32)     # f32
    fetch = Identity(y)       # f32 PINNED
"""


@pytest.mark.parametrize("dtype", checks.BOTH)
def test_c31b_a_lossy_pair_of_the_users_stays(dtype: str) -> None:
    feeds = {"x": np.float32([[1e-12], [123456.7]])}
    check_unchanged(LOSSY, dtypes=(dtype,), feeds=feeds)
    report = checks.checked_rewrite(graph_text.parse(LOSSY), dtype, feeds)

    actual = checks.run_graph(checks.imported(report.graph_def), ["fetch:0"], feeds)["fetch:0"]
    np.testing.assert_array_equal(np.float32([[0], [np.inf]]), actual)


PAIR_BEFORE_A_PRODUCT = """
    x: f32[2,2] = Placeholder
    w: f32[2,2] = Const(1)
    h = Cast(x, DstT=f16)
    y = Cast(h, DstT=f32)
    m = MatMul(y, w)
    fetch = Identity(m)
"""


@pytest.mark.parametrize("device", DEVICES)
def test_c31b_before_a_product_half_of_a_lossy_pair_is_no_more_than_an_identity(
    device: str,
) -> None:
    check_rewrite(
        PAIR_BEFORE_A_PRODUCT,
        """
        x: f32[2,2] = Placeholder
        w: f16[2,2] = Const(1)
        h = Cast(x, DstT=f16)
        y: f16 = Identity(h)
        m: f16 = MatMul(y, w)
        m/Cast_float32 = Cast(m, DstT=f32)
        fetch = Identity(m/Cast_float32)
        """,
        dtypes=("half",),  # the user's own Casts are half
        device=device,
    )


@pytest.mark.parametrize("device", DEVICES)
def test_c31b_before_a_product_the_other_low_precision_rounds_what_the_user_rounded(
    device: str,
) -> None:
    check_rewrite(
        PAIR_BEFORE_A_PRODUCT,
        """
        x: f32[2,2] = Placeholder
        w: bf16[2,2] = Const(1)
        h = Cast(x, DstT=f16)
        y: bf16 = Cast(h, DstT=bf16)
        m: bf16 = MatMul(y, w)
        m/Cast_float32 = Cast(m, DstT=f32)
        fetch = Identity(m/Cast_float32)
        """,
        dtypes=("bfloat16",),  # the user's own Casts are half
        device=device,
    )


@pytest.mark.parametrize("device", DEVICES)
def test_c31c_casts_between_low_values_vanish(device: str) -> None:
    check_rewrite(
        """
        x: f32[4,8] = Placeholder
        w1: f32[8,8] = Const(0.1)
        w2: f32[8,8] = Const(0.2)
        down_x = Cast(x, DstT=low)
        down_w = Cast(w1, DstT=low)
        m1 = MatMul(down_x, down_w)
        up = Cast(m1, DstT=f32)
        m2 = MatMul(up, w2)
        fetch = Identity(m2)
        """,
        """
        x: f32[4,8] = Placeholder
        w1: low[8,8] = Const(0.1)
        w2: low[8,8] = Const(0.2)
        down_x = Cast(x, DstT=low)
        down_w = Identity(w1)
        m1 = MatMul(down_x, down_w)
        up = Identity(m1)
        m2: low = MatMul(up, w2)
        m2/Cast_float32 = Cast(m2, DstT=f32)
        fetch = Identity(m2/Cast_float32)
        """,
        device=device,
    )


@pytest.mark.parametrize("device", DEVICES)
def test_c32_cast_economy(device: str) -> None:
    check_rewrite(
        """
        x: f32[8,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        b: f32[8] = Const(seed=2)
        m1 = MatMul(x, w)
        m2 = MatMul(x, w, transpose_b=True)
        m3 = MatMul(w, x)
        e1 = Exp(x)
        e2 = Exp(e1)
        s = Square(x)
        bias = BiasAdd(m1, b)
        relu = Relu(bias)
        out1 = Identity(relu)
        out2 = Identity(m2)
        out3 = Identity(m3)
        out4 = Identity(e2)
        out5 = Identity(s)
        """,
        """
        x: f32[8,8] = Placeholder
        w: low[8,8] = Const(seed=1)
        b: low[8] = Const(seed=2)
        x/Cast_low = Cast(x, DstT=low)
        m1 = MatMul(x/Cast_low, w)
        m2 = MatMul(x/Cast_low, w, transpose_b=True)
        m3 = MatMul(w, x/Cast_low)
        e1 = Exp(x)
        e2 = Exp(e1)
        s = Square(x)
        bias = BiasAdd(m1, b)
        relu = Relu(bias)
        relu/Cast_float32 = Cast(relu, DstT=f32)
        m2/Cast_float32 = Cast(m2, DstT=f32)
        m3/Cast_float32 = Cast(m3, DstT=f32)
        out1 = Identity(relu/Cast_float32)
        out2 = Identity(m2/Cast_float32)
        out3 = Identity(m3/Cast_float32)
        out4 = Identity(e2)
        out5 = Identity(s)
        """,
        device=device,
    )
