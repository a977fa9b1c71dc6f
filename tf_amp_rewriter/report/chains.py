"""From a value to the op that its precision comes from, along what reads what.

Each search runs over the whole program once, when it is first asked for, and keeps for every class
that it reaches the next one on the way: linear in the size of the program, however many nodes are
explained.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from tf_amp_rewriter.ops.rows import Category
from tf_amp_rewriter.reasons import NO_CAUSE, Kind
from tf_amp_rewriter.report.trace import Trace
from tf_amp_rewriter.rules.rule import CASTS_UP, WEIGHTS, Role

MAX_STEPS: Final = 10  # of a longer way the steps before its end are left out
READS, READ_BY = "reads", "is read by"
_SEEDS = (Role.TABLE, Role.CAST_DOWN, *CASTS_UP)


@dataclasses.dataclass(frozen=True)
class Chain:
    """A way through the program.

    Attributes:
        steps: classes, from the one that is explained to the one that the reason comes from; of a
            long way the first and the last.
        relation: what each of them is to the next: `READS` or `READ_BY`.
        left_out: number of classes left out.
        gap: index of the step in front of which they are left out.
    """

    steps: tuple[int, ...]
    relation: str = READS
    left_out: int = 0
    gap: int = 0

    def behind(self, *first: int) -> Chain:
        """Returns the chain with other steps in front."""
        return dataclasses.replace(
            self, steps=(*first, *self.steps), gap=self.gap + len(first) if self.left_out else 0
        )


@dataclasses.dataclass(frozen=True)
class _Ways:
    """The ways from all classes that a search reached to those where it began.

    Attributes:
        before: the next class on the way, -1 at its end.
        end: the class at the end.
        length: the number of steps to there.
    """

    before: Mapping[int, int]
    end: Mapping[int, int]
    length: Mapping[int, int]

    def of(self, number: int, relation: str = READS) -> Chain:
        """Returns the way from a class, which is only itself where the search did not come."""
        left_out = self.length.get(number, 0) + 1 - MAX_STEPS
        steps = [number]
        while len(steps) < MAX_STEPS - (left_out > 0):
            following = self.before.get(steps[-1], NO_CAUSE)
            if following == NO_CAUSE:
                break
            steps.append(following)
        if left_out > 0:
            return Chain((*steps, self.end[number]), relation, left_out, len(steps))
        return Chain(tuple(steps), relation)


class Chains:
    """The ways through one program; the searches are made when they are first needed."""

    def __init__(self, trace: Trace) -> None:
        """Searches nothing yet."""
        self.trace = trace
        self.flow = trace.flow
        self._from_causes: dict[int, _Ways] = {}

    def of(self, number: int) -> Chain:
        """Returns why a class has its precision; of one step where that is its own affair."""
        decision = self.trace.decisions[number]
        if decision.low:
            return self._of_low(number)
        match decision.kind:
            case Kind.TAINTED | Kind.RANGE if decision.cause not in (NO_CAUSE, number):
                way = self._from_cause(decision.cause).of(number)
                if way.left_out or len(way.steps) < 2:
                    return way
                return self.of(way.steps[-1]).behind(*way.steps[:-1])
            case Kind.NOTHING_LOW:
                return self._from_float32.of(number)
            case Kind.POSITION:
                return self._to_positions.of(number, READ_BY)
            case Kind.CONTROL:
                return self._to_control.of(number, READ_BY)
            case Kind.SUM:
                return self._round_loop(number)
            case Kind.CONSUMERS:
                return Chain((number, *self._reader(number)), READ_BY)
            case _:
                return Chain((number,))

    def _of_low(self, number: int) -> Chain:
        if self.trace.rules[number].category is Category.ALLOW:
            return Chain((number,))
        if self._is_weight(number):
            return self._to_contractions.of(number, READ_BY)
        if number in self._from_contractions.before:
            return self._from_contractions.of(number)
        return self._to_contractions.of(number, READ_BY)

    @functools.cached_property
    def _from_contractions(self) -> _Ways:
        """The ways of low values to the contraction, table or Cast that they began at."""
        seeds = [n for n in self._lows if self._is_seed(n) and not self._is_weight(n)]
        return _search(
            seeds,
            self.flow.readers,
            lambda n: self.trace.decisions[n].low and not self._is_weight(n),
        )

    @functools.cached_property
    def _to_contractions(self) -> _Ways:
        """The ways of low values to the contraction that reads them."""
        seeds = [n for n in self._lows if self._is_seed(n)]
        return _search(seeds, self.flow.sources, lambda n: self.trace.decisions[n].low)

    @functools.cached_property
    def _from_float32(self) -> _Ways:
        """The ways of values that nothing low flows into to what is float32 for another reason."""

        def follows(number: int) -> bool:
            return self.trace.decisions[number].kind is Kind.NOTHING_LOW

        starts = [
            number
            for number, decision in enumerate(self.trace.decisions)
            if not decision.low and not follows(number) and not self._is_weight(number)
        ]
        return _search(starts, self.flow.readers, follows)

    @functools.cached_property
    def _to_positions(self) -> _Ways:
        roots = [number for number, rule in enumerate(self.trace.rules) if rule.positions]
        return self._upstream(roots, Kind.POSITION)

    @functools.cached_property
    def _to_control(self) -> _Ways:
        return self._upstream(sorted(self.flow.steering), Kind.CONTROL)

    def _upstream(self, roots: Iterable[int], kind: Kind) -> _Ways:
        decisions = self.trace.decisions
        return _search(roots, self.flow.sources, lambda number: decisions[number].kind is kind)

    def _from_cause(self, cause: int) -> _Ways:
        """Returns the ways to the origin of a taint, along what hands it on."""
        if cause not in self._from_causes:
            decisions, rules = self.trace.decisions, self.trace.rules

            def hands_on(number: int) -> bool:
                if decisions[number].cause == cause:
                    return True
                is_clear = decisions[number].kind is Kind.CLEAR or self._is_weight(number)
                is_kept = not rules[number].eligible and not rules[number].bounded
                return decisions[number].cause == NO_CAUSE and (is_clear or is_kept)

            self._from_causes[cause] = _search([cause], self.flow.readers, hands_on)
        return self._from_causes[cause]

    def _round_loop(self, number: int) -> Chain:
        """Returns the way of a sum once round its loop, back to itself."""
        decisions = self.trace.decisions
        back = _search(
            [number], self.flow.sources, lambda source: decisions[source].kind is Kind.SUM
        )
        found = (r for r in self.flow.readers[number] if r in back.before and r != number)
        first = next(found, None)
        return Chain((number,)) if first is None else back.of(first, READ_BY).behind(number)

    def _reader(self, number: int) -> Sequence[int]:
        """Returns a reader of a class that is no weight itself, if there is one."""
        readers = sorted(self.flow.readers[number], key=lambda r: (self._is_weight(r), r))
        return readers[:1]

    @functools.cached_property
    def _lows(self) -> Sequence[int]:
        return [number for number, decision in enumerate(self.trace.decisions) if decision.low]

    def _is_seed(self, number: int) -> bool:
        rule = self.trace.rules[number]
        return rule.category is Category.ALLOW or rule.role in _SEEDS

    def _is_weight(self, number: int) -> bool:
        is_free = self.trace.decisions[number].kind in (Kind.FREE, Kind.CONSUMERS)
        return is_free or self.trace.rules[number].role in WEIGHTS


def _search(
    starts: Iterable[int], near: Sequence[Sequence[int]], is_part: Callable[[int], bool]
) -> _Ways:
    """Returns the ways from all classes that are reached back to `starts`."""
    before = dict.fromkeys(starts, NO_CAUSE)
    end = {number: number for number in before}
    length = dict.fromkeys(before, 0)
    queue = collections.deque(before)
    while queue:
        number = queue.popleft()
        for other in near[number]:
            if other not in before and is_part(other):
                before[other] = number
                end[other] = end[number]
                length[other] = length[number] + 1
                queue.append(other)
    return _Ways(before, end, length)
