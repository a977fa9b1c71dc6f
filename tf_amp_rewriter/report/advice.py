"""Which flag would change the precision of a type variable, as far as one would."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Final

from tf_amp_rewriter import dtypes
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ir import shapes
from tf_amp_rewriter.ops import calls, categories, conditions, devices, handles, kernels
from tf_amp_rewriter.ops.rows import Category, OpRow
from tf_amp_rewriter.options import Options
from tf_amp_rewriter.reasons import NO_CAUSE, Kind
from tf_amp_rewriter.report.trace import Trace
from tf_amp_rewriter.rules.rule import WEIGHTS, Role

_LOWERING: Final = (Category.ALLOW, Category.INFER, Category.CLEAR)
_FLAGS: Final = frozenset(field.name for field in dataclasses.fields(Options))
# Kinds whose reason no flag changes, and what one can do all the same.
_NO_FLAG: Final = {
    Kind.CONSUMERS: "no flag: it follows the ops that read it; explain those",
    Kind.FREE: "no flag of its own: it follows the ops that read it; `--keep_float32` on those",
    Kind.PINNED: "no flag: the outside of the model stays as it is",
    Kind.UNKNOWN_OP: "no flag: without the op's definition nobody can change its types",
}
_RISKS: Final = {
    Kind.CONTROL: "; a loop or branch may go another way",
    Kind.DENY: "; mind why it is float32",
    Kind.POSITION: "; sizes or indices may change",
    Kind.SUM: "; the sum may stall",
    Kind.TAINTED: "; mind where the taint comes from",
}


def advice(trace: Trace, var: int) -> list[str]:
    """Returns what would change the precision of a type variable, a line each; never nothing."""
    number = trace.flow.class_of[var]
    kind = trace.decisions[number].kind
    leaves = kind is Kind.PINNED and not _is_fixed(trace, number)
    if kind in _NO_FLAG and not leaves:
        return [_NO_FLAG[kind]]
    low = trace.decisions[number].low
    found = [*(_to_float32(trace, var) if low else _to_low(trace, var))]
    return found or ["no flag that we know of"]


def _to_float32(trace: Trace, var: int) -> Iterator[str]:
    node = trace.flow.program.node_of(var)
    if _has_row(node) or node.op == handles.CAST:
        yield f"--keep_float32 '^{re.escape(trace.path(var))}$'   keeps this node float32"
    else:
        yield "no flag of its own: `--keep_float32` on what it reads, or on what reads it"


def _to_low(trace: Trace, var: int) -> Iterator[str]:
    node, options = trace.flow.program.node_of(var), trace.options
    kind = trace.decisions[trace.flow.class_of[var]].kind
    if kind is Kind.USER:
        yield from _without_users_flag(trace, var)
        return
    if Kind.RANGE in (kind, _kind_of_cause(trace, var)):
        if "saturate" in _FLAGS:
            yield "--saturate   clamps what overflows to the largest value that fits"
        if options.low == dtypes.HALF:
            yield "--dtype bfloat16   has the range of float32"
    if kind is Kind.RANGE or not _has_row(node):
        return
    yield from _other_targets(trace, var)
    if kind is Kind.NO_KERNEL or not _may_be_listed(trace, var):
        return
    risk = _RISKS.get(kind, "")
    yield f"--force_low '^{re.escape(trace.path(var))}$'   makes this node low{risk}"
    yield f"--allow_ops {node.op}   makes every {node.op} low{risk}"


def _kind_of_cause(trace: Trace, var: int) -> Kind | None:
    cause = trace.decisions[trace.flow.class_of[var]].cause
    return trace.decisions[cause].kind if cause != NO_CAUSE else None


def _without_users_flag(trace: Trace, var: int) -> Iterator[str]:
    op, options, path = trace.flow.program.node_of(var).op, trace.options, trace.path(var)
    if op in options.deny_ops or "*" in options.deny_ops:
        yield f"without --deny_ops {','.join(options.deny_ops)}"
    for pattern in options.keep_float32:
        if re.search(pattern, path):
            yield f"without --keep_float32 '{pattern}'"
    source = trace.rules[trace.flow.class_of[var]].source
    if source and not source.startswith("--"):
        yield f"without {source}"


def _other_targets(trace: Trace, var: int) -> Iterator[str]:
    """Yields the devices and dtypes for which a row, kernel or condition says more than now."""
    options, node = trace.options, trace.flow.program.node_of(var)
    if trace.decisions[trace.flow.class_of[var]].kind not in _OF_THE_TARGET:
        return
    assert node.proto is not None
    pinned = node.proto.device
    device = devices.effective_device(options.device, pinned)
    row = categories.row_for(node.op, options.low, device)
    if row is None or row.source != trace.rules[trace.flow.class_of[var]].source:
        return  # not the op's own row decides, but that of a pattern or of the user
    if _obstacle(trace, var, options.low, device) is None:
        return  # something else keeps it
    for other in ("gpu", "cpu"):
        moved = devices.effective_device(other, pinned)
        if moved != device and _obstacle(trace, var, options.low, moved) is None:
            runs_on = {"gpu": "GPUs", "cpu": "CPUs"}[other]
            yield f"--device {other}   if it runs on {runs_on} alone: {node.op} may be low there"
    for name, low in dtypes.LOW_PRECISIONS.items():
        if low != options.low and _obstacle(trace, var, low, device) is None:
            yield f"--dtype {name}   in which {node.op} may be low"


_OF_THE_TARGET: Final = (Kind.CONDITION, Kind.DENY, Kind.KEEP, Kind.NO_KERNEL)


def _obstacle(trace: Trace, var: int, low: dtypes.LowPrecision, device: str) -> Kind | None:
    """Returns what the tables say against lowering a type variable for a dtype and a device."""
    program = trace.flow.program
    place, node = program.type_vars[var], program.node_of(var)
    assert node.proto is not None
    row = categories.row_for(node.op, low, device)
    if row is None or row.category not in _LOWERING or not _names(row, place.attr):
        return Kind.KEEP
    if not kernels.has_kernel(node.op, place.attr, low, device):
        return Kind.NO_KERNEL
    if row.condition:
        found = shapes.input_shapes(program.scopes[place.scope], node)
        facts = conditions.NodeFacts(node.proto, low, device, found)
        if conditions.CONDITIONS[row.condition](facts):
            return Kind.CONDITION
    return None


def _is_fixed(trace: Trace, number: int) -> bool:
    """Returns whether outsiders need a class as it is; else it is low where a user says so."""
    return number in trace.flow.pinned or number in trace.flow.variable_of


def _may_be_listed(trace: Trace, var: int) -> bool:
    """Returns whether `--allow_ops` with its op makes a type variable low."""
    program, number = trace.flow.program, trace.flow.class_of[var]
    place, node = program.type_vars[var], program.node_of(var)
    assert node.proto is not None
    places = {(program.type_vars[v].scope, program.type_vars[v].node) for v in _members(trace, var)}
    if len(places) > 1 or number in trace.flow.pinned or node.op in trace.options.allow_ops:
        return False
    device = devices.effective_device(trace.options.device, node.proto.device)
    row = categories.row_for(node.op, trace.options.low, device)
    if trace.rules[number].role in (*WEIGHTS, Role.SHAPE) or (
        row is not None and not _names(row, place.attr)
    ):
        return False
    return kernels.has_kernel(node.op, place.attr, trace.options.low, device)


def _members(trace: Trace, var: int) -> tuple[int, ...]:
    return tuple(trace.flow.members[trace.flow.class_of[var]])


def _names(row: OpRow, attr: str) -> bool:
    return not row.attrs or attr in row.attrs


def _has_row(node: ir.Node) -> bool:
    """Returns whether tables and lists decide about the node, and not its own meaning."""
    own = node.op in calls.CALLS or node.op in (handles.CONSTANT, handles.CAST)
    return node.known and node.proto is not None and not own
