"""TVM's cases: Relay's pass (TR-*) and Relax's (TX-*), in our words.

Weights are constants here and cost no Cast. The results stay float32 (Relay's "keep output dtype",
Relax's rule for function outputs). TX follows column B: contractions have low outputs.
"""

from __future__ import annotations

import pytest

import tf_amp_rewriter
from tests.checks import check_precision, check_rewrite, check_unchanged
from tf_amp_rewriter import errors

HALF = ("half",)
BFLOAT16 = ("bfloat16",)
CONV = "strides=[1,1,1,1], padding='SAME'"


def test_tr_03_and_tx_01_one_convolution() -> None:
    check_rewrite(
        f"""
        x: f32[1,32,32,3] = Placeholder
        w: f32[3,3,3,4] = Const(seed=1)
        conv = Conv2D(x, w, {CONV})
        fetch = Identity(conv)
        """,
        f"""
        x: f32[1,32,32,3] = Placeholder
        w: low[3,3,3,4] = Const(seed=1)
        x/Cast_low = Cast(x, DstT=low)
        conv: low = Conv2D(x/Cast_low, w, {CONV})
        conv/Cast_float32 = Cast(conv, DstT=f32)
        fetch = Identity(conv/Cast_float32)
        """,
    )


def test_tr_05_batch_norm_with_its_parameters_as_inputs() -> None:
    # Ours on purpose: TVM casts each parameter once. TensorFlow's op has a type of its own for
    # them, and computes in float32: they stay.
    check_precision(
        f"""
        x: f32[1,8,8,3] = Placeholder
        w: f32[3,3,3,4] = Const(seed=1)
        scale: f32[4] = Placeholder
        offset: f32[4] = Placeholder
        mean: f32[4] = Placeholder
        var: f32[4] = Placeholder
        conv = Conv2D(x, w, {CONV})     # low ALLOW
        bn = FusedBatchNormV3(conv,scale,offset,mean,var,is_training=False)  # T low; U f32 KEEP
        fetch = Identity(bn)            # f32 PINNED
        """,
        ranges={"var": (0.5, 2)},
        casts=2,
    )


UNCHANGED = {
    "TR-06 softmax alone": """
        x: f32[4,8] = Placeholder
        soft = Softmax(x)              # f32 NOTHING_LOW
        fetch = Identity(soft)         # f32 PINNED
    """,
    "TR-07 arange of constants": """
        start = Const(1.0)
        limit = Const(128.0)
        delta = Const(1.0)
        range = Range(start, limit, delta)   # f32
        fetch = Identity(range)              # f32 PINNED
    """,
    "TR-08 sum": """
        x: f32[4,8] = Placeholder
        axis = Const([1])
        sum = Sum(x, axis)             # f32 DENY
        fetch = Identity(sum)          # f32 PINNED
    """,
    "TR-08 mean": """
        x: f32[4,8] = Placeholder
        axis = Const([1])
        mean = Mean(x, axis)           # f32 DENY
        fetch = Identity(mean)         # f32 PINNED
    """,
    "TR-08 global average pool": """
        x: f32[1,8,8,4] = Placeholder
        axes = Const([1, 2])
        mean = Mean(x, axes)           # f32 DENY
        fetch = Identity(mean)         # f32 PINNED
    """,
    "TR-08 adaptive average pool to 1x1": """
        x: f32[1,8,8,4] = Placeholder
        pool = AvgPool(x, ksize=[1,8,8,1], strides=[1,1,1,1], padding='VALID')   # f32
        fetch = Identity(pool)         # f32 PINNED
    """,
    "TR-11 softmax added to itself": """
        x: f32[4,8] = Placeholder
        soft = Softmax(x)              # f32 NOTHING_LOW
        add = AddV2(soft, soft)        # f32 NOTHING_LOW
        fetch = Identity(add)          # f32 PINNED
    """,
    # Ours on purpose: TVM casts the data. Without a contraction nothing is gained.
    "TR-15 take": """
        data: f32[10,8] = Placeholder
        ids: i32[3] = Placeholder
        zero = Const(0)
        sum = AddV2(ids, zero)
        take = GatherV2(data, sum, zero)   # f32 NOTHING_LOW
        fetch = Identity(take)             # f32 PINNED
    """,
    # Ours on purpose, in bfloat16: TVM makes these two low. Nothing is gained.
    "TR-16 clip alone": """
        x: f32[4,8] = Placeholder
        low_end = Const(-128000.0)
        high_end = Const(128000.0)
        clip = ClipByValue(x, low_end, high_end)   # f32
        fetch = Identity(clip)                     # f32 PINNED
    """,
    "TR-17 divide and clip alone": """
        x: f32[4,8] = Placeholder
        five = Const(5.0)
        low_end = Const(-128000.0)
        high_end = Const(128000.0)
        divide = RealDiv(x, five)                       # f32 NOTHING_LOW
        clip = ClipByValue(divide, low_end, high_end)   # f32
        fetch = Identity(clip)                          # f32 PINNED
    """,
}


