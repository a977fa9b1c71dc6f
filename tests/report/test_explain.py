"""What `--explain` says: pictures of its text, and that its advice is true."""

from __future__ import annotations

import dataclasses
import inspect
import re

import pytest

import tf_amp_rewriter
from tests import fake_reports, graph_text
from tests.checks import loop, sinks
from tf_amp_rewriter import errors

TAINTED = """
    x: f32[4,8] = Placeholder
    w: f32[8,8] = Const(seed=1)
    one = Const(1.0)
    m = MatMul(x, w)
    e = Exp(m)
    a = AddV2(e, one)
    t = Transpose(a, perm)
    perm: i32[2] = Const([0,1])
    n = MatMul(t, w)
    out = Identity(n)
"""


MISFIT = """
    x: f32[4,8] = Placeholder
    w: f32[8,8] = Const(seed=1)
    big: f32[] = Const(1e6)
    m = MatMul(x, w)
    s = Mul(m, big)
    a = AddV2(s, m)
    out = Identity(a)
"""
POSITION = """
    x: f32[4,8] = Placeholder
    w: f32[8,8] = Const(seed=1)
    m = MatMul(x, w)
    r = Relu(m)
    f = Floor(r)
    c: i32 = Cast(f, DstT=i32)
    out = Identity(c)
"""
IDLE = """
    x: f32[4,8] = Placeholder
    one = Const(1.0)
    a = AddV2(x, one)
    b = AddV2(a, one)
    out = Identity(b)
"""
MEAN = """
    x: f32[4,8] = Placeholder
    w: f32[8,8] = Const(seed=1)
    v: f32[1,8] = Const(seed=2)
    axis: i32[1] = Const([1])
    m = MatMul(x, w)
    mean = Mean(m, axis, keep_dims=True)
    n = MatMul(mean, v)
    out = Identity(n)
"""
SOFTPLUS = """
    x: f32[4,8] = Placeholder
    w: f32[8,8] = Const(seed=1)
    m = MatMul(x, w)
    s = Softplus(m)
    n = MatMul(s, w)
    out = Identity(n)
"""
SUM = loop(
    """
    x: f32[4,8] = Placeholder
    w: f32[8,8] = Const(seed=1)
    zero = Const(0)
    l = While([zero, x, w], cond=@c, body=@b)
    out = Identity(l:1)
    @b(i: i32, s: f32[4,8], w: f32[8,8]) -> (j=j, t=t, w=w)
      one = Const(1)
      j = AddV2(i, one)
      p = MatMul(s, w)
      t = AddV2(s, p)
    """,
    3,
    "s: f32[4,8], w: f32[8,8]",
)


def report_of(text: str, **options: object) -> tf_amp_rewriter.Report:
    graph = graph_text.parse(text, str(options.get("dtype", "half")))
    settings = {"outputs": sinks(graph), **options}
    return tf_amp_rewriter.rewrite_graph_def(graph, tf_amp_rewriter.Options(**settings))


def explained(text: str, *patterns: str, **options: object) -> str:
    return tf_amp_rewriter.explain(report_of(text, **options), *patterns)


def expect(expected: str, actual: str) -> None:
    assert inspect.cleandoc(expected) + "\n" == actual


def test_a_taint_is_followed_to_its_origin() -> None:
    expect(
        """
        AddV2 `a`
          precision  float32   (T)
          reason     TAINTED: it reads what a numerically unsafe op computed
          rule       AddV2 is INFER: safe unless what flows in is unsafe; source: grappler infer
          chain      float32   TAINTED  AddV2 `a`
                     float32   DENY     reads Exp `e`: it overflows half beyond 11.09, and magnifies rounding
          to change  --force_low '^a$'   makes this node low; mind where the taint comes from
                     --allow_ops AddV2   makes every AddV2 low; mind where the taint comes from
        """,  # noqa: E501 # a picture
        explained(TAINTED, "a"),
    )


