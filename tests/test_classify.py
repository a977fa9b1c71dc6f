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
        two = Const(2.0)
        m = MatMul(x, w)                 # low ALLOW
        lifted = AddV2(m, two)           # low INFER
        log = Log(lifted)                # low INFER
        n = MatMul(log, w)               # low ALLOW
        out = Identity(n)                # f32 PINNED
        """,
        ranges={"x": (-0.1, 0.1)},
    )


def test_a_log_of_a_probability_keeps_it_float32() -> None:
    # log(1 - sigmoid(9)) is -9; in half the sigmoid of 9 is 1.
    check_precision(
        """
        x: f32[1,1] = Placeholder
        w: f32[1,1] = Const(1.0)
        one = Const(1.0)
        m = MatMul(x, w)                 # low ALLOW
        p = Sigmoid(m)                   # f32 CONDITION
        q = Sub(one, p)                  # f32 CONDITION
        log = Log(q)                     # f32 CONDITION
        out = Identity(log)              # f32 PINNED
        """,
        feeds={"x": [[9.0]]},
    )


def test_a_divisor_made_of_a_probability_stays_float32() -> None:
    check_precision(
        """
        x: f32[1,1] = Placeholder
        w: f32[1,1] = Const(1.0)
        one = Const(1.0)
        m = MatMul(x, w)                 # low ALLOW
        p = Sigmoid(m)                   # f32 CONDITION
        q = Sub(one, p)                  # f32 CONDITION
        odds = RealDiv(m, q)             # f32 CONDITION
        out = Identity(odds)             # f32 PINNED
        """,
        feeds={"x": [[3.0]]},
    )


def test_a_product_of_a_tensor_with_itself_is_a_square() -> None:
    # A row of +-300: its squares overflow half, and the norm would be 0.
    check_precision(
        """
        x: f32[1,4] = Placeholder
        w: f32[4,4] = Const([[1.0,0,0,0],[0,1,0,0],[0,0,1,0],[0,0,0,1]])
        axis = Const([1])
        tiny = Const(1e-3)
        s = MatMul(x, w)                        # low ALLOW
        copy = Identity(s)                      # low CLEAR
        squares = Mul(s, copy)                  # f32 DENY
        mean = Mean(squares, axis, keep_dims=True)   # f32 DENY
        lifted = AddV2(mean, tiny)              # f32 INFER tainted by mean
        scale = Rsqrt(lifted)                   # f32 DENY
        y = Mul(s, scale)                       # low INFER
        out = Identity(y)                       # f32 PINNED
        """,
        feeds={"x": [[300.0, -300.0, 300.0, -300.0]]},
    )


def test_what_a_constant_computation_gives_is_checked_for_its_range() -> None:
    check_precision(
        """
        x: f32[2,4] = Placeholder
        w: f32[4,4] = Const(seed=1)
        some = Const(-30000.0)
        more = Const(30000.0)
        m = MatMul(x, w)                 # low ALLOW
        mask = Mul(some, more)           # f32
        sum = AddV2(m, mask)             # f32 RANGE
        p = Softmax(sum)                 # f32 INFER tainted by sum
        out = Identity(p)                # f32 PINNED
        """,
        dtypes=("half",),  # -9e8 fits bfloat16
    )


def test_a_size_taints_what_it_divides() -> None:
    check_precision(
        """
        x: f32[2,4] = Placeholder
        w: f32[4,4] = Const(seed=1)
        m = MatMul(x, w)                 # low ALLOW
        size = Size(m)
        count = Cast(size, DstT=f32)     # f32 NOTHING_LOW
        y = RealDiv(m, count)            # f32 INFER tainted by count
        out = Identity(y)                # f32 PINNED
        """,
        dtypes=("half",),  # bfloat16 has the range of float32
    )


def test_a_table_that_a_comparison_alone_reads_keeps_its_exact_values() -> None:
    check_precision(
        """
        ids: i32[4] = Placeholder
        x: f32[4] = Placeholder
        zero = Const(0)
        table: f32[4096] = Const(seed=1)
        rows = GatherV2(table, ids, zero)   # Tparams f32 CONDITION
        above = Greater(x, rows)            # f32 KEEP
        out = Identity(above)
        """,
        feeds={"ids": [0, 4095, 7, 7]},
    )


def test_shared_functions_called_in_rings_come_to_an_end() -> None:
    # Two taints chase each other round the calls unless the first origin stays.
    def call(name: str, functions: list[str], x: str) -> list[str]:
        lines = []
        for index, function in enumerate(functions):
            lines.append(
                f"{name}{index}: f32[4] = PartitionedCall([{x}], Tout=[f32], f={function})"
            )
            x = f"{name}{index}"
        return lines

    text = "x: f32[4] = Placeholder\n"
    text += "\n".join(call("a", ["e", "r", "s", "e", "r", "t", "s", "u", "t"], "x"))
    text += "\n" + "\n".join(call("b", ["u", "r", "t", "e", "u", "s", "r", "e"], "a8"))
    text += "\nout = Identity(b7)\n"
    for name, op in (("e", "Exp"), ("u", "Exp"), ("r", "Relu"), ("s", "Relu"), ("t", "Relu")):
        text += f"@{name}(x: f32) -> (y=z)\n  z = {op}(x)\n"
    check_precision(text, not_run="no bound is known through calls")


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


def test_a_vector_of_divisors_of_which_one_would_be_0_stays_float32() -> None:
    check_precision(
        """
        x: f32[2,2] = Placeholder
        w: f32[2,2] = Const(seed=1)
        epsilons = Const([1.0, 1e-8])
        m = MatMul(x, w)                 # low ALLOW
        sum = AddV2(m, epsilons)         # f32 RANGE
        y = RealDiv(m, sum)              # f32 INFER tainted by sum
        out = Identity(y)                # f32 PINNED
        """,
        feeds={"x": [[0.0, 0.0], [0.0, 0.0]]},
        dtypes=("half",),  # 1e-8 fits bfloat16
    )