@pytest.mark.parametrize("text", UNCHANGED.values(), ids=UNCHANGED)
def test_unchanged(text: str) -> None:
    check_unchanged(text)


def test_tr_09_convolution_added_to_itself() -> None:
    check_precision(
        f"""
        x: f32[1,8,8,3] = Placeholder
        w: f32[3,3,3,4] = Const(seed=1)
        conv = Conv2D(x, w, {CONV})     # low ALLOW
        add = AddV2(conv, conv)         # low INFER
        fetch = Identity(add)           # f32 PINNED
        """,
        casts=2,
    )


def test_tr_10_convolution_and_softmax() -> None:
    # As TVM: one Cast up before the softmax, since its result only leaves the model.
    check_precision(
        f"""
        x: f32[1,8,8,3] = Placeholder
        w: f32[3,3,3,4] = Const(seed=1)
        conv = Conv2D(x, w, {CONV})     # low ALLOW
        soft = Softmax(conv)            # f32 PINNED
        fetch = Identity(soft)          # f32 PINNED
        """,
        casts=2,
    )


def test_tr_12_one_weight_in_two_products() -> None:
    check_rewrite(
        """
        x: f32[4,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        v1 = MatMul(x, w)
        r1 = AddV2(v1, v1)
        v2 = MatMul(r1, w)
        r2 = AddV2(v2, v2)
        fetch = Identity(r2)
        """,
        """
        x: f32[4,8] = Placeholder
        w: low[8,8] = Const(seed=1)
        x/Cast_low = Cast(x, DstT=low)
        v1: low = MatMul(x/Cast_low, w)
        r1: low = AddV2(v1, v1)
        v2: low = MatMul(r1, w)
        r2: low = AddV2(v2, v2)
        r2/Cast_float32 = Cast(r2, DstT=f32)
        fetch = Identity(r2/Cast_float32)
        """,
    )


def test_tr_13_where_on_a_condition_that_is_read_from_the_data() -> None:
    # Ours on purpose: TVM's condition is a low number. TensorFlow's is a bool, and the comparison
    # that makes it reads the float32 data.
    check_precision(
        """
        x: f32[8,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        zero = Const(0.0)
        condition = NotEqual(x, zero)         # f32 KEEP
        a = MatMul(x, w)                      # low ALLOW
        where = SelectV2(condition, a, a)     # low CLEAR
        fetch = Identity(where)               # f32 PINNED
        """,
        casts=2,
    )


def test_tr_14_batch_matmul() -> None:
    check_precision(
        """
        x: f32[2,4,8] = Placeholder
        y: f32[2,8,4] = Placeholder
        m = BatchMatMulV2(x, y)    # low ALLOW
        fetch = Identity(m)        # f32 PINNED
        """,
        casts=3,
    )


def test_tr_15_take_before_a_contraction_leaves_the_integers_alone() -> None:
    check_precision(
        """
        data: f32[10,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        ids: i32[3] = Placeholder
        zero = Const(0)
        sum = AddV2(ids, zero)
        take = GatherV2(data, sum, zero)
        m = MatMul(take, w)                # low ALLOW
        fetch = Identity(m)                # f32 PINNED
        """,
        casts=2,
    )


CLIP = """
    x: f32[4,8] = Placeholder
    w: f32[8,8] = Const(seed=1)
    five = Const(5.0)
    low_end = Const(-128000.0)
    high_end = Const(128000.0)
    m = MatMul(x, w)                                # low ALLOW
    divide = RealDiv(m, five)                       # low INFER
    clip = ClipByValue(divide, low_end, high_end)   # CLIP
    m2 = MatMul(clip, w)                            # low ALLOW
    fetch = Identity(m2)                            # f32 PINNED
"""


def test_tr_16_and_17_limits_that_no_value_reaches_go_low() -> None:
    # Ours on purpose: TVM keeps the clip float32 in half, but +-128000 bounds no value of half.
    check_precision(CLIP.replace("# CLIP", "# low CLEAR"), casts=2)


