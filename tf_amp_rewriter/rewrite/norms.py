"""Writes a norm that is not spelled directly as one that is, before any precision is decided again.

Before (x is low; `x * f` overflows half where a row hardly varies):

    f = Mul(inverse, scale)
    p = Mul(x, f)
    q = Mul(mean, f)
    o = Sub(offset, q)
    y = AddV2(p, o)

After:

    y/centred = Sub(x, mean)
    y/normal = Mul(y/centred, inverse)
    y/scaled = Mul(y/normal, scale)
    y = AddV2(y/scaled, offset)

In exact arithmetic both are the same; in float32 the second one rounds less, as it subtracts first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Final

from tf_amp_rewriter.dtypes import DT_FLOAT, LowPrecision
from tf_amp_rewriter.ir import outsiders
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ir.flow import Flow
from tf_amp_rewriter.ops.exactness import HAND_ON
from tf_amp_rewriter.patterns import norms
from tf_amp_rewriter.patterns.norms import Input, Norm
from tf_amp_rewriter.patterns.view import View, view
from tf_amp_rewriter.reasons import Decisions, Kind
from tf_amp_rewriter.rewrite import names

_OUTPUT: Final = "z"  # the output argument of Add, AddV2, Mul, RealDiv and Sub


def indirect(flow: Flow, decisions: Decisions, low: LowPrecision) -> list[Norm]:
    """Returns the norms of low values that could be low, but for their spelling."""
    program = flow.program
    found = []
    for index, scope in enumerate(program.scopes):
        kept: frozenset[str] | None = None
        seen = view(program, index)
        for norm in norms.find(seen):
            removed = _between(seen, norm)
            var = scope.nodes[norm.x[0]].in_vars[norm.x[1]]
            source, port = scope.nodes[norm.x[0]].inputs[norm.x[1]]
            origin = scope.nodes[source].out_vars[port] if var != ir.NO_VAR else ir.NO_VAR
            if (
                not norm.is_direct
                and norm.fits(low)
                and removed is not None
                and origin != ir.NO_VAR
                and decisions[flow.class_of[origin]].low
                and not _is_of_user(flow, decisions, scope, (*removed, norm.end))
            ):
                kept = outsiders.needed_otherwise(program, scope) if kept is None else kept
                if kept.isdisjoint(scope.nodes[node].name for node in removed):
                    found.append(dataclasses.replace(norm, inner=removed))
    return found


def _is_of_user(flow: Flow, decisions: Decisions, scope: ir.Scope, nodes: tuple[int, ...]) -> bool:
    """Returns whether the user has decided about one of these nodes."""
    found = {var for node in nodes for var in scope.nodes[node].out_vars if var != ir.NO_VAR}
    return any(decisions[flow.class_of[var]].kind is Kind.USER for var in found)


def _between(seen: View, norm: Norm) -> tuple[int, ...] | None:
    """Returns the nodes to remove: the inner ones and those that hand their values on.

    None if something else reads one of them.
    """
    removed = list(norm.inner)
    for node in removed:  # grows
        for reader, _ in seen.readers.get((node, 0), ()):
            if reader in removed or reader == norm.end:
                continue
            if seen.op(reader) not in HAND_ON or not seen.readers.get((reader, 0)):
                return None
            removed.append(reader)
    return tuple(removed)


def respell(scope: ir.Scope, protos: ir.Protos, norm: Norm, taken: set[str]) -> None:
    """Spells a norm directly, in place; its inner nodes are left to be removed."""
    end = protos[norm.end - scope.num_args]
    steps = list(_steps(scope, norm))
    previous = _reference(scope, norm.x)
    for position, (part, op, ref) in enumerate(steps):
        refs = [previous, ref]
        if position == len(steps) - 1:
            end.op = op
            end.input[: len(refs)] = refs
            names.wait_for_all(end, [protos[node - scope.num_args] for node in norm.inner])
            return
        node = protos.add(name=names.unique(f"{end.name}/{part}", taken), op=op, input=refs)
        node.device = end.device
        node.attr["T"].type = DT_FLOAT
        previous = f"{node.name}:{_OUTPUT}:0" if scope.function >= 0 else node.name


def _steps(scope: ir.Scope, norm: Norm) -> Iterator[tuple[str, str, str]]:
    """Yields (name, op, what it reads besides the step before) of each step."""
    if norm.mean is not None:
        yield "centred", "Sub", _reference(scope, norm.mean)
    yield "normal", "RealDiv" if norm.divides else "Mul", _reference(scope, norm.factor)
    if norm.scale is not None:
        yield "scaled", "Mul", _reference(scope, norm.scale)
    if norm.offset is not None:
        yield "shifted", "AddV2", _reference(scope, norm.offset)


def _reference(scope: ir.Scope, place: Input) -> str:
    node, position = place
    return scope.nodes[node].refs[position]