def test_a_low_value_is_followed_to_the_contraction_that_wants_it() -> None:
    expect(
        """
        Transpose `t`
          precision  half   (T)
          reason     CLEAR: it changes no values, and what it reads or what reads it is low
          rule       Transpose is CLEAR: moves or selects values, changes none; source: grappler clear
          chain      half      CLEAR  Transpose `t`
                     half      ALLOW  is read by MatMul `n`: it gains the most in low precision
          to change  --keep_float32 '^t$'   keeps this node float32
        """,  # noqa: E501 # a picture
        explained(TAINTED, "t"),
    )


def test_a_misfit_is_followed_to_the_constant() -> None:
    expect(
        """
        AddV2 `a`
          precision  float32   (T)
          reason     TAINTED: it reads what a numerically unsafe op computed
          rule       AddV2 is INFER: safe unless what flows in is unsafe; source: grappler infer
          chain      float32   TAINTED  AddV2 `a`
                     float32   RANGE    reads Mul `s`
                     float32   RANGE    reads Const `big`: a value that it reads does not fit: holds 1e+06, beyond the range of half (65504)
        """,  # noqa: E501 # a picture
        explained(MISFIT, "a").partition("  to change")[0],
    )


def test_a_position_is_followed_to_what_reads_it() -> None:
    assert chain(POSITION, "r") == [
        "float32   POSITION  Relu `r`",
        "float32   POSITION  is read by Floor `f`",
        "float32   KEEP      is read by Cast `c`: a Cast to an integer reads it",
    ]


def test_what_nothing_low_flows_into_is_followed_to_a_reason() -> None:
    assert chain(IDLE, "b") == [
        "float32   NOTHING_LOW  AddV2 `b`",
        "float32   NOTHING_LOW  reads AddV2 `a`",
        "float32   PINNED       reads Placeholder `x`: a model input",
    ]


def test_a_sum_is_followed_once_round_its_loop() -> None:
    steps = chain(SUM, "b/t")

    assert steps[0] == "float32   SUM  AddV2 `t`"
    assert len(steps) == 3
    assert "is read by AddV2 `t`" in steps[-1]


def test_a_long_chain_is_cut_before_its_end() -> None:
    moves = "\n".join(f"    t{i + 1} = Transpose(t{i}, perm)" for i in range(20))
    text = f"""
    x: f32[4,8] = Placeholder
    w: f32[8,8] = Const(seed=1)
    perm: i32[2] = Const([0,1])
    t0 = MatMul(x, w)
{moves}
    out = Identity(t20)
    """
    steps = chain(text, "t20")

    assert len(steps) == 11
    assert steps[9].split() == ["..", "..", "11", "more", "steps"]
    assert steps[-1] == "half      ALLOW  reads MatMul `t0`: it gains the most in low precision"


def test_attributes_of_one_reason_are_told_once() -> None:
    text = """
    x: f32[4,8] = Placeholder
    w: f32[8,8] = Const(seed=1)
    m = MatMul(x, w)
    i = IdentityN([m, m, m, m, m, m])
    out = MatMul(i:0, w)
    """
    assert "precision  half   (T[0], T[1], T[2], T[3] and 2 more)" in explained(text, "i")


# --- matching ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "nodes"),
    [
        ("m", ["m"]),  # the name of a node, though other names hold it, too
        ("^m|^n$", ["m", "n"]),
        ("b/p", ["p"]),
        ("^b/", ["one", "j", "p", "t"]),
    ],
)
def test_names_go_before_patterns(pattern: str, nodes: list[str]) -> None:
    text = TAINTED if not pattern.startswith(("b/", "^b/")) else SUM
    found = re.findall(r"(?m)^\w+ `(\w+)`", explained(text, pattern))

    assert found == [node for node in nodes if node not in ("one", "j")]


def test_a_node_that_two_patterns_match_is_told_once() -> None:
    assert explained(TAINTED, "a", "^a$", "e") == explained(TAINTED, "a", "e")


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("outt", "`explain` has `outt`, which matches no node\nhint: did you mean `out`?"),
        ("12345", "`explain` has `12345`, which matches no node"),
        (
            "perm",
            (
                "`explain` has `perm`, which matches 1 node, none float32\n"
                "hint: there is nothing to explain: only float32 may become low"
            ),
        ),
        (
            "(",
            (
                "`explain` has `(`, which is no regular expression: "
                "missing ), unterminated subpattern at position 0"
            ),
        ),
    ],
)
def test_what_can_not_be_explained(pattern: str, message: str) -> None:
    report = report_of(TAINTED)
    with pytest.raises(errors.FlagError) as caught:
        tf_amp_rewriter.explain(report, pattern)

    assert str(caught.value) == message


