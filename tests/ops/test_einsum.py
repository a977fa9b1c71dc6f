"""Plans of equations, worked out by hand, and against numpy.einsum for random equations."""

from __future__ import annotations

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies

from tf_amp_rewriter.ops import einsum
from tf_amp_rewriter.ops.einsum import Operand, Plan

SIZES = {label: size for size, label in enumerate("abcdefgh", start=2)}


def plan(
    left: tuple[str, str],
    right: tuple[str, str],
    product: str,
    moves: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] = ((), (), ()),
    swapped: bool = False,
    adj: str = "",
) -> Plan:
    """Builds a plan from (labels, groups), with groups such as `a b cd` and `_` for size 1."""
    operands = (
        Operand(left[0], moves[0], groups(left[1])),
        Operand(right[0], moves[1], groups(right[1])),
    )
    return Plan(operands, swapped, "x" in adj, "y" in adj, groups(product), moves[2])


def groups(text: str) -> tuple[str, ...]:
    return tuple(group.replace("_", "") for group in text.split())


HEADS = (0, 2, 1, 3)


@pytest.mark.parametrize(
    ("equation", "expected"),
    [
        # Attention: scores, then the sum over values; as Keras has them; with the heads second.
        (
            "BTNH,BSNH->BNTS",
            plan(("BTNH", "B N T H"), ("BSNH", "B N S H"), "B N T S", (HEADS, HEADS, ()), adj="y"),
        ),
        (
            "BNTS,BSNH->BTNH",
            plan(("BNTS", "B N T S"), ("BSNH", "B N S H"), "B N T H", ((), HEADS, HEADS)),
        ),
        (
            "aecd,abcd->acbe",
            plan(
                ("aecd", "a c e d"),
                ("abcd", "a c b d"),
                "a c b e",
                (HEADS, HEADS, ()),
                swapped=True,
                adj="y",
            ),
        ),
        (
            "acbe,aecd->abcd",
            plan(("acbe", "a c b e"), ("aecd", "a c e d"), "a c b d", ((), HEADS, HEADS)),
        ),
        ("bhqd,bhkd->bhqk", plan(("bhqd", "b h q d"), ("bhkd", "b h k d"), "b h q k", adj="y")),
        ("bhqk,bhkd->bhqd", plan(("bhqk", "b h q k"), ("bhkd", "b h k d"), "b h q d")),
        # A weight: the matrices of the first operand meet one matrix.
        ("ij,jk->ik", plan(("ij", "i j"), ("jk", "j k"), "i k")),
        ("ij, kj -> ik", plan(("ij", "i j"), ("kj", "k j"), "i k", adj="y")),
        ("ji,jk->ik", plan(("ji", "j i"), ("jk", "j k"), "i k", adj="x")),
        ("ij,jk->ki", plan(("ij", "i j"), ("jk", "j k"), "k i", swapped=True, adj="xy")),
        ("abc,cd->abd", plan(("abc", "a b c"), ("cd", "c d"), "a b d")),
        ("cd,abc->abd", plan(("cd", "c d"), ("abc", "a b c"), "a b d", swapped=True)),
        ("acb,cd->abd", plan(("acb", "a c b"), ("cd", "c d"), "a b d", adj="x")),
        ("abc,cde->abde", plan(("abc", "a b c"), ("cde", "c de"), "a b de")),
        ("abcd,cde->abe", plan(("abcd", "a b cd"), ("cde", "cd e"), "a b e")),
        ("abcd,cdef->abef", plan(("abcd", "a b cd"), ("cdef", "cd ef"), "a b ef")),
        # Nothing on one side, or on both.
        ("bij,bj->bi", plan(("bij", "b i j"), ("bj", "b j _"), "b i _")),
        ("bj,bjk->bk", plan(("bj", "b _ j"), ("bjk", "b j k"), "b _ k")),
        ("bj,bj->b", plan(("bj", "b _ j"), ("bj", "b j _"), "b _ _")),
        ("j,j->", plan(("j", "_ j"), ("j", "j _"), "_ _")),
        # Labels that only the first has count matrices, wherever they stand.
        ("bhwc,bcd->bhwd", plan(("bhwc", "b h w c"), ("bcd", "b _ c d"), "b h w d")),
        ("hbwc,bcd->hbwd", plan(("hbwc", "h b w c"), ("bcd", "b c d"), "h b w d")),
    ],
)
def test_plan(equation: str, expected: Plan) -> None:
    assert expected == einsum.plan(equation)


