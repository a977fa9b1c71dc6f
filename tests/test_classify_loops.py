"""What the pass decides in loops and conditionals of both control flows, construct by construct."""

from __future__ import annotations

import inspect
import textwrap

import numpy as np
import pytest

from tests import checks, graph_text
from tests.checks import check_precision, check_unchanged, loop

BRANCHES = [True, False]


# ---------------------------------------------------------------- While

SIMPLE = """
    x: f32[4,8] = Placeholder
    w: f32[8,8] = Const(seed=1)                               # low
    zero = Const(0)
    first = FIRST
    loop: i32, f32, f32 = WHILE([zero, first, w], cond=@c, body=@b)   # T[1] CARRIED; T[2] low
    out = Identity(loop:1)                                    # f32 PINNED

    @b(i: i32, x: f32, w: f32) -> (i1=i1, x1=t, w1=w)
      one = Const(1)
      i1 = AddV2(i, one)
      m = MatMul(x, w)                                        # low ALLOW
      t = Tanh(m)                                             # low INFER
"""


@pytest.mark.parametrize("op", ["While", "StatelessWhile"])
def test_what_enters_low_is_carried_low(op: str) -> None:
    text = (
        SIMPLE.replace("WHILE", op)
        .replace("FIRST", "MatMul(x, w)   # low ALLOW")
        .replace("CARRIED", "low CLEAR")
    )
    check_precision(loop(text, 5, "x: f32, w: f32"), steps=5, casts=2)


@pytest.mark.parametrize("op", ["While", "StatelessWhile"])
def test_a_float32_activation_that_leaves_its_loop_is_carried_float32(op: str) -> None:
    text = SIMPLE.replace("WHILE", op).replace("FIRST", "Exp(x)").replace("CARRIED", "f32")
    check_precision(loop(text, 5, "x: f32, w: f32"), steps=5, casts=2)


@pytest.mark.parametrize("dtype", checks.BOTH)
def test_the_other_attributes_of_a_loop_stay(dtype: str) -> None:
    text = SIMPLE.replace("WHILE", "While").replace("FIRST", "MatMul(x, w)   # low ALLOW")
    graph = graph_text.parse(loop(text, 5, "x: f32, w: f32"), dtype)
    (node,) = (node for node in graph.node if node.op == "While")
    node.attr["parallel_iterations"].i = 3
    node.attr["_lower_using_switch_merge"].b = True
    node.attr["_stateful_parallelism"].b = False
    node.attr["_num_original_outputs"].i = 3
    node.attr["_num_original_outputs"].i = 3
    report = checks.checked_rewrite(graph, dtype, steps=5)

    assert report.graph_def is not None
    (after,) = (node for node in report.graph_def.node if node.op == "While")
    assert list(after.attr["T"].list.type) != list(node.attr["T"].list.type)
    for name in set(node.attr) - {"T"}:
        assert after.attr[name] == node.attr[name], name


def test_a_list_that_weights_fill_through_infer_ops_is_read_low_in_the_loop() -> None:
    # Rows of an embedding, scaled: nothing low flows in there, but the loop alone reads them.
    text = """
        ids: i32[5,4] = Placeholder
        table: f32[16,8] = Const(seed=1)
        w: f32[8,8] = Const(seed=2, scale=0.25)                   # low
        recur: f32[8,8] = Const(seed=3, scale=0.25)               # low
        zero = Const(0)
        size = Const([4, 8])
        scale = Const(20.0)
        shift = Const(0.5)
        start: f32[4,8] = Const(0.0)
        rows = GatherV2(table, ids, zero)
        scaled = Mul(rows, scale)
        moved = AddV2(scaled, shift)                              # f32 NOTHING_LOW
        list = TensorListFromTensor(moved, size)                  # low CLEAR
        loop: i32, var, f32, f32, f32 = While([zero, list, start, w, recur], cond=@c, body=@b)   # T[2] low
        out = Identity(loop:2)                                    # f32 PINNED

        @b(i: i32, l: var, h: f32, w: f32, r: f32) -> (i1=i1, l1=l, h1=t, w1=w, r1=r)
          one = Const(1)
          size = Const([4, 8])
          i1 = AddV2(i, one)
          x: f32 = TensorListGetItem(l, i, size, element_dtype=f32)   # low CLEAR
          m = MatMul(x, w)                                        # low ALLOW
          n = MatMul(h, r)                                        # low ALLOW
          s = AddV2(m, n)                                         # low INFER
          t = Tanh(s)                                             # low INFER
        """  # noqa: E501
    check_precision(loop(text, 5, "l: var, h: f32, w: f32, r: f32"), steps=5, casts=2)


