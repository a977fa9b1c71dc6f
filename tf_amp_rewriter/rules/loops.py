"""Loop-carried values that stay float32 for what the loop does to them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from tf_amp_rewriter.dtypes import LowPrecision
from tf_amp_rewriter.ir import reach
from tf_amp_rewriter.ir.flow import Flow, topological_order
from tf_amp_rewriter.ops.rows import Category
from tf_amp_rewriter.ops.sums import ADDITIONS, DIFFERENCES, SCALINGS
from tf_amp_rewriter.reasons import Kind
from tf_amp_rewriter.rules import free as free_values
from tf_amp_rewriter.rules.rule import WEIGHTS, Rule, kept

# Between a value and its difference to the step before stands not much.
MAX_CLEAR_OPS: Final = 64


def keep_sums(
    flow: Flow, ops: Sequence[frozenset[str]], rules: Sequence[Rule], low: LowPrecision
) -> list[Rule]:
    """Keeps float32 what a loop adds to, or scales by a weight, from step to step.

    That is counters, running sums, moving averages and decays. Nobody knows how often a loop runs,
    and a low sum stalls: 2048 + 1 is 2048 in half, 256 + 1 is 256 in bfloat16; a decay of 0.9995
    never begins in bfloat16. A state that each step multiplies by an activation (the gates of LSTM
    and GRU) or puts through a function is no sum.
    """
    result = list(rules)
    if not flow.carried:
        return result
    free = free_values.analyse(flow, rules, topological_order(flow), low)

    def is_linear(number: int) -> bool:
        if rules[number].category is Category.CLEAR or ops[number] <= ADDITIONS:
            return free[number] is None
        inputs = [source for source in flow.sources[number] if free[source] is None]
        return ops[number] <= SCALINGS and len(inputs) == 1

    for cycle in _cycles(flow, is_linear):
        if any(ops[number] <= ADDITIONS | SCALINGS for number in cycle):
            for number in cycle:
                result[number] = kept(rules[number], Kind.SUM)
    return result


def keep_fixed_points(
    flow: Flow, ops: Sequence[frozenset[str]], rules: Sequence[Rule]
) -> list[Rule]:
    """Keeps float32 all of a loop that ends when what it carries hardly moves any more.

    Rounded to half, a value stops moving too soon, or moves by a rounding for ever: so also the
    contractions of such a loop stay float32. Linear in the number of nodes.
    """
    result = list(rules)
    if not flow.loop_tests:
        return result
    before_test = reach.closure(flow.loop_tests, flow.sources.__getitem__)
    moved = _moved(flow, ops, rules, before_test)
    for number in reach.closure(moved, flow.readers.__getitem__) & before_test:
        if rules[number].role not in WEIGHTS:
            result[number] = kept(rules[number], Kind.CONTROL)
    return result


def _moved(
    flow: Flow, ops: Sequence[frozenset[str]], rules: Sequence[Rule], part: Collection[int]
) -> set[int]:
    """Returns the carried values of which `part` has the difference between two steps."""

    def origins(start: int) -> set[int]:
        """Returns `start` and what it is, moved about by a few CLEAR ops."""
        found, stack = {start}, [start]
        while stack and len(found) < MAX_CLEAR_OPS:
            number = stack.pop()
            if rules[number].category is Category.CLEAR and number not in flow.carried:
                near = [source for source in flow.sources[number] if source not in found]
                found.update(near)
                stack.extend(near)
        return found

    moved = set()
    for number in part:
        if not ops[number] <= DIFFERENCES:
            continue
        terms = [origins(source) for source in flow.sources[number]]
        for one in terms:
            for carried in one & flow.carried:
                steps = set().union(*(origins(source) for source in flow.sources[carried]))
                if any(other is not one and other & steps for other in terms):
                    moved.add(carried)
    return moved


def _cycles(flow: Flow, is_part: Callable[[int], bool]) -> Iterator[list[int]]:
    """Yields the strongly connected parts that hold a carried value, of more than one class.

    Two searches without recursion (Kosaraju's algorithm): what is finished last in the first begins
    a part in the second, along the edges turned round.
    """
    order: list[int] = []
    seen: set[int] = set()
    for root in sorted(number for number in flow.carried if is_part(number)):
        stack = [(root, False)]
        while stack:
            number, is_done = stack.pop()
            if is_done:
                order.append(number)
            elif number not in seen:
                seen.add(number)
                stack.append((number, True))
                stack.extend((r, False) for r in flow.readers[number] if is_part(r))
    for root in reversed(order):
        if root not in seen:
            continue
        seen.remove(root)
        part = [root]
        for number in part:  # grows
            near = [source for source in flow.sources[number] if source in seen]
            seen.difference_update(near)
            part.extend(near)
        if len(part) > 1 and not flow.carried.isdisjoint(part):
            yield part