@pytest.mark.parametrize(
    "equation",
    [
        "ij,jk",  # implicit output
        "ij->ji",
        "ij,jk,kl->il",
        "...j,jk->...k",
        "iij,jk->ik",  # a diagonal
        "ij,jk->k",  # i is summed alone
        "ij,jk->i",  # so is k
        "i1,1j->ij",
        "ij,jk->iik",
        "ij,jk->ikz",
        "",
    ],
)
def test_no_product_computes_it(equation: str) -> None:
    assert einsum.plan(equation) is None


@pytest.mark.parametrize(
    ("equation", "last"),
    [
        ("ij,jk->ik", "BatchMatMulV2"),
        ("abc,cde->abde", "Reshape"),
        ("bij,bj->bi", "Squeeze"),
        ("BNTS,BSNH->BTNH", "Transpose"),
        ("abc,cde->adbe", "Transpose"),
    ],
)
def test_the_last_op(equation: str, last: str) -> None:
    found = einsum.plan(equation)

    assert found is not None
    assert last == found.last_op


@pytest.mark.parametrize(
    ("text", "sizes", "expected"),
    [
        ("a b cd", {"a": 2, "b": 3, "c": 4, "d": 5}, (2, 3, 20)),
        ("a b cd", {"b": 3, "c": 4, "d": 5}, (-1, 3, 20)),
        ("a b cd", {"a": 2, "b": 3, "c": 4}, (2, 3, -1)),
        ("a b cd", {"a": 2, "c": 4}, None),
        ("a _ b", {"a": 2}, (2, 1, -1)),
        ("a b", {"a": 0}, None),
        ("a b", {"a": 0, "b": 2}, (0, 2)),
        ("", {}, ()),
    ],
)
def test_static_shape(text: str, sizes: dict[str, int], expected: tuple[int, ...] | None) -> None:
    assert expected == einsum.static_shape(groups(text), sizes)


@pytest.mark.parametrize(
    ("equation", "shapes", "expected"),
    [
        ("ij, jk -> ik", [(2, None), (3, 4)], {"i": 2, "j": 3, "k": 4}),
        ("ij,jk->ik", [None, (None, 4)], {"k": 4}),
        ("i...j,j->i...", [(2, 7, 7, 3), None], {"i": 2, "j": 3}),
        ("ij,jk->ik", [(2,), (3, 4)], {"j": 3, "k": 4}),  # a shape that can't be
    ],
)
def test_known_sizes(
    equation: str, shapes: list[tuple[int | None, ...] | None], expected: dict[str, int]
) -> None:
    assert expected == einsum.known_sizes(equation, shapes)


@strategies.composite
def equations(draw: strategies.DrawFn) -> str:
    """Draws an equation that a product computes: each label in at least two of the three."""
    labels = draw(strategies.lists(strategies.sampled_from("abcdef"), unique=True, min_size=1))
    places = [draw(strategies.sampled_from(("xy", "xo", "yo", "xyo"))) for _ in labels]
    parts = [
        "".join(draw(strategies.permutations([
            label for label, place in zip(labels, places, strict=True) if part in place
        ])))
        for part in "xyo"
    ]  # fmt: skip
    return f"{parts[0]},{parts[1]}->{parts[2]}"


@hypothesis.settings(max_examples=200, deadline=None, derandomize=True, database=None)
@hypothesis.given(equations())
def test_the_plan_computes_what_the_equation_says(equation: str) -> None:
    inputs, _, output = equation.partition("->")
    x, y = (small_integers(labels) for labels in inputs.split(","))

    found = einsum.plan(equation)

    assert found is not None
    np.testing.assert_array_equal(np.einsum(equation, x, y), computed(found, x, y))
    assert len(output) == len("".join(found.groups))


def small_integers(labels: str) -> np.ndarray:
    shape = [SIZES[label] for label in labels]
    return np.random.default_rng(len(labels)).integers(-4, 4, shape)


def computed(found: Plan, *inputs: np.ndarray) -> np.ndarray:
    """Does what the plan says."""
    stacks = []
    for values, operand in zip(inputs, found.operands, strict=True):
        moved = values.transpose(operand.permutation) if operand.permutation else values
        stacks.append(moved.reshape(einsum.static_shape(operand.groups, SIZES)))
    left, right = stacks[::-1] if found.is_swapped else stacks
    product = np.matmul(
        left.swapaxes(-1, -2) if found.adj_x else left,
        right.swapaxes(-1, -2) if found.adj_y else right,
    )
    split = product.reshape(einsum.static_shape(tuple("".join(found.groups)), SIZES))
    return split.transpose(found.permutation) if found.permutation else split