def test_an_invariant_is_cast_once_outside() -> None:
    text = """
        x: f32[4,8] = Placeholder
        key: f32[8,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        zero = Const(0)
        first = MatMul(x, w)                                      # low ALLOW
        loop: i32, f32, f32 = While([zero, first, key], cond=@c, body=@b)   # T[1] low CLEAR; T[2] low CLEAR
        out = Identity(loop:1)                                    # f32 PINNED

        @b(i: i32, x: f32, key: f32) -> (i1=i1, x1=t, key1=same)
          one = Const(1)
          i1 = AddV2(i, one)
          same = Identity(key)                                    # low CLEAR
          m = MatMul(x, key)                                      # low ALLOW
          t = Tanh(m)                                             # low INFER
        """  # noqa: E501
    check_precision(loop(text, 5, "x: f32, k: f32"), steps=5, casts=3)


def test_a_low_invariant_that_only_float32_ops_read_is_cast_once_outside() -> None:
    # AC-77 with the Cast at the better place: inside, it would run at every step.
    text = """
        x: f32[4,8] = Placeholder
        w: f32[8,8] = Const(0.1)
        zero = Const(0)
        key = MatMul(x, w)                                        # low ALLOW
        loop: i32, f32, f32 = While([zero, x, key], cond=@c, body=@b)   # T[1] f32; T[2] f32
        out = Identity(loop:1)                                    # f32 PINNED

        @b(i: i32, x: f32, key: f32) -> (i1=i1, x1=d, key1=key)
          one = Const(1)
          i1 = AddV2(i, one)
          e = Exp(key)                                            # f32 DENY
          d = RealDiv(x, e)                                       # f32
        """
    check_precision(loop(text, 3, "x: f32, k: f32"), steps=3, casts=2)


def test_nested_loops_carry_low_values() -> None:
    text = """
        x: f32[4,8] = Placeholder
        w: f32[8,8] = Const(seed=1)                               # low
        zero = Const(0)
        first = MatMul(x, w)                                      # low ALLOW
        loop: i32, f32, f32 = While([zero, first, w], cond=@c, body=@outer)   # T[1] low CLEAR; T[2] low
        out = Identity(loop:1)                                    # f32 PINNED

        @outer(i: i32, x: f32, w: f32) -> (i1=i1, x1=r, w1=w)
          one = Const(1)
          zero = Const(0)
          i1 = AddV2(i, one)
          deep: i32, f32, f32 = While([zero, x, w], cond=@c, body=@inner)   # T[1] low CLEAR; T[2] low
          r = Relu(deep:1)                                        # low CLEAR

        @inner(i: i32, x: f32, w: f32) -> (i1=i1, x1=t, w1=w)
          one = Const(1)
          i1 = AddV2(i, one)
          m = MatMul(x, w)                                        # low ALLOW
          t = Tanh(m)                                             # low INFER
        """  # noqa: E501
    check_precision(loop(text, 3, "x: f32, w: f32"), steps=9, casts=2)


SHARED = """
    x: f32[4,8] = Placeholder
    w: f32[8,8] = Const(seed=1)                               # low
    zero = Const(0)
    first = MatMul(x, w)                                      # low ALLOW
    other = OTHER
    one: i32, f32, f32 = While([zero, first, w], cond=@c, body=@b)   # T[1] CARRIED
    two: i32, f32, f32 = While([zero, other, w], cond=@c, body=@b)   # T[1] CARRIED
    out1 = Identity(one:1)                                    # f32 PINNED
    out2 = Identity(two:1)                                    # f32 PINNED

    @b(i: i32, x: f32, w: f32) -> (i1=i1, x1=t, w1=w)
      one = Const(1)
      i1 = AddV2(i, one)
      m = MatMul(x, w)                                        # low ALLOW
      t = Tanh(m)                                             # low INFER
"""


