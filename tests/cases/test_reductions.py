"""Relatives of C16, C17 and C20: sums of many terms, and what they do to their neighbours."""

from __future__ import annotations

import numpy as np
import pytest

from tests import checks, graph_text
from tests.case_answers import check_answer
from tests.checks import check_precision

EYE = "[[1,0,0,0],[0,1,0,0],[0,0,1,0],[0,0,0,1]]"


def image(size: int, lines: str) -> str:
    return f"""
    x: f32[1,{size},{size},4] = Placeholder
    w: f32[1,1,4,4] = Const({EYE})
    eye: f32[4,4] = Const({EYE})
    conv = Conv2D(x, w, strides=[1,1,1,1], padding='SAME')   # low ALLOW
    relu = Relu(conv)                                        # low CLEAR
    {lines}
    fetch = Identity(out)
    """


# each of them, of 8.0 at all of 112 x 112 places, or at 64 x 64 where it says so
MEANS = {
    "kept dimensions": """
        axes = Const([1, 2])
        out = Mean(relu, axes, keep_dims=True)
    """,
    "negative axes": """
        axes = Const([-3, -2])
        out = Mean(relu, axes)
    """,
    "one axis after the other": """
        rows = Const([1])
        mean = Mean(relu, rows)
        out = Mean(mean, rows)
    """,
    "channels in front": """
        order = Const([0, 3, 1, 2])
        turned = Transpose(relu, order)
        axes = Const([2, 3])
        out = Mean(turned, axes)
    """,
    "places in one row": """
        flat = Const([1, 12544, 4])
        row = Reshape(relu, flat)
        axes = Const([1])
        out = Mean(row, axes)
    """,
    "a sum over a count": """
        axes = Const([1, 2])
        count = Const(12544.0)
        sum = Sum(relu, axes)
        out = RealDiv(sum, count)
    """,
    "a sum times one over a count": """
        axes = Const([1, 2])
        share = Const(7.971938775510204e-05)
        sum = Sum(relu, axes)
        out = Mul(sum, share)
    """,
    "a count that is read from the shape": """
        axes = Const([1, 2])
        shape = Shape(relu)
        one = Const([1])
        three = Const([3])
        sizes = StridedSlice(shape, one, three, one)
        zero = Const([0])
        places = Prod(sizes, zero)
        count = Cast(places, DstT=f32)
        sum = Sum(relu, axes)
        out = RealDiv(sum, count)
    """,
    "a pool over all places": """
        out = AvgPool(relu, ksize=[1,112,112,1], strides=[1,1,1,1], padding='VALID')
    """,
    "a sum of terms that are small enough": """
        count = Const(12544.0)
        axes = Const([1, 2])
        terms = RealDiv(relu, count)
        out = Sum(terms, axes)
    """,
}


@pytest.mark.parametrize("lines", MEANS.values(), ids=MEANS)
def test_a_mean_over_many_places(lines: str) -> None:
    check_answer(image(112, lines), 8.0, steps=1, x=np.full((1, 112, 112, 4), 8.0))


def test_a_mean_before_a_product() -> None:
    lines = """
        axes = Const([1, 2])
        mean = Mean(relu, axes)
        out = MatMul(mean, eye)               # low ALLOW
    """
    check_answer(image(112, lines), 8.0, x=np.full((1, 112, 112, 4), 8.0))


# op, the right result for 64 x 64 places of 8.0 in 4 channels; the first is beyond half
SUMS = {
    "Sum(relu, axes)": 32768.0,
    "EuclideanNorm(relu, axes)": 512.0,
    "Max(relu, axes)": 8.0,
    "ReduceLogSum": np.log(32768.0),
}


@pytest.mark.parametrize("call", SUMS)
def test_other_reductions(call: str) -> None:
    lines = f"axes = Const([1, 2])\n    out = {call}"
    if call == "ReduceLogSum":
        lines = """
        axes = Const([1, 2])
        sum = Sum(relu, axes)
        out = Log(sum)
    """
    check_answer(image(64, lines), SUMS[call], steps=1, x=np.full((1, 64, 64, 4), 8.0))


def test_a_sum_of_squares() -> None:
    lines = """
        loss = L2Loss(relu)
        out = Sqrt(loss)
    """
    check_answer(
        image(64, lines), np.sqrt(64 * 64 * 4 * 32.0), steps=1, x=np.full((1, 64, 64, 4), 8.0)
    )


ROWS = """
    x: f32[4096,1] = Placeholder
    w: f32[1,1] = Const(1)
    m = MatMul(x, w)                          # low ALLOW
    {}
    fetch = Identity(out)
"""


def test_a_sum_of_ones_by_segments() -> None:
    text = ROWS.format("""
    ids: i32[4096] = Const(0)
    one = Const(1)
    out = UnsortedSegmentSum(m, ids, one)
    """)
    check_answer(text, 4096.0, exact=True, steps=1, x=np.ones((4096, 1)))


def test_a_running_sum_and_its_last_value() -> None:
    text = ROWS.format("""
    axis = Const(0)
    begin = Const([4095, 0])
    size = Const([1, 1])
    sums = Cumsum(m, axis)
    out = Slice(sums, begin, size)
    """)
    check_answer(text, 4096.0, exact=True, steps=1, x=np.ones((4096, 1)))


