"""Relatives of C11 and C13: masks beyond the range of half, in other forms and places.

Every row of logits is [1, 2, 3, 4] and the last place is masked, unless a test says otherwise.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.case_answers import check_answer

LOGITS = [[1.0, 2.0, 3.0, 4.0]]
MASKED = [[0.09003057, 0.24472847, 0.66524096, 0]]
START = """
    x: f32[1,4] = Placeholder
    eye: f32[4,4] = Const([[1,0,0,0],[0,1,0,0],[0,0,1,0],[0,0,0,1]])
    one = Const(1.0)
    big = Const(BIG)
    m = MatMul(x, eye)              # low ALLOW
"""
END = """
    soft = Softmax(add)
    m2 = MatMul(soft, eye)          # low ALLOW
    fetch = Identity(m2)            # f32 PINNED
"""
BIG = ["-1e9", "-1e4", "-3.4028235e38"]


def softmax(logits: object, axis: int = -1) -> np.ndarray:
    exponents = np.exp(np.asarray(logits, np.float64))
    return exponents / exponents.sum(axis=axis, keepdims=True)


@pytest.mark.parametrize("big", BIG)
@pytest.mark.parametrize("dtype", ["bool", "i32"])
def test_a_mask_that_is_cast_from_another_type(dtype: str, big: str) -> None:
    text = f"""{START}
    mask: {dtype}[1,4] = Placeholder
    f = Cast(mask, DstT=f32)
    inverse = Sub(one, f)
    minus = Mul(inverse, big)
    add = AddV2(m, minus)
    {END}"""
    feeds = {"mask": np.array([[1, 1, 1, 0]], bool if dtype == "bool" else np.int32)}
    check_answer(text.replace("BIG", big), MASKED, x=LOGITS, **feeds)


FORMS = {
    "subtract": """
        inverse = Sub(one, mask)
        minus = Mul(inverse, plus)
        add = Sub(m, minus)
    """,
    "mask minus one": """
        inverse = Sub(mask, one)
        minus = Mul(inverse, plus)
        add = AddV2(m, minus)
    """,
    "times minus big, plus big": """
        scaled = Mul(mask, plus)
        minus = AddV2(scaled, big)
        add = AddV2(m, minus)
    """,
    "minimum": """
        inverse = Sub(mask, half)
        limit = Mul(inverse, plus)
        add = Minimum(m, limit)
    """,
    "select with zeros": """
        zero = Const(0.0)
        keep = Greater(mask, zero)
        zeros = ZerosLike(mask)
        minus = SelectV2(keep, zeros, big)
        add = AddV2(m, minus)
    """,
    "select with a filled tensor": """
        zero = Const(0.0)
        keep = Greater(mask, zero)
        shape = Shape(m)
        filled = Fill(shape, big)
        add = Select(keep, m, filled)
    """,
    "logarithm": """
        minus = Log(mask)
        add = AddV2(m, minus)
    """,
    "clipped logarithm": """
        zero = Const(0.0)
        logarithm = Log(mask)
        minus = ClipByValue(logarithm, big, zero)
        add = AddV2(m, minus)
    """,
    "negated": """
        inverse = Sub(one, mask)
        product = Mul(inverse, plus)
        minus = Neg(product)
        add = AddV2(minus, m)
    """,
    "divided": """
        small = Const(1e-9)
        inverse = Sub(mask, one)
        minus = RealDiv(inverse, small)
        add = AddV2(m, minus)
    """,
    "sum of three": """
        inverse = Sub(one, mask)
        minus = Mul(inverse, big)
        bias: f32[4] = Const(0.5)
        add = AddN([m, minus, bias_row])
        bias_row = Mul(bias_shape, bias)
        bias_shape: f32[1,4] = Const(1)
    """,
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_mask_in_another_form(form: str) -> None:
    text = f"""{START}
    half = Const(0.5)
    plus = Const(1e9)
    mask: f32[1,4] = Placeholder
    {form}
    {END}"""
    check_answer(text.replace("BIG", "-1e9"), MASKED, x=LOGITS, mask=[[1.0, 1.0, 1.0, 0.0]])


@pytest.mark.parametrize("values", ["[0, 0, 0, -1e9]", "[0, 0, 0, -inf]", "[0, 0, 0, -1e4]",
                                    "[0, 0, 0, -3.4028235e38]", "[0, 0, 0, -65504]"])  # fmt: skip
def test_a_mask_that_is_a_constant_vector(values: str) -> None:
    text = f"""{START}
    minus: f32[4] = Const({values})
    add = BiasAdd(m, minus)
    {END}"""
    check_answer(text.replace("BIG", "0.0"), MASKED, x=LOGITS)


SCORES = """
    q: f32[1,2,4,4] = Placeholder
    k: f32[2,4,4] = Const([[[1,0,0,0],[0,1,0,0],[0,0,1,0],[0,0,0,1]], KEYS])
    one = Const(1.0)
    big = Const(-1e9)
    scores = BatchMatMulV2(q, k)         # low ALLOW
    {}
    add = AddV2(scores, minus)
    soft = Softmax(add)
    out = BatchMatMulV2(soft, k)         # low ALLOW
    fetch = Identity(out)                # f32 PINNED