def test_tx_02_convolution_and_relu() -> None:
    check_precision(
        f"""
        x: f32[1,8,8,3] = Placeholder
        w: f32[3,3,3,4] = Const(seed=1)
        conv = Conv2D(x, w, {CONV})     # low ALLOW
        relu = Relu(conv)               # low CLEAR
        fetch = Identity(relu)          # f32 PINNED
        """,
        casts=2,
    )


def test_tx_03_relu_before_the_first_convolution() -> None:
    # Ours on purpose: Relax leaves the first relu in float32. It changes no value, so the Cast may
    # as well stand before it, and the relu moves half the bytes.
    check_precision(
        f"""
        x: f32[1,8,8,3] = Placeholder
        w: f32[3,3,3,4] = Const(seed=1)
        relu1 = Relu(x)                 # low CLEAR
        conv = Conv2D(relu1, w, {CONV}) # low ALLOW
        relu2 = Relu(conv)              # low CLEAR
        fetch = Identity(relu2)         # f32 PINNED
        """,
        casts=2,
    )


def test_tx_04_relu_between_convolutions() -> None:
    check_precision(
        f"""
        x: f32[1,8,8,3] = Placeholder
        w1: f32[3,3,3,4] = Const(seed=1)
        w2: f32[3,3,4,4] = Const(seed=2)
        conv1 = Conv2D(x, w1, {CONV})      # low ALLOW
        relu = Relu(conv1)                 # low CLEAR
        conv2 = Conv2D(relu, w2, {CONV})   # low ALLOW
        fetch = Identity(conv2)            # f32 PINNED
        """,
        casts=2,
    )


def test_tx_05_a_float32_input_joins_behind_the_product() -> None:
    # Ours on purpose: Relax adds and activates in float32, as one summand is. Nothing that flows in
    # is unsafe, so the island runs on: w2 is cast down, the silu is low.
    check_precision(
        """
        x: f32[4,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        w2: f32[4,8] = Placeholder
        m = MatMul(x, w)          # low ALLOW
        a = AddV2(m, w2)          # low INFER
        s = Sigmoid(a)            # low INFER
        silu = Mul(a, s)          # low INFER
        fetch = Identity(silu)    # f32 PINNED
        """,
        casts=3,
    )


def test_tx_06_tuples_go_low_throughout() -> None:
    check_precision(
        f"""
        x: f32[1,8,8,3] = Placeholder
        w1: f32[3,3,3,4] = Const(seed=1)
        w2: f32[3,3,4,4] = Const(seed=2)
        conv1 = Conv2D(x, w1, {CONV})            # low ALLOW
        conv2 = Conv2D(x, w1, {CONV})            # low ALLOW
        inner = IdentityN([conv1, conv2])        # T[0] low CLEAR; T[1] low CLEAR
        outer = IdentityN([inner, inner:1])      # T[0] low CLEAR; T[1] low CLEAR
        conv3 = Conv2D(outer, w2, {CONV})        # low ALLOW
        conv4 = Conv2D(outer:1, w2, {CONV})      # low ALLOW
        add = AddV2(conv3, conv4)                # low INFER
        fetch = Identity(add)                    # f32 PINNED
        """,
        casts=2,
    )


def test_tx_07_concat_of_two_inputs_before_a_product() -> None:
    # Ours on purpose: Relax concatenates in float32 and casts once. A Cast of each part moves as
    # many bytes as a Cast of the whole, and the low concat half of those of a float32 one.
    check_precision(
        """
        x: f32[4,4] = Placeholder
        y: f32[4,4] = Placeholder
        w: f32[8,8] = Const(seed=1)
        axis = Const(1)
        concat = ConcatV2([x, y], axis)    # low CLEAR
        m = MatMul(concat, w)              # low ALLOW
        fetch = Identity(m)                # f32 PINNED
        """,
        casts=3,
    )


def test_tx_08_a_softmax_of_a_float32_input_stays_float32() -> None:
    # Ours on purpose: Relax adds in float32. A softmax does not taint, so the sum of it and of the
    # low convolution is low (rule 3 of the design's pass).
    check_precision(
        f"""
        x: f32[1,8,8,4] = Placeholder
        w: f32[3,3,4,4] = Const(seed=1)
        conv = Conv2D(x, w, {CONV})     # low ALLOW
        soft = Softmax(x)               # f32 NOTHING_LOW
        add = AddV2(conv, soft)         # low INFER
        fetch = Identity(add)           # f32 PINNED
        """,
        casts=3,
    )


