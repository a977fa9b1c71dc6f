"""The checker finds what is planted, and nothing in graphs that are right."""

from __future__ import annotations

import pytest

from tests import checks, graph_text
from tests.property import rounding_checker

FUNCTIONS = """
    @hand_on(a: low[4,4]) -> (b=r)
      r = Relu(a)

    @both(a: low[4,4], b: low[4,4]) -> (c=b, d=a)

    @cond(i: i32[], a: low[4,4], l: var) -> (go=p)
      n = Const(0)
      p = Less(i, n)

    @body(i: i32[], a: low[4,4], l: var) -> (j=k, b=m, o=l)
      one = Const(1)
      k = AddV2(i, one)
      w: low[4,4] = Const(0.1)
      m = MatMul(a, w)
"""
START = """
    x: f32[4,4] = Placeholder
    w: low[4,4] = Const(0.1)
    e = Exp(x)
    d = Cast(e, DstT=low)
    m = MatMul(d, w)
    zero = Const(0)
    shape = Const([4, 4])
    l: var = TensorListReserve(shape, shape[0], element_dtype=low)
""".replace("shape, shape[0]", "shape, two").replace("    l:", "    two = Const(2)\n    l:")
# What stands between the float32 value `e`, low as `d`, and a Cast up: nothing, or a way round.
NEEDLESS = {
    "a chain of moves": """
    t = Neg(d)
    low_again = Relu(t)
    """,
    "a call": "low_again = PartitionedCall([d], f=@hand_on, Tout=[low])",
    "a call, at another result": """
    q: low, low = PartitionedCall([d, m], f=@both, Tout=[low, low])
    low_again = Identity(q:1)
    """,
    "a conditional": """
    p = Less(zero, two)
    low_again = If(p, [d], then_branch=@hand_on, else_branch=@hand_on, Tout=[low])
    """,
    "a loop of no step": """
    loop: i32, low, var = While([zero, d, l], cond=@cond, body=@body)
    low_again = Identity(loop:1)
    """,
    "a list": """
    set: var = TensorListSetItem(l, zero, d)
    low_again = TensorListGetItem(set, zero, shape, element_dtype=low)
    """,
    "a list that a loop carries": """
    set: var = TensorListSetItem(l, zero, d)
    loop: i32, low, var = While([zero, m, set], cond=@cond, body=@body)
    all: low = TensorListStack(loop:2, shape, element_dtype=low)
    low_again = Max(all, zero)
    """,
    "a TensorArray": """
    ta: res, f32 = TensorArrayV3(two, dtype=low)
    flow = TensorArrayWriteV3(ta, zero, d, ta:1)
    flow_too = Identity(flow)
    low_again = TensorArrayReadV3(ta, zero, flow_too, dtype=low)
    """,
    "a frame": """
    enter = Enter(d, frame_name='f')
    merge: low, i32 = Merge([enter, next])
    go = Const(False, ^merge)
    switch: low, low = Switch(merge, go)
    step = Tanh(switch:1)
    next = NextIteration(step)
    low_again = Exit(switch)
    """,
}
HARMLESS = {
    "low ops in between": """
    t = Tanh(d)
    low_again = Relu(t)
    """,
    "another argument of the call": """
    q: low, low = PartitionedCall([d, m], f=@both, Tout=[low, low])
    low_again = Identity(q:0)
    """,
    "another caller of the function": """
    other = PartitionedCall([d], f=@hand_on, Tout=[low])
    low_again = PartitionedCall([m], f=@hand_on, Tout=[low])
    """,
    "another list": """
    set: var = TensorListSetItem(l, zero, d)
    set_too: var = TensorListSetItem(l, zero, m)
    low_again = TensorListGetItem(set_too, zero, shape, element_dtype=low)
    """,
    "what a loop computes": """
    loop: i32, low, var = While([zero, m, l], cond=@cond, body=@body)
    low_again = Identity(loop:1)
    """,
}


def dedent(text: str) -> str:
    return "\n".join(line.removeprefix("    ") for line in text.splitlines())


def found(middle: str, end: str) -> list[str]:
    if not middle.startswith("\n"):
        middle = "    " + middle
    text = dedent("\n".join([START, middle, end, FUNCTIONS]))
    graph = graph_text.parse(text)
    original = graph_text.parse("x: f32[4,4] = Placeholder")
    outputs = ["read"] if "read =" in end else ["out"]
    return rounding_checker.violations(original, graph, outputs)


@pytest.mark.parametrize("middle", NEEDLESS.values(), ids=NEEDLESS.keys())
def test_a_needless_rounding_is_found(middle: str) -> None:
    end = """
    up = Cast(low_again, DstT=f32)
    moved = Relu(up)
    read = Square(moved)
    """
    assert found(middle, end) == ["/read reads what was rounded needlessly"]


@pytest.mark.parametrize("middle", NEEDLESS.values(), ids=NEEDLESS.keys())
def test_a_needless_rounding_of_an_output_is_found(middle: str) -> None:
    end = """
    up = Cast(low_again, DstT=f32)
    out = Relu(up)
    """
    assert found(middle, end) == ["/out gives out what was rounded needlessly"]


@pytest.mark.parametrize("middle", NEEDLESS.values(), ids=NEEDLESS.keys())
def test_what_low_ops_alone_read_is_no_needless_rounding(middle: str) -> None:
    assert found(middle, "    read = MatMul(low_again, w)") == []


