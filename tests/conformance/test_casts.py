"""coremltools' cases on chains of casts (XT-11 to XT-24), in our words: the casts are the model's.

Its passes clean up any casts. Ours touches a user's Cast only where that helps low precision and
loses nothing; all other casts stay as they are, whatever they do.
"""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

import tf_amp_rewriter
from tests import graph_text
from tests.checks import check_precision, check_rewrite, check_unchanged

TYPES = ["f32", "f16", "bf16", "f64", "i32", "i8", "u8", "bool"]
DENSE = """
    x: f32[4,8] = Placeholder
    w: f32[8,8] = Const(seed=1)
    m = MatMul(x, w)
"""


def test_xt_11_a_cast_to_the_same_type_is_no_rounding_and_one_to_low_stays() -> None:
    check_precision(
        DENSE
        + """
        same = Cast(m, DstT=f32)
        m2 = MatMul(same, w)               # low ALLOW
        down: low = Cast(m2, DstT=low)     # SrcT low
        out = Identity(down)
        """,
    )


def test_xt_12_low_to_float32_and_back_is_no_cast_between_products() -> None:
    check_rewrite(
        """
        x: low[4,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        up = Cast(x, DstT=f32)
        m = MatMul(up, w)
        down: low = Cast(m, DstT=low)
        again = Cast(down, DstT=f32)
        m2 = MatMul(again, w)
        out: low = Cast(m2, DstT=low)
        """,
        """
        x: low[4,8] = Placeholder
        w: low[8,8] = Const(seed=1)
        up: low = Identity(x)
        m: low = MatMul(up, w)
        down: low = Identity(m)
        again: low = Identity(down)
        m2: low = MatMul(again, w)
        out: low = Identity(m2)
        """,
    )


# What a chain of casts in front of a product must still mean, on values that tell each apart.
CHAINS = {
    "XT-13 int8, low, float32": ["low", "f32"],
    "XT-14 low twice": ["low", "low", "f32"],
    "XT-15 lossy pair": ["f16", "f32"],
    "XT-15 lossy pair of the other type": ["bf16", "f32"],
    "XT-16 unsigned and signed": ["i32", "u8", "i8", "f32"],
    "XT-17 by way of bool": ["low", "bool", "f32"],
    "XT-18 by way of integers": ["f32", "i32", "f32", "low", "f32"],
    "XT-18 by way of float64": ["f64", "f32"],
}


def chain(types: list[str], source: str) -> str:
    lines = [f"x: {source}[4,8] = Placeholder"]
    for index, dtype in enumerate(types):
        before = f"c{index - 1}" if index else "x"
        lines.append(f"c{index}: {dtype} = Cast({before}, DstT={dtype})")
    lines += [
        "w: f32[8,8] = Const(0.25)",
        f"m = MatMul(c{len(types) - 1}, w)",
        f"last = Identity(c{len(types) - 1})",
        "out1 = Identity(m)",
        "out2 = Identity(last)",
    ]
    return "\n".join("    " + line for line in lines)


@pytest.mark.parametrize("types", CHAINS.values(), ids=CHAINS)
def test_xt_13_to_18_chains_of_casts_mean_what_they_meant(types: list[str]) -> None:
    source = "i8" if "i8" in types or types == ["low", "f32"] else "f32"
    values = np.array([[0, 1, 2, 3, 5, 100, 127, 64], [-1, -2, -3, -5, -100, -128, -64, 0],
                       [1, 0, 1, 0, 1, 0, 1, 0], [7, 7, 7, 7, 7, 7, 7, 7]])  # fmt: skip
    feed = values.astype(np.int8 if source == "i8" else np.float32)
    check_precision(chain(types, source), feeds={"x": feed}, steps=1)


@pytest.mark.parametrize("types", [["f16", "f32"], ["bf16", "f32"], ["f64", "f16", "f64", "f32"]])
def test_xt_15_a_lossy_chain_without_a_product_stays_node_for_node(types: list[str]) -> None:
    text = chain(types, "f32")
    lines = [line for line in text.splitlines() if "m = " not in line and "w:" not in line]
    lines = [line for line in lines if "out1" not in line]
    feed = np.float32(np.random.default_rng(1).uniform(-70000, 70000, (4, 8)))
    check_unchanged("\n".join(lines), feeds={"x": feed}, exact=("out2",))


def test_xt_19_a_result_that_fans_out_to_low_casts_only() -> None:
    check_precision(
        DENSE
        + """
        a: low = Cast(m, DstT=low)         # SrcT low
        b: low = Cast(m, DstT=low)         # SrcT low
        c: low = Cast(m, DstT=low)         # SrcT low
        out = AddN([a, b, c])
        """,
        casts=1,
    )


def test_xt_20_float32_that_fans_out_to_several_types() -> None:
    check_unchanged(
        """
        x: low[4,8] = Placeholder
        w: low[8,8] = Const(seed=1)
        m: low = MatMul(x, w)
        up = Cast(m, DstT=f32)
        a: low = Cast(up, DstT=low)
        i: i32 = Cast(up, DstT=i32)
        e = Exp(up)
        out1 = Identity(a)
        out2 = Identity(i)
        out3 = Identity(e)
        """
    )


def test_xt_21_a_named_output_keeps_its_name_behind_a_pair_of_casts() -> None:
    check_rewrite(
        DENSE
        + """
        a: low = Cast(m, DstT=low)
        out = Cast(a, DstT=f32)
        """,
        """
        x: f32[4,8] = Placeholder
        w: low[8,8] = Const(seed=1)
        x/Cast_low = Cast(x, DstT=low)
        m: low = MatMul(x/Cast_low, w)
        a: low = Identity(m)
        out = Cast(a, DstT=f32)
        """,
        outputs=("out",),
    )


@pytest.mark.parametrize("first", TYPES)
def test_xt_23_all_triples_end_in_the_last_type(first: str) -> None:
    # Without a contraction nothing is gained: the graph comes out as it is, but for a pair of Casts
    # that loses nothing.
    for second, third in itertools.product(TYPES, repeat=2):
        text = f"""
        x: {first}[2,2] = Placeholder
        a: {second} = Cast(x, DstT={second})
        b: {third} = Cast(a, DstT={third})
        out = Identity(b)
        """
        graph = graph_text.parse(text)
        report = tf_amp_rewriter.rewrite_graph_def(graph, tf_amp_rewriter.Options(outputs=("out",)))

        if (first, second, third) == ("f16", "f32", "f16"):
            assert "Cast" not in {node.op for node in report.graph_def.node}
        else:
            assert report.graph_def == graph, (second, third)


def seconds(casts: int) -> float:
    """Returns the shortest of three times that a chain of `casts` between two products takes."""
    lines = ["x: f32[2,2] = Placeholder", "w: f32[2,2] = Const(1)", "c0 = MatMul(x, w)"]
    for index in range(casts):
        dtype = "f32" if index % 2 else "low"
        lines.append(f"c{index + 1}: {dtype} = Cast(c{index}, DstT={dtype})")
    lines += [f"m = MatMul(c{casts}, w)", "out = Identity(m)"]
    graph = graph_text.parse("\n".join(lines))
    options = tf_amp_rewriter.Options(outputs=("out",))

    def once() -> float:
        start = time.process_time()
        report = tf_amp_rewriter.rewrite_graph_def(graph, options)
        assert report.casts == 2
        return time.process_time() - start

    return min(once() for _ in range(3))


def test_xt_24_thousands_of_casts_take_linear_time() -> None:
    # 8 times as many: a pass that visits each op once for each other one takes 64 times as long
    assert seconds(2000) < 24 * seconds(250)
