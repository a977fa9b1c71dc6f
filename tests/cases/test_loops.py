"""Cases C01 to C08 from the field, and their near relatives: loops, lists, functions.

Every graph is executed. The main graph stands first; `loop` appends the condition of a counted
loop, whose first carried value is the counter.
"""

from __future__ import annotations

import numpy as np
import pytest

import tf_amp_rewriter
from tests import checks, graph_text
from tests.checks import check_precision, check_unchanged, loop
from tf_amp_rewriter import dtypes

HALF = ("half",)
TOLERANCE = {"half": 2e-3, "bfloat16": 2e-2}  # relative to the range of the output


# ---------------------------------------------------------------- C01: arrays in loops of v1

MAP_V1 = """
    x: f32[3,4] = Placeholder
    w: f32[4,4] = Const(seed=1)
    zero = Const(0)
    three = Const(3)
    rows = Const([0, 1, 2])
    a: res, f32 = TensorArrayV3(three, dtype=f32, clear_after_read=False)   # IN
    filled = TensorArrayScatterV3(a, rows, x, a:1)                # IN
    b: res, f32 = TensorArrayV3(three, dtype=f32)                 # low CLEAR
    i0 = Enter(zero, frame_name='map')
    f0 = Enter(b:1, frame_name='map')                             # f32 -- a flow, not a value
    a1 = Enter(a, frame_name='map', is_constant=True)
    af = Enter(filled, frame_name='map', is_constant=True)        # f32
    b1 = Enter(b, frame_name='map', is_constant=True)
    n1 = Enter(three, frame_name='map', is_constant=True)
    w1 = Enter(w, frame_name='map', is_constant=True)             # low
    i1 = Merge([i0, i4])
    f1 = Merge([f0, f4])                                          # f32
    less = Less(i1, n1)
    go = LoopCond(less)
    i2 = Switch(i1, go)
    f2 = Switch(f1, go)                                           # f32
    i3 = Identity(i2:1)
    one = Const(1, ^i3)
    row = Const([1, 4], ^i3)
    flat = Const([4], ^i3)
    add = AddV2(i3, one)
    read: f32 = TensorArrayReadV3(a1, i3, af)                     # IN
    wide = Reshape(read, row)                                     # low CLEAR
    m = MatMul(wide, w1)                                          # low ALLOW
    back = Reshape(m, flat)                                       # low CLEAR
    f3 = TensorArrayWriteV3(b1, i3, back, f2:1)                   # low CLEAR
    i4 = NextIteration(add)
    f4 = NextIteration(f3)                                        # f32
    i5 = Exit(i2)
    f5 = Exit(f2)                                                 # f32
    y: f32 = TensorArrayGatherV3(b, rows, f5)                     # low CLEAR
    out = Identity(y)                                             # f32 PINNED
"""


def test_c01_arrays_of_a_v1_map_go_low_with_all_their_ops() -> None:
    # One Cast before the array is filled, one behind it: none inside the loop.
    check_precision(MAP_V1.replace("# IN", "# low CLEAR"), outputs=("out",), steps=3, casts=2)


def test_c01_an_array_that_someone_reads_in_float32_stays_so_and_the_product_is_wrapped() -> None:
    text = (
        MAP_V1.replace("# IN", "# f32")
        + """
    again: f32 = TensorArrayGatherV3(a, rows, filled)             # f32
    exp = Exp(again)                                              # f32
    """
    )
    check_precision(text, outputs=("out", "exp"), steps=3, exact=("exp",), casts=2)


def test_c01_two_writers_of_one_array_agree() -> None:
    check_precision(
        """
        x: f32[4,4] = Placeholder
        w: f32[4,4] = Const(seed=1)
        zero = Const(0)
        one = Const(1)
        two = Const(2)
        m = MatMul(x, w)                                          # low ALLOW
        a: res, f32 = TensorArrayV3(two, dtype=f32)               # low CLEAR
        first = TensorArrayWriteV3(a, zero, m, a:1)               # low CLEAR
        second = TensorArrayWriteV3(a, one, x, first)             # low CLEAR
        y: f32 = TensorArrayReadV3(a, zero, second)               # low CLEAR
        z: f32 = TensorArrayReadV3(a, one, second)                # low CLEAR
        m1 = MatMul(y, w)                                         # low ALLOW
        m2 = MatMul(z, w)                                         # low ALLOW
        out1 = Identity(m1)                                       # f32 PINNED
        out2 = Identity(m2)                                       # f32 PINNED
        """,
        outputs=("out1", "out2"),
        steps=1,
        casts=3,
    )