@pytest.mark.parametrize("middle", HARMLESS.values(), ids=HARMLESS.keys())
def test_what_is_right_is_left_alone(middle: str) -> None:
    end = """
    up = Cast(low_again, DstT=f32)
    read = Square(up)
    """
    assert found(middle, end) == []


def test_a_value_made_in_a_function_is_followed_to_its_callers() -> None:
    text = """
    x: f32[4,4] = Placeholder
    low_again = PartitionedCall([x], f=@outer, Tout=[low])
    up = Cast(low_again, DstT=f32)
    read = Square(up)

    @outer(a: f32[4,4]) -> (b=r)
      r = PartitionedCall([a], f=@inner, Tout=[low])

    @inner(a: f32[4,4]) -> (b=d)
      e = Exp(a)
      d = Cast(e, DstT=low)
    """
    graph = graph_text.parse(text)
    empty = graph_text.parse("x: f32[4,4] = Placeholder")

    assert rounding_checker.violations(empty, graph, ["read"]) == [
        "/read reads what was rounded needlessly"
    ]
    assert rounding_checker.violations(graph, graph, ["read"]) == []  # the user's own Casts


OTHER_FAULTS = {
    "a chain": (
        """
        x: f32[4,4] = Placeholder
        down = Cast(x, DstT=low)
        up = Cast(down, DstT=f32)
        """,
        ["/up: a Cast of the Cast `down`", "/up gives out what was rounded needlessly"],
    ),
    "a constant": (
        """
        x: f32[4,4] = Placeholder
        w: f32[4,4] = Const(0.1)
        down = Cast(w, DstT=low)
        """,
        ["/down: a Cast of the Const `w`"],
    ),
    "a denied op": (
        """
        x: low[4,4] = Placeholder
        e = Exp(x)
        """,
        ["/e: Exp computes in the low precision"],
    ),
    "elements": (
        """
        x: low[4,4] = Placeholder
        two = Const(2)
        shape = Const([4, 4])
        l: var = TensorListReserve(shape, two, element_dtype=f32)
        r: var = PartitionedCall([l, x], f=@write, Tout=[var])

        @write(l: var, x: low[4,4]) -> (o=s)
          zero = Const(0)
          s: var = TensorListSetItem(l, zero, x)
        """,
        ["write/s: elements of 19, the list's of 1"],
    ),
}


@pytest.mark.parametrize(("text", "expected"), OTHER_FAULTS.values(), ids=OTHER_FAULTS.keys())
def test_other_faults_are_found(text: str, expected: list[str]) -> None:
    graph = graph_text.parse(text)
    empty = graph_text.parse("x: f32[4,4] = Placeholder")

    assert rounding_checker.violations(empty, graph, checks.sinks(graph)) == expected


def test_types_of_calls_are_compared() -> None:
    graph = graph_text.parse(
        """
        x: f32[4,4] = Placeholder
        r = PartitionedCall([x], f=@f, Tout=[f32])

        @f(a: f32[4,4]) -> (b=r)
          r = Relu(a)
        """
    )
    graph.library.function[0].signature.output_arg[0].type = 19

    assert rounding_checker.violations(graph, graph, ["r"]) == [
        "/r takes (1,) of (19,) from `f`",
        "f returns (1,), its signature says (19,)",
    ]


@pytest.mark.parametrize(
    ("port", "expected"), [(0, ["f/c reads what was rounded needlessly"]), (1, [])]
)
def test_what_no_output_depends_on_reads_nothing(port: int, expected: list[str]) -> None:
    text = f"""
    x: f32[4,4] = Placeholder
    down = Cast(x, DstT=low)
    moved = Relu(down)
    up = Cast(moved, DstT=f32)
    read = Square(up)
    r: f32, f32 = PartitionedCall([up, x], f=@f, Tout=[f32, f32])
    out = Identity(r:{port})

    @f(a: f32[4,4], b: f32[4,4]) -> (c=c, d=d)
      c = Square(a)
      d = Square(b)
    """
    graph = graph_text.parse(text)
    empty = graph_text.parse("x: f32[4,4] = Placeholder")

    assert rounding_checker.violations(empty, graph, ["out"]) == expected


def test_what_a_loop_reads_counts_if_another_result_depends_on_it() -> None:
    text = """
    x: f32[4,4] = Placeholder
    down = Cast(x, DstT=low)
    moved = Relu(down)
    up = Cast(moved, DstT=f32)
    n = Const(2)
    zero = Const(0)
    w: i32, i32, f32, f32, f32 = While([zero, n, x, x, up], cond=@cond, body=@body)
    out = Identity(w:2)

    @cond(i: i32[], n: i32[], a: f32[4,4], b: f32[4,4], c: f32[4,4]) -> (go=p)
      p = Less(i, n)

    @body(i: i32[], n: i32[], a: f32[4,4], b: f32[4,4], c: f32[4,4]) -> (j=k, m=n, d=b, e=s, f=c)
      one = Const(1)
      k = AddV2(i, one)
      s = Square(c)
    """
    graph = graph_text.parse(text)
    empty = graph_text.parse("x: f32[4,4] = Placeholder")

    found = rounding_checker.violations(empty, graph, ["out"])
    assert found == ["body/s reads what was rounded needlessly"]
