"""What tools/new_ops finds, on tables that lack something and on those of the package."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tf_amp_rewriter.ops import categories, kernels
from tf_amp_rewriter.ops.rows import Category, OpRow
from tools import make_kernel_table, new_ops

OPS = [
    op for op in new_ops.definitions() if op.name in ("Add", "Cast", "Equal", "NoOp", "SelectV2")
]
KEEP = OpRow("Equal", Category.KEEP, "a source", note="a reason")
ADD = OpRow("Add", Category.INFER, "a source")
SELECT = OpRow("SelectV2", Category.CLEAR, "a source", attrs=("T",))


def test_an_op_that_no_table_has_is_undecided() -> None:
    assert list(new_ops.undecided(OPS, [KEEP, SELECT], ["Cast"])) == ["Add: T"]


def test_an_op_without_float_types_needs_no_row() -> None:
    assert list(new_ops.undecided(OPS, [KEEP, ADD, SELECT], ["Cast"])) == []


def test_a_row_says_which_of_several_type_attributes_it_means() -> None:
    cast = OpRow("Cast", Category.CLEAR, "a source")

    assert list(new_ops.undecided(OPS, [KEEP, ADD, SELECT, cast], [])) == [
        "Cast: which of SrcT, DstT may be low"
    ]


def test_a_row_of_an_op_that_is_not_there() -> None:
    old = OpRow("AddV1", Category.INFER, "a source")

    assert list(new_ops.gone(OPS, [KEEP, old])) == ["AddV1"]


def test_kernels_that_came_and_went() -> None:
    stored = {"A": {"T": "fh fhb"}, "B": {"T": "f f"}, "C": {"T": " fh"}, "D": {"T": "fb fb"}}
    live = {"A": {"T": "fhb fh"}, "D": {"T": "fb fb"}, "E": {"T": "f "}}
    on_cpu = ["A, T, on CPU: fh -> fhb", "B, T, on CPU: f -> none", "E, T, on CPU: none -> f"]

    assert list(new_ops.kernel_changes(live, stored, has_gpu=False)) == on_cpu
    assert list(new_ops.kernel_changes(live, stored, has_gpu=True)) == [
        "A, T, on CPU: fh -> fhb",
        "A, T, on GPU: fhb -> fh",
        "B, T, on CPU: f -> none",
        "B, T, on GPU: f -> none",
        "C, T, on GPU: fh -> none",
        "E, T, on CPU: none -> f",
    ]


def test_nothing_is_new_in_the_tensorflow_of_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    if tf.__version__ != kernels.tensorflow_version():
        pytest.skip(f"the tables are of TensorFlow {kernels.tensorflow_version()}")

    assert new_ops.main() == 0
    told = capsys.readouterr().out
    assert told.count(": none\n") == 3
    assert told.startswith(f"TensorFlow {tf.__version__}; the tables are of {tf.__version__}\n")


def test_what_is_new_is_printed_and_the_exit_code_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_add = [row for row in categories.ROWS if row.op != "Add"]
    monkeypatch.setattr(categories, "ROWS", without_add)
    changed = {**make_kernel_table.table(), "Nix": {"T": "f f"}}
    monkeypatch.setattr(make_kernel_table, "table", lambda: changed)

    assert new_ops.main() == 1
    told = capsys.readouterr().out
    assert "that no table decides: 1\n  Add: T\n" in told
    assert "  Nix, T, on CPU: none -> f\n" in told