@pytest.mark.parametrize(
    ("other", "carried", "casts"), [("MatMul(first, w)", "low CLEAR", 3), ("Exp(x)", "f32", 3)]
)
def test_two_loops_that_share_a_body_agree(other: str, carried: str, casts: int) -> None:
    text = SHARED.replace("OTHER", other).replace("CARRIED", carried)
    text = loop(text, 4, "x: f32, w: f32")
    check_precision(text, steps=4, casts=casts if carried != "f32" else None)


def test_a_loop_whose_float_result_nobody_reads() -> None:
    text = """
        x: f32[4,8] = Placeholder
        w: f32[8,8] = Const(seed=1)                               # low
        zero = Const(0)
        first = MatMul(x, w)                                      # low ALLOW
        loop: i32, f32, f32 = While([zero, first, w], cond=@c, body=@b)   # T[1] low CLEAR; T[2] low
        out = Identity(loop)

        @b(i: i32, x: f32, w: f32) -> (i1=i1, x1=m, w1=w)
          one = Const(1)
          i1 = AddV2(i, one)
          m = MatMul(x, w)                                        # low ALLOW
        """
    check_precision(loop(text, 4, "x: f32, w: f32"), steps=4, exact=("out",), casts=1)


def test_a_loop_without_a_contraction_stays_as_it_is() -> None:
    text = """
        x: f32[4,8] = Placeholder
        zero = Const(0)
        loop: i32, f32 = While([zero, x], cond=@c, body=@b)       # T[1] f32
        out = Identity(loop:1)                                    # f32 PINNED

        @b(i: i32, x: f32) -> (i1=i1, x1=t)
          one = Const(1)
          i1 = AddV2(i, one)
          t = Tanh(x)                                             # f32 NOTHING_LOW
        """
    check_unchanged(loop(text, 4, "x: f32"), steps=4, exact=("out",))


@pytest.mark.parametrize("trips", [0, 1, 2, 3])
def test_values_that_move_through_three_carried_places_agree(trips: int) -> None:
    # XT-42: a low value reaches a only after three steps; where a float32 one does, all stay.
    text = """
        x: f32[4,8] = Placeholder
        w: f32[8,8] = Const(0.1)
        zero = Const(0)
        m = MatMul(x, w)                                          # low ALLOW
        loop: i32, f32, f32, f32 = While([zero, m, m, m], cond=@c, body=@b)   # T[1] f32; T[2] f32; T[3] f32
        out = Identity(loop:1)                                    # f32 PINNED

        @b(i: i32, a: f32, b: f32, c: f32) -> (i1=i1, a1=b, b1=c, c1=e)
          one = Const(1)
          i1 = AddV2(i, one)
          e = Exp(a)                                              # f32 DENY
        """  # noqa: E501
    check_precision(loop(text, trips, "a: f32, b: f32, c: f32"), steps=3, casts=2)


