"""Everything that a run knows -> `Report`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence

from tf_amp_rewriter.ir import constants
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ops import categories, devices, handles
from tf_amp_rewriter.ops.attrs import attr_of
from tf_amp_rewriter.ops.rows import Category
from tf_amp_rewriter.report import model
from tf_amp_rewriter.report.trace import Trace, attribute
from tf_amp_rewriter.rewrite.apply import Edited
from tf_amp_rewriter.saved_model.checkpoint import Checkpoint

_FLOAT_BYTES = 4
_LOW_BYTES = 2


def build(
    trace: Trace, edited: Edited, checkpoint: Checkpoint | None, warnings: Sequence[str]
) -> model.Report:
    """Returns the report of a run; source, destination and time are left empty."""
    options = trace.options
    weights = (
        *_variables(trace, checkpoint),
        *_constants(trace, edited),
    )
    type_variables = tuple(_type_variables(trace))
    contractions = _contractions(trace)
    low = sum(entry.precision != "float32" for entry in type_variables)
    return model.Report(
        source="",
        destination="",
        dtype=options.dtype,
        device=options.device,
        type_variables_low=low,
        type_variables_float32=len(type_variables) - low,
        contractions=len(contractions),
        contractions_low=sum(contractions),
        casts=edited.casts,
        weight_bytes_before=sum(weight.bytes_before for weight in weights),
        weight_bytes_after=sum(weight.bytes_after for weight in weights),
        type_variables=type_variables,
        weights=weights,
        warnings=tuple(warnings),
        trace=trace,
    )


def _type_variables(trace: Trace) -> Iterator[model.TypeVariableReport]:
    program = trace.flow.program
    reasons: dict[int, tuple[str, str]] = {}  # by class: sentence and cause
    for var, place in enumerate(program.type_vars):
        node = program.node_of(var)
        if place.attr == ir.FIXED or node.proto is None:
            continue  # fixed by the op's definition, or a function's face
        number = trace.flow.class_of[var]
        decision = trace.decisions[number]
        if number not in reasons:
            reasons[number] = trace.sentence(decision), trace.cause(decision)
        reason, cause = reasons[number]
        yield model.TypeVariableReport(
            scope=program.scopes[place.scope].name,
            node=node.name,
            op=node.op,
            attribute=attribute(place),
            precision=trace.precision(number),
            kind=decision.kind.name,
            reason=reason,
            cause=cause,
            source=trace.rules[number].source,
        )


def _contractions(trace: Trace) -> list[bool]:
    """Returns of each type variable of a contraction whether it is low."""
    options = trace.options

    @functools.cache
    def is_contraction(op: str, device: str) -> bool:
        row = categories.row_for(op, options.low, device)
        return row is not None and row.category is Category.ALLOW

    program = trace.flow.program
    result = []
    for var, place in enumerate(program.type_vars):
        node = program.node_of(var)
        if place.attr == ir.FIXED or node.proto is None:
            continue
        if is_contraction(node.op, devices.effective_device(options.device, node.proto.device)):
            result.append(trace.decisions[trace.flow.class_of[var]].low)
    return result


def _variables(trace: Trace, checkpoint: Checkpoint | None) -> Iterator[model.WeightReport]:
    for variable in trace.flow.variables:
        number = trace.flow.class_of[variable.type_vars[0]]
        decision = trace.decisions[number]
        for key in variable.keys:
            entry = checkpoint.entries.get(key) if checkpoint else None
            if entry is None:
                continue
            yield model.WeightReport(
                name=key,
                scope="",
                precision=trace.precision(number),
                bytes_before=entry.size,
                bytes_after=entry.size // 2 if decision.low else entry.size,
                reason=trace.sentence(decision),
            )


def _constants(trace: Trace, edited: Edited) -> Iterator[model.WeightReport]:
    flow = trace.flow
    for scope_index, scope in enumerate(flow.program.scopes):
        for index, node in enumerate(scope.nodes):
            if node.op != handles.CONSTANT or node.out_vars[0] == ir.NO_VAR or node.proto is None:
                continue
            count = constants.num_values(attr_of(node.proto, "value").tensor)
            if count < 2:
                continue
            place = (scope_index, index)
            is_converted, is_copied = place in edited.converted, place in edited.copied
            low_bytes = count * _LOW_BYTES if is_converted or is_copied else 0
            float_bytes = 0 if is_converted else count * _FLOAT_BYTES
            reason = trace.sentence(trace.decisions[flow.class_of[node.out_vars[0]]])
            if is_copied:
                reason = "both float32 and low precision ops read it, so it exists twice"
            yield model.WeightReport(
                name=node.name,
                scope=scope.name,
                precision=trace.options.dtype if is_converted else "float32",
                bytes_before=count * _FLOAT_BYTES,
                bytes_after=low_bytes + float_bytes,
                reason=reason,
            )


def with_places(
    report: model.Report, source: str, destination: str, elapsed_s: float
) -> model.Report:
    """Returns `report` with where it was read from, written to, and how long that took."""
    return dataclasses.replace(report, source=source, destination=destination, elapsed_s=elapsed_s)
