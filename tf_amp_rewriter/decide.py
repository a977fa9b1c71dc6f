"""The deciding on one page: what each class becomes, and which spelling of the program gains most.

Some ops can become low only in another spelling: a function in a copy of its own, a batch norm of
the newest version, a value of a loop cast before it. Each is tried, and decided on as the first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from tf_amp_rewriter import classify
from tf_amp_rewriter.ir import build, variables
from tf_amp_rewriter.ir import flow as flows
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.options import Options
from tf_amp_rewriter.reasons import Decisions
from tf_amp_rewriter.rewrite import batch_norms_v1, face_calls, faces, invariants, respell
from tf_amp_rewriter.rules import assign
from tf_amp_rewriter.rules.rule import Rule

_MAX_NESTED_LOOPS: Final = 8  # around what the innermost reads in both precisions


@dataclasses.dataclass(frozen=True)
class Decided:
    """The program and what was decided for it, with the rules that this came from."""

    flow: flows.Flow
    rules: Sequence[Rule]
    decisions: Decisions


def decide(
    program: ir.Program, links: variables.Links, options: Options, fit: assign.VariableFit
) -> Decided:
    """Returns the program in the spelling that gains most, and its decisions.

    Args:
        program: the program as it was read.
        links: what the object graph tells of its variables.
        options: what was asked for.
        fit: whether the values of variables fit the low precision.

    Raises:
        errors.FlagError: a registered function fails, or a list of ops contradicts another.
    """
    decided = _once(program, links, options, fit)
    candidates = face_calls.candidates(program)
    if any(candidates):
        copied = _once(_split(program, candidates), links, options, fit)
        without = decided.flow, decided.decisions
        gaining = face_calls.gaining(copied.flow, copied.decisions, candidates, without)
        if gaining == candidates:
            decided = copied
        elif any(gaining):
            decided = _once(_split(program, gaining), links, options, fit)
    decided = _upgraded(decided, links, options, fit)
    spellings = respell.find(decided.flow, decided.decisions, options.low)
    if spellings:
        spelled = build.program(respell.respell(decided.flow.program, spellings))
        decided = _once(spelled, links, options, fit)
    for _ in range(_MAX_NESTED_LOOPS):
        mixed = invariants.mixed(decided.flow, decided.decisions)
        if not mixed:
            break
        split = build.program(invariants.split(decided.flow.program, mixed))
        decided = _once(split, links, options, fit)
    return decided


def _once(
    program: ir.Program, links: variables.Links, options: Options, fit: assign.VariableFit
) -> Decided:
    flow = flows.flow(program, links)
    rules = assign.assign(flow, options, fit)
    return Decided(flow, rules, classify.classify(flow, rules, options.low))


def _upgraded(
    decided: Decided, links: variables.Links, options: Options, fit: assign.VariableFit
) -> Decided:
    """Returns the program with old batch norms of the newest version where that makes them low.

    One may make the data of another low; one that stays float32 stays what it is.
    """
    first = decided
    places = batch_norms_v1.upgradable(decided.flow, decided.decisions)
    refused: batch_norms_v1.Places = frozenset()
    while places:
        newer = build.program(batch_norms_v1.upgrade(first.flow.program, places))
        decided = _once(newer, links, options, fit)
        lowered = batch_norms_v1.lowered(decided.flow, decided.decisions, places)
        refused |= places - lowered
        more = batch_norms_v1.upgradable(decided.flow, decided.decisions) - refused
        if lowered == places and not more:
            return decided
        places = lowered | more
    return first


def _split(program: ir.Program, functions: face_calls.Names) -> ir.Program:
    """Returns `program` with these functions of each graph copied; itself if there are none."""
    if not any(functions):
        return program
    copies = [faces.split(program, graph, names) for graph, names in enumerate(functions)]
    return build.program(copies)