# Sums that hide: each gives `s1` of the carried `s` and the low `m`, exactly 0.5 a step.
HIDDEN_SUMS = {
    "in a function": """
      s1: f32 = PartitionedCall([s, m], Tout=[f32], f=@add)   # Tout[0] f32
    @add(a: f32, b: f32) -> (y=y)
      y = AddV2(a, b)   # f32
    """,
    "in a branch": """
      yes = Const(True)
      s1: f32 = If(yes, [s, m], then_branch=@add, else_branch=@same, Tout=[f32])   # Tout[0] f32
    @add(a: f32, b: f32) -> (y=y)
      y = AddV2(a, b)   # f32
    @same(a: f32, b: f32) -> (y=a)
    """,
    "in a loop": """
      zero = Const(0)
      in: i32, f32, f32 = While([zero, s, m], cond=@c2, body=@add)   # T[1] f32
      s1 = Identity(in:1)   # f32
    @add(i: i32, a: f32, b: f32) -> (j=j, y=y, b=b)
      one = Const(1)
      j = AddV2(i, one)
      y = AddV2(a, b)   # f32
    @c2(i: i32, a: f32, b: f32) -> (go=go)
      n = Const(1)
      go = Less(i, n)
    """,
    "selected": """
      yes = Const(True)
      a = AddV2(s, m)   # f32
      s1 = SelectV2(yes, a, s)   # f32
    """,
    "in part of a tensor": """
      axis = Const(0)
      parts: f32, f32 = Split(axis, s, num_split=2)   # f32
      halves: f32, f32 = Split(axis, m, num_split=2)
      a = AddV2(parts, halves)   # f32
      b = AddV2(parts:1, halves:1)   # f32
      s1 = ConcatV2([a, b], axis)   # f32
    """,
    "clipped": """
      most = Const(60000.0)
      a = AddV2(s, m)   # f32
      s1 = Minimum(a, most)   # f32
    """,
    "in a list": """
      where = Const(0)
      shape = Const([2, 4])
      st = ExpandDims(s, where)
      list = TensorListFromTensor(st, shape)
      got: f32 = TensorListGetItem(list, where, shape, element_dtype=f32)
      s1 = AddV2(got, m)   # f32
    """,
}


@pytest.mark.parametrize("update", HIDDEN_SUMS.values(), ids=HIDDEN_SUMS)
@pytest.mark.parametrize("reader", ["Identity(loop:1)", "MatMul(loop:1, w)"])
def test_a_sum_is_found_wherever_it_hides(update: str, reader: str) -> None:
    text = f"""
        x: f32[2,4] = Placeholder
        w: f32[4,4] = Const(0.125)                                # low
        zero = Const(0)
        none: f32[2,4] = Const(0.0)                               # f32
        loop: i32, f32, f32, f32 = While([zero, none, x, w], cond=@c, body=@b)   # T[1] f32
        last = {reader}
        sum = Identity(last)                                      # f32 PINNED

        @b(i: i32, s: f32, x: f32, w: f32) -> (i1=i1, s1=s1, x1=x, w1=w)
          one = Const(1)
          i1 = AddV2(i, one)
          m = MatMul(x, w)                                        # low ALLOW
    """
    text = loop(text, 4096, "s: f32, x: f32, w: f32")
    head, tail = text.split("@c(")
    body, at, functions = inspect.cleandoc(update).partition("@add(")
    text = head + textwrap.indent(textwrap.dedent(body), "  ") + f"\n{at}{functions}\n@c({tail}"
    ones = {"x": np.ones((2, 4), np.float32)}  # 4096 * 0.5 and its product with w are low numbers
    check_precision(text, feeds=ones, steps=4096, exact=("sum",))


ELEMENT_SUM = """
    x: f32[2,4] = Placeholder
    w: f32[4,4] = Const(0.125)                                # low
    zero = Const(0)
    one = Const(1)
    shape = Const([2, 4])
    first = MatMul(x, w)
    empty = TensorListReserve(shape, one, element_dtype=f32)  # f32
    begun = TensorListSetItem(empty, zero, first)             # f32
    loop: i32, var, f32, f32 = While([zero, begun, x, w], cond=@c, body=@b)
    last: f32 = TensorListGetItem(loop:1, zero, shape, element_dtype=f32)   # f32
    m = MatMul(last, w)                                       # low ALLOW
    sum = Identity(m)                                         # f32 PINNED

    @b(i: i32, l: var, x: f32, w: f32) -> (i1=i1, l1=set, x1=x, w1=w)
      zero = Const(0)
      one = Const(1)
      shape = Const([2, 4])
      i1 = AddV2(i, one)
      m = MatMul(x, w)                                        # low ALLOW
      got: f32 = TensorListGetItem(l, zero, shape, element_dtype=f32)   # f32
      s = AddV2(got, m)                                       # f32
      set = TensorListSetItem(l, zero, s)                     # f32
"""


def test_a_sum_in_an_element_of_a_list_does_not_stall() -> None:
    text = loop(ELEMENT_SUM, 4095, "l: var, x: f32, w: f32")
    check_precision(text, feeds={"x": np.ones((2, 4), np.float32)}, steps=4096, exact=("sum",))


