"""What the pass decides, where no case of the field or of a peer shows it."""

from __future__ import annotations

from tests.checks import check_precision, check_rewrite


def test_a_log_of_a_power_keeps_the_contractions_before_it_float32() -> None:
    check_precision(
        """
        x: f32[4,8] = Placeholder
        w1: f32[8,8] = Const(seed=1)
        w2: f32[8,8] = Const(seed=2)
        w3: f32[8,8] = Const(seed=3)
        floor = Const(0.01)
        frames = MatMul(x, w1)           # f32 CONDITION
        bands = MatMul(frames, w2)       # f32 CONDITION
        power = Square(bands)            # f32 DENY
        lifted = AddV2(power, floor)     # f32 CONDITION
        log = Log(lifted)                # f32
        m = MatMul(log, w3)              # low ALLOW
        out = Identity(m)                # f32 PINNED
        """
    )


def test_a_log_without_a_power_keeps_nothing_back() -> None:
    check_precision(
        """
        x: f32[4,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        m = MatMul(x, w)                 # low ALLOW
        soft = Softmax(m)                # low INFER
        log = Log(soft)                  # low INFER
        n = MatMul(log, w)               # low ALLOW
        out = Identity(n)                # f32 PINNED
        """
    )


def test_a_rectifier_ends_the_front_end_of_a_log() -> None:
    check_precision(
        """
        x: f32[4,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        one = Const(1.0)
        before = MatMul(x, w)            # low ALLOW
        cut = Relu(before)               # low CLEAR
        after = MatMul(cut, w)           # f32 CONDITION
        power = Square(after)            # f32 DENY
        lifted = AddV2(power, one)       # f32
        log = Log(lifted)                # f32
        out = Identity(log)              # f32 PINNED
        """
    )


def test_what_is_computed_from_a_weight_and_fed_indices_is_no_weight() -> None:
    # The sum of rows flows, so the bias behind the product is low as well.
    check_precision(
        """
        ids: i32[6] = Placeholder
        segments: i32[6] = Placeholder
        table: f32[200,8] = Const(seed=1)
        w: f32[8,8] = Const(seed=2)
        b: f32[8] = Const(seed=3)
        rows = SparseSegmentMean(table, ids, segments)   # low INFER
        m = MatMul(rows, w)                              # low ALLOW
        sum = BiasAdd(m, b)                              # low INFER
        out = Identity(sum)                              # f32 PINNED
        """,
        not_run="no bound is known for a segment mean; a model of the corpus runs one",
    )


def test_the_last_probabilities_stay_float32_and_inner_ones_do_not() -> None:
    check_precision(
        """
        x: f32[4,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        m = MatMul(x, w)                 # low ALLOW
        inner = Softmax(m)               # low INFER
        n = MatMul(inner, w)             # low ALLOW
        last = Softmax(n)                # f32 PINNED
        out = Identity(last)             # f32 PINNED
        """,
        casts=2,
    )


def test_a_small_table_is_not_worth_a_cast() -> None:
    check_precision(
        """
        ids: i32[4] = Placeholder
        zero = Const(0)
        table: f32[4,2] = Const(seed=1)
        rows = GatherV2(table, ids, zero)   # Tparams f32 CONSUMERS
        big = Exp(rows)                     # f32 DENY
        out = Identity(big)
        """,
        feeds={"ids": [0, 3, 1, 1]},
        casts=0,
    )


def test_a_users_cast_to_the_low_precision_of_a_weight_becomes_an_identity() -> None:
    check_rewrite(
        """
        x: f32[4,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        xl: low = Cast(x, DstT=low)
        wl: low = Cast(w, DstT=low)
        m: low = MatMul(xl, wl)
        up: f32 = Cast(m, DstT=f32)
        out = Identity(up)
        """,
        """
        x: f32[4,8] = Placeholder
        w: low[8,8] = Const(seed=1)
        xl: low = Cast(x, DstT=low)
        wl: low = Identity(w)
        m: low = MatMul(xl, wl)
        up: f32 = Cast(m, DstT=f32)
        out = Identity(up)
        """,
    )
