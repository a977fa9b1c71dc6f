"""Relatives of C22, C24 and C26: sizes, positions and thresholds that low precision would move.

2049 is no half and 257 no bfloat16; 0.4 * 480 is 191.97 in half, and 0.7 reads as 0.7002.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.case_answers import check_answer

EYE = "[[1,0,0,0],[0,1,0,0],[0,0,1,0],[0,0,0,1]]"
START = f"""
    x: f32[?,4] = Placeholder
    eye: f32[4,4] = Const({EYE})
    zero = Const(0)
    m = MatMul(x, eye)                   # low ALLOW
"""
LENGTH = """
    at0 = Const([0])
    at1 = Const([1])
    shape = Shape(m)
    length = StridedSlice(shape, at0, at1, at1, shrink_axis_mask=1)
    f = Cast(length, DstT=f32)           # f32
"""

# What a length becomes, and what it must be for 2051 and for 4099 rows.
LENGTHS = {
    "floor of a product": (
        """
        c = Const(0.4)
        p = Mul(f, c)
        r = Floor(p)
    """,
        lambda n: np.floor(n * 0.4),
    ),
    "ceiling of a quotient": (
        """
        c = Const(3.0)
        p = RealDiv(f, c)
        r = Ceil(p)
    """,
        lambda n: np.ceil(n / 3),
    ),
    "rounded product": (
        """
        c = Const(0.3)
        p = Mul(f, c)
        r = Round(p)
    """,
        lambda n: np.round(n * 0.3),
    ),
    "floor of a division": (
        """
        c = Const(2.0)
        r = FloorDiv(f, c)
    """,
        lambda n: n // 2,
    ),
    "truncated by the cast": (
        """
        c = Const(0.5)
        r = Mul(f, c)
    """,
        lambda n: n // 2,
    ),
    "root": (
        """
        p = Sqrt(f)
        r = Floor(p)
    """,
        lambda n: np.floor(np.sqrt(n)),
    ),
    "least": (
        """
        c = Const(2049.0)
        r = Minimum(f, c)
    """,
        lambda n: min(n, 2049),
    ),
    "through a selection": (
        """
        c = Const(2000.0)
        g = Greater(f, c)
        one = Const(1.0)
        less = Sub(f, one)
        r = SelectV2(g, less, f)
    """,
        lambda n: n - 1,
    ),
}


@pytest.mark.parametrize(("lines", "right"), LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("integer", ["i32", "i64"])
def test_a_length_that_slices_what_a_product_reads(lines: str, right: object, integer: str) -> None:
    cast = f"n = Cast(r, DstT={integer})"
    narrow = "k = Identity(n)" if integer == "i32" else "k = Cast(n, DstT=i32)"
    text = f"""{START}
    {LENGTH}
    {lines}
    {cast}
    {narrow}
    four = Const(4)
    begin = Const([0, 0])
    size = Pack([k, four])
    part = Slice(m, begin, size)
    m2 = MatMul(part, eye)               # low ALLOW
    rows = Shape(m2)
    fetch = Identity(rows)
    out = Identity(m2)
    """
    for length in (2051, 4099):
        check_answer(
            text,
            [right(length), 4],
            exact=True,
            steps=1,  # type: ignore[operator]
            x=np.ones((length, 4)),
        )


RESIZES = {
    "floor of a vector": (
        """
        scale: f32[2] = Const(0.4)
        p = Mul(f, scale)
        r = Floor(p)
        n = Cast(r, DstT=i32)
    """,
        [192, 108],
    ),
    "rounded quotient": (
        """
        scale: f32[2] = Const(3.2)
        p = RealDiv(f, scale)
        r = Round(p)
        n = Cast(r, DstT=i32)
    """,
        [150, 84],
    ),
    "ceiling": (
        """
        scale: f32[2] = Const(0.3)
        p = Mul(f, scale)
        r = Ceil(p)
        n = Cast(r, DstT=i32)
    """,
        [144, 81],
    ),
    "by the shorter side": (
        """
        least = Min(f, axis)
        target = Const(111.0)
        scale = RealDiv(target, least)
        p = Mul(f, scale)
        r = Round(p)
        n = Cast(r, DstT=i32)
    """,
        [197, 111],
    ),
}


@pytest.mark.parametrize("op", ["ResizeNearestNeighbor", "ResizeBilinear"])
@pytest.mark.parametrize(("lines", "sizes"), RESIZES.values(), ids=RESIZES)
def test_a_size_that_an_image_is_resized_to(op: str, lines: str, sizes: list[int]) -> None:
    text = f"""
    x: f32[1,480,270,1] = Placeholder
    w: f32[1,1,1,1] = Const(1)
    axis = Const([0])
    from = Const([1])
    to = Const([3])
    step = Const([1])
    m = Conv2D(x, w, strides=[1,1,1,1], padding='SAME')   # low ALLOW
    shape = Shape(m)
    both = StridedSlice(shape, from, to, step)
    f = Cast(both, DstT=f32)
    {lines}
    small = {op}(m, n)
    m2 = Conv2D(small, w, strides=[1,1,1,1], padding='SAME')   # low ALLOW
    seen = Shape(m2)
    fetch = Identity(seen)
    out = Identity(m2)
    """
    check_answer(text, [1, *sizes, 1], exact=True, steps=1, x=np.ones((1, 480, 270, 1)))


USES = {
    "limit of a range": (
        """
        step = Const(1)
        out = Range(zero, n, step)
    """,
        np.arange(2049),
    ),
    "filled shape": (
        """
        one = Const(1)
        dims = Pack([n])
        full = Fill(dims, one)
        out = Shape(full)
    """,
        [2049],
    ),
    "multiples": (
        """
        dims = Pack([n])
        one = Const([1])
        tiled = Tile(one, dims)
        out = Shape(tiled)
    """,
        [2049],
    ),
    "depth of a one-hot": (
        """
        one = Const(1)
        hot = OneHot(zero, n, one, zero)
        out = Shape(hot)
    """,
        [2049],
    ),
    "shape of a reshape": (
        """
        dims = Pack([n, minus])
        minus = Const(-1)
        long: i32[2049,2] = Const(0)
        shaped = Reshape(long, dims)
        out = Shape(shaped)
    """,
        [2049, 2],
    ),
    "row of a table": (
        """
        ids = Const(VALUES)
        out = GatherV2(ids, n, zero)
    """.replace("VALUES", str(list(range(4100)))),
        2049,
    ),
    "number of best": (
        """
        ids = Const(VALUES)
        best = TopKV2(ids, n)
        out = Shape(best)
    """.replace("VALUES", str(list(range(4100)))),
        [2049],
    ),
}


@pytest.mark.parametrize(("lines", "expected"), USES.values(), ids=USES)
def test_what_a_length_of_2049_is_used_for(lines: str, expected: object) -> None:
    text = f"""{START}
    {LENGTH}
    half = Const(0.5)
    p = Mul(f, half)
    n = Cast(p, DstT=i32)
    {lines}
    fetch = Identity(out)
    answer = Identity(m)
    """
    check_answer(text, expected, exact=True, steps=1, x=np.ones((4098, 4)))


def test_a_length_that_a_function_computes() -> None:
    text = f"""{START}
    {LENGTH}
    n: i32 = PartitionedCall([f], Tout=[i32], f=@half)
    four = Const(4)
    begin = Const([0, 0])
    size = Pack([n, four])
    part = Slice(m, begin, size)
    m2 = MatMul(part, eye)               # low ALLOW
    rows = Shape(m2)
    fetch = Identity(rows)
    out = Identity(m2)

    @half(f: f32) -> (n=n)
      c = Const(0.5)
      p = Mul(f, c)
      r = Floor(p)
      n = Cast(r, DstT=i32)
    """
    check_answer(text, [2049, 4], exact=True, steps=1, x=np.ones((4098, 4)))


ONES = """
    x: f32[4098,1] = Placeholder
    w: f32[1,1] = Const(1)
    zero = Const(0)
    flat = Const([4098])
    table = Const(VALUES)
    m = MatMul(x, w)                     # low ALLOW
    row = Reshape(m, flat)
    {}
    fetch = GatherV2(table, i, zero)