def test_c01_a_float32_writer_and_a_float32_reader_keep_the_array_float32() -> None:
    # x would be rounded on its way from a model input to a model output.
    check_precision(
        """
        x: f32[4,4] = Placeholder
        w: f32[4,4] = Const(seed=1)
        zero = Const(0)
        one = Const(1)
        two = Const(2)
        m = MatMul(x, w)                                          # low ALLOW
        a: res, f32 = TensorArrayV3(two, dtype=f32)               # f32
        first = TensorArrayWriteV3(a, zero, m, a:1)               # f32
        second = TensorArrayWriteV3(a, one, x, first)             # f32
        y: f32 = TensorArrayReadV3(a, zero, second)               # f32
        z: f32 = TensorArrayReadV3(a, one, second)                # f32
        m1 = MatMul(y, w)                                         # low ALLOW
        out1 = Identity(m1)                                       # f32 PINNED
        out2 = Identity(z)                                        # f32 PINNED
        """,
        outputs=("out1", "out2"),
        exact=("out2",),
        steps=1,
        casts=4,
    )


# ---------------------------------------------------------------- C02: writers and readers of lists


def test_c02_a_list_without_a_contraction_stays_as_it_is() -> None:
    check_unchanged(
        """
        x: f32[3,2] = Placeholder
        shape = Const([2])
        list = TensorListFromTensor(x, shape)                     # f32
        stack: f32 = TensorListStack(list, shape, element_dtype=f32)   # f32
        out = Identity(stack)                                     # f32 PINNED
        """,
        steps=1,
        exact=("out",),
    )


def test_c02_writer_and_reader_of_a_list_go_low_together() -> None:
    check_precision(
        """
        x: f32[3,2] = Placeholder
        w: f32[2,2] = Const(seed=1)
        shape = Const([2])
        m = MatMul(x, w)                                          # low ALLOW
        list = TensorListFromTensor(m, shape)                     # low CLEAR
        stack: f32 = TensorListStack(list, shape, element_dtype=f32)   # low CLEAR
        n = MatMul(stack, w)                                      # low ALLOW
        out = Identity(n)                                         # f32 PINNED
        """,
        steps=1,
        casts=2,
    )


READ_IN_A_FUNCTION = """
    x: f32[3,2] = Placeholder
    w: f32[2,2] = Const(seed=1)
    shape = Const([2])
    cpu: str = Const('/device:CPU:0')
    m = MatMul(x, w)                                              # low ALLOW
    list = TensorListFromTensor(m, shape)                         # LIST
    y: f32 = CALL([list], Tout=[f32], f=@read)
    n = MatMul(y, w)                                              # low ALLOW
    out = Identity(n)                                             # f32 PINNED

    @read(list: var) -> (y=stack)
      shape = Const([2])
      stack: f32 = TensorListStack(list, shape, element_dtype=f32)   # LIST
"""


@pytest.mark.parametrize("call", ["PartitionedCall", "StatefulPartitionedCall"])
def test_c02_a_list_goes_low_through_a_call(call: str) -> None:
    text = READ_IN_A_FUNCTION.replace("CALL", call).replace("# LIST", "# low CLEAR")
    check_precision(text, outputs=("out",), steps=1, casts=2)


def test_c02_a_list_that_a_foreign_op_hands_on_stays_float32() -> None:
    text = READ_IN_A_FUNCTION.replace("# LIST", "# f32")
    text = text.replace("CALL([list]", "RemoteCall(cpu, [list]")
    check_precision(text, outputs=("out",), steps=1, casts=4)


def test_c02_a_list_in_an_optional_stays_float32() -> None:
    check_precision(
        """
        x: f32[3,2] = Placeholder
        w: f32[2,2] = Const(seed=1)
        shape = Const([2])
        m = MatMul(x, w)                                          # low ALLOW
        list = TensorListFromTensor(m, shape)                     # f32
        box = OptionalFromValue([list])
        open: var = OptionalGetValue(box, output_types=[var], output_shapes=[*])
        stack: f32 = TensorListStack(open, shape, element_dtype=f32)   # f32
        n = MatMul(stack, w)                                      # low ALLOW
        out = Identity(n)                                         # f32 PINNED
        """,
        outputs=("out",),
        steps=1,
        casts=4,
    )


