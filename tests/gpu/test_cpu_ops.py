"""What the tables say about ops, on the CPU's kernels."""

from __future__ import annotations

import pytest

from tests.gpu import comparisons, op_cases
from tf_amp_rewriter import dtypes
from tf_amp_rewriter.ops import categories
from tf_amp_rewriter.ops.rows import Category

LOWERED = [
    pytest.param(tested, low, id=f"{tested}-{low.name}")
    for tested in op_cases.CASES
    for low in dtypes.LOW_PRECISIONS.values()
    if not comparisons.why_not(tested, low, "cpu")
]


@pytest.mark.parametrize(("tested", "low"), LOWERED)
def test_an_op_on_the_cpu_is_as_exact_as_its_rule(
    tested: comparisons.Case, low: dtypes.LowPrecision
) -> None:
    comparisons.check_op(tested, low, "cpu")


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
