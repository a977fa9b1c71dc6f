"""Grappler's C++ cases (GA-*) and oracle facts (OF-*), in our words.

Where a case starts from a constant, a placeholder stands here: in our pass a constant and all that
is computed from constants alone is free, and nothing would be left to decide. So x costs one Cast
that the case does not count, and weights cost none.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests import checks, graph_text
from tests.checks import check_precision, check_rewrite, check_unchanged
from tf_amp_rewriter.ir import text as ir_text


def test_ga_01_no_op() -> None:
    check_unchanged(
        """
        x: f32[32] = Placeholder
        deny1 = Exp(x)            # f32 DENY
        clr1 = Relu(deny1)        # f32 CLEAR tainted by deny1
        infer1 = Sqrt(clr1)       # f32 INFER tainted by deny1
        clr2 = Relu(infer1)       # f32 CLEAR tainted by deny1
        fetch = Identity(clr2)    # f32 PINNED
        """
    )


def test_ga_01_no_op_on_constants() -> None:
    check_unchanged(
        """
        c: f32[32] = Const(1.234)
        deny1 = Exp(c)            # f32 DENY
        clr1 = Relu(deny1)        # f32
        infer1 = Sqrt(clr1)       # f32
        clr2 = Relu(infer1)       # f32
        fetch = Identity(clr2)    # f32 PINNED
        """
    )


def test_ga_02_a_model_that_is_low_already_stays_as_it_is() -> None:
    check_unchanged(
        """
        x: f32[8,8] = Placeholder
        down = Cast(x, DstT=low)      # f32
        allow1 = MatMul(down, down)
        clr1 = Relu(allow1)
        up = Cast(clr1, DstT=f32)     # f32
        clr2 = Relu(up)               # f32
        fetch = Identity(clr2)        # f32 PINNED
        """
    )


def test_ga_02_a_cast_on_a_constant_is_made_at_rewrite_time() -> None:
    # Ours on purpose: grappler leaves the Cast; we store the constant low, for no Cast on a weight
    # is to run at inference.
    check_rewrite(
        """
        c: f32[8,8] = Const(1)
        down = Cast(c, DstT=low)
        x: low[8,8] = Placeholder
        allow1 = MatMul(x, down)
        up = Cast(allow1, DstT=f32)
        fetch = Identity(up)
        """,
        """
        c: low[8,8] = Const(1)
        down = Identity(c)
        x: low[8,8] = Placeholder
        allow1 = MatMul(x, down)
        up = Cast(allow1, DstT=f32)
        fetch = Identity(up)
        """,
    )


def test_ga_03_simple() -> None:
    # Ours on purpose: infer2 and clr4 run on in low behind the contraction, the up-cast stands at
    # the island's end; grappler has its up-cast before infer2. As many Casts.
    check_precision(
        """
        x: f32[8,8] = Placeholder
        deny1 = Exp(x)                       # f32 DENY
        clr1 = Relu(deny1)                   # f32 CLEAR tainted by deny1
        infer1 = Sqrt(clr1)                  # f32 INFER tainted by deny1
        clr2 = Relu(infer1)                  # low CLEAR
        allow1 = MatMul(clr2, clr2)          # low ALLOW
        clr3 = Relu(allow1)                  # low CLEAR
        infer2 = Log(clr3)                   # low INFER
        clr4 = Relu(infer2)                  # low CLEAR
        unlisted = SparseMatMul(clr4, clr4)  # Ta f32 KEEP; Tb f32 KEEP
        clr5 = Relu(unlisted)                # f32 NOTHING_LOW
        fetch = Identity(clr5)               # f32 PINNED
        """,
        casts=2,
    )


def test_ga_04_colours_do_not_spread_over_a_clear_op_to_its_other_input() -> None:
    # Ours on purpose: grappler paints clr1, clr2, clr3 and clr4 low. The value on the way
    # x -> clr2 -> clr4 -> fetch2 is made and read by float32: rounding it there is needless. A
    # ShapeN has one type for all its inputs, so where these differ one costs a Cast; only gradient
    # graphs have it.
    check_precision(
        """
        x: f32[8,8] = Placeholder
        clr1 = Relu(x)
        clr2 = Relu(x)                       # f32 NOTHING_LOW
        allow1 = MatMul(clr1, clr1)          # low ALLOW
        fetch1 = Identity(allow1)            # f32 PINNED
        clr3: i32, i32 = ShapeN([clr1, clr2])
        clr4 = Relu(clr2)                    # f32 NOTHING_LOW
        fetch2 = Identity(clr4)              # f32 PINNED
        """,
        casts=3,
    )


def test_ga_05_fetched_nodes_keep_float32() -> None:
    check_precision(
        """
        x: f32[8,8] = Placeholder
        allow1 = MatMul(x, x)         # f32 PINNED
        clr1 = Relu(allow1)           # f32 NOTHING_LOW
        infer1 = Sqrt(clr1)           # f32 NOTHING_LOW
        deny1 = Exp(infer1)           # f32 DENY
        clr2 = Relu(deny1)            # f32 PINNED
        allow2 = MatMul(clr2, clr2)   # low ALLOW
        clr3 = Relu(allow2)           # f32 PINNED
        deny2 = Exp(clr3)             # f32 DENY
        clr4 = Relu(deny2)            # f32 CLEAR tainted by deny2
        """,
        outputs=("allow1", "clr2", "clr3"),
        casts=2,
    )


def test_ga_06_a_node_on_the_cpu_goes_low_too() -> None:
    # Ours on purpose: grappler knows no half on CPU. `--device any` lowers what both compute well.
    check_precision(
        """
        x: f32[8,8] = Placeholder
        clr1 = Relu(x)                                             # low CLEAR
        allow1 = MatMul(clr1, clr1)                                # low ALLOW
        infer1 = Tanh(allow1)                                      # low INFER
        allow2 = MatMul(infer1, infer1, device='/device:CPU:0')    # low ALLOW
        clr2 = Relu(allow2)                                        # low CLEAR
        fetch = Identity(clr2)                                     # f32 PINNED
        """,
        casts=2,
    )


def test_ga_07_identity_behind_a_reference_variable_keeps_float32() -> None:
    check_precision(
        """
        x: f32[8,8] = Placeholder
        v: f32& = VariableV2(dtype=f32, shape=[8,8])
        id1 = Identity(v)             # f32
        allow1 = MatMul(x, id1)       # low ALLOW
        fetch1 = Identity(allow1)     # f32 PINNED
        c2: f32[8,8] = Const(0.5)     # low
        id2 = Identity(c2)            # low
        allow2 = MatMul(x, id2)       # low ALLOW
        fetch2 = Identity(allow2)     # f32 PINNED
        """,
        casts=4,
        not_run="a variable in a GraphDef has no value",
    )


BATCH_NORM_V1 = """
    x: f32[2,8,8,4] = Placeholder
    w: f32[3,3,4,4] = Const(0.1)
    scale: f32[4] = Const(3)
    offset: f32[4] = Const(4)
    empty: f32[0] = Const([])
    conv1 = Conv2D(x, w, strides=[1,1,1,1], padding='SAME')                 # low ALLOW
    bn: f32, f32, f32, f32, f32 = FusedBatchNorm(conv1, scale, offset, empty, empty)  # T low; U f32
    clr1 = Relu(bn)                                                         # low CLEAR
    conv2 = Conv2D(clr1, w, strides=[1,1,1,1], padding='SAME')              # low ALLOW
    fetch = Identity(conv2)                                                 # f32 PINNED