""".replace("KEYS", "[[1,0,0,0],[0,1,0,0],[0,0,1,0],[0,0,0,1]]")
QUERIES = np.broadcast_to(np.array([1.0, 2.0, 3.0, 4.0]), (1, 2, 4, 4))


def test_a_mask_of_positions_behind_a_reshape_and_a_broadcast() -> None:
    text = SCORES.format("""
    mask: i32[1,4] = Placeholder
    shape = Const([1, 1, 1, 4])
    all = Const([1, 2, 4, 4])
    f = Cast(mask, DstT=f32)
    row = Reshape(f, shape)
    wide = BroadcastTo(row, all)
    inverse = Sub(one, wide)
    minus = Mul(inverse, big)
    """)
    expected = np.broadcast_to(MASKED, (1, 2, 4, 4))
    check_answer(text, expected, q=QUERIES, mask=np.array([[1, 1, 1, 0]], np.int32))


def test_a_mask_of_lengths() -> None:
    text = SCORES.format("""
    lengths: i32[1] = Placeholder
    zero = Const(0)
    four = Const(4)
    step = Const(1)
    axis = Const(1)
    places = Range(zero, four, step)
    column = ExpandDims(lengths, axis)
    beyond = GreaterEqual(places, column)
    f = Cast(beyond, DstT=f32)
    product = Mul(f, big)
    axes = Const(1)
    row = ExpandDims(product, axes)
    minus = ExpandDims(row, axes)
    """)
    expected = np.broadcast_to(MASKED, (1, 2, 4, 4))
    check_answer(text, expected, q=QUERIES, lengths=np.array([3], np.int32))


def test_a_causal_mask_made_of_a_band() -> None:
    text = SCORES.format("""
    ones: f32[4,4] = Const(1)
    all = Const(-1)
    none = Const(0)
    band = MatrixBandPart(ones, all, none)
    inverse = Sub(one, band)
    minus = Mul(inverse, big)
    """)
    rows = np.where(np.tri(4), [1.0, 2.0, 3.0, 4.0], -np.inf)
    check_answer(text, np.broadcast_to(softmax(rows), (1, 2, 4, 4)), q=QUERIES)


def test_two_masks_of_which_both_may_hold() -> None:
    # -1e9 twice is -2e9: more than float32 needs, and beyond half as well
    text = SCORES.format("""
    mask: f32[1,1,1,4] = Placeholder
    ones: f32[4,4] = Const(1)
    all = Const(-1)
    none = Const(0)
    band = MatrixBandPart(ones, all, none)
    inverse = Sub(one, band)
    causal = Mul(inverse, big)
    inverse2 = Sub(one, mask)
    padding = Mul(inverse2, big)
    minus = AddV2(causal, padding)
    """)
    keep = np.tri(4) * np.array([1, 1, 0, 1])
    rows = np.where(keep, [1.0, 2.0, 3.0, 4.0], -np.inf)
    check_answer(
        text, np.broadcast_to(softmax(rows), (1, 2, 4, 4)),
        q=QUERIES, mask=[[[[1.0, 1.0, 0.0, 1.0]]]],
    )  # fmt: skip


@pytest.mark.parametrize("big", ["-1e9", "-1e30"])
def test_a_row_that_is_masked_as_a_whole_is_even(big: str) -> None:
    # float32 holds -1e9 with a spacing of 64: all logits are alike there
    text = f"""{START}
    mask: f32[1,4] = Placeholder
    inverse = Sub(one, mask)
    minus = Mul(inverse, big)
    add = AddV2(m, minus)
    {END}"""
    check_answer(text.replace("BIG", big), 0.25, x=LOGITS, mask=np.zeros((1, 4)))


def test_a_mask_as_an_argument_of_a_function() -> None:
    text = """
    x: f32[1,4] = Placeholder
    mask: f32[1,4] = Placeholder
    eye: f32[4,4] = Const([[1,0,0,0],[0,1,0,0],[0,0,1,0],[0,0,0,1]])
    one = Const(1.0)
    big = Const(-1e9)
    inverse = Sub(one, mask)
    minus = Mul(inverse, big)
    y: f32 = PartitionedCall([x, eye, minus], Tout=[f32], f=@attention)
    fetch = Identity(y)             # f32 PINNED

    @attention(x: f32, w: f32, minus: f32) -> (y=m2)
      m = MatMul(x, w)              # low ALLOW
      add = AddV2(m, minus)
      soft = Softmax(add)
      m2 = MatMul(soft, w)          # low ALLOW
    """
    check_answer(text, MASKED, steps=1, x=LOGITS, mask=[[1.0, 1.0, 1.0, 0.0]])


def test_a_mask_that_a_function_makes() -> None:
    text = f"""{START}
    mask: bool[1,4] = Placeholder
    minus: f32 = PartitionedCall([mask], Tout=[f32], f=@mask)
    add = AddV2(m, minus)
    {END}

    @mask(keep: bool) -> (y=minus)
      one = Const(1.0)
      big = Const(-1e9)
      f = Cast(keep, DstT=f32)
      inverse = Sub(one, f)
      minus = Mul(inverse, big)
    """
    mask = np.array([[True, True, True, False]])
    check_answer(text.replace("BIG", "0.0"), MASKED, steps=1, x=LOGITS, mask=mask)


@pytest.mark.parametrize("big", ["-1e9", "-3.4028235e38"])
def test_a_masked_maximum_over_time(big: str) -> None:
    text = f"""{START}
    mask: f32[1,4] = Placeholder
    last = Const([1])
    inverse = Sub(one, mask)
    minus = Mul(inverse, big)
    add = AddV2(m, minus)
    top = Max(add, last, keep_dims=True)
    out = Mul(top, one)
    fetch = Identity(out)
    """
    check_answer(text.replace("BIG", big), 3.0, x=LOGITS, mask=[[1.0, 1.0, 1.0, 0.0]])


def test_a_masked_softmax_written_out() -> None:
    text = f"""{START}
    mask: f32[1,4] = Placeholder
    last = Const([1])
    inverse = Sub(one, mask)
    minus = Mul(inverse, big)
    add = AddV2(m, minus)
    top = Max(add, last, keep_dims=True)
    centred = Sub(add, top)
    e = Exp(centred)
    total = Sum(e, last, keep_dims=True)
    soft = RealDiv(e, total)
    m2 = MatMul(soft, eye)          # low ALLOW
    fetch = Identity(m2)            # f32 PINNED
    """
    check_answer(text.replace("BIG", "-1e9"), MASKED, x=LOGITS, mask=[[1.0, 1.0, 1.0, 0.0]])


def test_a_masked_log_softmax_of_what_is_kept() -> None:
    text = f"""{START}
    mask: f32[1,4] = Placeholder
    begin = Const([0, 0])
    size = Const([1, 3])
    inverse = Sub(one, mask)
    minus = Mul(inverse, big)
    add = AddV2(m, minus)
    soft = LogSoftmax(add)
    kept = Slice(soft, begin, size)
    fetch = Identity(kept)
    """
    expected = np.log(softmax([[1.0, 2.0, 3.0]]))
    check_answer(text.replace("BIG", "-1e9"), expected, x=LOGITS, mask=[[1.0, 1.0, 1.0, 0.0]])


@pytest.mark.parametrize("sentinel", ["-3.4028235e38", "-3.4e38", "-1e38"])
def test_the_float32_minimum_as_the_start_of_a_maximum(sentinel: str) -> None:
    text = f"""{START}
    floor: f32[4] = Const({sentinel})
    top = Maximum(m, floor)
    m2 = MatMul(top, eye)           # low ALLOW
    fetch = Identity(m2)            # f32 PINNED
    """
    check_answer(text.replace("BIG", "0.0"), LOGITS, x=LOGITS)


def test_a_sentinel_that_a_mask_takes_away_again() -> None:
    # the sentinel times 0: in bfloat16 it rounds to minus infinity, and that times 0 is no number
    text = f"""{START}
    mask: f32[1,4] = Placeholder
    inverse = Sub(one, mask)
    minus = Mul(inverse, big)
    kept = Mul(m, mask)
    add = AddV2(kept, minus)
    back = Mul(add, mask)
    m2 = MatMul(back, eye)          # low ALLOW
    fetch = Identity(m2)            # f32 PINNED
    """
    check_answer(
        text.replace("BIG", "-3.4028235e38"), [[1, 2, 3, 0]],
        x=LOGITS, mask=[[1.0, 1.0, 1.0, 0.0]],
    )  # fmt: skip


def test_a_padded_maximum() -> None:
    text = """
    x: f32[1,4] = Placeholder
    eye: f32[4,4] = Const([[1,0,0,0],[0,1,0,0],[0,0,1,0],[0,0,0,1]])
    six: f32[6,6] = Const(seed=1)
    pads = Const([[0, 0], [1, 1]])
    big = Const(-3.4028235e38)
    last = Const([1])
    m = MatMul(x, eye)              # low ALLOW
    padded = PadV2(m, pads, big)
    top = Max(padded, last)
    fetch = Identity(top)
    """
    check_answer(text, 4.0, x=LOGITS)


@pytest.mark.parametrize("bound", ["-1e30", "-1e9"])
def test_the_guard_of_a_maximum_of_which_all_is_masked(bound: str) -> None:
    # log-sum-exp: what is masked as a whole has the bound for its maximum, and is left out
    text = f"""{START}
    mask: bool[2,4] = Placeholder
    none = Const(-inf)
    limit = Const(-1e8)
    zero = Const(0.0)
    last = Const([1])
    kept = SelectV2(mask, m, none)
    top = Max(kept, last, keep_dims=True)
    finite = Maximum(top, bound)
    bound = Const({bound})
    ok = Greater(finite, limit)
    centred = Sub(m, finite)
    safe = SelectV2(ok, centred, zero)
    m2 = MatMul(safe, eye)          # low ALLOW
    fetch = Identity(m2)            # f32 PINNED
    """
    check_answer(
        text.replace("BIG", "0.0").replace("[1,4]", "[2,4]"), [[-2, -1, 0, 1], [0] * 4],
        x=LOGITS * 2, mask=np.array([[True, True, True, False], [False] * 4]),
    )  # fmt: skip


def test_a_mask_that_is_fed_as_an_integer() -> None:
    text = f"""{START}
    mask: i32[1,4] = Placeholder
    minus = Cast(mask, DstT=f32)
    add = AddV2(m, minus)
    {END}"""
    mask = np.full((1, 4), -1_000_000_000, np.int32)
    check_answer(text.replace("BIG", "0.0"), 0.25, x=LOGITS, mask=mask)
