"""Attention masks: selected ones may be low, added ones only where the user asks, never NaN."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

from tests import checks, graph_text
from tests.checks import check_precision

EYE = "[[1,0,0,0],[0,1,0,0],[0,0,1,0],[0,0,0,1]]"
START = f"""
    x: f32[?,4] = Placeholder
    eye: f32[4,4] = Const({EYE})
    m = MatMul(x, eye)               # low ALLOW
"""
SELECTED = START + (
    """
    mask: bool[?,4] = Placeholder
    big = Const(BIG)                 # WEIGHT
    s = SelectV2(mask, m, big)       # SELECT
    p = Softmax(s)                   # SOFT
    fetch = MatMul(p, eye)
    out = Identity(fetch)
    """
)
LOW = SELECTED.replace("WEIGHT", "low FREE").replace("SELECT", "low CLEAR")
LOW = LOW.replace("SOFT", "low INFER")
SENTINELS = ("-1e9", "-2.3726566e38", "-3.4028235e38")
NO, YES = False, True
MASKS = [[YES, YES, YES, NO], [NO, YES, NO, NO], [NO] * 4, [YES] * 4]


def answer(
    text: str, dtype: str, feeds: dict[str, NDArray[np.generic]], **options: object
) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    """Returns what the original and the rewritten graph give."""
    graph = graph_text.parse(text, dtype)
    report = checks.checked_rewrite(graph, dtype, feeds, options=options)
    assert report.graph_def is not None
    graphs = (checks.imported(graph), checks.imported(report.graph_def))
    before, after = (checks.run_graph(g, ["out:0"], feeds)["out:0"] for g in graphs)
    return before, after


def masked(scores: list[float]) -> dict[str, NDArray[np.generic]]:
    """Returns feeds: a row of these scores for each of `MASKS`."""
    return {"x": np.float32([scores] * len(MASKS)), "mask": np.array(MASKS)}


@pytest.mark.parametrize("big", SENTINELS)
def test_a_selected_mask_may_be_low(big: str) -> None:
    check_precision(LOW.replace("BIG", big), casts=2, feeds=masked([1.0, 2.0, 3.0, 4.0]))


@pytest.mark.parametrize("dtype", checks.BOTH)
@pytest.mark.parametrize("big", SENTINELS)
@pytest.mark.parametrize(
    "scores",
    [[6e4, -6e4, 5.9e4, 6e4], [-6e4] * 4, [6e4] * 4, [-6e4, -6.1e4, -5e4, 0.0], [0.5, 1, -2, 3]],
)
def test_a_selected_mask_gives_the_same_probabilities(
    big: str, scores: list[float], dtype: str
) -> None:
    rounded = np.asarray(scores, "float16" if dtype == "half" else "float32")
    if dtype == "bfloat16":
        rounded = np.round(rounded / 512) * 512 if max(map(abs, scores)) > 1e3 else rounded
    before, after = answer(LOW.replace("BIG", big), dtype, masked([float(v) for v in rounded]))

    np.testing.assert_allclose(after, before, rtol=0, atol=4e-3)
    np.testing.assert_array_equal(after[1], [0, 1, 0, 0])  # one that is not masked
    np.testing.assert_allclose(after[2], 0.25)  # all masked


def test_the_report_says_what_is_clamped_and_why() -> None:
    report = checks.checked_rewrite(graph_text.parse(LOW.replace("BIG", "-1e9")), "half")
    (reason,) = (t.reason for t in report.type_variables if t.node == "big")
    assert "clamped to 65504" in reason
    assert "same probabilities" in reason
    assert not any("clamped" in warning for warning in report.warnings)


def test_a_mask_that_is_spread_and_selected_twice_may_be_low() -> None:
    check_precision(
        START
        + """
        mask1: bool[?,4] = Placeholder
        mask2: bool[?,4] = Placeholder
        big = Const(-1e9)
        other = Const(-1e9)
        shape = Shape(m)
        all = Fill(shape, big)
        s1 = SelectV2(mask1, m, other)   # low CLEAR
        s2 = Select(mask2, s1, all)      # low CLEAR
        p = Softmax(s2)                  # low INFER
        fetch = MatMul(p, eye)           # low ALLOW
        out = Identity(fetch)
        """,
    )


@pytest.mark.parametrize(
    ("change", "reader"),
    [
        ("", "out2 = Identity(s)"),  # outsiders see -1e9
        ("", "e = Abs(s)\n    out2 = Identity(e)"),
        ("", "n = MatMul(s, eye)\n    out2 = Identity(n)"),
        ("LogSoftmax", ""),  # its results are as large as its inputs
        ("positive", ""),
    ],
)
def test_a_selected_mask_with_another_reader_stays_float32(change: str, reader: str) -> None:
    big = "1e9" if change == "positive" else "-1e9"
    text = SELECTED.replace("BIG", big).replace("WEIGHT", "f32 RANGE")
    text = text.replace("SELECT", "f32 RANGE").replace("SOFT", "f32 TAINTED") + "    " + reader
    if change == "LogSoftmax":
        text = text.replace("Softmax(s)", "LogSoftmax(s)")
    check_precision(text, dtypes=("half",), not_run="-1e9 in a product has no useful bound")


def test_two_sentinels_that_a_masked_row_tells_apart_stay_float32() -> None:
    check_precision(
        START
        + """
        mask1: bool[?,4] = Placeholder
        mask2: bool[?,4] = Placeholder
        big = Const(-1e9)
        bigger = Const(-1e30)
        s1 = SelectV2(mask1, m, big)     # f32 RANGE
        s2 = SelectV2(mask2, s1, bigger) # f32 RANGE
        p = Softmax(s2)                  # f32 TAINTED
        fetch = MatMul(p, eye)           # low ALLOW
        out = Identity(fetch)
        """,
        dtypes=("half",),
    )


def test_a_sentinel_that_fits_is_told_from_one_that_does_not() -> None:
    # A row that is masked by both: all share -65504, and -1e9 gets nothing.
    text = (
        START
        + """
    mask1: bool[?,4] = Placeholder
    mask2: bool[?,4] = Placeholder
    fits = Const(FITS)
    big = Const(-1e9)
    s1 = SelectV2(mask1, m, fits)    # low CLEAR
    s2 = SelectV2(mask2, s1, big)    # SELECT
    p = Softmax(s2)                  # SELECT
    fetch = MatMul(p, eye)           # low ALLOW
    out = Identity(fetch)
    """
    )
    feeds: dict[str, NDArray[np.generic]] = {
        "x": np.float32([[1, 2, 3, 4]]),
        "mask1": np.array([[NO, NO, NO, NO]]),
        "mask2": np.array([[YES, NO, YES, NO]]),
    }
    cases = (("-65504.0", "f32"), ("-65472.0", "f32"), ("-10000.0", "low"), ("-inf", "low"))
    for fits, precision in cases:
        claimed = text.replace("FITS", fits).replace("SELECT", f"{precision}")
        check_precision(claimed, dtypes=("half",))
        _, after = answer(claimed, "half", feeds)
        # what is at -inf has no share: there -1e9 is the highest
        expected = [0, 0.5, 0, 0.5] if fits == "-inf" else [0.5, 0, 0.5, 0]
        np.testing.assert_allclose(after, [expected], atol=1e-3)


ADDED = START + (
    """
    mask: f32[?,4] = Placeholder
    one = Const(1.0)
    big = Const(BIG)
    inverse = Sub(one, mask)
    minus = Mul(inverse, big)
    s = AddV2(m, minus)              # ADD
    p = Softmax(s)                   # SOFT
    fetch = MatMul(p, eye)
    out = Identity(fetch)
    """
)
KEPT = ADDED.replace("ADD", "f32 TAINTED").replace("SOFT", "f32 TAINTED")
CLAMPED = ADDED.replace("ADD", "low INFER").replace("SOFT", "low INFER")
ALL_MASKED = {
    "x": np.float32([[30, -30, 2, 3], [-30, -31, -32, -33], [1, 2, 3, 4]]),
    "mask": np.float32([[1, 1, 1, 0], [0, 0, 0, 0], [0, 1, 0, 0]]),
}


@pytest.mark.parametrize("big", ["-1e9", "-65504.0", "-3.4028235e38"])
def test_an_added_mask_stays_float32_by_default(big: str) -> None:
    # -65504 fits half, but not with -30 added: a row that is all masked would not be a number.
    check_precision(KEPT.replace("BIG", big), dtypes=("half",), feeds=ALL_MASKED)


@pytest.mark.parametrize("dtype", checks.BOTH)
@pytest.mark.parametrize("big", SENTINELS)
def test_an_added_mask_is_low_where_the_user_asks(big: str, dtype: str) -> None:
    text = CLAMPED.replace("BIG", big)
    check_precision(
        text, dtypes=(dtype,), saturate=True, not_run="clamped on purpose: no bound holds"
    )
    graph = graph_text.parse(text, dtype)
    report = checks.checked_rewrite(
        graph, dtype, options={"saturate": True}, not_run="clamped on purpose"
    )
    assert report.graph_def is not None
    rewritten = checks.imported(report.graph_def)
    after = checks.run_graph(rewritten, ["out:0"], ALL_MASKED)["out:0"]
    before = checks.run_graph(checks.imported(graph), ["out:0"], ALL_MASKED)["out:0"]

    assert np.isfinite(after).all()
    np.testing.assert_allclose(after[[0, 2]], before[[0, 2]], atol=1e-2)
    np.testing.assert_allclose(after[1].sum(), 1, atol=1e-2)  # all masked: by its scores, say


def test_what_is_clamped_is_named() -> None:
    report = checks.checked_rewrite(
        graph_text.parse(CLAMPED.replace("BIG", "-1e9")),
        "half",
        options={"saturate": True},
        not_run="clamped on purpose",
    )
    assert "1 weight was clamped, as `saturate` asks: `big` to 32752" in report.warnings
    (reason,) = (t.reason for t in report.type_variables if t.node == "big")
    assert "holds 1e+09 is clamped to 32752" in reason


def test_two_added_masks_leave_room_for_each_other() -> None:
    text = CLAMPED.replace("BIG", "-1e9").replace("s = AddV2(m, minus)", "s = AddV2(t, minus)")
    text += """
    mask2: f32[?,4] = Placeholder
    big2 = Const(-1e9)
    minus2 = Mul(mask2, big2)
    t = AddV2(m, minus2)             # low INFER
    """
    graph = graph_text.parse(text)
    report = checks.checked_rewrite(
        graph, "half", options={"saturate": True}, not_run="clamped on purpose"
    )
    assert report.graph_def is not None
    feeds = {"x": np.full((1, 4), -1000.0, np.float32), "mask": np.zeros((1, 4), np.float32)}
    feeds["mask2"] = np.ones((1, 4), np.float32)
    after = checks.run_graph(checks.imported(report.graph_def), ["out:0"], feeds)["out:0"]

    np.testing.assert_allclose(after, 0.25)  # -1000 - 21834 - 21834


def test_where_nothing_of_it_is_low_the_constant_stays() -> None:
    text = KEPT.replace("BIG", "-1e9").replace("f32 TAINTED", "f32 USER")
    check_precision(
        text, saturate=True, deny_ops=("AddV2", "Softmax"), dtypes=("half",), feeds=ALL_MASKED
    )
    report = checks.checked_rewrite(
        graph_text.parse(text),
        "half",
        ALL_MASKED,
        options={"saturate": True, "deny_ops": ("AddV2", "Softmax")},
    )
    assert report.graph_def is not None
    (big,) = (node for node in report.graph_def.node if node.name == "big")
    assert list(big.attr["value"].tensor.float_val) == [np.float32(-1e9)]


def test_a_mask_that_is_fed_stays_float32() -> None:
    text = (
        START
        + """
        mask: f32[?,4] = Placeholder
        s = AddV2(m, mask)               # f32 DENY
        p = Softmax(s)                   # f32 INFER tainted by s
        fetch = MatMul(p, eye)           # low ALLOW
        out = Identity(fetch)
        """
    )
    feeds = {"x": np.float32([[1, 2, 3, 4]] * 2), "mask": np.float32([[0, 0, 0, -1e9], [-1e9] * 4])}
    check_precision(text, dtypes=("half",), feeds=feeds)


def test_a_mask_that_a_function_is_fed_stays_float32() -> None:
    check_precision(
        """
        x: f32[4,4] = Placeholder
        mask: f32[4,4] = Placeholder
        moved = Identity(mask)
        y: f32 = PartitionedCall([x, moved], Tout=[f32], f=@attend)
        out = Identity(y)

        @attend(x: f32, mask: f32) -> (y=fetch)
          eye: f32[4,4] = Const(seed=1)
          m = MatMul(x, eye)               # low ALLOW
          s = AddV2(m, mask)               # f32 DENY
          p = Softmax(s)                   # f32 TAINTED
          fetch = MatMul(p, eye)           # low ALLOW
        """,
        dtypes=("half",),
        steps=1,
    )


def test_scores_divided_by_the_root_of_a_size_are_low() -> None:
    check_precision(
        START
        + """
        one = Const(1)
        begin = Const([1])
        end = Const([2])
        step = Const([1])
        shape = Shape(m)
        size = StridedSlice(shape, begin, end, step, shrink_axis_mask=1)
        f = Cast(size, DstT=f32)         # f32
        root = Sqrt(f)                   # f32 KEEP
        s = RealDiv(m, root)             # low INFER
        p = Softmax(s)                   # low INFER
        fetch = MatMul(p, eye)           # low ALLOW
        out = Identity(fetch)
        """,
        dtypes=("half",),
    )


@pytest.mark.parametrize(
    ("made", "low"),
    [
        ("t1 = AddV2(m, p1)\n    t2 = AddV2(p2, t1)\n    s = AddV2(t2, p3)", "-16376"),
        ("t1 = AddV2(p1, p2)\n    t2 = AddV2(t1, p3)\n    s = AddV2(m, t2)", "-16376"),
        ("t1 = AddV2(p1, p2)\n    t2 = AddV2(t1, t1)\n    s = AddV2(m, t2)", "-13100.8"),
    ],
)
def test_a_constant_that_is_added_often_leaves_room_for_all_its_additions(
    made: str, low: str
) -> None:
    # 65504 / (3 + 1) for the scores and three masks, 65504 / (4 + 1) for the scores and four
    text = (
        START
        + f"""
    one = Const(1.0)
    big = Const(-1e9)
    mask1: f32[?,4] = Placeholder
    mask2: f32[?,4] = Placeholder
    mask3: f32[?,4] = Placeholder
    i1 = Sub(one, mask1)
    i2 = Sub(one, mask2)
    i3 = Sub(one, mask3)
    p1 = Mul(i1, big)
    p2 = Mul(big, i2)
    p3 = Mul(i3, big)
    {made}
    p = Softmax(s)                   # low INFER
    fetch = MatMul(p, eye)           # low ALLOW
    out = Identity(fetch)
    """
    )
    if "p3)" not in made:
        text = text.replace("p3 = Mul(i3, big)", "")
    report = checks.checked_rewrite(
        graph_text.parse(text), "half", options={"saturate": True}, not_run="clamped on purpose"
    )
    checks.assert_claims(text, report, "half")
    assert report.graph_def is not None
    (big,) = (node for node in report.graph_def.node if node.name.startswith("big"))
    np.testing.assert_allclose(tf.make_ndarray(big.attr["value"].tensor), float(low), rtol=1e-3)
    feeds = {f"mask{i}": np.zeros((1, 4), np.float32) for i in (1, 2, 3)}
    feeds["x"] = np.full((1, 4), -1000.0, np.float32)
    after = checks.run_graph(checks.imported(report.graph_def), ["out:0"], feeds)["out:0"]
    np.testing.assert_allclose(after, 0.25)


def test_a_mask_that_many_layers_add_leaves_room_once_for_each() -> None:
    # -30000 fits for one addition to each Softmax (65504 / 2), not for two (65504 / 3).
    text = (
        START
        + """
    mask: bool[?,4] = Placeholder
    big = Const(-30000.0)
    f = Cast(mask, DstT=f32)
    minus = Mul(f, big)
    s1 = AddV2(m, minus)             # ONCE
    p1 = Softmax(s1)                 # ONCE
    m2 = MatMul(p1, eye)             # low ALLOW
    s2 = AddV2(OTHER, minus)
    p2 = Softmax(s2)
    fetch = MatMul(p2, eye)          # low ALLOW
    out = Identity(fetch)
    """
    )
    feeds = {"x": np.float32([[1, 2, 3, 4]] * 2), "mask": np.array([[YES] * 4, [NO, YES] * 2])}
    apart = text.replace("OTHER", "m2").replace("ONCE", "low INFER")
    check_precision(apart, dtypes=("half",), feeds=feeds)
    chained = text.replace("OTHER", "s1").replace("ONCE", "f32 TAINTED")
    chained = chained.replace(
        "m2 = MatMul(p1, eye)             # low ALLOW", "m2 = MatMul(p1, eye)"
    )
    check_precision(chained, dtypes=("half",), feeds=feeds)


# How a fed mask reaches the scores, and what is fed where a place is masked.
FED = {
    "minimum": ("AddV2(m, n)", "n = Minimum(mask, zeros)", -1e9),
    "maximum": ("AddV2(m, n)", "n = Maximum(mask, mask2)", -1e9),
    "concat": ("AddV2(m, n)", "n = ConcatV2([left, right], axis)", -1e9),
    "neg": ("AddV2(n, m)", "n = Neg(mask)", 1e9),
    "mul": ("AddV2(m, n)", "n = Mul(mask, minus)", 1e9),
    "sub": ("Sub(m, mask)", "", 1e9),
    "sum": ("AddV2(m, n)", "n = AddV2(mask, mask2)", -1e9),
    "scaled": ("AddV2(m, n)", "i = Sub(one, keep)\n    n = Mul(i, scalar)", -1e9),
    "limit": ("Minimum(m, mask)", "", -1e9),
    "select": ("SelectV2(chosen, m, mask)", "", -1e9),
    "behind": ("RealDiv(n, two)", "n = AddV2(m, mask)", -1e9),
}


@pytest.mark.parametrize("form", FED)
def test_a_fed_mask_in_any_form_stays_float32(form: str) -> None:
    join, made, value = FED[form]
    text = (
        START
        + f"""
    mask: f32[?,4] = Placeholder
    mask2: f32[?,4] = Placeholder
    keep: f32[?,4] = Placeholder
    chosen: bool[?,4] = Placeholder
    scalar: f32[] = Placeholder
    zeros = ZerosLike(mask)
    axis = Const(1)
    begin = Const([0, 0])
    middle = Const([0, 2])
    size = Const([-1, 2])
    left = Slice(mask, begin, size)
    right = Slice(mask2, middle, size)
    one = Const(1.0)
    two = Const(2.0)
    minus = Const(-1.0)
    {made}
    s = {join}
    p = Softmax(s)                   # f32 TAINTED
    fetch = MatMul(p, eye)           # low ALLOW
    out = Identity(fetch)
    """
    )
    feeds: dict[str, NDArray[np.generic]] = {
        "x": np.float32([[1, 2, 3, 4]] * 2),
        "mask": np.float32([[0, 0, 0, value], [value] * 4]),
        "mask2": np.float32([[0, 0, 0, value], [value] * 4]),
        "keep": np.float32([[1, 1, 1, 0], [0] * 4]),
        "chosen": np.array([[YES, YES, YES, NO], [NO] * 4]),
        "scalar": np.float32(value),
    }
    if form == "limit":
        feeds["mask"] = np.float32([[100, 100, 100, value], [value] * 4])
    _, after = answer(text, "half", feeds)
    report = checks.checked_rewrite(graph_text.parse(text), "half", feeds)
    checks.assert_claims(text, report, "half")

    # exp(1), exp(2), exp(3) of their sum, and an even row: -1e9 swallows the scores in float32
    row = [0.0900306, 0.2447285, 0.6652410, 0]
    if form == "behind":
        row = [0.1863237, 0.3071959, 0.5064804, 0]  # exp(0.5), exp(1), exp(1.5)
    np.testing.assert_allclose(after, [row, [0.25] * 4], atol=1e-3)


@pytest.mark.parametrize("dtype", ["f64", "bf16", "i32"])
def test_a_fed_mask_of_another_type_stays_float32(dtype: str) -> None:
    check_precision(
        START
        + f"""
        mask: {dtype}[?,4] = Placeholder
        f = Cast(mask, DstT=f32)
        s = AddV2(m, f)                  # f32 DENY
        p = Softmax(s)                   # f32 TAINTED
        fetch = MatMul(p, eye)           # low ALLOW
        out = Identity(fetch)
        """,
        dtypes=("half",),
        not_run="the mask is fed what the test of the forms feeds",
    )


@pytest.mark.parametrize("dtype", ["f32", "i32", "bool"])
@pytest.mark.parametrize("made", ["Mul(inverse, big)", "Mul(f, big)"])
def test_a_fed_mask_of_0_and_1_is_as_low_as_its_constant(made: str, dtype: str) -> None:
    # BERT: (1 - mask) * -10000 fits half with room for the scores.
    text = (
        START
        + f"""
    mask: {dtype}[?,4] = Placeholder
    one = Const(1.0)
    big = Const(-10000.0)
    f = {"Identity(mask)" if dtype == "f32" else "Cast(mask, DstT=f32)"}
    inverse = Sub(one, f)
    minus = {made}
    s = AddV2(m, minus)              # low INFER
    p = Softmax(s)                   # low INFER
    fetch = MatMul(p, eye)           # low ALLOW
    out = Identity(fetch)
    """
    )
    types = {"f32": np.float32, "i32": np.int32, "bool": np.bool_}
    mask = np.array([[1, 1, 1, 0], [1, 0, 1, 0]], types[dtype])
    check_precision(
        text, dtypes=("half",), feeds={"x": np.float32([[1, 2, 3, 4]] * 2), "mask": mask}
    )


def test_scores_times_what_is_fed_are_no_mask() -> None:
    check_precision(
        START
        + """
        temperature: f32[] = Placeholder
        bias: f32[4] = Const([1, 2, 3, 4])
        warm = Mul(m, temperature)       # low INFER
        s = AddV2(warm, bias)            # low INFER
        p = Softmax(s)                   # low INFER
        fetch = MatMul(p, eye)           # low ALLOW
        out = Identity(fetch)
        """,
        dtypes=("half",),
    )


def test_a_mask_that_a_function_makes_of_what_is_fed_stays_float32() -> None:
    check_precision(
        inspect.cleandoc("\n" + START)
        + "\n"
        + inspect.cleandoc(
            """
            mask: f32[?,4] = Placeholder
            n: f32 = PartitionedCall([mask], Tout=[f32], f=@negated)
            scores: f32 = PartitionedCall([m, mask], Tout=[f32], f=@scored)
            s = AddV2(scores, n)             # f32 DENY
            p = Softmax(s)                   # f32 TAINTED
            fetch = MatMul(p, eye)           # low ALLOW
            out = Identity(fetch)

            @negated(x: f32) -> (y=n)
              n = Neg(x)

            @scored(m: f32, x: f32) -> (y=m)
            """
        ),
        dtypes=("half",),
        steps=1,
    )
