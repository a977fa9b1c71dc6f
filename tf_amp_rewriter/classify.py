"""The one topological pass: the precision of every class of type variables, with the reason.

On entry every class has its rule; on exit every class has its decision, and no value that a float32
op computes and a float32 op reads passes through the low precision on the way.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Sequence

from tf_amp_rewriter.dtypes import LowPrecision
from tf_amp_rewriter.ir.flow import Flow, topological_order
from tf_amp_rewriter.ops.exactness import SOFTMAX
from tf_amp_rewriter.ops.rows import Category
from tf_amp_rewriter.reasons import NO_CAUSE, Decision, Decisions, Kind
from tf_amp_rewriter.rules import free as free_values
from tf_amp_rewriter.rules.rule import CASTS_UP, WEIGHTS, Role, Rule

_FOLLOWERS = (Role.CAST_DOWN, Role.SHAPE)


def classify(flow: Flow, rules: Sequence[Rule], low: LowPrecision) -> Decisions:
    """Returns the decision of each class. Linear in nodes and edges.

    1. ALLOW is low if it is eligible.
    2. DENY, KEEP and what is not eligible stay float32. DENY, and what stays float32 because a
       constant does not fit, taint.
    3. INFER is low if no input is tainted, and one that is not free is low.
    4. CLEAR is low if all inputs that are not free are low, or if every consumer wants low. It
       passes taint on.
    5. Weights follow their consumers, and so do CLEAR ops on weights alone.
    6. What a loop reads at every step has the precision of all that reads it, if they agree: it is
       then cast once outside, and not at every step. So is what it carries, if all read it low.
    7. An island of low classes without an ALLOW op or a table goes back to float32.

    Cycles (a function called twice in a row, a loop): all start as low and untainted; a class is
    visited again when one that it reads changes, and changes go one way only, so this ends. What is
    then low only because its own cycle is goes back to float32.
    """
    order = topological_order(flow)
    passing = _Pass(flow, rules, free_values.analyse(flow, rules, order, low))
    passing.find_dead(order)
    passing.find_wants(order)
    passing.find_leaving(order)
    passing.run(order)
    passing.revert_groundless()
    passing.cast_before_loops(order)
    passing.settle_weights(order)
    passing.revert_islands()
    passing.settle_weights(order)
    passing.settle_clamps()
    return tuple(passing.decisions)


class _Pass:
    """The state of one run of the pass; lives only as long as `classify`."""

    def __init__(
        self, flow: Flow, rules: Sequence[Rule], free: Sequence[free_values.Free | None]
    ) -> None:
        self.flow = flow
        self.rules = list(rules)
        self.free = free
        size = len(rules)
        self.wants = [False] * size
        self.leaves = [False] * size  # all that reads it hands it to outsiders
        self.dead = [False] * size  # nothing that lives reads it
        self.taint = [NO_CAUSE] * size  # class at the origin of the taint
        self.decisions = [Decision(low=True, kind=Kind.CLEAR)] * size

    def find_dead(self, order: Sequence[int]) -> None:
        """Finds what nothing reads, such as the first step that Keras takes to see its shape."""
        for number in reversed(order):
            rule = self.rules[number]
            is_pure = rule.category in (Category.CLEAR, Category.INFER) and not rule.discrete
            self.dead[number] = (
                is_pure
                and rule.role is Role.NODE
                and number not in self.flow.pinned
                and all(self.dead[reader] for reader in self.flow.readers[number])
            )

    def find_wants(self, order: Sequence[int]) -> None:
        """Finds who wants low: an ALLOW op does, a CLEAR op does if all its consumers do."""
        queue = collections.deque(reversed(order))
        self.wants = [self.may_want(number) for number in range(len(self.rules))]
        queued = bytearray(b"\1") * len(self.rules)
        while queue:
            number = queue.popleft()
            queued[number] = 0
            rule = self.rules[number]
            if not self.wants[number] or rule.category is Category.ALLOW:
                continue
            if not self.all_consumers_want(number):
                self.wants[number] = False
                for source in self.flow.sources[number]:
                    if not queued[source]:
                        queued[source] = 1
                        queue.append(source)

    def find_leaving(self, order: Sequence[int]) -> None:
        """Finds whose values only leave the model. What a cycle reads counts as not leaving."""
        for number in reversed(order):
            readers = self.flow.readers[number]
            self.leaves[number] = bool(readers) and all(
                reader in self.flow.pinned
                or (self.rules[reader].category is Category.CLEAR and self.leaves[reader])
                for reader in readers
            )

    def may_want(self, number: int) -> bool:
        rule = self.rules[number]
        if not rule.eligible or self.misfit_of(number) is not None:
            return False
        if rule.category is Category.ALLOW:
            return True
        if rule.category is not Category.CLEAR:
            return False
        return not rule.discrete and rule.role in (Role.NODE, Role.TABLE, *CASTS_UP)

    def all_consumers_want(self, number: int) -> bool:
        readers = self.value_readers(number)
        # a user's Cast to low is one that vanishes, but no reason of its own, unless all there is
        # between is another one from low
        if self.rules[number].role is Role.CAST_BACK and readers:
            return all(self.wants[r] or self.rules[r].role is Role.CAST_DOWN for r in readers)
        wanting = [r for r in readers if self.wants[r]]
        others = (r for r in readers if not self.wants[r])
        return bool(wanting) and all(self.rules[r].role is Role.CAST_DOWN for r in others)

    def value_readers(self, number: int) -> list[int]:
        """Returns those that read the values of a class, and are read themselves."""
        readers = self.flow.readers[number]
        return [r for r in readers if self.rules[r].role is not Role.SHAPE and not self.dead[r]]

    def misfit_of(self, number: int) -> free_values.Free | None:
        """Returns a free value that the class reads and that does not fit, if there is one."""
        for source in self.flow.sources[number]:
            free = self.free[source]
            if free is not None and free.misfit:
                return free
        return None

    def unclamped_of(self, number: int) -> free_values.Free | None:
        """Returns a free value that the class gets as it is only if it stays float32."""
        for source in self.flow.sources[number]:
            free = self.free[source]
            if free is not None and free.unclamped:
                return free
        return None

    def run(self, order: Iterable[int]) -> None:
        queue = collections.deque(order)
        queued = bytearray(len(self.rules))
        for number in queue:
            queued[number] = 1
        while queue:
            number = queue.popleft()
            queued[number] = 0
            decision, taint = self.decide(number)
            if self.taint[number] != NO_CAUSE:
                taint = self.taint[number]  # the first origin stays, or two could chase each other
            changed = (decision.low, taint) != (self.decisions[number].low, self.taint[number])
            self.decisions[number], self.taint[number] = decision, taint
            if changed:
                for reader in self.flow.readers[number]:
                    if not queued[reader]:
                        queued[reader] = 1
                        queue.append(reader)

    def revert_groundless(self) -> None:
        """Turns cycles that are low for no reason outside of themselves back to float32."""
        while groundless := self.groundless():
            for number in groundless:
                self.rules[number] = dataclasses.replace(
                    self.rules[number], eligible=False, kind=Kind.NOTHING_LOW, detail=""
                )
            self.run(groundless)

    def groundless(self) -> list[int]:
        """Returns what is low, and neither near an ALLOW op nor reads anything low that is."""
        is_low = bytearray(len(self.rules))
        for number, decision in enumerate(self.decisions):
            is_low[number] = (
                decision.low
                and self.free[number] is None
                and self.rules[number].role not in (*_FOLLOWERS, *WEIGHTS)
            )
        stack = [n for n in range(len(is_low)) if is_low[n] and (self.wants[n] or self.is_seed(n))]
        for number in stack:
            is_low[number] = 0
        while stack:
            for reader in self.flow.readers[stack.pop()]:
                if is_low[reader]:
                    is_low[reader] = 0
                    stack.append(reader)
        return [number for number in range(len(is_low)) if is_low[number]]

    def cast_before_loops(self, order: Sequence[int]) -> None:
        """Gives what crosses the border of a loop the precision of all that reads it there.

        The same goes for a Cast of the model's to float32: two Casts in a row are one too many.
        """
        crossing = self.flow.invariants | self.flow.carried
        for number in reversed(order):
            free, rule = self.free[number], self.rules[number]
            is_cast = rule.role in CASTS_UP and not rule.taints
            if not (number in crossing or is_cast) or not rule.eligible:
                continue
            if free is not None and free.flexible:
                continue  # settle_weights decides
            readers = {self.decisions[reader].low for reader in self.value_readers(number)}
            is_low = self.decisions[number].low
            if readers == {True} and not is_low and self.misfit_of(number) is None:
                self.decisions[number] = Decision(True, Kind.CLEAR)
            elif readers == {False} and is_low and number in self.flow.invariants:
                self.decisions[number] = Decision(False, Kind.CONSUMERS)

    def decide(self, number: int) -> tuple[Decision, int]:
        """Returns the decision of a class and the origin of its taint."""
        rule = self.rules[number]
        if rule.role in WEIGHTS or number in self.flow.variable_of:
            return Decision(rule.eligible, rule.kind, rule.detail), NO_CAUSE
        sources = self.flow.sources[number]
        flowing = [s for s in sources if self.free[s] is None]
        tainted = next((self.taint[s] for s in sources if self.taint[s] != NO_CAUSE), NO_CAUSE)
        misfit = self.misfit_of(number)
        if not rule.eligible:
            return self.decide_ineligible(number, tainted, misfit or self.unclamped_of(number))
        if misfit is not None:
            # a free value hands the fact itself on
            origin = tainted if self.free[number] is not None else number
            return Decision(False, Kind.RANGE, misfit.misfit, misfit.origin), origin
        if rule.role is Role.TABLE and not flowing:
            return Decision(True, Kind[rule.category.value]), NO_CAUSE
        match rule.category:
            case Category.ALLOW:
                return Decision(True, Kind.ALLOW), NO_CAUSE
            case Category.INFER:
                decision, taint = self.decide_infer(number, flowing, tainted)
            case _:
                decision, taint = self.decide_clear(number, flowing, tainted)
        unclamped = self.unclamped_of(number)
        if decision.low or unclamped is None or self.free[number] is not None:
            return decision, taint
        origin = taint if rule.bounded or taint != NO_CAUSE else number
        return Decision(False, Kind.RANGE, unclamped.unclamped, unclamped.origin), origin

    def decide_ineligible(
        self, number: int, tainted: int, misfit: free_values.Free | None
    ) -> tuple[Decision, int]:
        rule = self.rules[number]
        decision = Decision(False, rule.kind, rule.detail)
        if rule.bounded:
            return decision, NO_CAUSE
        is_free = self.free[number] is not None
        if rule.taints_from_weights if is_free else rule.taints or misfit is not None:
            return decision, number
        return decision, tainted

    def decide_infer(
        self, number: int, flowing: Sequence[int], tainted: int
    ) -> tuple[Decision, int]:
        rule = self.rules[number]
        if tainted != NO_CAUSE:
            passed_on = NO_CAUSE if rule.bounded else tainted
            return Decision(False, Kind.TAINTED, "", tainted), passed_on
        some_low = any(self.decisions[source].low for source in flowing)
        if some_low and rule.only_inside and self.leaves[number]:
            return Decision(False, Kind.PINNED, "its result only leaves the model"), NO_CAUSE
        if some_low and (not rule.only_if_wanted or self.all_consumers_want(number)):
            return Decision(True, Kind.INFER), NO_CAUSE
        detail = "a low value flows in, but not all that reads it wants low" if some_low else ""
        return Decision(False, Kind.NOTHING_LOW, detail), NO_CAUSE

    def decide_clear(
        self, number: int, flowing: Sequence[int], tainted: int
    ) -> tuple[Decision, int]:
        rule = self.rules[number]
        free = self.free[number]
        if free is not None and free.flexible:
            return Decision(True, Kind.FREE), NO_CAUSE  # settle_weights decides
        if free is not None:
            return Decision(False, Kind.CONSUMERS), NO_CAUSE
        all_low = bool(flowing) and all(self.decisions[source].low for source in flowing)
        if (all_low and not rule.only_if_wanted) or self.wants[number]:
            return Decision(True, Kind.CLEAR), tainted
        if tainted != NO_CAUSE:
            return Decision(False, Kind.TAINTED, "", tainted), tainted
        some_low = any(self.decisions[source].low for source in flowing)
        detail = "not all that flows in is low, nor is all that reads it" if some_low else ""
        return Decision(False, Kind.NOTHING_LOW, detail), number if rule.taints else NO_CAUSE

    def settle_weights(self, order: Sequence[int]) -> None:
        """Lets weights, and CLEAR ops on weights alone, follow their consumers."""
        for number in reversed(order):
            free, role = self.free[number], self.rules[number].role
            if free is None or not free.flexible or role in _FOLLOWERS:
                continue
            readers = [
                self.decisions[r].low or self.rules[r].role is Role.CAST_DOWN
                for r in self.flow.readers[number]
                if self.rules[r].role is not Role.SHAPE
            ]
            # a constant that both precisions need exists twice; a variable exists once
            # what moves clamped values can't be cast down: it would overflow again
            once = free.of_variable or role is Role.CONSTANT or bool(free.unclamped)
            some = any(readers) and once
            if some or (readers and all(readers)):
                self.decisions[number] = Decision(True, Kind.FREE)
            else:
                self.decisions[number] = Decision(False, Kind.CONSUMERS)
        self.settle_followers()

    def settle_followers(self) -> None:
        """Lets what follows its source whatever that is follow it."""
        for number, rule in enumerate(self.rules):
            if rule.role not in _FOLLOWERS or not rule.eligible:
                continue
            sources = self.flow.sources[number]
            low = bool(sources) and all(self.decisions[source].low for source in sources)
            if rule.role is Role.SHAPE:  # a low copy of a constant is not worth making for this
                low = low and all(self.rules[s].role is not Role.CONSTANT for s in sources)
            self.decisions[number] = Decision(low, Kind.CLEAR if low else Kind.NOTHING_LOW)

    def settle_clamps(self) -> None:
        """Says which weights are clamped: those that are low, or reach what is if in place."""
        for number, rule in enumerate(self.rules):
            decision = self.decisions[number]
            if rule.limit and (self.reaches_low(number) if rule.in_place else decision.low):
                self.decisions[number] = dataclasses.replace(
                    decision,
                    detail=rule.detail,
                    limit=rule.limit,
                    in_place=rule.in_place,
                    asked=rule.asked,
                )

    def reaches_low(self, number: int) -> bool:
        """Returns whether anything is low that a mask flows through, up to its Softmax."""
        stack, seen = [number], {number}
        while stack:
            current = stack.pop()
            if self.decisions[current].low:
                return True
            if self.op_of(current) == SOFTMAX:
                continue
            near = [reader for reader in self.flow.readers[current] if reader not in seen]
            seen.update(near)
            stack += near
        return False

    def op_of(self, number: int) -> str:
        return self.flow.program.node_of(self.flow.members[number][0]).op

    def revert_islands(self) -> None:
        """Turns islands without an ALLOW op or a table back to float32."""
        seen = bytearray(len(self.rules))
        for root, decision in enumerate(self.decisions):
            if seen[root] or not decision.low or self.free[root] is not None:
                continue
            island = self.island_of(root, seen)
            if not any(self.is_seed(number) for number in island):
                for number in island:
                    self.decisions[number] = Decision(False, Kind.ISLAND)

    def island_of(self, root: int, seen: bytearray) -> list[int]:
        island, stack = [], [root]
        seen[root] = 1
        while stack:
            number = stack.pop()
            island.append(number)
            for near in (*self.flow.sources[number], *self.flow.readers[number]):
                if not seen[near] and self.decisions[near].low and self.free[near] is None:
                    seen[near] = 1
                    stack.append(near)
        return island

    def is_seed(self, number: int) -> bool:
        rule = self.rules[number]
        return rule.category is Category.ALLOW or rule.role in (
            Role.TABLE,
            Role.CAST_DOWN,
            *CASTS_UP,
        )
