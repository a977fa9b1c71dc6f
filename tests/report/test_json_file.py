from __future__ import annotations

import dataclasses
import json

import tf_amp_rewriter
from tests import fake_reports
from tf_amp_rewriter.report import json_file, model


def test_every_field_is_there_but_the_graph() -> None:
    fields = {field.name for field in dataclasses.fields(model.Report)}

    added = {"format_version", "lowered_nothing", "ops_without_kernel", "tool_version"}

    assert fields - {"graph_def", "trace"} | added == set(
        json.loads(json_file.to_json(fake_reports.LOWERED))
    )


def test_the_format_and_the_tool_have_versions() -> None:
    read = json.loads(json_file.to_json(fake_reports.LOWERED))

    assert read["format_version"] == 1
    assert read["tool_version"] == tf_amp_rewriter.__version__


def test_rows_read_back_equal_and_sorted() -> None:
    read = json.loads(json_file.to_json(fake_reports.LOWERED))
    rows = [model.TypeVariableReport(**entry) for entry in read["type_variables"]]
    weights = [model.WeightReport(**entry) for entry in read["weights"]]

    assert rows == sorted(fake_reports.LOWERED.type_variables, key=lambda r: (r.scope, r.node))
    assert weights == sorted(fake_reports.LOWERED.weights, key=lambda w: w.name)


def test_the_order_of_the_report_does_not_show() -> None:
    report = fake_reports.LOWERED
    turned = dataclasses.replace(
        report,
        type_variables=tuple(reversed(report.type_variables)),
        weights=tuple(reversed(report.weights)),
    )

    assert json_file.to_json(report) == json_file.to_json(turned)


def test_keys_are_sorted_and_the_text_ends_a_line() -> None:
    text = json_file.to_json(fake_reports.LOWERED)

    assert text.endswith("}\n")
    assert list(json.loads(text)) == sorted(json.loads(text))


def test_lowering_nothing_is_told() -> None:
    assert json.loads(json_file.to_json(fake_reports.KEPT_ALL))["lowered_nothing"] is True
    assert json.loads(json_file.to_json(fake_reports.LOWERED))["lowered_nothing"] is False


def test_ops_without_a_kernel_are_counted_by_node() -> None:
    read = json.loads(json_file.to_json(fake_reports.WITHOUT_KERNELS))

    assert read["ops_without_kernel"] == {"AvgPool3D": 1, "LRN": 2}
