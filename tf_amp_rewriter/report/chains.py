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

from tf_amp_rewriter.ops.rows import Category
from tf_amp_rewriter.reasons import NO_CAUSE, Kind
from tf_amp_rewriter.report.trace import Trace
from tf_amp_rewriter.rules.rule import WEIGHTS, Role

READS, READ_BY = "reads", "is read by"
_SEEDS = (Role.TABLE, Role.CAST_UP, Role.CAST_DOWN)


@dataclasses.dataclass(frozen=True)
class Chain:
    """A way through the program.

    Attributes:
        steps: classes, from the one that is explained to the one that the reason comes from.
        relation: what each of them is to the next: `READS` or `READ_BY`.
    """

    steps: tuple[int, ...]
    relation: str = READS


class Chains:
    """The ways through one program; the searches are made when they are first needed."""

    def __init__(self, trace: Trace) -> None:
        """Searches nothing yet."""
        self.trace = trace
        self.flow = trace.flow
        self._from_causes: dict[int, Mapping[int, int]] = {}

    def of(self, number: int) -> Chain:
        """Returns why a class has its precision; of one step where that is its own affair."""
        decision = self.trace.decisions[number]
        if decision.low:
            return self._of_low(number)
        match decision.kind:
            case Kind.TAINTED | Kind.RANGE if decision.cause not in (NO_CAUSE, number):
                way = _way(self._from_cause(decision.cause), number)
                return Chain((*way[:-1], *self.of(way[-1]).steps)) if len(way) > 1 else Chain(way)
            case Kind.NOTHING_LOW:
                return Chain(_way(self._from_float32, number))
            case Kind.POSITION:
                return Chain(_way(self._to_positions, number), READ_BY)
            case Kind.CONTROL:
                return Chain(_way(self._to_control, number), READ_BY)
            case Kind.SUM:
                return Chain(self._round_loop(number), READ_BY)
            case Kind.CONSUMERS:
                return Chain((number, *self._reader(number)), READ_BY)
            case _:
                return Chain((number,))

    def _of_low(self, number: int) -> Chain:
        if self.trace.rules[number].category is Category.ALLOW:
            return Chain((number,))
        if self._is_weight(number):
            return Chain(_way(self._to_contractions, number), READ_BY)
        after = _way(self._from_contractions, number)
        if len(after) > 1 or number in self._from_contractions:
            return Chain(after)
        return Chain(_way(self._to_contractions, number), READ_BY)

    @functools.cached_property
    def _from_contractions(self) -> Mapping[int, int]:
        """The ways of low values to the contraction, table or Cast that they began at."""
        seeds = [n for n in self._lows if self._is_seed(n) and not self._is_weight(n)]
        return _search(
            seeds,
            self.flow.readers,
            lambda n: self.trace.decisions[n].low and not self._is_weight(n),
        )

    @functools.cached_property
    def _to_contractions(self) -> Mapping[int, int]:
        """The ways of low values to the contraction that reads them."""
        seeds = [n for n in self._lows if self._is_seed(n)]
        return _search(seeds, self.flow.sources, lambda n: self.trace.decisions[n].low)

    @functools.cached_property
    def _from_float32(self) -> Mapping[int, int]:
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
    def _to_positions(self) -> Mapping[int, int]:
        roots = [number for number, rule in enumerate(self.trace.rules) if rule.positions]
        return self._upstream(roots, Kind.POSITION)

    @functools.cached_property
    def _to_control(self) -> Mapping[int, int]:
        return self._upstream(sorted(self.flow.steering), Kind.CONTROL)

    def _upstream(self, roots: Iterable[int], kind: Kind) -> Mapping[int, int]:
        decisions = self.trace.decisions
        return _search(roots, self.flow.sources, lambda number: decisions[number].kind is kind)

    def _from_cause(self, cause: int) -> Mapping[int, int]:
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

    def _round_loop(self, number: int) -> tuple[int, ...]:
        """Returns the way of a sum once round its loop, back to itself."""
        decisions = self.trace.decisions
        back = _search(
            [number], self.flow.sources, lambda source: decisions[source].kind is Kind.SUM
        )
        first = next((r for r in self.flow.readers[number] if r in back and r != number), None)
        return (number,) if first is None else (number, *_way(back, first))

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
) -> Mapping[int, int]:
    """Returns of each class that is reached the one before it; -1 for those it starts at."""
    before = dict.fromkeys(starts, NO_CAUSE)
    queue = collections.deque(before)
    while queue:
        number = queue.popleft()
        for other in near[number]:
            if other not in before and is_part(other):
                before[other] = number
                queue.append(other)
    return before


def _way(before: Mapping[int, int], number: int) -> tuple[int, ...]:
    way = [number]
    while (next_one := before.get(way[-1], NO_CAUSE)) != NO_CAUSE:
        way.append(next_one)
    return tuple(way)
