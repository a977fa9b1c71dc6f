from __future__ import annotations

import dataclasses

import pytest

from tests import fake_reports, golden_files
from tf_amp_rewriter import reasons
from tf_amp_rewriter.report import model, terminal


def lines(report: model.Report) -> list[str]:
    return terminal.summary(report).splitlines()


def test_the_summary_of_a_rewrite() -> None:
    golden_files.expect_golden("summary_lowered.txt", terminal.summary(fake_reports.LOWERED))


def test_the_summary_where_all_was_kept() -> None:
    golden_files.expect_golden("summary_kept_all.txt", terminal.summary(fake_reports.KEPT_ALL))


def test_the_first_line_says_how_much_was_lowered() -> None:
    assert lines(fake_reports.LOWERED)[0] == (
        "half for any device: 2 of 7 float32 type variables lowered, 5 kept; 1 Cast inserted"
    )


def test_lowering_nothing_never_looks_like_success() -> None:
    text = terminal.summary(fake_reports.KEPT_ALL)

    assert text.splitlines()[0] == (
        "NOTHING WAS LOWERED: 3 type variables stay float32 because: "
        "op `MatMul` is denied by the options (2 x)"
    )
    assert " lowered," not in text
    assert "written" not in text


def test_a_model_without_float32_says_so() -> None:
    assert lines(fake_reports.EMPTY) == [
        "NOTHING WAS LOWERED: the model has no float32 computation",
        "weights: none in float32",
        "took 1.23 s",
    ]


def test_only_the_top_reasons_are_named_when_nothing_was_lowered() -> None:
    rows = tuple(fake_reports.row(f"n{i}", "Exp", "DENY", f"reason {i}") for i in range(5))
    report = dataclasses.replace(
        fake_reports.KEPT_ALL, type_variables=rows, type_variables_float32=5
    )

    assert lines(report)[0].endswith(
        "reason 0 (1 x); reason 1 (1 x); reason 2 (1 x); and 2 more reasons"
    )


def test_each_kind_shows_two_examples_of_different_ops() -> None:
    shown = lines(fake_reports.LOWERED)
    start = shown.index("  DENY: 3 (ops that are numerically unsafe in low precision)")

    assert shown[start : start + 4] == [
        "  DENY: 3 (ops that are numerically unsafe in low precision)",
        "    Exp `body/a/Exp`: grows beyond the range of half",
        "    Sum `c/Sum`: sums many values",
        "    ..",
    ]


def test_ops_without_a_kernel_are_named_on_one_line() -> None:
    shown = [line for line in lines(fake_reports.WITHOUT_KERNELS) if " kernel: " in line]

    assert shown == ["no half kernel: LRN (2), AvgPool3D (1)"]
    assert not [line for line in lines(fake_reports.LOWERED) if " kernel: " in line]


def test_every_kind_that_keeps_float32_has_a_heading() -> None:
    low = {"ALLOW", "INFER", "CLEAR", "FREE"}

    assert set(terminal.HEADINGS) == {kind.name for kind in reasons.Kind} - low


def test_warnings_of_one_kind_are_shown_once() -> None:
    shown = [line for line in lines(fake_reports.LOWERED) if line.startswith("warning")]

    assert shown == [
        "warning: `keep_float32` has `foo.*`, which matches no node (and 1 more like it)",
        "warning: the model has 2 training functions",
    ]


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        (999, 500, "weights: 999 bytes -> 500 bytes (0.50 x)"),
        (4_000, 2_000, "weights: 4.00 kB -> 2.00 kB (0.50 x)"),
        (102_400_000, 51_300_000, "weights: 102.40 MB -> 51.30 MB (0.50 x)"),
        (2_000_000_000, 1_000_000_000, "weights: 2.00 GB -> 1.00 GB (0.50 x)"),
        (0, 0, "weights: none in float32"),
    ],
)
def test_weights_before_and_after(before: int, after: int, line: str) -> None:
    report = dataclasses.replace(
        fake_reports.LOWERED, weight_bytes_before=before, weight_bytes_after=after
    )

    assert lines(report)[2] == line
