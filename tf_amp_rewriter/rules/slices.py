"""Parts of a program that stay float32 for what they lead to, whatever their own ops are.

Each is found by a sweep from the ops that need it so; a sweep visits a class once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np

from tf_amp_rewriter import dtypes
from tf_amp_rewriter.dtypes import LowPrecision
from tf_amp_rewriter.ir import constants, reach
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ir.flow import Flow
from tf_amp_rewriter.ops.attrs import attr_of
from tf_amp_rewriter.ops.exactness import (
    ANGLES,
    DIVISIONS,
    EXACT_READERS,
    GUARDS,
    OVERFLOWING,
    PROBABILITIES,
    ROOTS,
    SINGULAR,
)
from tf_amp_rewriter.ops.front_ends import LINEAR, LOGARITHMS, MAGNITUDES
from tf_amp_rewriter.ops.rows import Category
from tf_amp_rewriter.reasons import Kind
from tf_amp_rewriter.rules.rule import WEIGHTS, Role, Rule, kept

Ops = Sequence[frozenset[str]]  # op types, by class


def keep_positions(flow: Flow, rules: Sequence[Rule]) -> list[Rule]:
    """Keeps float32 all that computes a size, an index or an integer, back to the contractions.

    A contraction of what is no feature, but was counted (a running sum of a mask as a product with
    a triangle) computes a position itself: it stays float32, too.
    """
    roots = [number for number, rule in enumerate(rules) if rule.positions]
    features = [
        number
        for number, rule in enumerate(rules)
        if rule.role is Role.TABLE or (number in flow.pinned and rule.role not in WEIGHTS)
    ]
    behind = _behind_contractions(flow, rules, features) if roots else frozenset()
    return _keep_to_contractions(flow, roots, rules, Kind.POSITION, behind)


def keep_angles(flow: Flow, ops: Ops, rules: Sequence[Rule]) -> list[Rule]:
    """Keeps float32 what computes an angle of positions, contractions included.

    In half the angles of position 1000 are a quarter of a radian apart. An angle that is a learned
    feature, behind another contraction, is as exact as that.
    """
    roots = [number for number in range(len(rules)) if ops[number] <= ANGLES]
    result = list(rules)
    if roots:
        behind = _behind_contractions(flow, rules)
        for number in _upstream(
            flow, roots, lambda source: rules[source].role in WEIGHTS or source in behind
        ):
            detail = "an angle is computed of it, which would lose whole turns of its argument"
            result[number] = kept(result[number], Kind.CONDITION, detail)
    return result


def keep_overflowing(flow: Flow, ops: Ops, rules: Sequence[Rule], low: LowPrecision) -> list[Rule]:
    """Keeps float32 the contractions of squares, which overflow half.

    A square is computed in float32, but the contraction that reads it would round it to half: of
    more than 255 it is infinite there. What is computed from weights alone does not count.
    """
    result = list(rules)
    if low != dtypes.HALF:
        return result
    for number, rule in enumerate(rules):
        if rule.category is Category.ALLOW and rule.eligible:
            for source in _sources_before_clear(flow, rules, number):
                if _overflows(flow, ops, rules, source) and not _is_of_weights(flow, rules, source):
                    detail = f"it reads the result of {min(ops[source])}, which may overflow"
                    result[number] = kept(rule, Kind.CONDITION, detail)
    return result


def _overflows(flow: Flow, ops: Ops, rules: Sequence[Rule], number: int) -> bool:
    if rules[number].kind is not Kind.DENY or not ops[number] <= OVERFLOWING:
        return False
    node = flow.program.node_of(flow.members[number][0])
    if node.op != "Pow":
        return True
    scope = flow.program.scopes[flow.program.type_vars[flow.members[number][0]].scope]
    exponent = scope.nodes[node.inputs[1][0]]
    if exponent.op != "Const" or exponent.proto is None:
        return True
    values = constants.values(attr_of(exponent.proto, "value").tensor)
    return not np.all((values >= 0) & (values <= 1))


def _behind_contractions(
    flow: Flow, rules: Sequence[Rule], others: Sequence[int] = ()
) -> frozenset[int]:
    """Returns what is computed from the result of a contraction, or of `others`."""
    roots = [number for number, rule in enumerate(rules) if rule.category is Category.ALLOW]
    roots.extend(others)
    readers = {reader for root in roots for reader in flow.readers[root]}
    return frozenset(reach.closure(readers, lambda number: flow.readers[number]))


def _sources_before_clear(flow: Flow, rules: Sequence[Rule], number: int) -> set[int]:
    """Returns what a class reads, seen through CLEAR ops."""

    def near(reader: int) -> Sequence[int]:
        is_clear = reader == number or rules[reader].category is Category.CLEAR
        return flow.sources[reader] if is_clear else ()

    return reach.closure([number], near) - {number}


def _is_of_weights(flow: Flow, rules: Sequence[Rule], number: int) -> bool:
    """Returns whether a class is computed from weights alone."""

    def near(reader: int) -> Sequence[int]:
        return () if rules[reader].role in WEIGHTS else flow.sources[reader]

    computed = reach.closure([number], near)
    return all(rules[n].role in WEIGHTS or flow.sources[n] for n in computed)


def keep_control(flow: Flow, rules: Sequence[Rule]) -> list[Rule]:
    """Keeps float32 what loops and branches hang on, back to the contractions.

    A threshold that is passed one step later changes more than the rounding of a value.
    """
    roots = [
        number
        for number in sorted(flow.steering)
        if rules[number].category is not Category.ALLOW and not rules[number].by_user
    ]
    result = list(rules)
    for number in roots:
        if rules[number].role not in WEIGHTS:
            result[number] = kept(result[number], Kind.CONTROL)
    return _keep_to_contractions(flow, roots, result, Kind.CONTROL)


def _keep_to_contractions(
    flow: Flow,
    roots: Sequence[int],
    rules: Sequence[Rule],
    kind: Kind,
    behind: Collection[int] | None = None,
) -> list[Rule]:
    """Keeps float32 what `roots` read, back to the contractions, or to those in `behind`."""

    def stops(source: int) -> bool:
        is_end = rules[source].category is Category.ALLOW and (behind is None or source in behind)
        return rules[source].role in WEIGHTS or is_end

    result = list(rules)
    for number in _upstream(flow, roots, stops):
        result[number] = kept(result[number], kind)
    return result


def keep_log_magnitudes(flow: Flow, ops: Ops, rules: Sequence[Rule]) -> list[Rule]:
    """Keeps float32 the linear front-end of a log spectrum.

    A contraction rounds relative to its largest values; the logarithm of a power makes its smallest
    values count as much. So the contractions before the power stay float32, back to the first op
    that is not linear. Without a power between contraction and logarithm nothing is kept.
    Source: measured on a pitch tracker with a constant-Q transform of convolutions: its outputs are
    off by 2.6 % of their range in half without this, and by 0.13 % with it.
    """
    front_end = LINEAR | MAGNITUDES

    def stops(source: int) -> bool:
        is_linear = rules[source].category is Category.ALLOW or ops[source] <= front_end
        return rules[source].role in WEIGHTS or not is_linear

    roots = [number for number in range(len(rules)) if ops[number] <= LOGARITHMS]
    part = {*roots, *_upstream(flow, roots, stops)}
    powers = [number for number in part if ops[number] & MAGNITUDES]
    result = list(rules)
    for number in {*_upstream(flow, powers, stops), *_downstream(flow, powers, part)}:
        detail = "a logarithm of a power of it would magnify the rounding of small values"
        result[number] = kept(result[number], Kind.CONDITION, detail)
    return result


def keep_singular_probabilities(flow: Flow, ops: Ops, rules: Sequence[Rule]) -> list[Rule]:
    """Keeps float32 what lies between a bounded function and a logarithm or reciprocal of it.

    log(1 - sigmoid(x)) is -9 at x = 9 in float32, and minus infinity where 1 - sigmoid(9) is 0.
    """
    roots = {number: _singular_inputs(flow, ops, number) for number in range(len(rules))}
    starts = [s for inputs in roots.values() for s in inputs if rules[s].role not in WEIGHTS]
    part = set(starts) | set(
        _upstream(
            flow,
            starts,
            lambda source: (
                rules[source].role in WEIGHTS
                or rules[source].category not in (Category.INFER, Category.CLEAR)
            ),
            lambda source: bool(ops[source] & PROBABILITIES),
        )
    )
    ends = [number for number in part if ops[number] & PROBABILITIES]
    singular = {number for number, inputs in roots.items() if inputs}
    result = list(rules)
    for number in _downstream(flow, ends, part | singular):
        detail = "a logarithm or reciprocal of it would magnify its rounding"
        result[number] = kept(result[number], Kind.CONDITION, detail)
    return result


def keep_small_divisors(
    flow: Flow, ops: Ops, rules: Sequence[Rule], low: LowPrecision
) -> list[Rule]:
    """Keeps float32 the constants that guard a division or logarithm and would partly become 0.

    0 / (0 + epsilon) is 0 in float32, and not a number where one epsilon of a vector is 0.
    """
    starts = {
        start
        for number in range(len(rules))
        for start in _singular_inputs(flow, ops, number, SINGULAR | ROOTS)
    }
    guards = starts | set(
        _upstream(
            flow,
            list(starts),
            lambda source: rules[source].role is not Role.CONSTANT and not ops[source] <= GUARDS,
        )
    )
    result = list(rules)
    for number in guards:
        if rules[number].role is Role.CONSTANT and rules[number].eligible:
            node = flow.program.node_of(flow.members[number][0])
            assert node.proto is not None
            values = constants.values(attr_of(node.proto, "value").tensor)
            if np.any((dtypes.round_to(values, low) == 0) & (values != 0)):
                detail = f"holds a divisor that {low.name} would make 0"
                result[number] = kept(result[number], Kind.RANGE, detail)
    return result


def keep_exact_tables(flow: Flow, ops: Ops, rules: Sequence[Rule]) -> list[Rule]:
    """Keeps float32 the tables whose rows only ops read that need exact values."""
    result = list(rules)
    for number, rule in enumerate(rules):
        if rule.role is not Role.TABLE or not rule.eligible:
            continue
        readers = _readers_behind_clear(flow, rules, number)
        if readers and all(rules[r].positions or ops[r] <= EXACT_READERS for r in readers):
            result[number] = kept(
                result[number], Kind.CONDITION, "all that reads it needs its exact values"
            )
    return result


def _readers_behind_clear(flow: Flow, rules: Sequence[Rule], number: int) -> set[int]:
    """Returns the classes that read `number`, seen through CLEAR ops."""
    readers: set[int] = set()
    stack, seen = [number], {number}
    while stack:
        for reader in flow.readers[stack.pop()]:
            if rules[reader].category is not Category.CLEAR or reader in flow.pinned:
                readers.add(reader)
            elif reader not in seen:
                seen.add(reader)
                stack.append(reader)
    return readers


def _singular_inputs(
    flow: Flow, ops: Ops, number: int, singular: frozenset[str] = SINGULAR
) -> list[int]:
    """Returns the classes of which the op of `number` is a logarithm or a reciprocal."""
    if not ops[number] <= singular | DIVISIONS or len(flow.members[number]) != 1:
        return []
    place = flow.program.type_vars[flow.members[number][0]]
    scope = flow.program.scopes[place.scope]
    node = scope.nodes[place.node]
    if node.op in singular:
        return list(flow.sources[number])
    if node.op not in DIVISIONS:
        return []
    producer, port = node.inputs[1]
    source = scope.nodes[producer]
    var = source.out_vars[port if source.known else 0]
    return [flow.class_of[var]] if var != ir.NO_VAR else []


def _downstream(flow: Flow, ends: Sequence[int], part: Collection[int]) -> Iterator[int]:
    """Yields `ends` and what reads them within `part`."""
    stack, seen = list(ends), set(ends)
    while stack:
        number = stack.pop()
        yield number
        for reader in flow.readers[number]:
            if reader in part and reader not in seen:
                seen.add(reader)
                stack.append(reader)


def _upstream(
    flow: Flow,
    roots: Sequence[int],
    stops: Callable[[int], bool],
    ends: Callable[[int], bool] = lambda _: False,
) -> Iterator[int]:
    """Yields the classes that `roots` read, directly or through others.

    Those that stop are left out, with all behind them; those that end the search are its last.
    """
    stack, seen = [root for root in roots if not ends(root)], set(roots)
    while stack:
        for source in flow.sources[stack.pop()]:
            if source not in seen and not stops(source):
                seen.add(source)
                yield source
                if not ends(source):
                    stack.append(source)


def ops_of(flow: Flow) -> list[frozenset[str]]:
    """Returns the op types of each class."""
    known: dict[str, frozenset[str]] = {}
    return [
        frozenset(flow.program.node_of(var).op for var in members)
        if len(members) > 1
        else known.setdefault(op := flow.program.node_of(members[0]).op, frozenset({op}))
        for members in flow.members
    ]
