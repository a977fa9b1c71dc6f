"""`Report` as the short text that the command line prints."""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable, Sequence
from typing import Final

from tf_amp_rewriter.reasons import Kind
from tf_amp_rewriter.report import model

EXAMPLES: Final = 2  # shown per kind of reason
TOP_REASONS: Final = 3  # named when nothing was lowered
# Warnings that differ only in names and numbers are of one kind, and shown once.
_VARYING: Final = re.compile(r"`[^`]*`|\d[\d.,]*")
# What a kind of reason means where it keeps float32; the others are never a reason to.
HEADINGS: Final = {
    Kind.CONDITION.name: "the kernel is inaccurate in low precision for these shapes or attributes",
    Kind.CONSUMERS.name: "weights that only float32 ops read",
    Kind.CONTROL.name: "decide how a loop or branch goes on",
    Kind.DENY.name: "ops that are numerically unsafe in low precision",
    Kind.ISLAND.name: "low precision would cost more in Casts than it saves",
    Kind.KEEP.name: "ops that keep float32",
    Kind.NOTHING_LOW.name: "nothing low flows in",
    Kind.NO_KERNEL.name: "no kernel in low precision",
    Kind.PINNED.name: "seen from outside: inputs, outputs, signatures",
    Kind.POSITION.name: "decide a size, an index or a position",
    Kind.RANGE.name: "values that do not fit",
    Kind.SUM.name: "sums and counters that loops carry",
    Kind.TAINTED.name: "read what an unsafe op computed",
    Kind.UNKNOWN_OP.name: "ops that nobody knows",
    Kind.USER.name: "kept by flags or options",
}
# They follow from other reasons where there are any.
_FOLLOWING: Final = (Kind.CONSUMERS.name, Kind.NOTHING_LOW.name, Kind.PINNED.name)
_UNITS: Final = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))


def summary(report: model.Report) -> str:
    """Returns the numbers that matter, one a line, without colour, ending with a line end.

    The first line says what was lowered; if nothing was, it says that and why.
    """
    lines = [_headline(report), *_contractions(report), _weights(report)]
    kept = [entry for entry in report.type_variables if entry.precision == "float32"]
    if kept:
        lines += ["what stays float32, and why:", *_kept(kept)]
    lines += _without_kernel(report)
    lines += _warnings(report.warnings)
    lines.append(_closing(report))
    return "\n".join(lines) + "\n"


def _headline(report: model.Report) -> str:
    if report.lowered_nothing:
        return f"NOTHING WAS LOWERED: {_why_nothing(report)}"
    total = report.type_variables_low + report.type_variables_float32
    return (
        f"{report.dtype} for {_device(report)}: {report.type_variables_low} of "
        f"{_count(total, 'float32 type variable')} lowered, "
        f"{report.type_variables_float32} kept; {_count(report.casts, 'Cast')} inserted"
    )


def _device(report: model.Report) -> str:
    return "any device" if report.device == "any" else f"the {report.device.upper()}"


def _why_nothing(report: model.Report) -> str:
    if not report.type_variables_float32:
        return "the model has no float32 computation"
    causes = [entry for entry in report.type_variables if entry.kind not in _FOLLOWING]
    counted = collections.Counter(entry.reason for entry in causes or report.type_variables)
    top = counted.most_common(TOP_REASONS)
    reasons = "; ".join(f"{reason} ({count} x)" for reason, count in top)
    rest = f"; and {_count(len(counted) - len(top), 'more reason')}" if len(counted) > 3 else ""
    kept = _count(report.type_variables_float32, "type variable")
    return f"{kept} stay float32 because: {reasons}{rest}"


def _contractions(report: model.Report) -> list[str]:
    if not report.contractions:
        return []
    low = f"{report.contractions_low} of {report.contractions}"
    return [f"contractions (MatMul, Conv2D and their kind): {low} in {report.dtype}"]


def _weights(report: model.Report) -> str:
    before, after = report.weight_bytes_before, report.weight_bytes_after
    if not before:
        return "weights: none in float32"
    return f"weights: {_size(before)} -> {_size(after)} ({after / before:.2f} x)"


def _without_kernel(report: model.Report) -> list[str]:
    ops = [f"{op} ({count})" for op, count in report.ops_without_kernel.items()]
    return [f"no {report.dtype} kernel: {', '.join(ops)}"] if ops else []


def _kept(entries: Iterable[model.TypeVariableReport]) -> list[str]:
    """Returns a line per kind of reason, the most frequent first, and examples below it.

    Weights that only float32 ops read come last: they follow from what is above them.
    """
    by_kind: dict[str, list[model.TypeVariableReport]] = {}
    for entry in entries:
        by_kind.setdefault(entry.kind, []).append(entry)
    lines = []
    ordered = sorted(
        by_kind.items(), key=lambda item: (item[0] == Kind.CONSUMERS.name, -len(item[1]), item[0])
    )
    for kind, members in ordered:
        heading = f" ({HEADINGS[kind]})" if kind in HEADINGS else ""
        lines.append(f"  {kind}: {len(members)}{heading}")
        lines += [f"    {_example(entry)}" for entry in _examples(members)]
        if len(members) > EXAMPLES:
            lines.append("    ..")
    return lines


def _examples(
    entries: Sequence[model.TypeVariableReport],
) -> Sequence[model.TypeVariableReport]:
    """Returns the first entries, of different ops as far as there are any."""
    first_of_op = {entry.op: entry for entry in reversed(entries)}
    others = [entry for entry in entries if entry is not first_of_op[entry.op]]
    return [*reversed(first_of_op.values()), *others][:EXAMPLES]


def _example(entry: model.TypeVariableReport) -> str:
    place = "/".join(part for part in (entry.scope, entry.node) if part)
    return f"{entry.op} `{place}`: {entry.reason}"


def _warnings(warnings: Iterable[str]) -> list[str]:
    by_kind: dict[str, list[str]] = {}
    for warning in warnings:
        by_kind.setdefault(_VARYING.sub("..", warning), []).append(warning)
    return [
        f"warning: {texts[0]}" + (f" (and {len(texts) - 1} more like it)" if texts[1:] else "")
        for texts in by_kind.values()
    ]


def _closing(report: model.Report) -> str:
    elapsed = f"{report.elapsed_s:.2f} s"
    if not report.destination:
        return f"took {elapsed}"
    if report.lowered_nothing:
        return f"`{report.destination}` computes in float32, as its input does ({elapsed})"
    return f"written to `{report.destination}` ({elapsed})"


def _size(count: int) -> str:
    """Returns bytes in the largest unit that they fill; 1 MB is 10**6 bytes."""
    for factor, unit in _UNITS:
        if count >= factor > 1:
            return f"{count / factor:.2f} {unit}"
    return f"{count} bytes"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