PUSHED_IN_BRANCHES = """
    x: f32[4,8] = Placeholder
    p: bool[] = Placeholder
    w: f32[8,8] = Const(seed=1)
    shape = Const([4, 8])
    most = Const(4)
    m = MatMul(x, w)                                              # low ALLOW
    empty = EmptyTensorList(shape, most, element_dtype=f32)       # LIST
    one = TensorListPushBack(empty, m)                            # LIST
    two: var = If(p, [one, m], then_branch=@t, else_branch=@e, Tout=[var])
    pop: var, f32 = TensorListPopBack(two, shape, element_dtype=f32)   # LIST
    n = MatMul(pop:1, w)                                          # low ALLOW
    out = Identity(READ)                                          # f32 PINNED

    @t(list: var, x: f32) -> (list=push)
      first = FIRST(x)                                            # KIND
      push = TensorListPushBack(list, first)                       # LIST

    @e(list: var, x: f32) -> (list=push)
      relu = Relu(x)
      push = TensorListPushBack(list, relu)                       # LIST
"""


@pytest.mark.parametrize("p", [True, False])
def test_c02_a_list_through_both_branches(p: bool) -> None:
    text = PUSHED_IN_BRANCHES.replace("READ", "n").replace("# LIST", "# low CLEAR")
    text = text.replace("FIRST", "Tanh").replace("# KIND", "# low INFER")
    check_precision(text, outputs=("out",), feeds={"p": np.array(p)}, steps=1, casts=2)


@pytest.mark.parametrize("p", [True, False])
def test_c02_a_denied_value_in_one_branch_keeps_a_list_that_leaves_float32(p: bool) -> None:
    text = PUSHED_IN_BRANCHES.replace("READ", "pop:1").replace("# LIST", "# f32")
    text = text.replace("FIRST", "Exp").replace("# KIND", "# f32 DENY")
    check_precision(text, outputs=("out",), feeds={"p": np.array(p)}, steps=1)


@pytest.mark.parametrize("p", [True, False])
def test_c02_a_denied_value_in_one_branch_goes_low_where_contractions_alone_read_it(
    p: bool,
) -> None:
    # Rule 4: every reader wants low. The Cast stands behind the denied op, in its branch.
    text = PUSHED_IN_BRANCHES.replace("READ", "n").replace("# LIST", "# low CLEAR")
    text = text.replace("FIRST", "Exp").replace("# KIND", "# f32 DENY")
    check_precision(text, outputs=("out",), feeds={"p": np.array(p)}, steps=1, casts=4)


# ---------------------------------------------------------------- C04: the cell of an LSTM

LSTM = """
    x: f32[STEPS,2,4] = Placeholder
    k: f32[4,24] = Const(seed=1)                                  # low
    r: f32[6,24] = Const(seed=2)                                  # low
    b: f32[24] = Const(seed=3)                                    # low
    h: f32[2,6] = Const(0)                                        # low
    c: f32[2,6] = Const(0)                                        # low
    zero = Const(0)
    steps = Const(STEPS)
    in_shape = Const([2, 4])
    out_shape = Const([2, 6])
    xs = TensorListFromTensor(x, in_shape)                        # low CLEAR
    ys = TensorListReserve(out_shape, steps, element_dtype=f32)   # low CLEAR
    loop: i32, var, f32, f32, var, f32, f32, f32 = While([zero, ys, h, c, xs, k, r, b], cond=@c, body=@step)  # T[2] low CLEAR; T[3] low CLEAR; T[5] low; T[6] low; T[7] low
    stack: f32 = TensorListStack(loop:1, out_shape, element_dtype=f32)   # low CLEAR
    all = Identity(stack)                                         # f32 PINNED
    last = Identity(loop:2)                                       # f32 PINNED

    @step(i: i32, ys: var, h: f32, c: f32, xs: var, k: f32, r: f32, b: f32) -> (i1=add, ys1=set, h1=h1, c1=c1, xs1=xs, k1=k, r1=r, b1=b)
      one = Const(1)
      four = Const(1)
      shape = Const([2, 4])
      add = AddV2(i, one)
      x: f32 = TensorListGetItem(xs, i, shape, element_dtype=f32)   # low CLEAR
      m = MatMul(x, k)                                            # low ALLOW
      n = MatMul(h, r)                                            # low ALLOW
      s = AddV2(m, n)                                             # low INFER
      z = BiasAdd(s, b)                                           # low INFER
      parts = Split(four, z, num_split=4)                         # low CLEAR
      input = Sigmoid(parts)                                      # low INFER
      forget = Sigmoid(parts:1)                                   # low INFER
      fresh = Tanh(parts:2)                                       # low INFER
      output = Sigmoid(parts:3)                                   # low INFER
      kept = Mul(forget, c)                                       # low INFER
      new = Mul(input, fresh)                                     # low INFER
      c1 = AddV2(kept, new)                                       # low INFER
      t = Tanh(c1)                                                # low INFER
      h1 = Mul(output, t)                                         # low INFER
      set = TensorListSetItem(ys, i, h1)                          # low CLEAR
"""  # noqa: E501
LSTM_VALUES = "ys: var, h: f32, c: f32, xs: var, k: f32, r: f32, b: f32"


