"""Which values are free: weights, and what is computed from weights alone.

A free value exists in either precision at no cost while the model runs, so it neither makes its
consumers low nor keeps them from it, and it is never tainted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ir.flow import Flow
from tf_amp_rewriter.ops import handles
from tf_amp_rewriter.ops.rows import Category
from tf_amp_rewriter.reasons import Kind
from tf_amp_rewriter.rules.rule import Role, Rule


@dataclasses.dataclass(frozen=True, slots=True)
class Free:
    """How a class is free.

    Attributes:
        flexible: it can simply be stored or computed in the low precision: a weight that fits, or
            a weight moved about by CLEAR ops.
        of_variable: all weights it comes from are variables.
        misfit: a class of a constant that does not fit and that it holds the values of; -1 if none.
    """

    flexible: bool
    of_variable: bool
    misfit: int = -1


def analyse(flow: Flow, rules: Sequence[Rule], order: Sequence[int]) -> list[Free | None]:
    """Returns for each class how it is free; None for one that is not.

    Args:
        flow: the program graph.
        rules: the rule of each class.
        order: all classes, sources before readers as far as cycles allow.
    """
    result: list[Free | None] = [None] * len(rules)
    for number in order:
        result[number] = _free(number, flow, rules, result)
    return result


def _free(
    number: int, flow: Flow, rules: Sequence[Rule], known: Sequence[Free | None]
) -> Free | None:
    rule = rules[number]
    is_variable = number in flow.variable_of and rule.role is not Role.TABLE
    if is_variable or rule.role in (Role.CONSTANT, Role.CAPTURED):
        if rule.role is Role.VARIABLE and flow.variables[flow.variable_of[number]].mutable:
            return None
        misfit = number if rule.kind is Kind.RANGE else -1
        return Free(rule.eligible, rule.role is Role.VARIABLE, misfit)
    sources = flow.sources[number]
    if not sources or rule.role is Role.TABLE or number in flow.pinned:
        return None
    if rule.kind in (Kind.UNKNOWN_OP, Kind.USER) or rule.category is Category.ALLOW:
        return None
    if rule.category is not Category.CLEAR and not _reads_constants_else(flow, number):
        return None
    frees = [known[source] for source in sources]
    if not all(frees):
        return None
    misfit = -1
    if rule.category in (Category.CLEAR, Category.INFER):
        misfit = max(free.misfit for free in frees if free is not None)
    moves = rule.category is Category.CLEAR and rule.eligible
    flexible = moves and misfit < 0 and all(free.flexible for free in frees if free is not None)
    of_variable = flexible and all(free.of_variable for free in frees if free is not None)
    return Free(flexible, of_variable, misfit)


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
