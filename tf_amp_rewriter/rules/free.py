"""Which values are free: weights, and what is computed from weights alone.

A free value exists in either precision at no cost while the model runs, so it neither makes its
consumers low nor keeps them from it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

import numpy as np

from tf_amp_rewriter import dtypes
from tf_amp_rewriter.dtypes import LowPrecision
from tf_amp_rewriter.ir import constants
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ir.flow import Flow
from tf_amp_rewriter.ops import handles
from tf_amp_rewriter.ops.attrs import attr_of
from tf_amp_rewriter.ops.folds import FOLDS, Values
from tf_amp_rewriter.ops.rows import Category
from tf_amp_rewriter.reasons import Kind
from tf_amp_rewriter.rules.rule import Role, Rule

# Constant computations of more values than this are not followed.
MAX_FOLDED_VALUES: Final = 4096


@dataclasses.dataclass(frozen=True)
class Free:
    """How a class is free.

    Attributes:
        flexible: it can simply be stored or computed in the low precision: a weight that fits, or
            a weight moved about by CLEAR ops.
        of_variable: all weights it comes from are variables.
        misfit: why the values that it holds do not fit; empty if they do, or if nobody knows.
        unclamped: why the values would not fit, though a low reader gets them clamped: what reads
            them in float32 gets them as they are.
        origin: the class where that was found.
        value: the values, where they are few and constant.
    """

    flexible: bool
    of_variable: bool
    misfit: str = ""
    unclamped: str = ""
    origin: int = -1
    value: Values | None = None


def analyse(
    flow: Flow, rules: Sequence[Rule], order: Sequence[int], low: LowPrecision
) -> list[Free | None]:
    """Returns for each class how it is free; None for one that is not.

    Args:
        flow: the program graph.
        rules: the rule of each class.
        order: all classes, sources before readers as far as cycles allow.
        low: the low precision.
    """
    result: list[Free | None] = [None] * len(rules)
    for number in order:
        result[number] = _free(number, flow, rules, result, low)
    return result


def _free(
    number: int,
    flow: Flow,
    rules: Sequence[Rule],
    known: Sequence[Free | None],
    low: LowPrecision,
) -> Free | None:
    rule = rules[number]
    is_variable = number in flow.variable_of and rule.role is not Role.TABLE
    if is_variable or rule.role in (Role.CONSTANT, Role.CAPTURED):
        if rule.role is Role.VARIABLE and flow.variables[flow.variable_of[number]].mutable:
            return None
        misfit = rule.detail if rule.kind is Kind.RANGE else ""
        unclamped = "" if rule.in_place else rule.unclamped
        value = _constant(flow, number) if rule.role is Role.CONSTANT else None
        if value is not None and rule.in_place:
            value = dtypes.clamped(value, rule.limit)
        is_variable = rule.role is Role.VARIABLE
        return Free(rule.eligible, is_variable, misfit, unclamped, number, value)
    sources = flow.sources[number]
    if not sources or rule.role is Role.TABLE or number in flow.pinned:
        return None
    if rule.kind in (Kind.UNKNOWN_OP, Kind.USER) or rule.category is Category.ALLOW:
        return None
    if rule.category is not Category.CLEAR and not _reads_constants_else(flow, number):
        return None
    frees = [known[source] for source in sources]
    if any(free is None for free in frees):
        return None
    return _computed(number, flow, rule, [free for free in frees if free is not None], known, low)


def _computed(
    number: int,
    flow: Flow,
    rule: Rule,
    frees: Sequence[Free],
    known: Sequence[Free | None],
    low: LowPrecision,
) -> Free:
    value = _fold(number, flow, known)
    moves = rule.category is Category.CLEAR and rule.eligible
    # What moves clamped values is clamped as they are; what computes has computed with the others.
    clamped = next((f for f in frees if f.unclamped and moves), None)
    unclamped = clamped.unclamped if clamped is not None else ""
    if value is not None and clamped is None:
        misfit, origin = dtypes.misfit(value, low), number
    else:
        # A DENY op makes something else of its input: 1 / sqrt(146335) fits.
        misfits = ((f.misfit or ("" if moves else f.unclamped), f.origin) for f in frees)
        is_other = rule.category is Category.DENY
        misfit, origin = next((bad for bad in misfits if bad[0] and not is_other), ("", -1))
    if clamped is not None and not misfit:
        origin = clamped.origin
    flexible = moves and not misfit and all(free.flexible for free in frees)
    of_variable = flexible and all(free.of_variable for free in frees)
    return Free(flexible, of_variable, misfit, unclamped, origin, value)


def _constant(flow: Flow, number: int) -> Values | None:
    node = flow.program.node_of(flow.members[number][0])
    assert node.proto is not None
    tensor = attr_of(node.proto, "value").tensor
    if constants.num_values(tensor) > MAX_FOLDED_VALUES:
        return None
    values = constants.values(tensor)
    shape = tuple(dim.size for dim in tensor.tensor_shape.dim)
    if values.size == constants.num_values(tensor):
        return values.reshape(shape)
    return np.full(shape, values[-1]) if values.size == 1 else None


def _fold(number: int, flow: Flow, known: Sequence[Free | None]) -> Values | None:
    """Returns what a small constant computation gives."""
    members = flow.members[number]
    place = flow.program.type_vars[members[0]]
    scope = flow.program.scopes[place.scope]
    node = scope.nodes[place.node]
    if len(members) != 1 or node.op not in FOLDS:
        return None
    values = []
    for producer, port in node.inputs:
        source = scope.nodes[producer]
        free = known[flow.class_of[source.out_vars[port if source.known else 0]]]
        if free is None or free.value is None:
            return None
        values.append(free.value)
    with np.errstate(all="ignore"):
        try:
            result = np.asarray(FOLDS[node.op](*values), np.float32)
        except ValueError:  # shapes that do not agree: TensorFlow will say so
            return None
    return result if result.size <= MAX_FOLDED_VALUES else None


def _reads_constants_else(flow: Flow, number: int) -> bool:
    """Returns whether all inputs of the class's node that are not float32 are constants.

    What a CLEAR op moves about is a weight wherever it moves it; what another op computes from a
    weight and, say, indices that were fed is an activation.
    """
    place = flow.program.type_vars[flow.members[number][0]]
    scope = flow.program.scopes[place.scope]
    node = scope.nodes[place.node]
    return all(
        scope.nodes[producer].op == handles.CONSTANT
        for (producer, _), var in zip(node.inputs, node.in_vars, strict=True)
        if var == ir.NO_VAR
    )