@pytest.mark.parametrize("steps", [5, 500])
@pytest.mark.parametrize("dtype", checks.BOTH)
def test_c04_an_lstm_has_no_cast_in_its_body(steps: int, dtype: str) -> None:
    text = loop(LSTM.replace("STEPS", str(steps)), steps, LSTM_VALUES)
    outputs = ("all", "last")
    check_precision(text, dtypes=(dtype,), outputs=outputs, steps=steps, casts=3)

    graph = graph_text.parse(text)
    report = checks.checked_rewrite(graph, dtype, options={"outputs": outputs}, steps=steps)
    x = np.random.default_rng(7).normal(size=(steps, 2, 4)).astype(np.float32)
    expected, actual = (
        checks.run_graph(checks.imported(one), ["all:0", "last:0"], {"x": x})
        for one in (graph, report.graph_def)
    )
    for name, value in expected.items():
        bound = TOLERANCE[dtype] * float(np.ptp(value))
        checks.compare(name, value, actual[name], bound)


# ---------------------------------------------------------------- C07, C08: calls and branches


def test_c07_one_body_two_callers_of_which_one_is_denied() -> None:
    # Both callers cast before the call, the function has one low face.
    check_precision(
        """
        x: f32[4,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        zero = Const(0)
        sums = Cumsum(x, zero)                                    # f32 DENY
        a: f32 = PartitionedCall([x, w], Tout=[f32], f=@layer)    # Tin[0] low; Tin[1] low; Tout[0] low
        b: f32 = PartitionedCall([sums, w], Tout=[f32], f=@layer) # Tin[0] low; Tin[1] low; Tout[0] low
        out1 = Identity(a)                                        # f32 PINNED
        out2 = Identity(b)                                        # f32 PINNED

        @layer(x: f32, w: f32) -> (y=relu)
          m = MatMul(x, w)                                        # low ALLOW
          relu = Relu(m)                                          # low CLEAR
        """,  # noqa: E501
        steps=1,
        casts=4,
    )


def test_c07_a_body_that_only_moves_values_serves_float32_callers_as_float32() -> None:
    # In the low precision the value from x to out1 would be rounded without need.
    check_precision(
        """
        x: f32[4,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        m = MatMul(x, w)                                          # low ALLOW
        a: f32 = PartitionedCall([x], Tout=[f32], f=@cut)         # Tin[0] f32; Tout[0] f32
        b: f32 = PartitionedCall([m], Tout=[f32], f=@cut)         # Tin[0] f32; Tout[0] f32
        n = MatMul(b, w)                                          # low ALLOW
        out1 = Identity(a)                                        # f32 PINNED
        out2 = Identity(n)                                        # f32 PINNED

        @cut(x: f32) -> (y=relu)
          relu = Relu(x)                                          # f32 NOTHING_LOW
        """,
        exact=("out1",),
        steps=1,
        casts=4,
    )