"""
GRADIENT = """
    grad: f32, f32, f32, f32, f32 = FusedBatchNormGrad(bn, conv1, scale, bn:3, bn:4)   # f32
    fetch2 = Identity(grad)
"""


def test_ga_08_batch_norm_v1_becomes_v3() -> None:
    # Grappler makes it V2: V3 has the same kernel, and is what TensorFlow itself writes today.
    check_precision(BATCH_NORM_V1, casts=2, not_run="no bound for a batch norm in training")


def test_ga_08_batch_norm_v1_stays_v1_where_its_gradient_reads_it() -> None:
    # Ours on purpose: grappler turns the gradient into V2 as well. A served model has none.
    text = (BATCH_NORM_V1 + GRADIENT).replace("T low; U f32", "f32 KEEP")
    check_precision(text, casts=4, not_run="no bound for a batch norm in training")


def test_ga_08_batch_norm_v3_has_two_types_and_only_one_goes_low() -> None:
    check_precision(
        """
        x: f32[2,8,8,4] = Placeholder
        w: f32[3,3,4,4] = Const(0.1)
        scale: f32[4] = Const(3)                                          # f32
        offset: f32[4] = Const(4)                                         # f32
        mean: f32[4] = Const(0.25)                                        # f32
        var: f32[4] = Const(2)                                       # f32
        conv1 = Conv2D(x, w, strides=[1,1,1,1], padding='SAME')           # low ALLOW
        bn = FusedBatchNormV3(conv1,scale,offset,mean,var,is_training=False)  # T low; U f32 KEEP
        add = AddV2(bn, conv1)                                            # low INFER
        conv2 = Conv2D(add, w, strides=[1,1,1,1], padding='SAME')         # low ALLOW
        fetch = Identity(conv2)                                           # f32 PINNED
        """,
        casts=2,
    )


def test_ga_09_repeated_and_list_types() -> None:
    check_precision(
        """
        x: f32[8,8] = Placeholder
        allow1 = MatMul(x, x)                              # low ALLOW
        many = IdentityN([allow1, allow1, allow1])  # T[0] low CLEAR; T[1] low CLEAR; T[2] low CLEAR
        sum = AddN([many, many:1, many:2])                 # low INFER
        allow2 = MatMul(sum, sum)                          # low ALLOW
        fetch = Identity(allow2)                           # f32 PINNED
        """,
        casts=2,
    )


def test_ga_10_the_type_of_an_existing_cast_changes_in_place() -> None:
    check_rewrite(
        """
        b: bool[8,8] = Placeholder
        cast = Cast(b, DstT=f32)
        allow1 = MatMul(cast, cast)
        fetch = Identity(allow1)
        """,
        """
        b: bool[8,8] = Placeholder
        cast = Cast(b, DstT=low)
        allow1 = MatMul(cast, cast)
        allow1/Cast_float32 = Cast(allow1, DstT=f32)
        fetch = Identity(allow1/Cast_float32)
        """,
    )


def test_ga_11_a_ring_with_two_merges_keeps_one_type() -> None:
    check_precision(
        """
        x: f32[8,8] = Placeholder
        deny1 = Exp(x)                              # f32 DENY
        ent1 = Enter(deny1, frame_name='loop')      # f32
        mrg1 = Merge([ent1, nxt1])                  # f32
        no = Const(False, ^mrg1)
        swt1 = Switch(mrg1, no)                     # f32
        infer1 = Sqrt(swt1:1)                       # f32
        allow1 = MatMul(infer1, infer1)             # low ALLOW
        nxt1 = NextIteration(allow1)                # f32
        ext1 = Exit(swt1)                           # f32
        fetch = Identity(ext1)                      # f32 PINNED
        mrg2 = Merge([ent1, nxt1])                  # f32
        """,
        outputs=("fetch",),
        exact=("fetch",),
        steps=1,
        casts=2,
    )


LIST_SET_GET = """
        x: f32[8,8] = Placeholder
        c: f32[8,8] = Const(0.5)                                       # low
        shape = Const([8, 8])
        one = Const(1)
        half = Const(0.5)
        two = Const(2)
        three = Const(3)
        six = Const(6)
        eight = Const(8)
        tl1 = TensorListReserve(shape, eight, element_dtype=f32)       # low CLEAR
        set1 = TensorListSetItem(tl1, one, c)                          # low CLEAR
        allow1 = MatMul(x, x)                                          # low ALLOW
        set2 = TensorListSetItem(set1, two, allow1)                    # low CLEAR
        resized = TensorListResize(set2, six)
        get2 = TensorListGetItem(resized, two, shape, element_dtype=f32)   # low CLEAR
        infer1 = Tanh(get2)                                            # low INFER
        allow2 = MatMul(infer1, infer1)                                # low ALLOW
        set3 = TensorListSetItem(resized, three, allow2)               # low CLEAR
        get3 = TensorListGetItem(set3, three, shape, element_dtype=f32)    # low CLEAR
        fetch1 = Identity(get3)                                        # f32 PINNED
        tl2 = TensorListReserve(shape, eight, element_dtype=f32)       # f32
        set4 = TensorListSetItem(tl2, one, x)                          # f32
        get4 = TensorListGetItem(set4, one, shape, element_dtype=f32)  # f32
        fetch2 = Identity(get4)                                        # f32 PINNED
        """


@pytest.mark.parametrize("op", ["Tanh(get2)", "Mul(get2, half)"])
def test_ga_12_and_35_list_set_and_get_go_low_together(op: str) -> None:
    # The constant that is written first is free. In the case it also goes into the list `tl2`; here
    # that list has the placeholder, and nothing low. GA-35 is GA-12 in bfloat16 with Mul for Tanh.
    check_precision(
        LIST_SET_GET.replace("Tanh(get2)", op),
        outputs=("fetch1", "fetch2"),
        exact=("fetch2",),
        steps=1,
        casts=2,
    )


def test_ga_12_a_float32_writer_keeps_a_list_that_leaves_float32() -> None:
    # Ours on purpose: grappler makes a list low as soon as one of its ends is. A float32 value that
    # is written and read by float32 ops would be rounded without need.
    check_precision(
        """
        x: f32[8,8] = Placeholder
        shape = Const([8, 8])
        one = Const(1)
        two = Const(2)
        three = Const(3)
        six = Const(6)
        eight = Const(8)
        tl1 = TensorListReserve(shape, eight, element_dtype=f32)       # f32
        set1 = TensorListSetItem(tl1, one, x)                          # f32
        allow1 = MatMul(x, x)                                          # low ALLOW
        set2 = TensorListSetItem(set1, two, allow1)                    # f32
        resized = TensorListResize(set2, six)
        get2 = TensorListGetItem(resized, two, shape, element_dtype=f32)   # f32
        infer1 = Tanh(get2)                                            # f32 NOTHING_LOW
        allow2 = MatMul(infer1, infer1)                                # low ALLOW
        set3 = TensorListSetItem(resized, three, allow2)               # f32
        get3 = TensorListGetItem(set3, three, shape, element_dtype=f32)    # f32
        fetch1 = Identity(get3)                                        # f32 PINNED
        """,
        steps=1,
        casts=4,
    )


def test_ga_13_list_push_and_pop_go_low_together() -> None:
    check_precision(
        """
        x: f32[8,8] = Placeholder
        c: f32[8,8] = Const(0.5)                                       # low
        shape = Const([8, 8])
        most = Const(8)
        tl1 = EmptyTensorList(shape, most, element_dtype=f32)          # low CLEAR
        push1 = TensorListPushBack(tl1, c)                             # low CLEAR
        allow1 = MatMul(x, x)                                          # low ALLOW
        push2 = TensorListPushBack(push1, allow1)                      # low CLEAR
        pop2 = TensorListPopBack(push2, shape, element_dtype=f32)      # low CLEAR
        infer1 = Tanh(pop2:1)                                          # low INFER
        allow2 = MatMul(infer1, infer1)                                # low ALLOW
        push3 = TensorListPushBack(pop2, allow2)                       # low CLEAR
        pop3 = TensorListPopBack(push3, shape, element_dtype=f32)      # low CLEAR
        fetch1 = Identity(pop3:1)                                      # f32 PINNED
        """,
        outputs=("fetch1",),
        steps=1,
        casts=2,
    )


def test_ga_14_lists_from_tensors_go_low_with_what_is_only_pushed() -> None:
    check_precision(
        """
        x: f32[8,8] = Placeholder
        shape = Const([8])
        eight = Const(8)
        allow1 = MatMul(x, x)                                          # low ALLOW
        tl1 = TensorListFromTensor(allow1, shape)                      # low CLEAR
        stack = TensorListStack(tl1, shape, element_dtype=f32)         # low CLEAR
        infer1 = Tanh(stack)                                           # low INFER
        allow2 = MatMul(infer1, infer1)                                # low ALLOW
        fetch = Identity(allow2)                                       # f32 PINNED
        row: f32[8] = Const(0.5)                                       # low
        tl2 = TensorListFromTensor(allow1, shape)                      # low CLEAR
        push = TensorListPushBack(tl2, row)                            # low CLEAR
        """,
        outputs=("fetch",),
        steps=1,
        casts=2,
    )


def test_ga_15_batch_push_and_concat_of_lists_go_low_together() -> None:
    check_precision(
        """
        x: f32[8,8] = Placeholder
        shape = Const([8, 8])
        most = Const(8)
        zero = Const(0)
        scalar: i32[0] = Const([])
        tl1 = EmptyTensorList(shape, most, element_dtype=f32)          # low CLEAR
        tl2 = EmptyTensorList(shape, most, element_dtype=f32)          # low CLEAR
        handles = Pack([tl1, tl2])
        allow1 = MatMul(x, x)                                          # low ALLOW
        pair = Pack([allow1, allow1])                                  # low CLEAR
        push = TensorListPushBackBatch(handles, pair)                  # low CLEAR
        split: var, var = Split(zero, push, num_split=2)
        one = Reshape(split, scalar)
        two = Reshape(split:1, scalar)
        both = TensorListConcatLists(one, two, element_dtype=f32)      # low CLEAR
        pop = TensorListPopBack(both, shape, element_dtype=f32)        # low CLEAR
        infer1 = Tanh(pop:1)                                           # low INFER
        allow2 = MatMul(infer1, infer1)                                # low ALLOW
        fetch = Identity(allow2)                                       # f32 PINNED
        """,
        outputs=("fetch",),
        steps=1,
        casts=2,
    )


def test_ga_16_a_list_goes_low_through_a_function() -> None:
    # Ours on purpose: to grappler a function is the end of the graph, so tl1 stays float32 there.
    check_precision(
        """
        x: f32[8,8] = Placeholder
        shape = Const([8, 8])
        most = Const(8)
        allow1 = MatMul(x, x)                                          # low ALLOW
        infer1 = Tanh(allow1)                                          # low INFER
        tl1 = EmptyTensorList(shape, most, element_dtype=f32)          # low CLEAR
        push1 = TensorListPushBack(tl1, infer1)                        # low CLEAR
        call: var, f32 = PartitionedCall([push1, infer1], Tout=[var, f32], f=@Func1)
        pop1 = TensorListPopBack(call, shape, element_dtype=f32)       # low CLEAR
        tl2 = EmptyTensorList(shape, most, element_dtype=f32)          # low CLEAR
        push2 = TensorListPushBack(tl2, infer1)                        # low CLEAR
        pop2 = TensorListPopBack(push2, shape, element_dtype=f32)      # low CLEAR
        allow2 = MatMul(pop1:1, pop2:1)                                # low ALLOW
        fetch = Identity(allow2)                                       # f32 PINNED

        @Func1(handle: var, x: f32) -> (out=pop, item=pop:1)
          shape = Const([8, 8])
          push = TensorListPushBack(handle, x)                         # low CLEAR
          pop = TensorListPopBack(push, shape, element_dtype=f32)      # low CLEAR
        """,
        outputs=("fetch",),
        steps=1,
        casts=2,
    )


def test_ga_17_batch_mat_mul() -> None:
    check_precision(
        """
        x: f32[4,8,8] = Placeholder
        allow1 = BatchMatMul(x, x)     # low ALLOW
        fetch = Identity(allow1)       # f32 PINNED
        """,
        casts=2,
    )


# GA-18 to GA-30 and OF-12: op, what it must get, range of the input, low precisions. Ranges are
# those of the case, but for the ends where the function is so steep that no bound can be derived.
HALF = ("half",)
BFLOAT16 = ("bfloat16",)
BOTH = checks.BOTH
UNARY = [
    ("Elu(m)", "low INFER", (-5, 5), BOTH),
    ("Erf(m)", "low INFER", (-5, 5), BOTH),
    ("Erfc(m)", "low INFER", (-5, 5), BOTH),
    ("Inv(m)", "low INFER", (0.1, 10), BOTH),
    ("Reciprocal(m)", "low INFER", (0.1, 10), BOTH),
    ("Log(m)", "low INFER", (0.1, 10), BOTH),
    ("Log1p(m)", "low INFER", (-0.9, 9), BOTH),
    ("LogSoftmax(m)", "low INFER", (-8, 8), BOTH),
    ("Sigmoid(m)", "low INFER", (-5, 5), BOTH),
    ("Softmax(m)", "low INFER", (-8, 8), BOTH),
    ("Softplus(m)", "low INFER", (-5, 5), HALF),
    ("Softplus(m)", "f32 NO_KERNEL", (-5, 5), BFLOAT16),  # none on GPU
    ("Sqrt(m)", "low INFER", (0, 10), BOTH),
    ("Tanh(m)", "low INFER", (-5, 5), BOTH),
    # OF-12: the others of its 19. Our walls are grappler's, and all of them are DENY.
    ("Relu(m)", "low CLEAR", (-5, 5), BOTH),
    ("Rsqrt(m)", "f32 DENY", (0.1, 10), BOTH),
    # Half would make infinity of a square, so there what reads it stays float32, too.
    ("Square(m)", "f32 DENY", (-5, 5), ("bfloat16",)),
    ("Exp(m)", "f32 DENY", (-5, 5), BOTH),
    ("Mean(m, axis, keep_dims=True)", "f32 DENY", (-5, 5), BOTH),
    ("Cumsum(m, axis)", "f32 DENY", (-5, 5), BOTH),
]
EYE = "[[1,0,0,0],[0,1,0,0],[0,0,1,0],[0,0,0,1]]"


@pytest.mark.parametrize(("call", "claim", "values", "dtypes"), UNARY)
def test_ga_18_to_30_unary_ops_between_contractions(
    call: str, claim: str, values: tuple[float, float], dtypes: tuple[str, ...]
) -> None:
    columns = "1" if call.startswith("Mean") else "4"
    check_precision(
        f"""
        x: f32[4,4] = Placeholder
        eye: f32[4,4] = Const({EYE})
        w: f32[{columns},4] = Const(0.5)
        axis = Const(1)
        m = MatMul(x, eye)      # low ALLOW
        op = {call}             # {claim}
        m2 = MatMul(op, w)      # low ALLOW
        fetch = Identity(m2)    # f32 PINNED
        """,
        dtypes=dtypes,
        ranges={"x": values},
        casts=2 if claim.startswith("low") else 4,
    )


def test_ga_36_infer_after_allow() -> None:
    check_precision(
        """
        x: f32[2,8,8,4] = Placeholder
        w: f32[3,3,4,4] = Const(seed=1)
        bias: f32[4] = Const(seed=2)
        conv = Conv2D(x, w, strides=[1,1,1,1], padding='SAME')   # low ALLOW
        add = BiasAdd(conv, bias)                                # low INFER
        relu = Relu(add)                                         # low CLEAR
        fetch = Identity(relu)                                   # f32 PINNED
        """,
        casts=2,
    )


def test_ga_37_infer_after_deny() -> None:
    check_unchanged(
        """
        x: f32[8,4] = Placeholder
        bias: f32[4] = Const(0.5)
        deny1 = Pow(x, x)             # f32 DENY
        add = BiasAdd(deny1, bias)    # f32 INFER tainted by deny1
        relu = Relu(add)              # f32 CLEAR tainted by deny1
        fetch = Identity(relu)        # f32 PINNED
        """,
        ranges={"x": (0.5, 1.5)},
    )


OF_1 = """
    x: f32[8,8] = Placeholder
    w: f32[8,8] = Const(seed=1)
    b: f32[8] = Const(seed=2)
    m = MatMul(x, w)         # low ALLOW
    a = BiasAdd(m, b)        # low INFER
    t = Tanh(a)              # low INFER
    s = Sigmoid(t)           # low INFER
    fetch = Identity(s)      # f32 PINNED