def test_a_decay_by_a_constant_close_to_1_arrives() -> None:
    # 0.999 is 1 in bfloat16, and half has steps of 0.0005 there: a low value would not decay.
    text = """
        x: f32[2,4] = Placeholder
        w: f32[4,4] = Const(0.25)                                 # low
        zero = Const(0)
        first = MatMul(x, w)                                      # low ALLOW
        loop: i32, f32 = While([zero, first], cond=@c, body=@b)   # T[1] f32
        out = Identity(loop:1)                                    # f32 PINNED

        @b(i: i32, s: f32) -> (i1=i1, s1=s1)
          one = Const(1)
          keep = Const(0.9995)
          i1 = AddV2(i, one)
          s1 = Mul(s, keep)                                       # f32
        """
    ones = {"x": np.ones((2, 4), np.float32)}
    check_precision(loop(text, 4000, "s: f32"), feeds=ones, steps=4000, exact=("out",))


# ---------------------------------------------------------------- If and Case

CHOICE = """
    x: f32[4,8] = Placeholder
    INDEX
    w: f32[8,8] = Const(seed=1)                               # low
    m = MatMul(x, w)                                          # low ALLOW
    y: f32 = CALL, Tout=[f32])   # Tin[0] low; Tin[1] low; Tout[0] RESULT
    n = MatMul(y, w)                                          # low ALLOW
    out = Identity(END)                                       # f32 PINNED

    @f0(x: f32, w: f32) -> (y=t)
      m = MatMul(x, w)                                        # low ALLOW
      t = Tanh(m)                                             # low INFER

    @f1(x: f32, w: f32) -> (y=x)

    @f2(x: f32, w: f32) -> (y=e)
      e = EXP(x)                                              # KIND
"""
TWO = "{}(p, [m, w], then_branch=@f0, else_branch=@f2"
THREE = "{}(p, [m, w], branches=[@f0, @f1, @f2]"
CHOICES = [
    (TWO.format("If"), "p: bool[] = Placeholder", BRANCHES),
    (TWO.format("StatelessIf"), "p: bool[] = Placeholder", BRANCHES),
    (THREE.format("Case"), "p: i32[] = Placeholder", [0, 1, 2, 7]),
    (THREE.format("StatelessCase"), "p: i32[] = Placeholder", [0, 1, 2, -1]),
]


@pytest.mark.parametrize(("call", "index", "values"), CHOICES)
def test_branches_that_agree_are_low(call: str, index: str, values: list[object]) -> None:
    text = CHOICE.replace("CALL", call).replace("INDEX", index).replace("END", "y")
    text = text.replace("RESULT", "low").replace("EXP", "Relu").replace("KIND", "low CLEAR")
    for value in values:
        feeds = {"p": np.array(value, np.int32 if index.startswith("p: i32") else None)}
        check_precision(text, feeds=feeds, steps=1, outputs=("out",), casts=2)


@pytest.mark.parametrize(("call", "index", "values"), CHOICES)
def test_one_float32_branch_makes_a_result_that_leaves_float32(
    call: str, index: str, values: list[object]
) -> None:
    text = CHOICE.replace("CALL", call).replace("INDEX", index).replace("END", "y")
    text = text.replace("RESULT", "f32").replace("EXP", "Exp").replace("KIND", "f32 DENY")
    for value in values:
        feeds = {"p": np.array(value, np.int32 if index.startswith("p: i32") else None)}
        check_precision(text, feeds=feeds, steps=1, outputs=("out",))


@pytest.mark.parametrize(("call", "index", "values"), CHOICES)
def test_one_float32_branch_before_a_contraction_is_cast_inside(
    call: str, index: str, values: list[object]
) -> None:
    text = CHOICE.replace("CALL", call).replace("INDEX", index).replace("END", "n")
    text = text.replace("RESULT", "low").replace("EXP", "Exp").replace("KIND", "f32 DENY")
    for value in values:
        feeds = {"p": np.array(value, np.int32 if index.startswith("p: i32") else None)}
        check_precision(text, feeds=feeds, steps=1, outputs=("out",), casts=4)