OUTER = """
    x: f32[4,8] = Placeholder
    p: bool[] = Placeholder
    w: f32[8,8] = Const(seed=1)
    m = MatMul(x, w)                                              # low ALLOW
    y: f32 = If(p, [CAPTURED], then_branch=@t, else_branch=@e, Tout=[f32])   # Tin[0] FACE; Tout[0] FACE
    out = Identity(y)                                             # f32 PINNED
    out2 = Identity(m)                                            # f32 PINNED

    @t(a: f32) -> (y=n)
      v: f32[8,8] = Const(seed=2)                                 # low
      n = MatMul(a, v)                                            # low ALLOW

    @e(a: f32) -> (y=a)
"""  # noqa: E501


@pytest.mark.parametrize("p", [True, False])
@pytest.mark.parametrize("op", ["If", "StatelessIf"])
def test_c08_branches_on_an_outer_low_activation_agree(op: str, p: bool) -> None:
    text = OUTER.replace("CAPTURED", "m").replace("FACE", "low").replace("If(", f"{op}(")
    check_precision(text, feeds={"p": np.array(p)}, steps=1, casts=3)


@pytest.mark.parametrize("p", [True, False])
def test_c08_a_branch_that_hands_on_an_outer_float32_value_does_not_round_it(p: bool) -> None:
    text = OUTER.replace("CAPTURED", "x").replace("FACE", "f32")
    exact = () if p else ("out",)
    check_precision(text, feeds={"p": np.array(p)}, steps=1, exact=exact, casts=4)


# ---------------------------------------------------------------- sums, counters, predicates

FLOAT_COUNTER = """
    zero = Const(0)
    none = Const(0.0)                                             # f32
    w: f32[1,1] = Const(1.0)                                      # low
    square = Const([1, 1])
    loop: i32, f32 = While([zero, none], cond=@c, body=@b)        # T[1] f32
    wide = Reshape(loop:1, square)                                # low CLEAR
    m = MatMul(wide, w)                                           # low ALLOW
    out = Identity(m)                                             # f32 PINNED

    @b(i: i32, t: f32) -> (i1=i1, t1=t1)
      one = Const(1)
      single = Const(1.0)                                         # f32
      i1 = AddV2(i, one)
      t1 = AddV2(t, single)                                       # f32
"""


def test_a_float_counter_counts_beyond_2048() -> None:
    # 3000 is a half; 2049 is none, so a half counter stays at 2048.
    text = loop(FLOAT_COUNTER, 3000, "t: f32")
    check_precision(text, dtypes=HALF, steps=3000, exact=("out",), casts=2)


def test_a_float_counter_counts_beyond_256() -> None:
    text = loop(FLOAT_COUNTER, 384, "t: f32")
    check_precision(text, dtypes=("bfloat16",), steps=384, exact=("out",), casts=2)


def test_a_float_counter_that_steers_the_loop() -> None:
    check_precision(
        """
        zero = Const(0.0)                                         # f32
        x: f32[4,4] = Placeholder
        w: f32[4,4] = Const(seed=1)
        loop: f32, f32 = While([zero, x], cond=@c, body=@b)       # T[0] f32
        count = Identity(loop)                                    # f32 PINNED
        n = MatMul(loop:1, w)                                     # low ALLOW
        out = Identity(n)                                         # f32 PINNED

        @c(t: f32, x: f32) -> (go=go)
          end = Const(3000.0)                                     # f32
          go = Less(t, end)                                       # f32

        @b(t: f32, x: f32) -> (t1=t1, x1=y)
          single = Const(1.0)                                     # f32
          v: f32[4,4] = Const([[2,0,0,0],[0,2,0,0],[0,0,2,0],[0,0,0,2]])
          t1 = AddV2(t, single)                                   # f32
          m = MatMul(x, v)                                        # low ALLOW
          y = Tanh(m)                                             # low INFER
        """,
        steps=3000,
        exact=("count",),
    )