def test_a_report_without_its_model_says_so() -> None:
    with pytest.raises(errors.FlagError, match="does not know its model any more"):
        tf_amp_rewriter.explain(fake_reports.LOWERED, "x")


def test_the_model_in_a_report_is_no_part_of_its_value() -> None:
    report = report_of(TAINTED)

    assert report.trace is not None
    assert dataclasses.replace(report, trace=None) == report
    assert "trace" not in repr(report)


# --- the advice is true --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "node", "options", "flags"),
    [
        (TAINTED, "a", {}, ["--force_low '^a$'", "--allow_ops AddV2"]),
        (TAINTED, "e", {}, ["--force_low '^e$'", "--allow_ops Exp"]),
        (TAINTED, "m", {}, ["--keep_float32 '^m$'"]),
        (TAINTED, "t", {}, ["--keep_float32 '^t$'"]),
        (MISFIT, "s", {}, ["--saturate", "--dtype bfloat16"]),
        (
            MISFIT,
            "a",
            {},
            ["--saturate", "--dtype bfloat16", "--force_low '^a$'", "--allow_ops AddV2"],
        ),
        (MISFIT, "big", {}, ["--saturate", "--dtype bfloat16"]),
        (POSITION, "r", {}, ["--force_low '^r$'", "--allow_ops Relu"]),
        (IDLE, "a", {}, ["--force_low '^a$'", "--allow_ops AddV2"]),
        (MEAN, "mean", {}, ["--device gpu", "--force_low '^mean$'", "--allow_ops Mean"]),
        (SOFTPLUS, "s", {"dtype": "bfloat16"}, ["--device cpu", "--dtype half"]),
        (SOFTPLUS, "s", {"deny_ops": ("Softplus",)}, ["without --deny_ops Softplus"]),
        (SOFTPLUS, "s", {"keep_float32": ("^s", "x")}, ["without --keep_float32 '^s'"]),
        (SUM, "b/p", {}, ["--keep_float32 '^b/p$'"]),
    ],
)
def test_each_flag_does_what_it_says(
    text: str, node: str, options: dict[str, object], flags: list[str]
) -> None:
    told = explained(text, node, **options).partition("  to change  ")[2]
    found = [line.strip().split("   ")[0] for line in told.splitlines()]

    assert found == flags
    before = precision(text, node, options)
    for flag in flags:
        assert precision(text, node, _with(options, flag)) != before, flag


@pytest.mark.parametrize(
    ("text", "node", "advice"),
    [
        (TAINTED, "out", "no flag: the outside of the model stays as it is"),
        (TAINTED, "one", "no flag: it follows the ops that read it; explain those"),
        (
            TAINTED,
            "w",
            "no flag of its own: it follows the ops that read it; `--keep_float32` on those",
        ),
        (POSITION, "c", "no flag that we know of"),
    ],
)
def test_where_no_flag_helps_it_says_so(text: str, node: str, advice: str) -> None:
    assert explained(text, node).endswith(f"  to change  {advice}\n")


def precision(text: str, node: str, options: dict[str, object]) -> str:
    report = report_of(text, **options)
    (entry,) = [e for e in report.type_variables if node in (e.node, f"{e.scope}/{e.node}")]
    return "float32" if entry.precision == "float32" else "low"


def _with(options: dict[str, object], flag: str) -> dict[str, object]:
    words = flag.replace("'", "").split()
    if words[0] == "without":
        name = words[1][2:]
        given = options[name]
        assert isinstance(given, tuple)
        return {**options, name: tuple(value for value in given if value != words[2])}
    if len(words) == 1:
        return {**options, words[0][2:]: True}
    name, value = words[0][2:], words[1]
    return {**options, name: value if name in ("dtype", "device") else (value,)}


def chain(text: str, node: str) -> list[str]:
    block = explained(text, node).partition("  chain      ")[2].partition("  to change")[0]
    return [line.strip() for line in block.splitlines()]
