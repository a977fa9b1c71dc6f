"""Cases of coremltools, onnxconverter-common, ONNX Runtime, Intel's compressor, OpenVINO and XLA.

XT-*, in our words; XT-11 to XT-24 are in test_casts.py, those on branches and functions in
test_autocast_branches.py.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.case_answers import check_answer
from tests.checks import check_precision, check_rewrite, check_unchanged

HALF = ("half",)
BFLOAT16 = ("bfloat16",)
CONV = "strides=[1,1,1,1], padding='SAME'"
EYE = "[[1,0,0,0],[0,1,0,0],[0,0,1,0],[0,0,0,1]]"


def test_xt_01_one_contraction_has_a_cast_in_and_a_cast_out() -> None:
    check_rewrite(
        """
        x: f32[4,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        y = MatMul(x, w)
        out = Identity(y)
        """,
        """
        x: f32[4,8] = Placeholder
        w: low[8,8] = Const(seed=1)
        x/Cast_low = Cast(x, DstT=low)
        y: low = MatMul(x/Cast_low, w)
        y/Cast_float32 = Cast(y, DstT=f32)
        out = Identity(y/Cast_float32)
        """,
    )


@pytest.mark.parametrize("op", ["Tanh", "Relu", "Sqrt"])
def test_xt_01_one_other_op_stays(op: str) -> None:
    # Ours on purpose: coremltools makes it half. Two Casts move more bytes than the op saves.
    check_unchanged(
        f"""
        x: f32[4,8] = Placeholder
        y = {op}(x)
        out = Identity(y)
        """,
        ranges={"x": (0.1, 1)},
    )


def test_xt_02_a_constant_beyond_half_in_front_of_a_squashing_op() -> None:
    # Ours on purpose: coremltools lets it become infinite, as tanh absorbs it.
    text = f"""
    x: f32[1,4] = Placeholder
    eye: f32[4,4] = Const({EYE})
    c: f32[4] = Const([2e38, -2e38, 2e38, -2e38])
    m = MatMul(x, eye)       # low ALLOW
    a = AddV2(m, c)          # CLAIM
    t = Tanh(a)
    fetch = Identity(t)
    """
    expected = [[1.0, -1.0, 1.0, -1.0]]
    check_answer(text.replace("CLAIM", "f32 RANGE"), expected, HALF, x=np.zeros((1, 4)))
    check_answer(text.replace("CLAIM", "low INFER"), expected, BFLOAT16, x=np.zeros((1, 4)))


@pytest.mark.parametrize("around", [False, True])
def test_xt_03_a_clip_to_limits_beyond_half(around: bool) -> None:
    lines = "m = MatMul(x, eye)" if around else "m = Identity(x)"
    check_answer(
        f"""
        x: f32[1,4] = Placeholder
        eye: f32[4,4] = Const({EYE})
        low_end = Const(-77777.0)
        high_end = Const(88888.0)
        {lines}
        c = ClipByValue(m, low_end, high_end)
        fetch = Identity(c)
        """,
        [[1.0, -2.0, 300.0, 0.0]],
        x=[[1.0, -2.0, 300.0, 0.0]],
    )


def test_xt_04_the_float32_minimum_as_a_lower_bound_is_the_lowest_finite_value() -> None:
    # It bounds no value of the low precision either way; any other use needs `--saturate`.
    text = f"""
    x: f32[1,4] = Placeholder
    eye: f32[4,4] = Const({EYE})
    c: f32[4] = Const(-3.4028235e38)
    m = MatMul(x, eye)       # low ALLOW
    a = Maximum(m, c)        # low CLEAR
    fetch = Identity(a)      # f32 PINNED
    """
    check_answer(text, [[1.0, -2.0, 300.0, 0.0]], x=[[1.0, -2.0, 300.0, 0.0]])


@pytest.mark.parametrize("divisor", ["1e-10", "1e-8", "1e-5"])
def test_xt_05_a_division_by_a_small_constant(divisor: str) -> None:
    text = f"""
    x: f32[1,4] = Placeholder
    eye: f32[4,4] = Const({EYE})
    c = Const({divisor})
    m = MatMul(x, eye)       # low ALLOW
    q = RealDiv(m, c)
    back = Mul(q, c)
    fetch = Identity(back)   # f32 PINNED
    """
    check_answer(text, [[1, 2, 3, 0]], BFLOAT16, x=[[1.0, 2.0, 3.0, 0.0]])
    if divisor != "1e-5":  # 1e-5 fits half; the quotient does not, as in C20
        check_answer(text, [[1, 2, 3, 0]], HALF, x=[[1.0, 2.0, 3.0, 0.0]])


def test_xt_06_a_concat_of_two_inputs() -> None:
    check_precision(
        """
        x: f32[4,4] = Placeholder
        y: f32[4,4] = Placeholder
        w: f32[8,8] = Const(seed=1)
        axis = Const(1)
        both = ConcatV2([x, y], axis)   # low CLEAR
        m = MatMul(both, w)             # low ALLOW
        both2 = ConcatV2([m, m], axis)  # low CLEAR
        out = Identity(both2)           # f32 PINNED
        """,
        casts=3,
    )


def test_xt_07_a_split_into_two_outputs() -> None:
    check_precision(
        """
        x: f32[4,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        axis = Const(1)
        m = MatMul(x, w)                                  # low ALLOW
        parts: f32, f32 = Split(axis, m, num_split=2)     # low CLEAR
        out1 = Identity(parts)                            # f32 PINNED
        out2 = Identity(parts:1)                          # f32 PINNED
        """,
        casts=3,
    )


def test_xt_08_one_input_that_two_contractions_read_is_cast_once() -> None:
    check_precision(
        """
        x: f32[8,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        a = MatMul(x, w)                # low ALLOW
        b = MatMul(w, x)                # low ALLOW
        sum = AddV2(a, b)               # low INFER
        out = Identity(sum)             # f32 PINNED
        """,
        casts=2,
    )


def test_xt_09_one_tensor_that_is_two_outputs_is_cast_once() -> None:
    check_precision(
        """
        x: f32[8,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        m = MatMul(x, w)                # low ALLOW
        out1 = Identity(m)              # f32 PINNED
        out2 = Identity(m)              # f32 PINNED
        """,
        casts=2,
    )


EPSILONS = {
    "inverse": ("r = Reciprocal(s)", 1e8),
    "logarithm": ("r = Log(s)", np.log(1e-8)),
    "inverse root": ("r = Rsqrt(s)", 1e4),
}


@pytest.mark.parametrize(("line", "expected"), EPSILONS.values(), ids=EPSILONS)
def test_xt_10_an_epsilon_stays_float32_in_half(line: str, expected: float) -> None:
    # TensorFlow has no such attribute: the epsilon is a constant that is added.
    text = f"""
    x: f32[1,4] = Placeholder
    eye: f32[4,4] = Const({EYE})
    eps = Const(1e-8)
    m = MatMul(x, eye)       # low ALLOW
    s = AddV2(m, eps)
    {line}
    fetch = Identity(r)      # f32 PINNED
    """
    check_answer(text, expected, x=np.zeros((1, 4)))


def test_xt_25_a_transpose_a_product_and_a_minimum() -> None:
    check_precision(
        """
        x: f32[8,4] = Placeholder
        w: f32[8,8] = Const(seed=1)
        limit: f32[8] = Const(0.5)
        order = Const([1, 0])
        turned = Transpose(x, order)    # low CLEAR
        m = MatMul(turned, w)           # low ALLOW
        least = Minimum(m, limit)       # low CLEAR
        out = Identity(least)           # f32 PINNED
        """,
        casts=2,
    )


VALUES = [
    ("1e-9", "f32 RANGE", "low INFER"),
    ("-1e-9", "f32 RANGE", "low INFER"),
    ("1e9", "f32 RANGE", "low INFER"),
    ("-1e9", "f32 RANGE", "low INFER"),
    ("0.0", "low INFER", "low INFER"),
    ("1e-4", "low INFER", "low INFER"),
]


@pytest.mark.parametrize(("value", "in_half", "in_bfloat16"), VALUES)
def test_xt_25_scalars_too_small_and_too_large_of_both_signs(
    value: str, in_half: str, in_bfloat16: str
) -> None:
    # Ours on purpose: onnxconverter-common clamps them and warns; we keep the op in float32.
    for dtypes, claim in ((HALF, in_half), (BFLOAT16, in_bfloat16)):
        check_precision(
            f"""
            x: f32[4,8] = Placeholder
            w: f32[8,8] = Const(seed=1)
            c = Const({value})
            m = MatMul(x, w)             # low ALLOW
            add = AddV2(m, c)            # {claim}
            out = Identity(add)          # f32 PINNED
            """,
            dtypes=dtypes,
        )


def test_xt_28_the_sizes_of_a_resize_and_what_they_are_made_of_stay() -> None:
    check_precision(
        f"""
        x: f32[1,8,8,3] = Placeholder
        w: f32[3,3,3,4] = Const(seed=1)
        scale = Const(0.4)                         # f32
        sides: i32[2] = Const(480)
        f = Cast(sides, DstT=f32)                  # f32
        scaled = Mul(f, scale)                     # f32 POSITION
        floor = Floor(scaled)                      # f32 POSITION
        size = Cast(floor, DstT=i32)
        conv = Conv2D(x, w, {CONV})                # low ALLOW
        large = ResizeNearestNeighbor(conv, size)  # low CLEAR
        fetch = Identity(large)                    # f32 PINNED
        """,
        casts=2,
    )


def test_xt_29_what_a_fill_holds_is_low_where_it_is_read_low() -> None:
    check_precision(
        """
        x: f32[4,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        zero = Const(0.0)
        axis = Const(1)
        m = MatMul(x, w)                     # low ALLOW
        shape = Shape(m)
        zeros = Fill(shape, zero)            # T low
        both = ConcatV2([m, zeros], axis)    # low CLEAR
        w2: f32[16,8] = Const(seed=2)
        m2 = MatMul(both, w2)                # low ALLOW
        fetch = Identity(m2)                 # f32 PINNED
        """,
        casts=2,
    )


@pytest.mark.parametrize(
    "call",
    [
        "MatMul(x, w, transpose_b=True)",
        "MatMul(w, x, transpose_a=True)",
        "MatMul(x, x, transpose_a=True)",
    ],
)
def test_xt_31_a_transposed_product_is_low(call: str) -> None:
    check_precision(
        f"""
        x: f32[8,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        m = {call}                # low ALLOW
        fetch = Identity(m)       # f32 PINNED
        """,
        casts=2,
    )


def test_xt_32_one_convolution_that_is_excluded_by_its_name() -> None:
    check_precision(
        f"""
        x: f32[1,8,8,3] = Placeholder
        w1: f32[3,3,3,4] = Const(seed=1)
        w2: f32[3,3,4,4] = Const(seed=2)
        conv1 = Conv2D(x, w1, {CONV})              # low ALLOW
        conv2 = Conv2D(conv1, w2, {CONV})          # f32 USER
        conv3 = Conv2D(conv2, w2, {CONV})          # low ALLOW
        fetch = Identity(conv3)                    # f32 PINNED
        """,
        keep_float32=("^conv2$",),
        casts=4,
    )


def test_xt_33_a_convolution_a_bias_a_cast_a_relu_and_a_logarithm() -> None:
    # Ours on purpose: what the model itself casts up, it means to compute in float32, unless a
    # contraction reads it.
    check_precision(
        f"""
        x: f32[1,8,8,3] = Placeholder
        w: f32[3,3,3,4] = Const(0.1)
        b: f32[4] = Const(2)
        conv = Conv2D(x, w, {CONV})                # low ALLOW
        bias = BiasAdd(conv, b)                    # low INFER
        down: low = Cast(bias, DstT=low)           # SrcT low
        up = Cast(down, DstT=f32)                  # DstT f32
        relu = Relu(up)                            # f32 NOTHING_LOW
        log = Log(relu)                            # f32 NOTHING_LOW
        fetch = Identity(log)                      # f32 PINNED
        """,
        ranges={"x": (0, 1)},
        casts=1,
    )


def test_xt_34_a_softmax_written_out_stays_float32_up_to_its_exponential() -> None:
    check_precision(
        f"""
        x: f32[2,4] = Placeholder
        eye: f32[4,4] = Const({EYE})
        last = Const([1])
        m = MatMul(x, eye)                         # low ALLOW
        e = Exp(m)                                 # f32 DENY
        sum = Sum(e, last, keep_dims=True)         # f32
        p = RealDiv(e, sum)                        # f32
        m2 = MatMul(p, eye)                        # low ALLOW
        fetch = Identity(m2)                       # f32 PINNED
        """,
        casts=4,
    )


# A guard, its constant, and what is right where x is 0 and where it is 3.
DIVISIONS = {
    "x / (y + eps)": """
        g = AddV2(m, eps)
        q = RealDiv(m, g)
    """,
    "x / max(y, eps)": """
        g = Maximum(m, eps)
        q = RealDiv(m, g)
    """,
    "x / sqrt(y + eps)": """
        g = AddV2(m, eps)
        r = Sqrt(g)
        q = RealDiv(m, r)
    """,
    "x * pow(y + eps, -0.5)": (
        """
        g = AddV2(m, eps)
        h = Const(-0.5)
        r = Pow(g, h)
        q = Mul(m, r)
    """
    ),
}


@pytest.mark.parametrize("lines", DIVISIONS.values(), ids=DIVISIONS)
@pytest.mark.parametrize("eps", ["1e-12", "1e-8"])
def test_xt_35_a_guarded_division(lines: str, eps: str) -> None:
    root = "h = Const" in lines or "Sqrt" in lines
    text = f"""
    x: f32[1,4] = Placeholder
    eye: f32[4,4] = Const({EYE})
    eps = Const({eps})
    m = MatMul(x, eye)                             # low ALLOW
    {lines}
    m2 = MatMul(q, eye)                            # low ALLOW
    fetch = Identity(m2)                           # f32 PINNED
    """
    expected = [[0, np.sqrt(3) if root else 1, 2 if root else 1, 0]]
    check_answer(text, expected, x=[[0.0, 3.0, 4.0, 0.0]])


@pytest.mark.parametrize("eps", ["1e-3", "1e-4"])
def test_xt_36_a_guard_that_half_holds_goes_low(eps: str) -> None:
    check_precision(
        f"""
        x: f32[1,4] = Placeholder
        eye: f32[4,4] = Const({EYE})
        eps = Const({eps})                         # low
        m = MatMul(x, eye)                         # low ALLOW
        g = AddV2(m, eps)                          # low INFER
        q = RealDiv(m, g)                          # low INFER
        m2 = MatMul(q, eye)                        # low ALLOW
        fetch = Identity(m2)                       # f32 PINNED
        """,
        ranges={"x": (1, 2)},
        casts=2,
    )


@pytest.mark.parametrize("share", ["[1, 2, 3, 70000]", "[70000, 80000, -90000, 1]"])
def test_xt_38_a_weight_with_one_value_beyond_half_stays_float32(share: str) -> None:
    # Ours on purpose: OpenVINO clamps it unless three quarters are out of range.
    text = f"""
    x: f32[2,1] = Placeholder
    w: f32[1,4] = Const([{share}])                 # WEIGHT
    m = MatMul(x, w)                               # PRODUCT
    fetch = Identity(m)                            # f32 PINNED
    """
    kept = text.replace("WEIGHT", "f32").replace("PRODUCT", "f32 RANGE")
    check_precision(kept, dtypes=HALF, casts=0)
    low = text.replace("WEIGHT", "low").replace("PRODUCT", "low ALLOW")
    check_precision(low, dtypes=BFLOAT16, casts=2)


def test_xt_39_what_is_quantised_stays_as_it_is() -> None:
    check_precision(
        f"""
        x: f32[1,8,8,4] = Placeholder
        w: f32[3,3,4,4] = Const(0.125)
        lowest = Const(-1.0)                                        # f32
        highest = Const(1.0)                                        # f32
        conv = Conv2D(x, w, {CONV})                                 # low ALLOW
        q: qint8, f32, f32 = QuantizeV2(conv, lowest, highest, T=qint8)
        f = Dequantize(q, q:1, q:2)
        fq = FakeQuantWithMinMaxVars(f, lowest, highest)
        conv2 = Conv2D(fq, w, {CONV})                               # low ALLOW
        fetch = Identity(conv2)                                     # f32 PINNED
        """,
        feeds={"x": np.full((1, 8, 8, 4), 0.0625, np.float32)},
        steps=1,
    )


@pytest.mark.parametrize("op", ["Relu", "Identity", "StopGradient"])
def test_xt_40_what_only_low_ops_read_is_low_and_one_float32_reader_blocks(op: str) -> None:
    text = f"""
    x: f32[8,8] = Placeholder
    w: f32[8,8] = Const(seed=1)
    moved = {op}(x)                                # MOVED
    a = MatMul(moved, w)                           # low ALLOW
    b = MatMul(w, moved)                           # low ALLOW
    out1 = Identity(a)                             # f32 PINNED
    out2 = Identity(b)                             # f32 PINNED
    """
    check_precision(text.replace("MOVED", "low CLEAR"), casts=3)
    check_precision(
        text.replace("MOVED", "f32")
        + "    e = Exp(moved)                      # f32 DENY\n"
        + "    out3 = Identity(e)                  # f32 PINNED\n",
        casts=3,
    )


def test_xt_44_an_op_of_mixed_types_gets_no_cast_for_its_float32_inputs() -> None:
    check_precision(
        f"""
        x: f32[2,8,8,4] = Placeholder
        w: f32[3,3,4,4] = Const(seed=1)
        scale: f32[4] = Placeholder
        zeros: f32[4] = Const(0)
        ones: f32[4] = Const(1)
        conv = Conv2D(x, w, {CONV})                                           # low ALLOW
        bn = FusedBatchNormV3(conv,scale,zeros,zeros,ones,is_training=False)  # T low; U f32 KEEP
        fetch = Identity(bn)                                                  # f32 PINNED
        """,
        casts=2,
    )