def test_tx_10_split_behind_a_bias_that_is_an_input() -> None:
    # Ours on purpose, as in TX-05: Relax goes on in float32 from the bias on.
    check_precision(
        f"""
        x: f32[1,8,8,3] = Placeholder
        w: f32[3,3,3,4] = Const(seed=1)
        bias: f32[4] = Placeholder
        axis = Const(3)
        conv = Conv2D(x, w, {CONV})            # low ALLOW
        add = AddV2(conv, bias)                # low INFER
        split = Split(axis, add, num_split=2)  # low CLEAR
        sum = AddV2(split, split:1)            # low INFER
        fetch = Identity(sum)                  # f32 PINNED
        """,
        casts=3,
    )


BIAS = f"""
    x: f32[1,8,8,3] = Placeholder
    w: f32[3,3,3,4] = Const(seed=1)
    bias: f32[4] = Const([1, 2, 3, LAST])   # BIAS
    shape = Const([1, 1, 1, 4])
    row = Reshape(bias, shape)              # BIAS
    conv = Conv2D(x, w, {CONV})             # low ALLOW
    add = AddV2(conv, row)                  # ADD
    fetch = Identity(add)                   # f32 PINNED
"""


def test_tx_11a_a_bias_within_range() -> None:
    text = BIAS.replace("LAST", "4").replace("# BIAS", "# low").replace("# ADD", "# low INFER")
    check_precision(text, casts=2)


def test_tx_11b_a_bias_beyond_half() -> None:
    text = BIAS.replace("LAST", "70000").replace("# BIAS", "# f32").replace("# ADD", "# f32 RANGE")
    check_precision(text, dtypes=HALF, casts=2)


def test_tx_11b_a_bias_within_bfloat16() -> None:
    text = BIAS.replace("LAST", "70000").replace("# BIAS", "# low").replace("# ADD", "# low INFER")
    check_precision(text, dtypes=BFLOAT16, casts=2)


def test_tx_14_a_slice_with_64_bit_limits() -> None:
    # Ours on purpose: Relax never slices in low precision. A slice moves values; only its limits
    # must stay what they are.
    check_precision(
        f"""
        x: f32[1,8,8,3] = Placeholder
        w: f32[3,3,3,4] = Const(seed=1)
        begin: i64[4] = Const([0, 1, 1, 0])
        end: i64[4] = Const([1, 7, 7, 4])
        step: i64[4] = Const(1)
        conv = Conv2D(x, w, {CONV})                   # low ALLOW
        slice = StridedSlice(conv, begin, end, step)  # low CLEAR
        fetch = Identity(slice)                       # f32 PINNED
        """,
        casts=2,
    )


def lstm_step(step: int) -> str:
    """Returns one step of an LSTM of 4 units: gates of [x, h], and what they make of c and h."""
    h, c = (f"h{step - 1}", f"c{step - 1}") if step else ("h", "c")
    return f"""
    both{step} = ConcatV2([xs:{step}, {h}], one)                                    # low CLEAR
    m{step} = MatMul(both{step}, w)                                                 # low ALLOW
    gates{step} = BiasAdd(m{step}, b)                                               # low INFER
    p{step}: f32, f32, f32, f32 = Split(one, gates{step}, num_split=4)              # low CLEAR
    in{step} = Sigmoid(p{step})                                                     # low INFER
    new{step} = Tanh(p{step}:1)                                                     # low INFER
    forget{step} = Sigmoid(p{step}:2)                                               # low INFER
    out{step} = Sigmoid(p{step}:3)                                                  # low INFER
    kept{step} = Mul({c}, forget{step})                                             # low INFER
    added{step} = Mul(in{step}, new{step})                                          # low INFER
    c{step} = AddV2(kept{step}, added{step})                                        # low INFER
    t{step} = Tanh(c{step})                                                         # low INFER
    h{step} = Mul(out{step}, t{step})                                               # low INFER
    """


def test_tr_01_an_lstm_of_five_unrolled_steps() -> None:
    # Ours on purpose: each state that the model takes is cast once, and so are all inputs of the
    # steps together; TVM casts each weight too.
    steps = "".join(map(lstm_step, range(5)))
    check_precision(
        f"""
        x: f32[2,5,4] = Placeholder
        h: f32[2,4] = Placeholder
        c: f32[2,4] = Placeholder
        w: f32[8,16] = Const(seed=1, scale=0.5)
        b: f32[16] = Const(seed=2)
        one = Const(1)
        xs: f32, f32, f32, f32, f32 = Unpack(x, axis=1, num=5)                      # low CLEAR
        {steps}
        fetch = IdentityN([h4, c4])
        """,
        ranges={"x": (-10, 10)},
        steps=1,
        casts=5,  # x, h and c down; h and c up
    )


