"""Relatives of C09, C14 and C15: normalisations in other spellings, axes and ranks.

A square of 300 is beyond half, an epsilon of 1e-12 below it, and bfloat16 rounds a mean away.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.case_answers import DEVICES, check_answer
from tests.checks import check_rewrite

HALF = ("half",)
EYE = "[[1,0,0,0],[0,1,0,0],[0,0,1,0],[0,0,0,1]]"
START = f"""
    x: f32[?,4] = Placeholder
    eye: f32[4,4] = Const({EYE})
    last = Const([-1])
    m = MatMul(x, eye)                           # low ALLOW
"""
END = """
    m2 = MatMul(n, eye)                          # low ALLOW
    fetch = Identity(m2)                         # f32 PINNED
"""
ROW = np.array([[300.0, -300.0, 300.0, -300.0], [3.0, 3.0, 3.0, 3.0], [1.0, 2.0, 3.0, 6.0]])


def normed(values: np.ndarray, eps: float, axis: int | tuple[int, ...] = -1) -> np.ndarray:
    centred = values - values.mean(axis=axis, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=axis, keepdims=True) + eps)


MOMENTS = """
    mean = Mean(m, last, keep_dims=True)
    sq = SquaredDifference(m, mean)
    var = Mean(sq, last, keep_dims=True)