def carried_sum(update: str) -> str:
    """Returns a loop that adds up a low value of exactly 0.5 a step; `update` gives `s1`."""
    return f"""
    x: f32[2,4] = Placeholder
    w: f32[4,4] = Const(0.125)                                    # low
    zero = Const(0)
    none: f32[2,4] = Const(0.0)                                   # f32
    loop: i32, f32, f32, f32 = While([zero, none, x, w], cond=@c, body=@b)   # T[1] f32; T[2] low; T[3] low
    n = MatMul(loop:1, w)                                         # low ALLOW
    out = Identity(n)                                             # f32 PINNED
    sum = Identity(loop:1)                                        # f32 PINNED

    @b(i: i32, s: f32, x: f32, w: f32) -> (i1=i1, s1=s1, x1=x, w1=w)
      one = Const(1)
      i1 = AddV2(i, one)
      m = MatMul(x, w)                                            # low ALLOW
      {update}
"""  # noqa: E501


# What gives the next sum `s1` of the sum `s` and the low value `m`, which is exactly 0.5.
SUMS = {
    "running sum": "s1 = AddV2(s, m)     # f32",
    "the other way round": "s1 = Add(m, s)     # f32",
    "difference": "s1 = Sub(s, m)     # f32",
    "sum of many": "s1 = AddN([m, s, m])     # f32",
    "through what only moves": (
        "t = Identity(s)    # f32\n      a = AddV2(t, m)    # f32\n      s1 = Identity(a)    # f32"
    ),
    "in two steps": "a = AddV2(s, m)     # f32\n      s1 = AddV2(a, m)     # f32",
}


@pytest.mark.parametrize("update", SUMS.values(), ids=SUMS)
def test_a_running_sum_does_not_stall(update: str) -> None:
    text = loop(carried_sum(update), 5000, "s: f32, x: f32, w: f32")
    x = {"x": np.ones((2, 4), np.float32)}
    check_precision(text, feeds=x, steps=5000, exact=("sum",))


def test_a_running_sum_that_only_a_contraction_reads_does_not_stall() -> None:
    text = loop(carried_sum(SUMS["running sum"]), 5000, "s: f32, x: f32, w: f32")
    text = text.replace("sum = Identity(loop:1)", "rest = Identity(zero)").replace(
        "# f32 PINNED", ""
    )
    # 5000 * 0.5 is a half, and 4 * 2500 * 0.125 is one, too.
    x = {"x": np.ones((2, 4), np.float32)}
    check_precision(text, dtypes=HALF, feeds=x, steps=5000, exact=("out",))


def test_a_moving_average_arrives() -> None:
    # In half 0.999 m + 0.001 x stands still at about half of the way.
    update = """most = Const(0.999)
      few = Const(0.001)
      old = Mul(s, most)                                          # f32
      new = Mul(m, few)
      s1 = AddV2(old, new)                                        # f32"""
    text = loop(carried_sum(update), 5000, "s: f32, x: f32, w: f32")
    x = {"x": np.ones((2, 4), np.float32)}
    check_precision(text, not_run="compared below: a value without spread has no bound")

    for dtype in checks.BOTH:
        graph = graph_text.parse(text)
        options = tf_amp_rewriter.Options(dtype=dtype, outputs=("sum",))
        report = tf_amp_rewriter.rewrite_graph_def(graph, options)
        before, after = (
            checks.run_graph(checks.imported(one), ["sum:0"], x)["sum:0"]
            for one in (graph, report.graph_def)
        )
        # The low factor 0.001 and its product with 0.5 are rounded once each, in every step alike.
        unit = dtypes.LOW_PRECISIONS[dtype].epsilon
        checks.compare("sum", before, after, 2.1 * unit * float(np.abs(before).max()))


def test_a_cumulated_score_stays_float32() -> None:
    text = """
        x: f32[2,8] = Placeholder
        w: f32[8,8] = Const(seed=1)                               # low
        zero = Const(0)
        none: f32[2,8] = Const(0.0)                               # f32
        loop: i32, f32, f32, f32 = While([zero, none, x, w], cond=@c, body=@b)   # T[1] f32; T[2] low CLEAR; T[3] low
        score = Identity(loop:1)                                  # f32 PINNED

        @b(i: i32, s: f32, h: f32, w: f32) -> (i1=i1, s1=s1, h1=h1, w1=w)
          one = Const(1)
          i1 = AddV2(i, one)
          m = MatMul(h, w)                                        # low ALLOW
          p = LogSoftmax(m)
          s1 = AddV2(s, p)                                        # f32
          h1 = Tanh(m)                                            # low INFER
        """  # noqa: E501
    # 400 steps of about -2: a half score would be off by a quarter a step in the end.
    check_precision(loop(text, 400, "s: f32, h: f32, w: f32"), steps=400)