"""


@pytest.mark.parametrize("dtype", checks.BOTH)
def test_of_1_the_order_of_the_nodes_decides_nothing(dtype: str) -> None:
    # Ours on purpose: grappler's pass 4 gives 4 low nodes in order, and 2 in the reverse order.
    check_precision(OF_1, dtypes=(dtype,), casts=2)
    graph = graph_text.parse(OF_1, dtype)
    in_order = checks.checked_rewrite(graph, dtype)

    nodes = list(graph.node)
    del graph.node[:]
    graph.node.extend(reversed(nodes))
    reverse = checks.checked_rewrite(graph, dtype)

    assert set(in_order.type_variables) == set(reverse.type_variables)
    texts = [ir_text.graph_text(report.graph_def) for report in (in_order, reverse)]
    assert sorted(texts[0].splitlines()) == sorted(texts[1].splitlines())


def test_of_2_a_denied_branch_keeps_the_sum_in_float32() -> None:
    check_precision(
        """
        x: f32[8,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        m = MatMul(x, w)        # low ALLOW
        e = Exp(x)              # f32 DENY
        a = AddV2(m, e)         # f32 INFER tainted by e
        r = Relu(a)             # f32 CLEAR tainted by e
        fetch = Identity(r)     # f32 PINNED
        """,
        casts=2,
    )


def test_of_3_a_sum_costs_one_cast_of_what_it_reads() -> None:
    check_precision(
        """
        x: f32[8,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        axes = Const([0, 1])
        m = MatMul(x, w)        # low ALLOW
        s = Sum(m, axes)        # f32 DENY
        ms = Mul(m, s)          # f32 INFER tainted by s
        a = AddV2(ms, m)        # f32 INFER tainted by s
        m2 = MatMul(a, w)       # low ALLOW
        fetch = Identity(m2)    # f32 PINNED
        """,
        casts=4,
    )


def test_of_4_heads_on_one_contraction() -> None:
    # Ours on purpose: Greater reads float32, its constant 1e-9 would be 0 in half. TopK, ArgMax and
    # Round read what was computed low as it is: they never make anything be rounded.
    check_precision(
        """
        x: f32[4,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        zero = Const(0)
        ids = Const([0, 2])
        two = Const(2)
        small = Const(1e-9)
        image = Const([1, 4, 8, 1])
        size = Const([8, 16])
        m = MatMul(x, w)                    # low ALLOW
        gather = GatherV2(m, ids, zero)     # Tparams low CLEAR
        top = TopKV2(m, two)                # T low CLEAR
        arg = ArgMax(m, zero)               # T low CLEAR
        greater = Greater(m, small)         # f32 KEEP
        round = Round(m)                    # low CLEAR
        reshape = Reshape(m, image)         # low CLEAR
        resize = ResizeBilinear(reshape, size)   # f32
        whole = Cast(m, DstT=i32)           # f32
        out1 = Identity(gather)             # f32 PINNED
        out2 = Identity(top)                # f32 PINNED
        out3 = Identity(arg)
        out4 = Identity(greater)
        out5 = Identity(round)              # f32 PINNED
        out6 = Identity(resize)             # f32 PINNED
        out7 = Identity(whole)
        """,
        casts=6,
    )


MASK = """
    x: f32[4,8] = Placeholder
    w: f32[8,8] = Const(seed=1)
    mask: f32[4,8] = Placeholder
    one = Const(1.0)
    big = Const(-1e9)
    logits = MatMul(x, w)         # low ALLOW
    inverse = Sub(one, mask)      # f32 NOTHING_LOW
    minus = Mul(inverse, big)     # f32 MINUS
    add = AddV2(logits, minus)    # ADD
    soft = Softmax(add)           # ADD
    m2 = MatMul(soft, w)          # low ALLOW
    fetch = Identity(m2)          # f32 PINNED
"""
ALL_MASKED = {"mask": np.eye(4, 8, k=4, dtype=np.float32)[[0, 1, 2, 2]] * [[0], [1], [1], [1]]}


def test_of_5_a_mask_beyond_the_range_of_half_stays_in_float32() -> None:
    # Ours on purpose: grappler casts the mask to -inf. A row where all is masked must stay finite.
    text = MASK.replace("MINUS", "RANGE").replace("# ADD", "# f32 INFER tainted by minus")
    feeds = {name: value.astype(np.float32) for name, value in ALL_MASKED.items()}
    check_precision(text, dtypes=HALF, feeds=feeds, casts=4)


def test_of_5_a_mask_within_the_range_of_bfloat16_goes_low() -> None:
    text = MASK.replace("MINUS", "NOTHING_LOW").replace("# ADD", "# low INFER")
    feeds = {name: value.astype(np.float32) for name, value in ALL_MASKED.items()}
    check_precision(text, dtypes=BFLOAT16, feeds=feeds, casts=3)


def test_of_6_a_residual_network() -> None:
    check_precision(
        """
        x: f32[2,8,8,4] = Placeholder
        w1: f32[3,3,4,4] = Const(seed=1)
        w2: f32[3,3,4,4] = Const(seed=2)
        w3: f32[4,5] = Const(seed=3)
        b: f32[5] = Const(seed=4)
        ones: f32[4] = Const(1)
        zeros: f32[4] = Const(0)
        axes = Const([1, 2])
        conv1 = Conv2D(x, w1, strides=[1,1,1,1], padding='SAME')                    # low ALLOW
        bn = FusedBatchNormV3(conv1,ones,zeros,zeros,ones,is_training=False)  # T low; U f32 KEEP
        relu1 = Relu(bn)                                                            # low CLEAR
        conv2 = Conv2D(relu1, w2, strides=[1,1,1,1], padding='SAME')                # low ALLOW
        add = AddV2(conv2, relu1)                                                   # low INFER
        relu2 = Relu(add)                                                           # low CLEAR
        pool = MaxPool(relu2, ksize=[1,2,2,1], strides=[1,2,2,1], padding='VALID')  # low CLEAR
        mean = Mean(pool, axes)                                                     # f32 DENY
        m = MatMul(mean, w3)                                                        # low ALLOW
        bias = BiasAdd(m, b)                                                        # low INFER
        soft = Softmax(bias)                                                        # f32 PINNED
        fetch = Identity(soft)                                                      # f32 PINNED
        """,
        casts=4,
    )


def layer_norm(name: str, x: str) -> str:
    """Returns the decomposed form; its result is `{name}ln`."""
    return f"""
        {name}mean = Mean({x}, last, keep_dims=True)    # f32 DENY
        {name}sq = SquaredDifference({x}, {name}mean)   # f32 DENY
        {name}var = Mean({name}sq, last, keep_dims=True)   # f32 DENY
        {name}ve = AddV2({name}var, eps)                # f32 INFER tainted by {name}var
        {name}rs = Rsqrt({name}ve)                      # f32 DENY
        {name}g = Mul({name}rs, gamma)
        {name}xg = Mul({x}, {name}g)
        {name}mg = Mul({name}mean, {name}g)
        {name}sb = Sub(beta, {name}mg)
        {name}ln = AddV2({name}xg, {name}sb)            # low INFER
    """


def test_of_7_a_layer_norm_has_float32_moments_and_a_gelu_is_wholly_low() -> None:
    # Ours on purpose: grappler leaves one lone half Mul in the first norm, and 12 casts. Of ours
    # those of the mean and the root, two a norm, are of one value a row.
    check_precision(
        f"""
        x: f32[4,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        last = Const([1])
        eps = Const(1e-3)
        gamma: f32[8] = Const(seed=2)
        beta: f32[8] = Const(seed=3)
        one = Const(1.0)
        half = Const(0.5)
        root = Const(0.70710678)
        m0 = MatMul(x, w)          # low ALLOW
        {layer_norm("a", "m0")}
        m1 = MatMul(aln, w)        # low ALLOW
        scaled = Mul(m1, root)     # low INFER
        erf = Erf(scaled)          # low INFER
        erf1 = AddV2(erf, one)     # low INFER
        halved = Mul(m1, half)     # low INFER
        gelu = Mul(halved, erf1)   # low INFER
        m2 = MatMul(gelu, w)       # low ALLOW
        res = AddV2(m2, m0)        # low INFER
        {layer_norm("b", "res")}
        m3 = MatMul(bln, w)        # low ALLOW
        fetch = Identity(m3)       # f32 PINNED
        """,
        casts=8,
    )
