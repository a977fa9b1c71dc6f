"""Cases C11 to C26 from the field that the pass must get right on a frozen graph.

Each graph computes what matters behind a contraction, so that something is low, and its result is
compared with the number in the case, by the CPU's kernels and as a GPU would compute it.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.case_answers import check_answer
from tests.checks import check_precision, check_unchanged

HALF = ("half",)
BFLOAT16 = ("bfloat16",)
EYE = "[[1,0,0,0],[0,1,0,0],[0,0,1,0],[0,0,0,1]]"
START = f"""
    x: f32[?,4] = Placeholder
    eye: f32[4,4] = Const({EYE})
    m = MatMul(x, eye)        # low ALLOW
    one = Const(1.0)
"""


LOGITS = [[1.0, 2.0, 3.0, 4.0]]
MASKED = [[0.0900306, 0.24472848, 0.66524094, 0]]
MULTIPLY = (
    START
    + """
    mask: f32[1,4] = Placeholder
    big = Const(BIG)
    inverse = Sub(one, mask)        # f32 NOTHING_LOW
    minus = Mul(inverse, big)       # f32 MINUS
    add = AddV2(m, minus)           # ADD
    soft = Softmax(add)             # ADD
    m2 = MatMul(soft, eye)          # low ALLOW
    fetch = Identity(m2)            # f32 PINNED
"""
)
SELECT = (
    START
    + """
    mask: bool[1,4] = Placeholder
    big = Const(BIG)
    add = SelectV2(mask, m, big)    # ADD
    soft = Softmax(add)             # SOFT
    m2 = MatMul(soft, eye)          # low ALLOW
    fetch = Identity(m2)            # f32 PINNED
"""
)


@pytest.mark.parametrize("big", ["-1e9", "-1e30"])
def test_c11_a_mask_in_multiply_form(big: str) -> None:
    text = MULTIPLY.replace("BIG", big)
    kept = text.replace("MINUS", "RANGE").replace("# ADD", "# f32 INFER tainted by minus")
    low = text.replace("MINUS", "NOTHING_LOW").replace("# ADD", "# low INFER")
    feeds = {"x": LOGITS, "mask": [[1.0, 1.0, 1.0, 0.0]]}

    check_answer(kept, MASKED, HALF, **feeds)
    check_answer(low, MASKED, BFLOAT16, **feeds)


@pytest.mark.parametrize("big", ["-1e9", "-1e30"])
def test_c11_a_mask_in_select_form(big: str) -> None:
    # Nothing is added to what is selected: -65504 in half gives the same probabilities.
    text = SELECT.replace("BIG", big)
    low = text.replace("# ADD", "# low CLEAR").replace("# SOFT", "# low INFER")

    check_answer(low, MASKED, x=LOGITS, mask=[[True, True, True, False]])
    check_answer(low, 0.25, x=LOGITS, mask=[[False, False, False, False]])


def test_c13_the_float32_minimum_as_a_sentinel() -> None:
    text = MULTIPLY.replace("BIG", "-3.4028235e38").replace("MINUS", "RANGE")
    text = text.replace("# ADD", "# f32 INFER tainted by minus")

    check_answer(text, MASKED, x=LOGITS, mask=[[1.0, 1.0, 1.0, 0.0]])


NORM = (
    START
    + """
    last = Const([1])
    eps = Const(EPS)
    mean = Mean(m, last, keep_dims=True)     # f32 DENY
    sq = SquaredDifference(m, mean)          # f32 DENY
    var = Mean(sq, last, keep_dims=True)     # f32 DENY
    ve = AddV2(var, eps)                     # f32
    rs = Rsqrt(ve)                           # f32 DENY
    xr = Mul(m, rs)                          # INNER
    mr = Mul(mean, rs)                       # INNER
    ln = Sub(xr, mr)                         # END
    m2 = MatMul(ln, eye)                     # low ALLOW
    fetch = Identity(m2)                     # f32 PINNED