def test_a_running_product() -> None:
    text = ROWS.format("""
    axis = Const(0)
    begin = Const([2047, 0])
    size = Const([1, 1])
    products = Cumprod(m, axis)
    out = Slice(products, begin, size)
    """)
    # 1 + 2**-9 lies between two bfloat16: the weight is 1, so the input itself is what is rounded
    check_answer(text, (1 + 2.0**-9) ** 2048, ("half",), steps=1, x=np.full((4096, 1), 1 + 2.0**-9))


def test_a_sum_of_scattered_updates() -> None:
    text = ROWS.format("""
    at: i32[4096,1] = Const(0)
    shape = Const([1, 1])
    out = ScatterNd(at, m, shape)
    """)
    check_answer(text, 4096.0, exact=True, steps=1, x=np.ones((4096, 1)))


SIDE_BRANCHES = {
    "Sum": "side = Sum(relu, all)",
    "Mean": "side = Mean(relu, all)",
    "L2Loss": "side = L2Loss(relu)",
    "Exp": "side = Exp(relu)",
}


@pytest.mark.parametrize("line", SIDE_BRANCHES.values(), ids=SIDE_BRANCHES)
def test_c17_a_side_branch_of_another_kind_costs_one_cast(line: str) -> None:
    check_precision(
        f"""
        x: f32[2,8,8,4] = Placeholder
        w: f32[3,3,4,4] = Const(seed=1, scale=0.1)
        all = Const([0, 1, 2, 3])
        conv1 = Conv2D(x, w, strides=[1,1,1,1], padding='SAME')                    # low ALLOW
        relu = Relu(conv1)                                                         # low CLEAR
        {line}
        conv2 = Conv2D(relu, w, strides=[1,1,1,1], padding='SAME')                 # low ALLOW
        out1 = Identity(side)                                                      # f32 PINNED
        out2 = Identity(conv2)                                                     # f32 PINNED
        """,
        casts=3,
        steps=1,
    )


GATE = """
    x: f32[2,8,8,4] = Placeholder
    w: f32[3,3,4,4] = Const(seed=1)
    squeeze: f32[4,4] = Const(seed=2)
    axes = Const([1, 2])
    conv1 = Conv2D(x, w, strides=[1,1,1,1], padding='SAME')                        # low ALLOW
    mean = Mean(conv1, axes, keep_dims=True)
    rows = Const([2, 4])
    flat = Reshape(mean, rows)
    dense = MatMul(flat, squeeze)                                                  # low ALLOW
    gate = Sigmoid(dense)                                                          # low INFER
    back = Const([2, 1, 1, 4])
    wide = Reshape(gate, back)                                                     # low CLEAR
    scaled = Mul(conv1, wide)                                                      # low INFER
    conv2 = Conv2D(scaled, w, strides=[1,1,1,1], padding='SAME')                   # low ALLOW
    out = Identity(conv2)                                                          # f32 PINNED
"""


def test_c17_a_mean_that_comes_back_as_a_gate_does_not_spoil_the_main_path() -> None:
    check_precision(GATE)


PRODUCT = """
    x: f32[1,4096] = Placeholder
    w: f32[4096,1] = Const(8)
    m = MatMul(x, w)          # low ALLOW
    fetch = Identity(m)       # f32 PINNED
"""
EIGHTS = np.full((1, 4096), 8.0)


def test_c20_a_product_beyond_half_is_right_in_bfloat16() -> None:
    check_answer(PRODUCT, 262144.0, ("bfloat16",), x=EIGHTS)


def test_c20_in_half_it_overflows_for_the_graph_alone_does_not_tell_what_is_fed() -> None:
    # Neither the weights nor the shapes say it: with inputs of 1.0 the same product is 32768 and
    # fits. Only running the model shows it.
    check_answer(PRODUCT, 32768.0, ("half",), x=np.ones((1, 4096)))
    report = checks.checked_rewrite(
        graph_text.parse(PRODUCT), "half", not_run="it overflows, which is what is shown"
    )
    feeds = {"x": EIGHTS.astype(np.float32)}
    actual = checks.run_graph(checks.imported(report.graph_def), ["fetch:0"], feeds)["fetch:0"]

    assert np.isposinf(actual).all()


def test_c20_a_user_who_knows_keeps_the_node_in_float32() -> None:
    text = PRODUCT.replace("# low ALLOW", "# f32 USER")
    check_answer(text, 262144.0, exact=True, options={"keep_float32": ("^m$",)}, x=EIGHTS)


def test_c20_a_sum_of_products_by_an_einsum() -> None:
    text = """
    x: f32[1,4096] = Placeholder
    w: f32[4096,1] = Const(8)
    m = Einsum([x, w], equation='ab,bc->ac')
    fetch = Identity(m)       # f32 PINNED
    """
    check_answer(text, 262144.0, ("bfloat16",), x=EIGHTS)


def test_c20_products_that_are_scaled_first() -> None:
    text = """
    q: f32[1,4,4096] = Placeholder
    k: f32[1,4096,4] = Placeholder
    root = Const(0.015625)
    scaled = Mul(q, root)
    m = BatchMatMulV2(scaled, k)         # low ALLOW
    fetch = Identity(m)                  # f32 PINNED
    """
    check_answer(text, 4096.0, q=np.full((1, 4, 4096), 8.0), k=np.full((1, 4096, 4), 8.0))