def test_a_float32_number_as_a_predicate_keeps_its_bits() -> None:
    # 1e-9 is true, and in half it is 0: false.
    check_precision(
        """
        x: f32[1,1] = Placeholder
        w: f32[1,1] = Const(1.0)
        scalar: i32[0] = Const([])
        tiny = Const(1e-9)
        m = MatMul(x, w)
        one = Reshape(m, scalar)                                  # f32
        p = Mul(one, tiny)                                        # f32
        y: f32 = If(p, [m, w], then_branch=@t, else_branch=@e, Tout=[f32])
        out = Identity(y)                                         # f32 PINNED

        @t(x: f32, w: f32) -> (y=m)
          m = MatMul(x, w)                                        # low ALLOW

        @e(x: f32, w: f32) -> (y=m)
          m = Neg(x)
        """,
        feeds={"x": np.float32([[1.0]])},
        steps=1,
        exact=("out",),
    )


# ---------------------------------------------------------------- control flow v1

CONDITIONAL = """
    x: f32[4,8] = Placeholder
    p: bool[] = Placeholder
    w: f32[8,8] = Const(seed=1)
    m = MatMul(x, w)                                          # low ALLOW
    s = Switch(m, p)
    pivot = Switch(p, p)
    no = Identity(pivot)
    yes = Identity(pivot:1)
    THEN
    ELSE
    merge = Merge([b, a])                                     # MERGE
    END
    out = Identity(last)                                      # f32 PINNED
    which = Identity(merge:1)
"""
V1_BRANCHES = {
    "float32 before a contraction": (
        "a = Exp(s:1)   # f32 DENY", "b = Relu(s)   # low CLEAR", "low CLEAR",
        "last = MatMul(merge, w)   # low ALLOW",
    ),
    "float32 that leaves": (
        "a = Exp(s:1)   # f32 DENY", "b = Relu(s)   # low CLEAR", "f32",
        "last = Identity(merge)   # f32",
    ),
    "both low": (
        "a = Tanh(s:1)   # low INFER", "b = Relu(s)   # low CLEAR", "low CLEAR",
        "last = Identity(merge)   # low CLEAR",
    ),
    "a constant of the branch": (
        "a: f32[4,8] = Const(0.5, ^yes)   # low", "b = Relu(s)   # low CLEAR", "low CLEAR",
        "last = MatMul(merge, w)   # low ALLOW",
    ),
    "a constant of the branch beside a float32 value": (
        "a: f32[4,8] = Const(0.5, ^yes)   # f32", "b = Exp(s)   # f32 DENY", "f32",
        "last = Identity(merge)   # f32",
    ),
    "a constant that both precisions read in one branch": (
        """c: f32[8,8] = Const(0.1, ^yes)
d = MatMul(s:1, c)   # low ALLOW
e = Exp(c)   # f32 DENY
a = MatMul(d, e)   # low ALLOW""",
        "b = Relu(s)   # low CLEAR", "low CLEAR", "last = Identity(merge)   # low CLEAR",
    ),
    "a constant computation in each branch": (
        "c: f32[4,8] = Const(0.1, ^yes)\na = Exp(c)   # f32 DENY",
        "d: f32[4,8] = Const(0.2, ^no)\nb = Relu(d)", "f32 CONSUMERS",
        "last = MatMul(merge, w)   # low ALLOW",
    ),
}  # fmt: skip


@pytest.mark.parametrize("p", BRANCHES)
@pytest.mark.parametrize(
    ("then", "otherwise", "merge", "end"), V1_BRANCHES.values(), ids=V1_BRANCHES
)
def test_no_cast_makes_a_dead_branch_alive(
    then: str, otherwise: str, merge: str, end: str, p: bool
) -> None:
    text = inspect.cleandoc("\n" + CONDITIONAL).replace("THEN", then).replace("ELSE", otherwise)
    text = text.replace("# MERGE", f"# {merge}").replace("END", end)
    feeds = {"p": np.array(p)}
    check_precision(text, feeds=feeds, outputs=("out", "which"), exact=("which",), steps=1)


