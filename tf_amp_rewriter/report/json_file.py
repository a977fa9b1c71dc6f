"""`Report` as JSON: every decision with its reason, for programs and for diffs."""

from __future__ import annotations

import dataclasses
import json
from typing import Final

from tf_amp_rewriter.report import model
from tf_amp_rewriter.version import VERSION

# Goes up when a key changes its meaning or goes away; new keys do not count.
FORMAT_VERSION: Final = 1


def to_json(report: model.Report) -> str:
    """Returns `report` as JSON text with a line end.

    Keys are sorted, and so are type variables (by scope, node, attribute) and weights (by scope,
    name): two runs that decide the same differ in `elapsed_s` at most. The rewritten GraphDef is
    left out. Linear in the number of type variables, but for the sort.
    """
    fields = {
        field.name: getattr(report, field.name)
        for field in dataclasses.fields(report)
        if field.name not in ("graph_def", "trace", "type_variables", "weights")
    }
    fields |= {
        "elapsed_s": round(report.elapsed_s, 3),
        "format_version": FORMAT_VERSION,
        "lowered_nothing": report.lowered_nothing,
        "ops_without_kernel": report.ops_without_kernel,
        "tool_version": VERSION,
        "type_variables": [dataclasses.asdict(entry) for entry in _sorted_type_variables(report)],
        "weights": [
            dataclasses.asdict(entry)
            for entry in sorted(report.weights, key=lambda weight: (weight.scope, weight.name))
        ],
    }
    return json.dumps(fields, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _sorted_type_variables(report: model.Report) -> list[model.TypeVariableReport]:
    return sorted(
        report.type_variables, key=lambda entry: (entry.scope, entry.node, entry.attribute)
    )