@pytest.mark.parametrize("dtype", ["float64", "double", "float32", "int8"])
def test_tr_02_and_04_half_and_bfloat16_are_the_only_targets(dtype: str) -> None:
    # Ours on purpose: TVM takes any type as its target.
    with pytest.raises(errors.FlagError, match=f"`dtype` is `{dtype}`, expected one of"):
        tf_amp_rewriter.Options(dtype=dtype)


def test_tx_09_weights_that_are_low_already_behind_casts() -> None:
    check_rewrite(
        f"""
        x: f32[1,8,8,3] = Placeholder
        w1: low[3,3,3,4] = Const(0.25)
        b1: low[4] = Const(0.5)
        w2: low[3,3,4,4] = Const(0.125)
        b2: low[4] = Const(1)
        w1_up = Cast(w1, DstT=f32)
        b1_up = Cast(b1, DstT=f32)
        w2_up = Cast(w2, DstT=f32)
        b2_up = Cast(b2, DstT=f32)
        conv1 = Conv2D(x, w1_up, {CONV})
        add1 = BiasAdd(conv1, b1_up)
        conv2 = Conv2D(add1, w2_up, {CONV})
        add2 = BiasAdd(conv2, b2_up)
        fetch = Identity(add2)
        """,
        f"""
        x: f32[1,8,8,3] = Placeholder
        w1: low[3,3,3,4] = Const(0.25)
        b1: low[4] = Const(0.5)
        w2: low[3,3,4,4] = Const(0.125)
        b2: low[4] = Const(1)
        w1_up = Identity(w1)
        b1_up = Identity(b1)
        w2_up = Identity(w2)
        b2_up = Identity(b2)
        x/Cast_low = Cast(x, DstT=low)
        conv1: low = Conv2D(x/Cast_low, w1_up, {CONV})
        add1: low = BiasAdd(conv1, b1_up)
        conv2: low = Conv2D(add1, w2_up, {CONV})
        add2: low = BiasAdd(conv2, b2_up)
        add2/Cast_float32 = Cast(add2, DstT=f32)
        fetch = Identity(add2/Cast_float32)
        """,
    )


def test_tx_12_inputs_that_are_low_need_no_casts() -> None:
    # Ours on purpose: Relax makes named inputs low. The signature of a served model stays what it
    # is; where it is low already, nothing is cast.
    check_precision(
        f"""
        x: low[1,8,8,3] = Placeholder
        w: low[3,3,3,4] = Placeholder
        bias: low[4] = Placeholder
        x_up = Cast(x, DstT=f32)            # low
        w_up = Cast(w, DstT=f32)            # low
        bias_up = Cast(bias, DstT=f32)      # low
        conv = Conv2D(x_up, w_up, {CONV})   # low ALLOW
        add = BiasAdd(conv, bias_up)        # low INFER
        fetch = Identity(add)               # f32 PINNED
        """,
        casts=1,
    )


def test_tx_12_float32_inputs_keep_their_types() -> None:
    check_precision(
        f"""
        x: f32[1,8,8,3] = Placeholder       # f32 PINNED
        w: f32[3,3,3,4] = Placeholder       # f32 PINNED
        bias: f32[4] = Placeholder          # f32 PINNED
        conv = Conv2D(x, w, {CONV})         # low ALLOW
        add = BiasAdd(conv, bias)           # low INFER
        fetch = Identity(add)               # f32 PINNED
        """,
        casts=4,
    )


def test_tx_13_functions_of_the_users_on_low_tensors_stay_as_they_are() -> None:
    check_unchanged(
        """
        x: low[4,8] = Placeholder
        y: low[4,8] = Placeholder
        sum: low = PartitionedCall([x, y], Tout=[low], f=@add)
        product: low = PartitionedCall([sum, y], Tout=[low], f=@mul)
        fetch = Identity(product)

        @add(x: low, y: low) -> (z=z)
          z = AddV2(x, y)

        @mul(x: low, y: low) -> (z=z)
          z = Mul(x, y)
        """,
        steps=1,
        exact=("fetch",),
    )