V1_LOOP = """
    x: f32[4,8] = Placeholder
    w: f32[8,8] = Const(seed=1)
    zero = Const(0)
    three = Const(3)
    first = MatMul(x, w)                                      # low ALLOW
    w1 = Enter(w, frame_name='a', is_constant=True)           # low
    n1 = Enter(three, frame_name='a', is_constant=True)
    i0 = Enter(zero, frame_name='a')
    x0 = Enter(first, frame_name='a')                         # low CLEAR
    i1 = Merge([i0, i5])
    x1 = Merge([x0, x5])                                      # low CLEAR
    less = Less(i1, n1)
    go = LoopCond(less)
    i2 = Switch(i1, go)
    x2 = Switch(x1, go)                                       # low CLEAR
    i3 = Identity(i2:1)
    x3 = Identity(x2:1)
    one = Const(1, ^i3)
    i4 = AddV2(i3, one)
    BODY
    i5 = NextIteration(i4)
    x5 = NextIteration(x4)                                    # low CLEAR
    x6 = Exit(x2)                                             # low CLEAR
    i6 = Exit(i2)
    out = Identity(x6)                                        # f32 PINNED
    trips = Identity(i6)
"""
V1_BODIES = {
    "a product": ("m = MatMul(x3, w1)   # low ALLOW\nx4 = Tanh(m)   # low INFER", 2),
    "a float32 part": (
        "m = MatMul(x3, w1)   # low ALLOW\ns = Softplus(m)\ne = Sigmoid(s)\nx4 = Mul(m, e)",
        None,
    ),
    "a constant that both precisions read": (
        """c: f32[8,8] = Const(0.1, ^i3)
m = MatMul(x3, c)   # low ALLOW
e = Exp(c)   # f32 DENY
n = MatMul(m, e)   # low ALLOW
x4 = MatMul(n, w1)   # low ALLOW""",
        None,
    ),
    "a loop in the loop": (
        """w2 = Enter(w1, frame_name='b', is_constant=True)   # low
n2 = Enter(n1, frame_name='b', is_constant=True)
none = Const(0, ^i3)
j0 = Enter(none, frame_name='b')
y0 = Enter(x3, frame_name='b')   # low CLEAR
j1 = Merge([j0, j5])
y1 = Merge([y0, y5])   # low CLEAR
less2 = Less(j1, n2)
go2 = LoopCond(less2)
j2 = Switch(j1, go2)
y2 = Switch(y1, go2)   # low CLEAR
j3 = Identity(j2:1)
y3 = Identity(y2:1)   # low CLEAR
another = Const(1, ^j3)
j4 = AddV2(j3, another)
m = MatMul(y3, w2)   # low ALLOW
y4 = Tanh(m)   # low INFER
j5 = NextIteration(j4)
y5 = NextIteration(y4)   # low CLEAR
y6 = Exit(y2)   # low CLEAR
x4 = Relu(y6)   # low CLEAR""",
        2,
    ),
    "a conditional in the loop": (
        """half = Const(2, ^i3)
p = Less(i3, half)
a = Switch(x3, p)   # low CLEAR
wp = Switch(w1, p)
m = MatMul(a:1, wp:1)   # low ALLOW
r = Relu(a)   # low CLEAR
x4 = Merge([r, m])   # low CLEAR""",
        2,
    ),
}


@pytest.mark.parametrize(("body", "casts"), V1_BODIES.values(), ids=V1_BODIES)
def test_a_loop_of_v1_carries_a_low_value(body: str, casts: int | None) -> None:
    text = inspect.cleandoc("\n" + V1_LOOP).replace("BODY", body)
    check_precision(text, outputs=("out", "trips"), exact=("trips",), steps=9, casts=casts)


