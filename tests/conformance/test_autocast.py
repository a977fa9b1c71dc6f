"""AutoCast's cases on flat graphs (AC-*), in our words.

Inputs and outputs always keep their types here, so its runs with low ones have no counterpart; nor
has a setting that makes every op low. What it calls initializers are constants.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import numpy as np
import pytest
import tensorflow as tf

import tf_amp_rewriter
from tests import checks, graph_text
from tests.checks import BOTH, check_precision, check_rewrite, check_unchanged
from tf_amp_rewriter import errors
from tf_amp_rewriter.ir import text as ir_text

HALF = ("half",)
BFLOAT16 = ("bfloat16",)
CONV = "strides=[1,1,1,1], padding='SAME'"


def rewritten(text: str, dtype: str, **options: object) -> dict[str, object]:
    """Returns the nodes of the rewritten graph by name."""
    report = checks.checked_rewrite(graph_text.parse(text, dtype), dtype, options=options)
    assert report.graph_def is not None
    return {node.name: node for node in report.graph_def.node}


def values_of(node: object) -> np.ndarray:
    return tf.make_ndarray(node.attr["value"].tensor)  # type: ignore[attr-defined]


def test_ac_03_a_dense_layer_has_a_cast_first_and_last() -> None:
    check_rewrite(
        """
        x: f32[?,5] = Placeholder
        w: f32[5,3] = Const(seed=1)
        b: f32[3] = Const(seed=2)
        gemm = MatMul(x, w)
        add = AddV2(gemm, b)
        relu = Relu(add)
        y = Identity(relu)
        """,
        """
        x: f32[?,5] = Placeholder
        w: low[5,3] = Const(seed=1)
        b: low[3] = Const(seed=2)
        x/Cast_low = Cast(x, DstT=low)
        gemm: low = MatMul(x/Cast_low, w)
        add: low = AddV2(gemm, b)
        relu: low = Relu(add)
        relu/Cast_float32 = Cast(relu, DstT=f32)
        y = Identity(relu/Cast_float32)
        """,
    )


@pytest.mark.parametrize("op", ["IsInf", "IsNan", "IsFinite"])
def test_ac_04_a_test_for_infinity_reads_float32(op: str) -> None:
    # Ours on purpose: AutoCast makes it low where the definition allows it. As all comparisons it
    # reads float32: a value beyond half is no infinity.
    check_precision(
        f"""
        x: f32[1,8,8,3] = Placeholder
        w: f32[3,3,3,4] = Const(seed=1)
        conv = Conv2D(x, w, {CONV})     # low ALLOW
        test = {op}(conv)               # f32 KEEP
        fetch = Identity(test)
        """,
        casts=2,
    )


def test_ac_05_a_resize_is_low_and_its_size_is_not_touched() -> None:
    check_precision(
        f"""
        x: f32[1,8,8,3] = Placeholder
        w: f32[3,3,3,4] = Const(seed=1)
        scales = Const([2.0, 2.0])                 # f32
        two = Const([1])
        four = Const([3])
        step = Const([1])
        conv = Conv2D(x, w, {CONV})                # low ALLOW
        shape = Shape(conv)
        both = StridedSlice(shape, two, four, step)
        f = Cast(both, DstT=f32)                   # f32
        scaled = Mul(f, scales)                    # f32 POSITION
        size = Cast(scaled, DstT=i32)              # f32
        large = ResizeNearestNeighbor(conv, size)  # low CLEAR
        fetch = Identity(large)                    # f32 PINNED
        """,
        casts=2,
    )


def test_ac_12_the_best_of_more_than_there_may_be() -> None:
    # k is known at run time only
    check_precision(
        """
        x: f32[4,8] = Placeholder
        k: i32[] = Placeholder
        w: f32[8,8] = Const(seed=1)
        b: f32[8] = Const(seed=2)
        m = MatMul(x, w)           # low ALLOW
        add = AddV2(m, b)          # low INFER
        top: f32, i32 = TopKV2(add, k)
        fetch = Identity(top)      # f32 PINNED
        """,
        feeds={"k": np.int32(3)},
        not_run="which of two close values is better may change with their rounding",
    )


def test_ac_13_names_that_patterns_match() -> None:
    check_precision(
        """
        x: f32[4,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        block/add_1 = MatMul(x, w)                # f32 USER
        layer.1/proj = MatMul(block/add_1, w)     # f32 USER
        layer_1/proj = MatMul(layer.1/proj, w)    # low ALLOW
        layer2/proj = MatMul(layer_1/proj, w)     # low ALLOW
        fetch = Identity(layer2/proj)             # f32 PINNED
        """,
        keep_float32=(".*add.*", r".*layer\.1.*"),
    )


@pytest.mark.parametrize("size", [900, 65000, 65504])
def test_ac_14_constants_within_the_limit_are_free(size: int) -> None:
    check_precision(limit_of_a_constant(size, "low INFER"), casts=2)


@pytest.mark.parametrize("size", [65520, 70000, 1100000])
def test_ac_14_constants_beyond_the_limit_block(size: int) -> None:
    # Ours on purpose: AutoCast's limit is 1000 by default; ours is the range of the type.
    check_precision(limit_of_a_constant(size, "f32 RANGE"), dtypes=HALF, casts=2)
    check_precision(limit_of_a_constant(size, "low INFER"), dtypes=BFLOAT16, casts=2)


def limit_of_a_constant(size: int, claim: str) -> str:
    return f"""
    x: f32[4,3] = Placeholder
    w: f32[3,3] = Const(seed=1)
    c: f32[3] = Const([{size}, -{size}, 0])
    m = MatMul(x, w)           # low ALLOW
    add = AddV2(m, c)          # {claim}
    fetch = Identity(add)      # f32 PINNED
    """


# Ours on purpose: AutoCast blocks every sum of more than a limit of terms. A contraction sums in
# float32 whatever the type of its inputs, so only what sums in low precision has a limit.
DEPTHS = {
    "a product of 4096 terms": (
        """
        x: f32[2,4096] = Placeholder
        w: f32[4096,4] = Const(0.01)
    """,
        "MatMul(x, w)",
        "low ALLOW",
    ),
    "a convolution of 288 terms": (
        """
        x: f32[1,4,4,32] = Placeholder
        w: f32[3,3,32,4] = Const(0.01)
    """,
        f"Conv2D(x, w, {CONV})",
        "low ALLOW",
    ),
    "a convolution of unknown size": (
        """
        x: f32[1,4,4,3] = Placeholder
        w: f32[?,?,3,4] = Placeholder
    """,
        f"Conv2D(x, w, {CONV})",
        "low ALLOW",
    ),
    "a window of 9x9": (
        """
        x: f32[1,9,9,4] = Placeholder
        w: f32[9,9,4,1] = Const(0.01)
    """,
        f"DepthwiseConv2dNative(x, w, {CONV})",
        "f32 CONDITION",
    ),
    "a window of 3x3": (
        """
        x: f32[1,9,9,4] = Placeholder
        w: f32[3,3,4,1] = Const(0.1)
    """,
        f"DepthwiseConv2dNative(x, w, {CONV})",
        "low ALLOW",
    ),
    "a sum of 8": (
        """
        x: f32[4,8] = Placeholder
        w = Const([1])
    """,
        "Sum(x, w)",
        "f32 DENY",
    ),
}


@pytest.mark.parametrize(("lines", "call", "claim"), DEPTHS.values(), ids=DEPTHS)
def test_ac_16_how_many_terms_an_op_may_sum(lines: str, call: str, claim: str) -> None:
    feeds = {"w": np.full((3, 3, 3, 4), 0.1, np.float32)} if "?" in lines else None
    check_precision(
        f"""
    {lines}
    op = {call}                # {claim}
    fetch = Identity(op)       # f32 PINNED
    """,
        feeds=feeds,
    )


NETWORK = """
    x: f32[4,8] = Placeholder
    w: f32[8,8] = Const(seed=1)
    b: f32[8] = Const(seed=2)
    m = MatMul(x, w)           # low ALLOW
    add = AddV2(m, b)          # ADD
    mul = Mul(add, b)          # MUL
    m2 = MatMul(mul, w)        # low ALLOW
    fetch = Identity(m2)       # f32 PINNED
"""


@pytest.mark.parametrize(
    ("denied", "add", "mul"),
    [("AddV2", "f32 USER", "f32 INFER tainted by add"), ("Mul", "low INFER", "f32 USER")],
)
def test_ac_20_op_types_that_the_user_excludes(denied: str, add: str, mul: str) -> None:
    check_precision(
        NETWORK.replace("# ADD", f"# {add}").replace("# MUL", f"# {mul}"), deny_ops=(denied,)
    )


@pytest.mark.parametrize("dtype", ["int8", "fp8", "fp4", "fp32", "float16", "haf"])
def test_ac_31_types_that_are_none_of_ours(dtype: str) -> None:
    # Ours on purpose: the names are TensorFlow's, `half` and `bfloat16`.
    with pytest.raises(errors.FlagError, match=f"`dtype` is `{dtype}`, expected one of `half`"):
        tf_amp_rewriter.Options(dtype=dtype)


def test_ac_32_a_users_pair_of_casts_in_front_of_an_output_stays() -> None:
    check_unchanged(
        """
        x: f32[4,8] = Placeholder
        down: low = Cast(x, DstT=low)
        y: f32 = Cast(down, DstT=f32)
        """,
        outputs=("y",),
    )


def test_ac_33_a_cast_from_float32_to_float32_is_no_rounding() -> None:
    check_precision(
        """
        x: f32[4,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        m = MatMul(x, w)           # low ALLOW
        same = Cast(m, DstT=f32)
        y = Relu(same)
        fetch = Identity(y)        # f32 PINNED
        """,
    )


@pytest.mark.parametrize("op", ["Exp", "Square"])
def test_ac_35_a_float32_op_between_low_ones(op: str) -> None:
    # What reads a Square stays float32 in half, too: its results may be beyond the range.
    text = f"""
        x: f32[4,8] = Placeholder
        w: f32[8,8] = Const(seed=1, scale=0.2)
        m = MatMul(x, w)           # low ALLOW
        high = {op}(m)             # f32 DENY
        relu = Relu(high)
        m2 = MatMul(relu, w)       # low ALLOW
        fetch = Identity(m2)       # f32 PINNED
        """
    kept = text.replace("low ALLOW\n        fetch", "f32 CONDITION\n        fetch")
    check_precision(text, dtypes=("bfloat16",), casts=4)
    if op == "Exp":
        check_precision(text, dtypes=("half",), casts=4)
    else:
        check_precision(kept, dtypes=("half",), casts=2)


def test_ac_36_all_low_costs_two_casts() -> None:
    text = NETWORK.replace("# ADD", "# low INFER").replace("# MUL", "# low INFER")
    check_precision(text, casts=2)


@pytest.mark.parametrize("dtype", BOTH)
def test_ac_37_casts_stand_at_activations_and_never_at_constants(dtype: str) -> None:
    text = """
    x: f32[4,8] = Placeholder
    w: f32[8,8] = Const(seed=1)
    b: f32[8] = Const(seed=2)
    gemm = MatMul(x, w)
    add = AddV2(gemm, b)
    exp = Exp(gemm)
    shifted = AddV2(exp, b)
    fetch = IdentityN([add, shifted])
    """
    nodes = rewritten(text, dtype)
    read = {node.input[0] for node in nodes.values() if node.op == "Cast"}  # type: ignore[attr-defined]

    assert read == {"x", "gemm", "add"}


@pytest.mark.parametrize("dtype", BOTH)
def test_ac_38_names_and_types_of_inputs_and_outputs_stay(dtype: str) -> None:
    graph = graph_text.parse(NETWORK, dtype)
    report = checks.checked_rewrite(graph, dtype, options={"outputs": ("fetch",), "inputs": ("x",)})
    after = checks.imported(report.graph_def)

    for name in ("x:0", "fetch:0"):
        tensor = after.get_tensor_by_name(name)
        assert tensor.dtype == tf.float32
        assert tensor.shape == checks.imported(graph).get_tensor_by_name(name).shape


FAN_OUT = """
    x: f32[4,8] = Placeholder
    w1: f32[8,8] = Const(seed=1)
    w2: f32[8,8] = Const(seed=2)
    c: f32[8] = Const(seed=3)
    m1 = MatMul(x, w1)
    m2 = MatMul(x, w2)
    add1 = AddV2(m1, c)
    add2 = AddV2(m2, c)
    add3 = AddV2(add1, c)
    out1 = Identity(add2)
    out2 = Identity(add3)
"""


@pytest.mark.parametrize(
    ("kept", "casts"),
    [((), 3), (("add2",), 3), (("add1", "add3"), 3), (("m1",), 2), (("m1", "m2"), 0)],
)
def test_ac_39_and_40_an_input_and_a_constant_that_many_ops_read(
    kept: Sequence[str], casts: int
) -> None:
    names = tuple(f"^{name}$" for name in kept)
    check_precision(FAN_OUT, keep_float32=names, casts=casts)


# Which of the three Adds the user keeps, and which constants there are then.
SHARED = {
    (): {"c": "low"},
    ("add1", "add2", "add3"): {"c": "f32"},
    ("add2", "add3"): {"c": "f32", "c/low": "low"},
    ("add3",): {"c": "f32", "c/low": "low"},
}


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("kept", SHARED)
def test_ac_41_a_shared_constant_exists_once_for_each_precision(
    kept: tuple[str, ...], dtype: str
) -> None:
    nodes = rewritten(
        FAN_OUT, dtype, keep_float32=tuple(f"^{name}$" for name in kept), outputs=("out1", "out2")
    )
    low = tf_amp_rewriter.Options(dtype=dtype).low
    expected = {
        name.replace("low", dtype): {"low": low.proto, "f32": tf.float32.as_datatype_enum}[kind]
        for name, kind in SHARED[kept].items()
    }
    found = {
        name: node.attr["dtype"].type  # type: ignore[attr-defined]
        for name, node in nodes.items()
        if node.op == "Const" and name.startswith("c")  # type: ignore[attr-defined]
    }
    assert found == expected


BIG = """
    x: f32[4,2] = Placeholder
    w: f32[2,2] = Const(seed=1)
    c: f32[2] = Const([SIZE, -SIZE])
    m = MatMul(x, w)           # low ALLOW
    add = AddV2(m, c)          # CLAIM
    fetch = Identity(add)      # f32 PINNED
"""


@pytest.mark.parametrize("kept", [(), ("^add$",)])
def test_ac_42_a_constant_beyond_half_keeps_its_values(kept: tuple[str, ...]) -> None:
    # Ours on purpose: AutoCast clamps it for a low op. We clamp only where the user asks for it.
    text = BIG.replace("SIZE", "70000")
    nodes = rewritten(text, "half", keep_float32=kept)

    np.testing.assert_array_equal(np.float32([70000, -70000]), values_of(nodes["c"]))
    claim = "f32 USER" if kept else "f32 RANGE"
    check_precision(text.replace("CLAIM", claim), dtypes=HALF, keep_float32=kept)


def test_ac_43_powers_of_two_beyond_half_are_exact_in_bfloat16() -> None:
    text = BIG.replace("SIZE, -SIZE", "131072, -262144").replace("CLAIM", "low INFER")
    check_precision(text, dtypes=BFLOAT16, casts=2)
    stored = values_of(rewritten(text, "bfloat16")["c"])

    assert stored.dtype == tf.bfloat16.as_numpy_dtype
    np.testing.assert_array_equal([131072, -262144], stored.astype(np.float64))


@pytest.mark.parametrize(("dtype", "other"), [("bfloat16", "f16"), ("half", "bf16")])
def test_ac_44_constants_of_the_other_low_precision_are_encoded_anew(
    dtype: str, other: str
) -> None:
    text = f"""
    x: f32[4,2] = Placeholder
    c: {other}[2,2] = Const([[1, 2], [0, 0.5]])
    w = Cast(c, DstT=f32)      # low
    m = MatMul(x, w)           # low ALLOW
    fetch = Identity(m)        # f32 PINNED
    """
    check_precision(text, dtypes=(dtype,), casts=2)


def test_ac_45_moves_around_a_dynamic_batch() -> None:
    check_precision(
        """
        x: f32[?,4] = Placeholder
        w: f32[4,4] = Const(seed=1)
        order = Const([1, 0])
        axis = Const(1)
        two = Const(2)
        minus = Const(-1)
        m = MatMul(x, w)                       # f32 USER
        turned = Transpose(m, order)
        back = Transpose(turned, order)
        both = ConcatV2([back, back], axis)
        n = Size(both)
        rows = FloorDiv(n, two)
        dims = Pack([rows, two])
        shaped = Reshape(both, dims)
        w2: f32[2,4] = Const(seed=2)
        m2 = MatMul(shaped, w2)                # low ALLOW
        fetch = Identity(m2)                   # f32 PINNED
        """,
        keep_float32=("^m$",),
        steps=1,
    )


def test_ac_46_a_tensor_that_is_an_output_and_goes_on() -> None:
    check_rewrite(
        """
        x: f32[4,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        m = MatMul(x, w)
        y1 = Identity(m)
        m2 = MatMul(y1, w)
        y2 = Identity(m2)
        """,
        """
        x: f32[4,8] = Placeholder
        w: low[8,8] = Const(seed=1)
        x/Cast_low = Cast(x, DstT=low)
        m: low = MatMul(x/Cast_low, w)
        m/Cast_float32 = Cast(m, DstT=f32)
        y1 = Identity(m/Cast_float32)
        y1/Cast_low = Cast(y1, DstT=low)
        m2: low = MatMul(y1/Cast_low, w)
        m2/Cast_float32 = Cast(m2, DstT=f32)
        y2 = Identity(m2/Cast_float32)
        """,
        outputs=("y1", "y2"),
    )


def test_ac_47_an_output_with_a_low_and_a_float32_consumer() -> None:
    check_precision(
        """
        x: f32[4,8] = Placeholder
        w: f32[8,8] = Const(seed=1, scale=0.2)
        m = MatMul(x, w)           # low ALLOW
        y1 = Identity(m)           # f32 PINNED
        e = Exp(y1)                # f32 DENY
        m2 = MatMul(y1, w)         # low ALLOW
        y2 = Identity(e)           # f32 PINNED
        y3 = Identity(m2)          # f32 PINNED
        """,
        outputs=("y1", "y2", "y3"),
    )


def test_ac_48_casts_around_a_float32_op_stay_the_users() -> None:
    # The inputs are low and the Add reads them in float32, as the model has it.
    check_unchanged(
        """
        a: low[4,8] = Placeholder
        b: low[4,8] = Placeholder
        a_up = Cast(a, DstT=f32)
        b_up = Cast(b, DstT=f32)
        add = AddV2(a_up, b_up)
        down: low = Cast(add, DstT=low)
        out = Identity(down)
        """,
        keep_float32=("^add$",),
    )


def test_ac_49_a_model_with_low_inputs_and_outputs_keeps_them() -> None:
    check_precision(
        """
        a: low[4,4] = Placeholder
        up = Cast(a, DstT=f32)
        e = Exp(up)                    # f32 DENY
        down: low = Cast(e, DstT=low)
        out = Identity(down)
        """,
        casts=0,
    )


def test_ac_50_a_float32_and_a_low_output_of_one_sum() -> None:
    check_unchanged(
        """
        a: f32[4,8] = Placeholder
        b: f32[4,8] = Placeholder
        out1 = AddV2(a, b)
        out2: low = Cast(out1, DstT=low)
        """,
        outputs=("out1", "out2"),
    )


def test_ac_51_two_sums_in_a_row_that_are_both_outputs() -> None:
    check_unchanged(
        """
        a: f32[4,8] = Placeholder
        b: f32[4,8] = Placeholder
        out1 = AddV2(a, b)             # f32 PINNED
        out2 = AddV2(out1, b)          # f32 PINNED
        """,
        outputs=("out1", "out2"),
    )


def test_ac_52_ops_that_can_not_be_low_stay_float32_whatever_is_asked() -> None:
    # A suppression reads positions: no list makes it low.
    check_precision(
        f"""
        x: f32[1,8,8,4] = Placeholder
        boxes: f32[3,4] = Placeholder
        scores: f32[3] = Placeholder
        w: f32[3,3,4,4] = Const(seed=1)
        most = Const(3)
        size = Const([4, 4])
        conv = Conv2D(x, w, {CONV})                   # low ALLOW
        elu = Elu(conv)                               # low INFER
        small = ResizeBilinear(elu, size)             # f32 KEEP
        picked = NonMaxSuppression(boxes, scores, most)
        fetch = Identity(small)                       # f32 PINNED
        """,
        steps=1,
    )


@pytest.mark.parametrize("denied", [(), ("ConcatV2",)])
def test_ac_53_an_empty_constant_in_a_concat(denied: tuple[str, ...]) -> None:
    kind = "f32" if denied else "low"
    check_precision(
        f"""
        x: f32[4,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        empty: f32[0,8] = Const(0)            # {kind}
        axis = Const(0)
        m = MatMul(x, w)                      # low ALLOW
        both = ConcatV2([m, empty], axis)     # {kind}
        m2 = MatMul(both, w)                  # low ALLOW
        fetch = Identity(m2)                  # f32 PINNED
        """,
        deny_ops=denied,
        casts=4 if denied else 2,
    )


def test_ac_54_an_empty_input_is_cast_as_any_other() -> None:
    check_precision(
        """
        x: f32[4,8] = Placeholder
        empty: f32[0,8] = Placeholder         # f32 PINNED
        w: f32[8,8] = Const(seed=1)
        axis = Const(0)
        m = MatMul(x, w)                      # low ALLOW
        both = ConcatV2([m, empty], axis)     # low CLEAR
        m2 = MatMul(both, w)                  # low ALLOW
        fetch = Identity(m2)                  # f32 PINNED
        """,
        casts=3,
    )


def test_ac_55_scalar_and_array_constants_are_low_themselves() -> None:
    check_precision(
        """
        x: f32[4,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        scalar = Const(0.5)                   # low
        array: f32[8] = Const(seed=2)         # low
        m = MatMul(x, w)                      # low ALLOW
        add1 = AddV2(m, scalar)               # low INFER
        add2 = AddV2(add1, array)             # low INFER
        fetch = Identity(add2)                # f32 PINNED
        """,
        casts=2,
    )


def test_ac_56_a_concat_that_also_leaves_through_a_users_cast() -> None:
    check_rewrite(
        """
        x: f32[4,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        axis = Const(1)
        m1 = MatMul(x, w)
        m2 = MatMul(x, w, transpose_b=True)
        both = ConcatV2([m1, m2], axis)
        out1: low = Cast(both, DstT=low)
        out2 = Identity(both)
        """,
        """
        x: f32[4,8] = Placeholder
        w: low[8,8] = Const(seed=1)
        axis = Const(1)
        x/Cast_low = Cast(x, DstT=low)
        m1: low = MatMul(x/Cast_low, w)
        m2: low = MatMul(x/Cast_low, w, transpose_b=True)
        both: low = ConcatV2([m1, m2], axis)
        out1: low = Identity(both)
        both/Cast_float32 = Cast(both, DstT=f32)
        out2 = Identity(both/Cast_float32)
        """,
        outputs=("out1", "out2"),
    )


def test_ac_57_a_cast_from_an_input_to_an_output_beside_low_sums() -> None:
    check_precision(
        """
        x: f32[4,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        out1: low = Cast(x, DstT=low)
        m = MatMul(x, w)                      # low ALLOW
        add = AddV2(m, m)                     # low INFER
        out2 = Identity(add)                  # f32 PINNED
        """,
        outputs=("out1", "out2"),
    )


def test_ac_58_a_resize_with_constant_sizes_between_low_ops() -> None:
    check_precision(
        f"""
        x: f32[1,4,4,3] = Placeholder
        w: f32[3,3,3,4] = Const(seed=1)
        size = Const([8, 8])
        conv = Conv2D(x, w, {CONV})                # low ALLOW
        add = AddV2(conv, conv)                    # low INFER
        large = ResizeNearestNeighbor(add, size)   # low CLEAR
        relu = Relu(large)                         # low CLEAR
        fetch = Identity(relu)                     # f32 PINNED
        """,
        casts=2,
    )


def test_ac_59_a_resize_with_sizes_from_a_second_input() -> None:
    check_precision(
        f"""
        x: f32[1,4,4,3] = Placeholder
        scales: f32[2] = Placeholder
        w: f32[3,3,3,4] = Const(seed=1)
        four: f32[2] = Const(4)                    # f32
        conv = Conv2D(x, w, {CONV})                # low ALLOW
        add = AddV2(conv, conv)                    # low INFER
        product = Mul(scales, four)                # f32 POSITION
        size = Cast(product, DstT=i32)
        large = ResizeNearestNeighbor(add, size)   # low CLEAR
        relu = Relu(large)                         # low CLEAR
        fetch = Identity(relu)                     # f32 PINNED
        """,
        feeds={"scales": np.float32([2.25, 1.5])},
        casts=2,
    )


def test_ac_64_a_cast_of_a_constant_folds_into_it() -> None:
    check_rewrite(
        """
        x: low[4,8] = Placeholder
        c: f32[8,8] = Const(0.1)
        down: low = Cast(c, DstT=low)
        same = Identity(down)
        m = MatMul(x, same)
        out = Identity(m)
        """,
        """
        x: low[4,8] = Placeholder
        c: low[8,8] = Const(0.1)
        down: low = Identity(c)
        same = Identity(down)
        m = MatMul(x, same)
        out = Identity(m)
        """,
    )


def test_ac_65_to_68_an_op_that_nobody_knows_is_a_float32_wall_and_nothing_more() -> None:
    # TensorFlow can't import it, so the text of the result is compared.
    graph = graph_text.parse(
        """
        x: f32[4,8] = Placeholder
        w: f32[8,8] = Const(0.5)
        at: i32[3,1] = Const([[0], [2], [3]])
        axis = Const(0)
        m = MatMul(x, w)
        mine = Softsign(m)
        rows = GatherNd(mine, at)
        m2 = MatMul(rows, w)
        wide = ExpandDims(m2, axis)
        fetch = Identity(wide)
        """
    )
    (custom,) = (node for node in graph.node if node.name == "mine")
    custom.op = "MyOp"

    report = tf_amp_rewriter.rewrite_graph_def(graph, tf_amp_rewriter.Options(outputs=("fetch",)))

    checks.assert_same_text(
        inspect.cleandoc(
            """
            x: f32[4,8] = Placeholder
            w: f16[8,8] = Const(0.5)
            at: i32[3,1] = Const([[0], [2], [3]])
            axis: i32[] = Const(0)
            x/Cast_half: f16 = Cast(x, DstT=f16)
            m: f16 = MatMul(x/Cast_half, w)
            m/Cast_float32: f32 = Cast(m, DstT=f32)
            mine = MyOp(m/Cast_float32, T=f32)
            mine/Cast_half: f16 = Cast(mine, DstT=f16)
            rows: f16 = GatherNd(mine/Cast_half, at)
            m2: f16 = MatMul(rows, w)
            wide: f16 = ExpandDims(m2, axis)
            wide/Cast_float32: f32 = Cast(wide, DstT=f32)
            fetch: f32 = Identity(wide/Cast_float32)
            """
        ),
        ir_text.graph_text(report.graph_def).strip(),
    )


def test_ac_70_what_a_gather_makes_low_keeps_its_shape() -> None:
    text = """
    x: f32[4,8] = Placeholder
    w: f32[8,8] = Const(seed=1)
    at: i32[3,1] = Const([[0], [2], [3]])
    m = MatMul(x, w)                      # low ALLOW
    rows = GatherNd(m, at)                # low CLEAR
    m2 = MatMul(rows, w)                  # low ALLOW
    fetch = Identity(m2)                  # f32 PINNED
    """
    check_precision(text, casts=2)
    for dtype in BOTH:
        report = checks.checked_rewrite(graph_text.parse(text, dtype), dtype)
        rows = checks.imported(report.graph_def).get_tensor_by_name("rows:0")
        assert (rows.dtype, rows.shape.as_list()) == (tf.as_dtype(dtype), [3, 8])


@pytest.mark.parametrize("dtype", BOTH)
def test_ac_83_to_86_float64_stays_float64(dtype: str) -> None:
    # Ours on purpose: AutoCast makes float64 float32 first. Who computes in float64 means to.
    check_precision(
        """
        x: f64[4,8] = Placeholder
        w: f64[8,8] = Const(seed=1)
        m: f64 = MatMul(x, w)
        narrow = Cast(m, DstT=f32)
        w2: f32[8,8] = Const(seed=2)
        m2 = MatMul(narrow, w2)               # low ALLOW
        wide: f64 = Cast(m2, DstT=f64)
        fetch = Identity(wide)
        """,
        dtypes=(dtype,),
    )


def test_ac_87_a_model_without_float32_is_returned_as_it_is() -> None:
    graph = graph_text.parse(
        """
        x: i32[4] = Placeholder
        y = AddV2(x, x)
        """
    )
    report = tf_amp_rewriter.rewrite_graph_def(graph, tf_amp_rewriter.Options(outputs=("y",)))

    assert report.graph_def == graph
    assert report.lowered_nothing
