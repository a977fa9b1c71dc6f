"""Everything that a run knows -> `Report`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence

from tf_amp_rewriter.ir import constants
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ir.flow import Flow
from tf_amp_rewriter.ops import categories, devices, handles
from tf_amp_rewriter.ops.attrs import attr_of
from tf_amp_rewriter.ops.rows import Category
from tf_amp_rewriter.options import Options
from tf_amp_rewriter.reasons import NO_CAUSE, Decision, Decisions, Kind
from tf_amp_rewriter.report import model, words
from tf_amp_rewriter.rewrite.apply import Edited
from tf_amp_rewriter.saved_model.checkpoint import Checkpoint

_FLOAT_BYTES = 4
_LOW_BYTES = 2


def build(
    flow: Flow,
    decisions: Decisions,
    edited: Edited,
    options: Options,
    checkpoint: Checkpoint | None,
    warnings: Sequence[str],
) -> model.Report:
    """Returns the report of a run; source, destination and time are left empty."""
    weights = (
        *_variables(flow, decisions, options, checkpoint),
        *_constants(flow, decisions, edited, options),
    )
    type_variables = tuple(_type_variables(flow, decisions, options))
    contractions = _contractions(flow, decisions, options)
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
    )


def _type_variables(
    flow: Flow, decisions: Decisions, options: Options
) -> Iterator[model.TypeVariableReport]:
    program = flow.program
    reasons: dict[int, tuple[str, str]] = {}  # by class: sentence and cause
    for var, place in enumerate(program.type_vars):
        node = program.node_of(var)
        if place.attr == ir.FIXED or node.proto is None:
            continue  # fixed by the op's definition, or a function's face
        number = flow.class_of[var]
        decision = decisions[number]
        if number not in reasons:
            reasons[number] = _sentence(flow, decisions, decision), _cause(flow, decision)
        reason, cause = reasons[number]
        yield model.TypeVariableReport(
            scope=program.scopes[place.scope].name,
            node=node.name,
            op=node.op,
            attribute=place.attr if place.index < 0 else f"{place.attr}[{place.index}]",
            precision=options.dtype if decision.low else "float32",
            kind=decision.kind.name,
            reason=reason,
            cause=cause,
        )


def _contractions(flow: Flow, decisions: Decisions, options: Options) -> list[bool]:
    """Returns of each type variable of a contraction whether it is low."""

    @functools.cache
    def is_contraction(op: str, device: str) -> bool:
        row = categories.row_for(op, options.low, device)
        return row is not None and row.category is Category.ALLOW

    program = flow.program
    result = []
    for var, place in enumerate(program.type_vars):
        node = program.node_of(var)
        if place.attr == ir.FIXED or node.proto is None:
            continue
        if is_contraction(node.op, devices.effective_device(options.device, node.proto.device)):
            result.append(decisions[flow.class_of[var]].low)
    return result


def _cause(flow: Flow, decision: Decision) -> str:
    if decision.cause == NO_CAUSE:
        return ""
    program, var = flow.program, flow.members[decision.cause][0]
    scope = program.scopes[program.type_vars[var].scope].name
    node = program.node_of(var).name
    return f"{scope}/{node}" if scope else node


def _sentence(flow: Flow, decisions: Decisions, decision: Decision) -> str:
    is_users = decision.cause != NO_CAUSE and decisions[decision.cause].kind is Kind.USER
    detail = words.OF_A_DENIED_OP if is_users else decision.detail
    return words.sentence(decision.kind, detail, _cause(flow, decision))


def _variables(
    flow: Flow, decisions: Decisions, options: Options, checkpoint: Checkpoint | None
) -> Iterator[model.WeightReport]:
    for variable in flow.variables:
        decision = decisions[flow.class_of[variable.type_vars[0]]]
        for key in variable.keys:
            entry = checkpoint.entries.get(key) if checkpoint else None
            if entry is None:
                continue
            yield model.WeightReport(
                name=key,
                scope="",
                precision=options.dtype if decision.low else "float32",
                bytes_before=entry.size,
                bytes_after=entry.size // 2 if decision.low else entry.size,
                reason=_sentence(flow, decisions, decision),
            )


def _constants(
    flow: Flow, decisions: Decisions, edited: Edited, options: Options
) -> Iterator[model.WeightReport]:
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
            decision = decisions[flow.class_of[node.out_vars[0]]]
            reason = _sentence(flow, decisions, decision)
            if is_copied:
                reason = "both float32 and low precision ops read it, so it exists twice"
            yield model.WeightReport(
                name=node.name,
                scope=scope.name,
                precision=options.dtype if is_converted else "float32",
                bytes_before=count * _FLOAT_BYTES,
                bytes_after=low_bytes + float_bytes,
                reason=reason,
            )


def with_places(
    report: model.Report, source: str, destination: str, elapsed_s: float
) -> model.Report:
    """Returns `report` with where it was read from, written to, and how long that took."""
    return dataclasses.replace(report, source=source, destination=destination, elapsed_s=elapsed_s)