def test_a_loop_until_a_norm_is_small_runs_as_often() -> None:
    check_precision(
        """
        x: f32[1,4] = Placeholder
        zero = Const(0)
        loop: i32, f32 = While([zero, x], cond=@c, body=@b)       # T[1] f32
        trips = Identity(loop)
        w: f32[4,4] = Const(seed=1)
        m = MatMul(loop:1, w)                                     # low ALLOW
        out = Identity(m)                                         # f32 PINNED

        @c(i: i32, x: f32) -> (go=go)
          axes = Const([0, 1])
          eps = Const(1.12)                                       # f32
          squares = Mul(x, x)                                     # f32
          sum = Sum(squares, axes)                                # f32
          norm = Sqrt(sum)                                        # f32
          go = Greater(norm, eps)                                 # f32

        @b(i: i32, x: f32) -> (i1=i1, x1=m)
          one = Const(1)
          w: f32[4,4] = Const([[0.9,0,0,0],[0,0.9,0,0],[0,0,0.9,0],[0,0,0,0.9]])
          i1 = AddV2(i, one)
          m = MatMul(x, w)
        """,
        feeds={"x": np.ones((1, 4), np.float32)},  # 2 * 0.9**5 = 1.18, 2 * 0.9**6 = 1.06
        steps=6,
        exact=("trips",),
    )


SCORED = """
    x: f32[1,4] = Placeholder
    w: f32[4,1] = Const([[1.0],[0.0],[0.0],[0.0]])
    v: f32[4,4] = Const(seed=1)
    scalar: i32[0] = Const([])
    limit = Const(0.7)                                            # f32
    m = MatMul(x, w)
    score = Relu(m)                                               # f32
    one = Reshape(score, scalar)                                  # f32
    below = Less(one, limit)                                      # f32
    y: f32 = If(below, [x, v], then_branch=@t, else_branch=@e, Tout=[f32])
    out = Identity(y)                                             # f32 PINNED

    @t(x: f32, v: f32) -> (y=y)
      m = MatMul(x, v)                                            # low ALLOW
      y = Tanh(m)                                                 # low INFER

    @e(x: f32, v: f32) -> (y=y)
      m = MatMul(x, v)                                            # low ALLOW
      y = Relu(m)                                                 # low CLEAR
"""


@pytest.mark.parametrize("first", [0.5, 0.69, 0.71, 0.9])
def test_a_float_less_steers_an_if_as_before(first: float) -> None:
    check_precision(SCORED, feeds={"x": np.float32([[first, -0.5, 0.25, 1]])}, steps=1)


def test_a_decoder_stops_at_its_end_token_and_gives_the_same_tokens() -> None:
    check_precision(
        """
        h: f32[1,4] = Placeholder
        zero = Const(0)
        start = Const(0)
        most = Const(8)
        scalar: i32[0] = Const([])
        ids = TensorListReserve(scalar, most, element_dtype=i32)
        shift: f32[4,4] = Const([[0,4,0,0],[0,0,4,0],[0,0,0,4],[0,0,0,4]])   # low
        loop: i32, i32, var, f32, f32 = While([zero, start, ids, h, shift], cond=@c, body=@b)   # T[4] low
        trips = Identity(loop)
        tokens: i32 = TensorListStack(loop:2, scalar, element_dtype=i32)
        all = Identity(tokens)
        @c(i: i32, token: i32, ids: var, h: f32, shift: f32) -> (go=go)
          end = Const(3)
          go = NotEqual(token, end)

        @b(i: i32, token: i32, ids: var, h: f32, shift: f32) -> (i1=i1, t1=next, ids1=set, h1=h1, s1=shift)
          one = Const(1)
          axis = Const(1)
          scalar: i32[0] = Const([])
          i1 = AddV2(i, one)
          logits = MatMul(h, shift)                               # low ALLOW
          best: i32 = ArgMax(logits, axis, output_type=i32)
          next = Reshape(best, scalar)
          set = TensorListSetItem(ids, i, next)
          h1 = Tanh(logits)
        """,  # noqa: E501
        feeds={"h": np.float32([[1, 0, 0, 0]])},
        outputs=("trips", "all"),
        steps=3,
        exact=("trips", "all"),
    )