"""
SPELLINGS = {
    "rsqrt of a maximum": f"""
        {MOMENTS}
        ve = Maximum(var, eps)
        rs = Rsqrt(ve)
        d = Sub(m, mean)
        n = Mul(d, rs)
    """,
    "root and division": f"""
        {MOMENTS}
        ve = AddV2(var, eps)
        root = Sqrt(ve)
        d = Sub(m, mean)
        n = RealDiv(d, root)
    """,
    "stop gradient between": """
        mean = Mean(m, last, keep_dims=True)
        stop = StopGradient(mean)
        sq = SquaredDifference(m, stop)
        var = Mean(sq, last, keep_dims=True)
        ve = AddV2(var, eps)
        rs = Rsqrt(ve)
        xr = Mul(m, rs)
        neg = Neg(mean)
        mr = Mul(neg, rs)
        n = AddV2(xr, mr)
    """,
    "difference times itself": """
        mean = Mean(m, last, keep_dims=True)
        d = Sub(m, mean)
        sq = Mul(d, d)
        var = Mean(sq, last, keep_dims=True)
        ve = AddV2(var, eps)
        rs = Rsqrt(ve)
        n = Mul(d, rs)
    """,
    "powers": """
        two = Const(2.0)
        minus_half = Const(-0.5)
        mean = Mean(m, last, keep_dims=True)
        d = Sub(m, mean)
        sq = Pow(d, two)
        var = Mean(sq, last, keep_dims=True)
        ve = AddV2(var, eps)
        rs = Pow(ve, minus_half)
        n = Mul(d, rs)
    """,
    "sums over a count": """
        count = Const(4.0)
        total = Sum(m, last, keep_dims=True)
        mean = RealDiv(total, count)
        d = Sub(m, mean)
        sq = Square(d)
        squares = Sum(sq, last, keep_dims=True)
        var = RealDiv(squares, count)
        ve = AddV2(var, eps)
        rs = Rsqrt(ve)
        n = Mul(d, rs)
    """,
    "sum by a product with ones": """
        quarter: f32[4,4] = Const(0.25)
        mean = MatMul(m, quarter)
        d = Sub(m, mean)
        sq = Square(d)
        var = Mean(sq, last, keep_dims=True)
        ve = AddV2(var, eps)
        rs = Rsqrt(ve)
        n = Mul(d, rs)
    """,
    "scale and shift": f"""
        {MOMENTS}
        gamma: f32[4] = Const(1)
        beta: f32[4] = Const(0)
        ve = AddV2(var, eps)
        rs = Rsqrt(ve)
        g = Mul(rs, gamma)
        xg = Mul(m, g)
        mg = Mul(mean, g)
        shift = Sub(beta, mg)
        n = AddV2(xg, shift)
    """,
}


@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS)
@pytest.mark.parametrize("eps", [1e-12, 1e-5])
def test_a_layer_norm_in_another_spelling(spelling: str, eps: float) -> None:
    text = f"{START}\n    eps = Const({eps})\n{spelling}\n{END}"
    check_answer(text, normed(ROW, eps), x=ROW)


def test_the_mean_of_squares_less_the_square_of_the_mean() -> None:
    # 90000 - 0: both are beyond half
    text = f"""{START}
    eps = Const(1e-5)
    mean = Mean(m, last, keep_dims=True)
    sq = Square(m)
    ms = Mean(sq, last, keep_dims=True)
    mm = Square(mean)
    var = Sub(ms, mm)
    ve = AddV2(var, eps)
    rs = Rsqrt(ve)
    d = Sub(m, mean)
    n = Mul(d, rs)
    {END}"""
    check_answer(text, normed(ROW[[0, 2]], 1e-5), x=ROW[[0, 2]])


def test_a_layer_norm_far_from_zero() -> None:
    # bfloat16 holds no odd number above 256, so the row itself is not what it was
    row = np.array([[1000.0, 1001.0, 1002.0, 1003.0]])
    text = f"""{START}
    eps = Const(1e-5)
    {MOMENTS}
    ve = AddV2(var, eps)
    rs = Rsqrt(ve)
    d = Sub(m, mean)
    n = Mul(d, rs)
    {END}"""
    check_answer(text, normed(row, 1e-5), HALF, x=row)


def test_a_layer_norm_of_a_float32_row_far_from_zero() -> None:
    # what is subtracted is float32: no precision may be lost before
    row = np.array([[10000.0, 10000.25, 10000.5, 10000.75]])
    text = f"""
    x: f32[1,4] = Placeholder
    eye: f32[4,4] = Const({EYE})
    last = Const([-1])
    eps = Const(1e-5)
    mean = Mean(x, last, keep_dims=True)
    sq = SquaredDifference(x, mean)
    var = Mean(sq, last, keep_dims=True)
    ve = AddV2(var, eps)
    rs = Rsqrt(ve)
    d = Sub(x, mean)
    n = Mul(d, rs)
    {END}"""
    check_answer(text, normed(row, 1e-5), x=row)


@pytest.mark.parametrize("eps", ["1e-12", "1e-6"])
@pytest.mark.parametrize(
    "root",
    [
        """
        rs = Rsqrt(ve)
        n = Mul(m, rs)
    """,
        """
        root = Sqrt(ve)
        n = RealDiv(m, root)
    """,
    ],
)
def test_an_rms_norm_of_large_and_of_small_values(root: str, eps: str) -> None:
    text = f"""{START}
    eps = Const({eps})
    sq = Square(m)
    ms = Mean(sq, last, keep_dims=True)
    ve = AddV2(ms, eps)
    {root}
    {END}"""
    rows = np.array([[300.0, -300.0, 300.0, -300.0], [0.0, 0.0, 0.0, 0.0], [0.01, 0.01, 0.0, 0.0]])
    expected = rows / np.sqrt((rows**2).mean(axis=-1, keepdims=True) + float(eps))
    check_answer(text, expected, x=rows)


L2 = {
    "maximum and rsqrt": """
        big = Maximum(total, eps)
        rs = Rsqrt(big)
        n = Mul(m, rs)
    """,
    "root and maximum": """
        root = Sqrt(total)
        big = Maximum(root, eps)
        n = RealDiv(m, big)
    """,
    "root and sum": """
        big = AddV2(total, eps)
        root = Sqrt(big)
        n = RealDiv(m, root)
    """,
    "no nan": """
        root = Sqrt(total)
        n = DivNoNan(m, root)
    """,
}


@pytest.mark.parametrize("form", L2.values(), ids=L2)
@pytest.mark.parametrize("square", ["Square(m)", "Mul(m, m)"])
def test_an_l2_norm_of_large_of_small_and_of_no_values(form: str, square: str) -> None:
    text = f"""{START}
    eps = Const(1e-12)
    sq = {square}
    total = Sum(sq, last, keep_dims=True)
    {form}
    {END}"""
    rows = np.array([[300.0, -300.0, 300.0, -300.0], [0.0, 0.0, 0.0, 0.0], [1e-4, 1e-4, 0.0, 0.0]])
    lengths = np.maximum(np.sqrt((rows**2).sum(axis=-1, keepdims=True)), 1e-12)
    check_answer(text, rows / lengths, x=rows)


IMAGE = np.where(np.indices((1, 4, 4, 4)).sum(axis=0) % 2, 300.0, -300.0)


@pytest.mark.parametrize("axes", ["[1, 2]", "[3]", "[1, 2, 3]"])
def test_a_norm_of_rank_4(axes: str) -> None:
    text = f"""
    x: f32[1,4,4,4] = Placeholder
    w: f32[1,1,4,4] = Const({EYE})
    axes = Const({axes})
    eps = Const(1e-5)
    m = Conv2D(x, w, strides=[1,1,1,1], padding='SAME')     # low ALLOW
    mean = Mean(m, axes, keep_dims=True)
    sq = SquaredDifference(m, mean)
    var = Mean(sq, axes, keep_dims=True)
    ve = AddV2(var, eps)
    rs = Rsqrt(ve)
    xr = Mul(m, rs)
    mr = Mul(mean, rs)
    n = Sub(xr, mr)
    m2 = Conv2D(n, w, strides=[1,1,1,1], padding='SAME')    # low ALLOW
    fetch = Identity(m2)                                    # f32 PINNED
    """
    check_answer(text, IMAGE / 300, x=IMAGE)


def test_a_group_norm_between_reshapes() -> None:
    text = f"""
    x: f32[1,4,4,4] = Placeholder
    w: f32[1,1,4,4] = Const({EYE})
    groups = Const([1, 4, 4, 2, 2])
    flat = Const([1, 4, 4, 4])
    axes = Const([1, 2, 4])
    eps = Const(1e-6)
    gamma: f32[1,1,1,4] = Const(2)
    beta: f32[1,1,1,4] = Const(1)
    m = Conv2D(x, w, strides=[1,1,1,1], padding='SAME')     # low ALLOW
    g = Reshape(m, groups)
    mean = Mean(g, axes, keep_dims=True)
    sq = SquaredDifference(g, mean)
    var = Mean(sq, axes, keep_dims=True)
    ve = AddV2(var, eps)
    rs = Rsqrt(ve)
    d = Sub(g, mean)
    n = Mul(d, rs)
    back = Reshape(n, flat)
    scaled = Mul(back, gamma)
    shifted = AddV2(scaled, beta)
    m2 = Conv2D(shifted, w, strides=[1,1,1,1], padding='SAME')    # low ALLOW
    fetch = Identity(m2)                                          # f32 PINNED
    """
    check_answer(text, 2 * IMAGE / 300 + 1, x=IMAGE)


def test_a_norm_in_a_function_that_is_called_twice() -> None:
    text = """
    x: f32[2,4] = Placeholder
    eye: f32[4,4] = Const([[1,0,0,0],[0,1,0,0],[0,0,1,0],[0,0,0,1]])
    m = MatMul(x, eye)                           # low ALLOW
    n: f32 = PartitionedCall([m], Tout=[f32], f=@norm)
    m2 = MatMul(n, eye)                          # low ALLOW
    n2: f32 = PartitionedCall([m2], Tout=[f32], f=@norm)
    m3 = MatMul(n2, eye)                         # low ALLOW
    fetch = Identity(m3)                         # f32 PINNED

    @norm(m: f32) -> (n=n)
      last = Const([1])
      eps = Const(1e-12)
      mean = Mean(m, last, keep_dims=True)
      sq = SquaredDifference(m, mean)
      var = Mean(sq, last, keep_dims=True)
      ve = AddV2(var, eps)
      rs = Rsqrt(ve)
      d = Sub(m, mean)
      n = Mul(d, rs)
    """
    check_answer(text, normed(normed(ROW[:2], 1e-12), 1e-12), steps=1, x=ROW[:2])


def test_a_residual_sum_around_a_norm() -> None:
    text = f"""{START}
    eps = Const(1e-5)
    {MOMENTS}
    ve = AddV2(var, eps)
    rs = Rsqrt(ve)
    d = Sub(m, mean)
    normed = Mul(d, rs)
    inner = MatMul(normed, eye)                  # low ALLOW
    n = AddV2(inner, m)
    {END}"""
    check_answer(text, normed(ROW, 1e-5) + ROW, x=ROW)


BATCH_NORM = f"""
    x: f32[2,4,4,4] = Placeholder
    w: f32[1,1,4,4] = Const({EYE})
    scale: f32[4] = Const([1, 2, 3, 4])
    offset: f32[4] = Const([0.5, 0, -0.5, 1])
    mean: f32[4] = Const([10, 1000, 0, -5])
    var: f32[4] = Const([4, 146335, 0.001, 100])
    conv = Conv2D(x, w, strides=[1,1,1,1], padding='SAME')                          # low ALLOW
    bn = OP(conv,scale,offset,mean,var,is_training=False,epsilon=0.001)
    relu = Relu(bn)
    conv2 = Conv2D(relu, w, strides=[1,1,1,1], padding='SAME')                      # low ALLOW
    fetch = Identity(conv2)                                                         # f32 PINNED
