"""What the tables say about ops, on the CPU's kernels."""

from __future__ import annotations

import math
from typing import Final

import pytest

from tests.gpu import comparisons, op_cases, op_cases_clear
from tf_amp_rewriter import dtypes
from tf_amp_rewriter.ops import categories
from tf_amp_rewriter.ops.rows import Category

LOWERED = [
    pytest.param(tested, low, id=f"{tested}-{low.name}")
    for tested in op_cases.CASES
    for low in dtypes.LOW_PRECISIONS.values()
    if not comparisons.why_not(tested, low, "cpu")
]
# What is moved or selected, whatever it is; CheckNumerics refuses infinities.
MOVING: Final = {tested.op for tested in op_cases_clear.CASES} - {
    "CheckNumerics", "CheckNumericsV2"
}  # fmt: skip
COMPUTING: Final = {tested.op for tested in (*op_cases.ALLOW, *op_cases.CELLS, *op_cases.INFER)}
# By condition float32 on CPU in bfloat16, whatever their shape.
NEVER_LOW: Final = {"Conv2DBackpropInput", "Conv3D", "Conv3DBackpropInputV2"}
EVERYWHERE: Final = (-math.inf, math.inf)
# Functions of one argument, and for which arguments their result is finite in half.
DOMAINS: Final = {
    **dict.fromkeys(
        ("Elu", "Erf", "Erfc", "LeakyRelu", "Sigmoid", "Softplus", "Softsign", "Tanh"), EVERYWHERE
    ),
    **dict.fromkeys(("Inv", "Reciprocal"), (1.54e-5, math.inf)),
    "Log": (1e-44, math.inf),
    "Log1p": (-0.999, math.inf),
    "Selu": (-math.inf, 62336.0),
    "Sqrt": (0.0, math.inf),
}


@pytest.mark.parametrize(("tested", "low"), LOWERED)
def test_an_op_on_the_cpu_is_as_exact_as_its_rule(
    tested: comparisons.Case, low: dtypes.LowPrecision
) -> None:
    comparisons.check_op(tested, low, "cpu")


@pytest.mark.parametrize(("tested", "low"), [p for p in LOWERED if p.values[0].op in MOVING])
def test_an_op_that_moves_values_moves_the_ends_of_the_range(
    tested: comparisons.Case, low: dtypes.LowPrecision
) -> None:
    comparisons.check_op(tested, low, "cpu", comparisons.extremes)


@pytest.mark.parametrize("factor", [1 / 16, 16.0])
@pytest.mark.parametrize(("tested", "low"), [p for p in LOWERED if p.values[0].op in COMPUTING])
def test_an_op_is_as_exact_on_small_and_on_large_values(
    tested: comparisons.Case, low: dtypes.LowPrecision, factor: float
) -> None:
    comparisons.check_op(tested, low, "cpu", comparisons.scaled(factor))


@pytest.mark.parametrize(("tested", "low"), [p for p in LOWERED if str(p.values[0]) in DOMAINS])
def test_a_function_is_as_exact_on_every_value(
    tested: comparisons.Case, low: dtypes.LowPrecision
) -> None:
    comparisons.check_op(tested, low, "cpu", comparisons.all_values(*DOMAINS[tested.op]))


@pytest.mark.parametrize("tested", op_cases.CASES, ids=str)
def test_a_case_calls_its_op(tested: comparisons.Case) -> None:
    assert comparisons.node_of(tested)[0].op == tested.op


def test_a_case_has_a_name_of_its_own() -> None:
    names = [str(tested) for tested in op_cases.CASES]
    assert len(set(names)) == len(names)


def test_every_row_that_lowers_has_a_case_or_a_reason_to_have_none() -> None:
    covered = {tested.op for tested in op_cases.CASES}
    rows = rows_that_lower()

    assert rows - covered == set(op_cases.LEFT_OUT)
    assert covered <= rows


@pytest.mark.parametrize("low", dtypes.LOW_PRECISIONS.values(), ids=lambda low: low.name)
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_a_case_is_low_wherever_its_row_is(device: str, low: dtypes.LowPrecision) -> None:
    """On each device with a low kernel, in each low precision; a condition may forbid it."""
    held = [
        row
        for op in rows_that_lower() - set(op_cases.LEFT_OUT)
        if (row := categories.row_for(op, low, device)) is not None
        and row.category in comparisons.LOWERING
        and comparisons.has_low_kernel(row, low, device)
    ]
    reasons = {
        row.op: {
            comparisons.why_not(tested, low, device)
            for tested in op_cases.CASES
            if tested.op == row.op
        }
        for row in held
    }
    never_low = {op for op, found in reasons.items() if "" not in found}

    assert never_low == (NEVER_LOW if (device, low.name) == ("cpu", "bfloat16") else set())


@pytest.mark.parametrize("category", comparisons.LOWERING)
def test_nearly_all_that_is_served_is_covered(category: Category) -> None:
    run_elsewhere = {op for op, why in op_cases.LEFT_OUT.items() if why == op_cases.OF_HANDLES}
    served = {
        op for op in rows_that_lower(category) - run_elsewhere if not op_cases.is_gradient(op)
    }
    left_out = served & set(op_cases.LEFT_OUT)

    assert len(left_out) <= 0.1 * len(served)


def rows_that_lower(*only: Category) -> set[str]:
    """The ops with a row that lowers them on some device, and a low kernel there."""
    return {
        row.op
        for row in categories.ROWS
        if row.category in (only or comparisons.LOWERING)
        and any(
            comparisons.has_low_kernel(row, low, device)
            for low in dtypes.LOW_PRECISIONS.values()
            for device in ("cpu", "gpu")
        )
    }