"""
)
# 1 / sqrt(1e-12) overflows half: there the norm is float32 to its end. Else it is written as
# (m - mean) * rs, and the two products are gone.
WHOLE = NORM.replace("# INNER", "# f32 KEEP").replace("# END", "# f32 KEEP")
DIRECT = NORM.replace("# INNER", "").replace("# END", "# low INFER")


def test_c14_a_constant_row_with_a_tiny_epsilon() -> None:
    row = [[3.0, 3.0, 3.0, 3.0]]
    check_answer(WHOLE.replace("EPS", "1e-12"), 0.0, HALF, exact=True, x=row)
    check_answer(DIRECT.replace("EPS", "1e-12"), 0.0, BFLOAT16, exact=True, x=row)
    check_answer(DIRECT.replace("EPS", "1e-6"), 0.0, exact=True, x=[[300.0] * 4])


def test_c15_a_layer_norm_of_large_values() -> None:
    row = [[300.0, -300.0, 300.0, -300.0]]
    check_answer(DIRECT.replace("EPS", "1e-5"), [[1, -1, 1, -1]], x=row)


def test_c15_an_rms_norm_of_large_values() -> None:
    text = (
        START
        + """
    last = Const([1])
    eps = Const(1e-5)
    sq = Square(m)                           # f32 DENY
    ms = Mean(sq, last, keep_dims=True)      # f32 DENY
    me = AddV2(ms, eps)                      # f32
    rs = Rsqrt(me)                           # f32 DENY
    xr = Mul(m, rs)                          # low INFER
    m2 = MatMul(xr, eye)                     # low ALLOW
    fetch = Identity(m2)                     # f32 PINNED
    """
    )
    check_answer(text, [[1, -1, 1, -1]], x=[[300.0, -300.0, 300.0, -300.0]])


def spatial_mean(size: int, axes: str) -> str:
    return f"""
    x: f32[1,{size},{size},4] = Placeholder
    w: f32[1,1,4,4] = Const({EYE})
    axes = Const({axes})
    conv = Conv2D(x, w, strides=[1,1,1,1], padding='SAME')   # low ALLOW
    relu = Relu(conv)                                        # low CLEAR
    mean = Mean(relu, axes)                                  # f32 DENY
    fetch = Identity(mean)                                   # f32 PINNED
    """


def test_c16_a_spatial_mean() -> None:
    eights = np.full((1, 112, 112, 4), 8.0)
    check_answer(spatial_mean(112, "[1, 2]"), 8.0, exact=True, x=eights)
    check_answer(spatial_mean(112, "[0, 1, 2, 3]"), 8.0, exact=True, x=eights)
    check_answer(spatial_mean(300, "[1, 2]"), 1.0, exact=True, x=np.ones((1, 300, 300, 4)))
    check_precision(spatial_mean(8, "[1, 2]"), casts=2)


def test_c17_a_sum_beside_the_path_costs_one_cast() -> None:
    check_precision(
        """
        x: f32[2,8,8,4] = Placeholder
        w: f32[3,3,4,4] = Const(seed=1)
        ones: f32[4] = Const(1)
        zeros: f32[4] = Const(0)
        all = Const([0, 1, 2, 3])
        conv1 = Conv2D(x, w, strides=[1,1,1,1], padding='SAME')                    # low ALLOW
        bn = FusedBatchNormV3(conv1,ones,zeros,zeros,ones,is_training=False)  # T low; U f32 KEEP
        relu = Relu(bn)                                                            # low CLEAR
        sum = Sum(relu, all)                                                       # f32 DENY
        conv2 = Conv2D(relu, w, strides=[1,1,1,1], padding='SAME')                 # low ALLOW
        out1 = Identity(sum)                                                       # f32 PINNED
        out2 = Identity(conv2)                                                     # f32 PINNED
        """,
        casts=3,
    )


def test_c19_a_decomposed_softplus() -> None:
    text = (
        START
        + """
    e = Exp(m)              # f32 DENY
    e1 = AddV2(e, one)      # f32 INFER tainted by e
    l = Log(e1)             # f32 DENY
    fetch = Identity(l)     # f32 PINNED
    """
    )
    check_answer(text, 12.0, x=np.full((1, 4), 12.0))


@pytest.mark.parametrize(("call", "expected"), [("Log(a)", -18.420681), ("RealDiv(m, a)", 0.0)])
def test_c19_guards_against_zero(call: str, expected: float) -> None:
    # In half the guard itself would be 0: what it guards stays float32. bfloat16 holds it.
    text = f"""{START}
    eps = Const(1e-8)
    a = AddV2(m, eps)       # GUARDED
    op = {call}             # THEN
    fetch = Identity(op)    # f32 PINNED
    """
    kept = text.replace("# GUARDED", "# f32 RANGE").replace("# THEN", "# f32 INFER tainted by a")
    low = text.replace("# GUARDED", "# low INFER").replace("# THEN", "# low INFER")

    check_answer(kept, expected, HALF, x=np.zeros((1, 4)))
    check_answer(low, expected, BFLOAT16, x=np.zeros((1, 4)))


def test_c22_an_output_length_is_computed_as_it_was() -> None:
    text = """
    x: f32[?,4] = Placeholder
    w: f32[4,4] = Const(1)
    zero = Const([0])
    one = Const([1])
    minus = Const(-1.0)
    two = Const(2.0)
    plus = Const(1.0)
    begin = Const([0, 0])
    four = Const(4)
    shape = Shape(x)
    length = StridedSlice(shape, zero, one, one, shrink_axis_mask=1)
    f = Cast(length, DstT=f32)     # f32
    a = AddV2(f, minus)            # f32 POSITION
    d = RealDiv(a, two)            # f32 POSITION
    fl = Floor(d)                  # f32 POSITION
    p = AddV2(fl, plus)            # f32 POSITION
    n = Cast(p, DstT=i32)          # f32
    size = Pack([n, four])
    s = Slice(x, begin, size)      # low CLEAR
    m = MatMul(s, w)               # low ALLOW
    rows = Shape(m)
    fetch = Identity(rows)
    out = Identity(m)              # f32 PINNED
    """
    for length, expected in ((2051, 1026), (4099, 2050)):
        check_answer(text, [expected, 4], exact=True, x=np.ones((length, 4)))


def test_c24_positions_by_cumsum() -> None:
    text = """
    x: f32[4096,1] = Placeholder
    w: f32[1,1] = Const(1)
    flat = Const([4096])
    axis = Const(0)
    m = MatMul(x, w)              # low ALLOW
    r = Reshape(m, flat)
    c = Cumsum(r, axis)           # f32 DENY
    i = Cast(c, DstT=i32)         # f32
    fetch = Identity(i)
    """
    check_answer(text, np.arange(1, 4097), exact=True, x=np.ones((4096, 1)))


def test_c26_a_score_threshold_reads_float32() -> None:
    text = (
        START
        + """
    limit = Const(0.7)
    g = Greater(x, limit)         # f32 KEEP
    fetch = Identity(g)
    out = Identity(m)             # f32 PINNED
    """
    )
    check_answer(text, [[True, False, True, False]], exact=True, x=[[0.70004, 0.69996, 1.0, 0.0]])
    check_unchanged(
        """
        x: f32[4] = Placeholder
        limit = Const(0.7)
        g = Greater(x, limit)     # f32 KEEP
        fetch = Identity(g)
        """
    )