"""


@pytest.mark.parametrize("op", ["FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"])
def test_c09_a_batch_norm_of_any_version_keeps_its_statistics(op: str) -> None:
    x = np.linspace(-50, 50, 128).reshape(2, 4, 4, 4)
    scale, offset = np.array([1, 2, 3, 4]), np.array([0.5, 0, -0.5, 1])
    mean, var = np.array([10, 1000, 0, -5]), np.array([4, 146335, 0.001, 100])
    expected = np.maximum((x - mean) / np.sqrt(var + 0.001) * scale + offset, 0)
    check_answer(BATCH_NORM.replace("OP", op), expected, x=x)


@pytest.mark.parametrize("device", DEVICES)
def test_c09_a_batch_norm_of_version_1_becomes_one_of_version_3(device: str) -> None:
    # V1's T allows float32 alone; the four parameters stay float32 in V3, whose U they are.
    before = "\n".join(line.split("#")[0] for line in BATCH_NORM.splitlines())
    before = before.replace("OP(", "FusedBatchNorm(")
    after = before.replace("FusedBatchNorm(", "FusedBatchNormV3(")
    after = after.replace(f"w: f32[1,1,4,4] = Const({EYE})", f"w: low[1,1,4,4] = Const({EYE})")
    after = after.replace("Conv2D(x, ", "Conv2D(x/Cast_low, ").replace(
        "Identity(conv2)", "Identity(conv2/Cast_float32)"
    )
    after += """
    x/Cast_low = Cast(x, DstT=low)
    conv2/Cast_float32 = Cast(conv2, DstT=f32)
    """
    check_rewrite(before, after, device=device)


def test_c09_in_training_the_statistics_are_those_of_the_data() -> None:
    text = f"""
    x: f32[1,4,4,4] = Placeholder
    w: f32[1,1,4,4] = Const({EYE})
    scale: f32[4] = Const(1)
    offset: f32[4] = Const(0)
    none: f32[0] = Const(0)
    conv = Conv2D(x, w, strides=[1,1,1,1], padding='SAME')                          # low ALLOW
    bn = FusedBatchNormV3(conv,scale,offset,none,none,is_training=True,epsilon=1e-5)  # T low
    conv2 = Conv2D(bn, w, strides=[1,1,1,1], padding='SAME')                        # low ALLOW
    fetch = Identity(conv2)                                                         # f32 PINNED
    """
    check_answer(text, IMAGE / 300, steps=1, x=IMAGE)


def test_a_batch_norm_written_out() -> None:
    # folded in float32: a moving variance of 146335 is beyond half
    text = f"""
    x: f32[2,4,4,4] = Placeholder
    w: f32[1,1,4,4] = Const({EYE})
    gamma: f32[4] = Const([1, 2, 3, 4])
    beta: f32[4] = Const([0.5, 0, -0.5, 1])
    mean: f32[4] = Const([10, 1000, 0, -5])
    var: f32[4] = Const([4, 146335, 0.5, 100])
    eps = Const(0.001)
    conv = Conv2D(x, w, strides=[1,1,1,1], padding='SAME')     # low ALLOW
    ve = AddV2(var, eps)
    rs = Rsqrt(ve)
    g = Mul(rs, gamma)
    scaled = Mul(conv, g)
    mg = Mul(mean, g)
    shift = Sub(beta, mg)
    bn = AddV2(scaled, shift)
    conv2 = Conv2D(bn, w, strides=[1,1,1,1], padding='SAME')   # low ALLOW
    fetch = Identity(conv2)                                    # f32 PINNED
    """
    x = np.linspace(-50, 50, 128).reshape(2, 4, 4, 4)
    gamma, beta = np.array([1, 2, 3, 4]), np.array([0.5, 0, -0.5, 1])
    mean, var = np.array([10, 1000, 0, -5]), np.array([4, 146335, 0.5, 100])
    check_answer(text, (x - mean) / np.sqrt(var + 0.001) * gamma + beta, x=x)


def test_a_cube_in_place_of_a_square_is_no_norm() -> None:
    text = f"""{START}
    eps = Const(1e-5)
    three = Const(3.0)
    mean = Mean(m, last, keep_dims=True)
    d = Sub(m, mean)
    cube = Pow(d, three)
    ms = Mean(cube, last, keep_dims=True)
    ve = AddV2(ms, eps)
    root = Sqrt(ve)
    n = RealDiv(d, root)
    {END}"""
    row = np.array([[1.0, 2.0, 3.0, 10.0], [100.0, 200.0, 300.0, 1000.0]])
    centred = row - row.mean(axis=-1, keepdims=True)
    root = np.sqrt((centred**3).mean(axis=-1, keepdims=True) + 1e-5)
    check_answer(text, centred / root, x=row)