def test_one_enter_that_feeds_two_rings_ties_them() -> None:
    # x is entered once for two carried values: one becomes low, the other is denied, so both stay.
    text = inspect.cleandoc("\n" + V1_LOOP).replace("# low CLEAR", "# f32")
    text = text.replace("BODY", "m = MatMul(x3, w1)   # low ALLOW\nx4 = Tanh(m)   # low INFER")
    text += """
y1 = Merge([x0, y5])   # f32
y2 = Switch(y1, go)   # f32
y3 = Identity(y2:1)
y4 = Exp(y3)   # f32 DENY
y5 = NextIteration(y4)   # f32
y6 = Exit(y2)   # f32
out2 = Identity(y6)   # f32 PINNED
"""
    feeds = {"x": np.full((4, 8), -0.1, np.float32)}
    outputs = ("out", "trips", "out2")
    check_precision(text, feeds=feeds, outputs=outputs, exact=("trips",), steps=3)


SERIES = {
    "a sum": ("x4 = AddV2(x3, half)   # f32", 4096),
    "a quotient": ("x4 = RealDiv(x3, near)   # f32", 3000),
    "what is taken away": ("part = Mul(x3, few)\nx4 = Sub(x3, part)   # f32", 3000),
}


@pytest.mark.parametrize(("update", "trips"), SERIES.values(), ids=SERIES)
def test_a_series_in_a_loop_of_v1_stays_float32(update: str, trips: int) -> None:
    text = inspect.cleandoc("\n" + V1_LOOP).replace("# low CLEAR", "# f32")
    text = text.replace("three = Const(3)", f"three = Const({trips})").replace(
        "w: f32[8,8] = Const(seed=1)", "w: f32[8,8] = Const(0.125)"
    )
    text = text.replace("w1 = Enter(w, frame_name='a', is_constant=True)           # low", "")
    constants = "half = Const(0.5, ^i3)\nnear = Const(1.0005, ^i3)\nfew = Const(0.0005, ^i3)\n"
    text = text.replace("BODY", constants + update)
    ones = {"x": np.ones((4, 8), np.float32)}  # what enters is exactly 1
    check_precision(text, feeds=ones, outputs=("out", "trips"), exact=("out", "trips"), steps=trips)


FIXED_POINT = """
    x: f32[4,4] = Placeholder
    w: f32[4,4] = Const([[0,0.5,0,0],[0.25,0,0.25,0],[0,0.5,0,0.25],[0.25,0,0.5,0]])
    zero = Const(0)
    far = Const(1.0)
    first = MatMul(x, w)                                          # low ALLOW
    loop: i32, f32, f32 = While([zero, first, far], cond=@c, body=@b)
    out = Identity(loop:1)
    count = Identity(loop:0)

    @c(i: i32, s: f32, d: f32) -> (go=go)
      eps = Const(1e-6)
      go = Greater(d, eps)                                        # f32 KEEP

    @b(i: i32, s: f32, d: f32) -> (i1=i1, s1=moved, d1=far)
      one = Const(1)
      w: f32[4,4] = Const([[0,0.5,0,0],[0.25,0,0.25,0],[0,0.5,0,0.25],[0.25,0,0.5,0]])
      half = Const(0.6)
      i1 = AddV2(i, one)
      m = MatMul(s, w)                                            # MATMUL
      h = Tanh(m)                                                 # TANH
      moved = Add(h, half)                                        # ADD
      axes = Const([0, 1])
      d2 = DIFFERENCE
      a = Abs(d2)                                                 # f32
      far = Max(a, axes)                                          # f32
"""


def test_a_loop_that_ends_when_its_value_rests_is_float32_as_a_whole() -> None:
    """In half the value would rest too soon, or swing by a rounding for ever."""
    text = (
        FIXED_POINT.replace("DIFFERENCE", "Sub(moved, s)   # f32 CONTROL")
        .replace("MATMUL", "f32 CONTROL")
        .replace("TANH", "f32 CONTROL")
        .replace("ADD", "f32 CONTROL")
    )
    check_precision(text, outputs=("out", "count"), exact=("count",), steps=20)


def test_a_loop_that_ends_at_a_threshold_has_low_contractions() -> None:
    text = (
        FIXED_POINT.replace("DIFFERENCE", "Mul(h, d)")
        .replace("MATMUL", "low ALLOW")
        .replace("TANH", "f32 CONTROL")
        .replace("ADD", "")
        .replace("1e-6", "2.0")
    )
    check_precision(text, outputs=("out", "count"), exact=("count",), steps=1)