""".replace("VALUES", str(list(range(4100))))
COUNTED = {
    "exclusive": ("c = Cumsum(row, zero, exclusive=True)", np.arange(4098)),
    "reversed": ("c = Cumsum(row, zero, reverse=True)", np.arange(4098, 0, -1)),
    "behind a comparison": (
        """
        none = Const(0.0)
        keep = NotEqual(row, none)
        ones = Cast(keep, DstT=f32)
        c = Cumsum(ones, zero)
    """,
        np.arange(1, 4099),
    ),
    "range of floats": (
        """
        start = Const(0.0)
        n = Const(4098.0)
        step = Const(1.0)
        places = Range(start, n, step)
        c = Mul(places, row)
    """,
        np.arange(4098),
    ),
    "positions times the mask, and one": (
        """
        one = Const(1.0)
        sums = Cumsum(row, zero)
        kept = Mul(sums, row)
        c = AddV2(kept, one)
    """,
        np.arange(2, 4100),
    ),
    "sum": (
        """
        all = Const([0])
        c = Sum(row, all)
    """,
        4098,
    ),
}


@pytest.mark.parametrize(("lines", "expected"), COUNTED.values(), ids=COUNTED)
def test_positions_that_are_counted_in_floats(lines: str, expected: object) -> None:
    text = (
        ONES.format(
            lines
            + """

        i = Cast(c, DstT=i32)
    """
        )
        + "    out = Identity(m)\n"
    )
    check_answer(text, expected, exact=True, steps=1, x=np.ones((4098, 1)))


def test_ids_that_are_fed_as_floats() -> None:
    text = """
    ids: f32[3] = Placeholder
    x: f32[3,4] = Placeholder
    table: f32[6000,4] = Const(seed=1)
    numbers = Const(VALUES)
    axis = Const(0)
    one = Const(1.0)
    next = AddV2(ids, one)
    i = Cast(next, DstT=i32)
    rows = GatherV2(table, i, axis)
    sum = AddV2(rows, x)
    turned = MatMul(sum, table, transpose_b=True)   # low ALLOW
    out = Identity(turned)
    fetch = GatherV2(numbers, i, axis)
    """.replace("VALUES", str(list(range(6000))))
    check_answer(
        text, [2050, 5002, 258], exact=True, ids=[2049.0, 5001.0, 257.0], x=np.zeros((3, 4))
    )


def test_a_flat_index_that_is_computed_in_floats() -> None:
    # row * 100 + column
    text = """
    rows: f32[3] = Placeholder
    columns: f32[3] = Placeholder
    x: f32[3,4] = Placeholder
    eye: f32[4,4] = Const(1)
    numbers = Const(VALUES)
    axis = Const(0)
    stride = Const(100.0)
    scaled = Mul(rows, stride)
    at = AddV2(scaled, columns)
    i = Cast(at, DstT=i32)
    m = MatMul(x, eye)                   # low ALLOW
    out = Identity(m)
    fetch = GatherV2(numbers, i, axis)
    """.replace("VALUES", str(list(range(6000))))
    check_answer(
        text,
        [2049, 5001, 257],
        exact=True,
        rows=[20.0, 50.0, 2.0],
        columns=[49.0, 1.0, 57.0],
        x=np.zeros((3, 4)),
    )


@pytest.mark.parametrize("op", ["Sin", "Cos"])
def test_a_sinusoidal_encoding_of_late_positions(op: str) -> None:
    # an angle of 5000 has a spacing of 4 in half and of 32 in bfloat16
    text = f"""
    x: f32[4,4] = Placeholder
    eye: f32[4,4] = Const({EYE})
    start = Const(5000.0)
    limit = Const(5004.0)
    step = Const(1.0)
    axis = Const(1)
    frequencies: f32[1,4] = Const([[1, 0.5, 0.25, 0.01]])
    places = Range(start, limit, step)
    column = ExpandDims(places, axis)
    angle = Mul(column, frequencies)
    wave = {op}(angle)
    m = MatMul(x, eye)                   # low ALLOW
    sum = AddV2(m, wave)
    m2 = MatMul(sum, eye)                # low ALLOW
    fetch = Identity(m2)
    """
    angles = np.arange(5000, 5004)[:, None] * np.array([1, 0.5, 0.25, 0.01])
    check_answer(text, getattr(np, op.lower())(angles), x=np.zeros((4, 4)))


def test_a_rotary_encoding_of_late_positions() -> None:
    text = f"""
    x: f32[4,4] = Placeholder
    ids: i32[4] = Placeholder
    eye: f32[4,4] = Const({EYE})
    frequencies: f32[1,2] = Const([[1, 0.1]])
    axis = Const(1)
    m = MatMul(x, eye)                   # low ALLOW
    f = Cast(ids, DstT=f32)
    column = ExpandDims(f, axis)
    angle = Mul(column, frequencies)
    s = Sin(angle)
    c = Cos(angle)
    parts: f32, f32 = Split(axis, m, num_split=2)
    ac = Mul(parts, c)
    bs = Mul(parts:1, s)
    first = Sub(ac, bs)
    as = Mul(parts, s)
    bc = Mul(parts:1, c)
    second = AddV2(as, bc)
    turned = ConcatV2([first, second], axis)
    m2 = MatMul(turned, eye)             # low ALLOW
    fetch = Identity(m2)
    """
    ids = np.array([257, 2049, 5001, 30003], np.int32)
    angles = ids[:, None] * np.array([1, 0.1])
    expected = np.concatenate(
        [np.cos(angles) - 2 * np.sin(angles), np.sin(angles) + 2 * np.cos(angles)], axis=1
    )
    check_answer(text, expected, x=np.full((4, 4), [1.0, 1.0, 2.0, 2.0]), ids=ids)


SCORES = [[0.70004, 0.69996, 1.0, 0.0]]
THRESHOLDS = {
    "greater or equal": "g = GreaterEqual(s, limit)",
    "less, the other way round": "g = Less(limit, s)",
    "of the logical not": """
        l = LessEqual(s, limit)
        g = LogicalNot(l)
    """,
    "sign of the difference": (
        """
        d = Sub(s, limit)
        zero = Const(0.0)
        g = Greater(d, zero)
    """
    ),
    "floor": (
        """
        rest = Const(0.3)
        d = AddV2(s, rest)
        r = Floor(d)
        zero = Const(0.0)
        g = Greater(r, zero)
    """
    ),
}


@pytest.mark.parametrize("lines", THRESHOLDS.values(), ids=THRESHOLDS)
@pytest.mark.parametrize(
    "way",
    [
        "s = Identity(x)",
        """
        wide = Const([1, 2, 2])
        flat = Const([1, 4])
        a = Reshape(x, wide)
        s = Reshape(a, flat)
    """,
        """
        axis = Const(0)
        a = ExpandDims(x, axis)
        s = Squeeze(a, squeeze_dims=[0])
    """,
    ],
    ids=["identity", "reshape", "squeeze"],
)
def test_a_threshold_on_what_a_product_reads_too(lines: str, way: str) -> None:
    text = f"""
    x: f32[1,4] = Placeholder
    eye: f32[4,4] = Const({EYE})
    limit = Const(0.7)
    {way}
    m = MatMul(s, eye)                   # low ALLOW
    {lines}
    fetch = Identity(g)
    out = Identity(m)
    """
    check_answer(text, [[True, False, True, False]], exact=True, x=SCORES)


PICKS = {
    "best": (
        """
        k = Const(2)
        best: f32, i32 = TopKV2(s, k)
        out = Identity(best:1)
    """,
        [[3, 2]],
    ),
    "largest": (
        """
        last = Const(1)
        out = ArgMax(s, last, output_type=i32)
    """,
        [3],
    ),
    "smallest": (
        """
        last = Const(1)
        out = ArgMin(s, last, output_type=i32)
    """,
        [0],
    ),
    "where": (
        """
        limit = Const(0.50004)
        g = Greater(s, limit)
        w = Where(g)
        out = Cast(w, DstT=i32)
    """,
        [[0, 2], [0, 3]],
    ),
    "bucket": ("out = Bucketize(s, boundaries=[0.5,0.50002,0.50004])", [[0, 1, 3, 3]]),
    "sum of what is above": (
        """
        limit = Const(0.50004)
        g = Greater(s, limit)
        f = Cast(g, DstT=i32)
        all = Const([1])
        out = Sum(f, all)
    """,
        [2],
    ),
}


@pytest.mark.parametrize(("lines", "expected"), PICKS.values(), ids=PICKS)
def test_a_pick_among_scores_that_low_precision_can_not_tell_apart(
    lines: str, expected: object
) -> None:
    # all four are 0.5 in half; the scores were computed in float32
    text = f"""
    x: f32[1,4] = Placeholder
    eye: f32[4,4] = Const({EYE})
    flat = Const([1, 4])
    s = Reshape(x, flat)
    m = MatMul(s, eye)                   # low ALLOW
    {lines}
    fetch = Identity(out)
    answer = Identity(m)
    """
    scores = [[0.49999, 0.50001, 0.50005, 0.50007]]
    check_answer(text, expected, exact=True, steps=1, x=scores)


def test_boxes_and_scores_of_a_suppression_are_float32_as_they_were() -> None:
    text = f"""
    boxes: f32[4,4] = Placeholder
    scores: f32[4] = Placeholder
    eye: f32[4,4] = Const({EYE})
    most = Const(4)
    overlap = Const(0.5)
    least = Const(0.70002)
    m = MatMul(boxes, eye)               # low ALLOW
    out = Identity(m)
    picked = NonMaxSuppressionV3(boxes, scores, most, overlap, least)
    fetch = Identity(picked)
    """
    # the first two overlap by 0.5002; the last is below the least score by 0.00001
    boxes = [[0, 0, 1, 3000], [0, 1000, 1, 4001], [5, 0, 6, 1], [8, 0, 9, 1]]
    check_answer(
        text,
        [0, 1, 2],
        exact=True,
        steps=1,
        boxes=np.array(boxes, float),
        scores=[0.9, 0.8, 0.70003, 0.70001],
    )


def test_a_threshold_on_computed_scores_compares_what_was_computed_in_float32() -> None:
    # The score itself is the result of a product: within its rounding it may fall either way, but
    # it is compared in float32, with the limit as it was.
    text = (
        START
        + """
    limit = Const(0.70004)               # f32
    s = Sigmoid(m)
    g = Greater(s, limit)                # f32 KEEP
    fetch = Identity(g)
    """
    )
    check_answer(text, [[True, False, True, False]], exact=True, x=[[0.9, 0.8, 9.0, -9.0]])
