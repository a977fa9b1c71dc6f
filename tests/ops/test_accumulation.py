"""The table of what adds up in which type: its form, its rules, and the CPU's kernels."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Final

import pytest

from tests.ops import sum_probes
from tf_amp_rewriter import dtypes
from tf_amp_rewriter.ops import accumulation, categories, kernels
from tf_amp_rewriter.ops.rows import Category

LOWERING: Final = (Category.ALLOW, Category.INFER, Category.CLEAR)
LOWS: Final = dtypes.LOW_PRECISIONS.values()
# Equal terms that went missing, as a share of the result, and what random ones lose, in maximal
# roundings of the result (RMS): the kernels that sum in float32 stay below both.
MISSING: Final = 0.02
ROUNDINGS: Final = 1.5
# TensorFlow runs them only in graphs of a version before 14; their kernels are those of V2.
REMOVED: Final = {"Conv3DBackpropFilter", "Conv3DBackpropInput"}
# Registered on both devices by the very kernel of another op.
SAME_KERNEL: Final = {"FusedBatchNormV2": "FusedBatchNormV3"}
# Kernels that add up low and may be low without a condition, and why that is all right.
ACCEPTED: Final = {
    **dict.fromkeys(
        ("CudnnRNN", "CudnnRNNBackprop", "CudnnRNNBackpropV2", "CudnnRNNBackpropV3", "CudnnRNNV2",
         "CudnnRNNV3"),
        "for `--device gpu` only, where grappler has them low too; a cell sums its few hundred"
        " units, and each step is rounded anyway",
    ),
    "FusedPadConv2D": "half loses 2.5e-3 at most, as in Conv3D: conditions.sums_in_bfloat16",
}  # fmt: skip


def test_no_fact_stands_twice():
    keys = Counter((row.op, row.device, row.low) for row in accumulation.ROWS)
    assert [key for key, count in keys.items() if count > 1] == []
    of_both = {(row.op, row.device) for row in accumulation.ROWS if not row.low}
    assert [row for row in accumulation.ROWS if row.low and (row.op, row.device) in of_both] == []


def test_rows_have_valid_fields():
    for row in accumulation.ROWS:
        assert row.device in ("cpu", "gpu"), row
        assert row.low in ("", *dtypes.LOW_PRECISIONS), row
        assert row.compute in (accumulation.FLOAT32, accumulation.LOW), row
        assert row.source, row


def test_a_row_is_about_a_kernel_that_exists():
    rows = [row for row in accumulation.ROWS if row.op != "AccumulateNV2"]  # replaced before a run
    without = [
        (row.op, row.device, row.low)
        for row in rows
        if not any(
            has_low_kernel(row.op, low, row.device) for low in LOWS if row.low in ("", low.name)
        )
    ]
    assert without == []


def test_the_worse_of_both_devices_holds_for_any():
    assert accumulation.compute("MatMul", dtypes.HALF, "any") == "float32"
    assert accumulation.compute("Einsum", dtypes.HALF, "any") == "low"
    assert accumulation.compute("Einsum", dtypes.HALF, "gpu") == "float32"
    assert accumulation.compute("Mean", dtypes.BFLOAT16, "cpu") == "float32"
    assert accumulation.compute("Mean", dtypes.BFLOAT16, "gpu") == "low"
    assert accumulation.compute("CudnnRNNV3", dtypes.HALF, "cpu") == ""
    assert accumulation.compute("CudnnRNNV3", dtypes.HALF, "any") == "low"
    assert accumulation.compute("Add", dtypes.HALF, "any") == ""


def test_what_adds_up_low_has_a_condition_or_a_reason():
    bare = {
        op
        for op in {row.op for row in accumulation.ROWS}
        for low, device in itertools.product(LOWS, ("any", "cpu", "gpu"))
        if (row := categories.row_for(op, low, device)) is not None
        and row.category in LOWERING
        and not row.condition
        and accumulation.compute(op, low, device) == accumulation.LOW
    }
    assert bare == set(ACCEPTED)


def test_a_condition_of_the_gpu_too_is_about_what_adds_up_low_there():
    """A condition passes under `gpu` only where the kernel there is known to sum in float32."""
    for row in categories.ROWS:
        if row.category not in LOWERING or not row.condition:
            continue
        for low in LOWS:
            if accumulation.compute(row.op, low, "gpu") == accumulation.LOW:
                assert row.condition in ("add_n_inputs", "pool_window", "sums_in_bfloat16"), row


def has_low_kernel(op: str, low: dtypes.LowPrecision, device: str) -> bool:
    """Says whether the table of kernels has one on `device` itself."""
    letter = {"half": "h", "bfloat16": "b"}[low.name]
    of_attrs = kernels._table()[1].get(op, {})
    return any(
        letter in letters.split(" ")[device == "gpu"]
        for letters in of_attrs.values()
        if "f" in letters
    )


MEASURED: Final = [
    (row.op, low, row.compute)
    for row in accumulation.ROWS
    for low in LOWS
    if row.source.startswith(accumulation.MEASURED)
    and row.device == "cpu"
    and row.low in ("", low.name)
    and row.op not in REMOVED
    and has_low_kernel(row.op, low, "cpu")
]


@pytest.fixture(scope="module")
def losses() -> Mapping[str, sum_probes.Loss]:
    """What each probe loses with TensorFlow's own kernels, by op and low precision.

    They run in a process of their own, as TensorFlow reads once whether oneDNN's are to be used.
    """
    environment = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": "0", "TF_CPP_MIN_LOG_LEVEL": "3"}
    names = [f"{SAME_KERNEL.get(op, op)} {low.name}" for op, low, _ in MEASURED]
    ran = subprocess.run(
        [sys.executable, "-m", "tests.ops.sum_probes", *names],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return {name: sum_probes.Loss(*loss) for name, loss in json.loads(ran.stdout).items()}


@pytest.mark.parametrize(
    ("op", "low", "compute"),
    [pytest.param(*row, id=f"{row[0]}-{row[1].name}") for row in MEASURED],
)
def test_a_cpu_kernel_adds_up_as_its_row_says(
    losses: Mapping[str, sum_probes.Loss], op: str, low: dtypes.LowPrecision, compute: str
):
    loss = losses[f"{SAME_KERNEL.get(op, op)} {low.name}"]

    keeps_all = loss.missing <= MISSING and loss.roundings <= ROUNDINGS

    assert ("float32" if keeps_all else "low") == compute, loss
