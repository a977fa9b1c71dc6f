"""What to tell users about their rules: which say nothing, contradict each other, come to nothing.

It is found on the program that was decided on, once; without rules it costs nothing.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Final

from tf_amp_rewriter import errors
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ir.flow import Flow
from tf_amp_rewriter.ops import calls, categories, handles
from tf_amp_rewriter.options import Options
from tf_amp_rewriter.reasons import Decisions
from tf_amp_rewriter.rules import book as books
from tf_amp_rewriter.rules import origins
from tf_amp_rewriter.user_rules import UserRule

MAX_NAMED: Final = 3
# They have no row: other modules handle them.
_ROWLESS: Final = frozenset(
    {
        *calls.CALLS,
        *(ir.ARG, ir.RETVAL, handles.CONSTANT, handles.CAST),
        *(handles.SAVE, handles.RESTORE, handles.RESOURCE_VARIABLE),
        *handles.PLACEHOLDERS,
        *handles.REF_VARIABLES,
        *handles.RESOURCE_ACCESS,
        *handles.REF_ACCESS,
    }
)
# They follow what reads them, or read no values: a pattern that means the nodes around them, as
# that of a name scope does, means nothing by them.
_FOLLOWERS: Final = frozenset({*calls.CALLS, handles.CONSTANT, *handles.SHAPE_READERS})


@dataclasses.dataclass(frozen=True)
class Advice:
    """What came of the user's rules.

    Attributes:
        warnings: sentences.
        forced: a type variable of each node that `force_low` means and that stays float32.
    """

    warnings: Sequence[str]
    forced: Sequence[int]


def advice(flow: Flow, decisions: Decisions, options: Options) -> Advice:
    """Returns what came of the user's rules.

    Args:
        flow: the program graph.
        decisions: the precision of each class.
        options: what was asked for.

    Raises:
        errors.FlagError: `keep_float32` and `force_low` mean the same node.
    """
    book = books.book(options)
    warnings = list(books.environment_warnings(options))
    if not any(book.layers) and not book.registered:
        return Advice(warnings, ())
    nodes = list(_float_nodes(flow))
    warnings += _unused(book, nodes)
    warnings += _contradictions(book, nodes)
    return Advice(warnings, list(_forced(book, flow, decisions)))


def missing_ops(flow: Flow, options: Options) -> dict[str, int]:
    """Returns the number of float32 nodes of each op that no table and no rule of the user's knows.

    Args:
        flow: the program graph.
        options: what was asked for.
    """
    book = books.book(options)

    @functools.cache
    def has_row(op: str, device: str) -> bool:
        return categories.row_for(op, options.low, device) is not None

    missing: dict[tuple[int, int], str] = {}
    for var, place in enumerate(flow.program.type_vars):
        node = flow.program.node_of(var)
        is_fixed = place.attr == ir.FIXED and node.known
        if is_fixed or node.op in _ROWLESS or flow.class_of[var] in flow.variable_of:
            continue
        scope = flow.program.scopes[place.scope]
        op = origins.effective_op(scope, node) if node.known else node.op
        if node.known and has_row(op, book.device_of(node)):
            continue
        if not node.known or book.rule_of(scope, node) is None:
            missing[place.scope, place.node] = node.op
    return dict(sorted(collections.Counter(missing.values()).items()))


_Place = tuple[ir.Scope, ir.Node]


def _float_nodes(flow: Flow) -> Iterator[_Place]:
    """Yields every node with a float32 type variable, once."""
    last = (-1, -1)
    for place in flow.program.type_vars:
        if (place.scope, place.node) != last:
            last = (place.scope, place.node)
            scope = flow.program.scopes[place.scope]
            yield scope, scope.nodes[place.node]


def _unused(book: books.Book, nodes: Sequence[_Place]) -> Iterator[str]:
    """Yields a sentence for every op type and pattern of the user's that matches nothing."""
    ops = {node.op for _, node in nodes}
    unmet = [f"`{op}`" for op in book.registered if op not in ops]
    if unmet:
        yield f"`register_rule` names {', '.join(unmet)}, which no float32 node of the model has"
    for layer in book.layers:
        for rule in layer:
            if not book.applies(rule, rule.device and book.options.device):
                continue
            unknown = [op for op in rule.ops if op not in ops and not rule.is_broad]
            for op in unknown:
                yield f"{_subject(rule)} names op `{op}`, which no float32 node of the model has"
            for attr in _unknown_attrs(book, rule, nodes):
                yield f"{_subject(rule)} has attribute `{attr}`, which no node that it matches has"
            is_of_weights = rule.weighs and not rule.decides
            held = [p for p in nodes if p[1].op in books.HOLDERS] if is_of_weights else nodes
            is_named = rule.node or rule.function or is_of_weights
            if is_named and not unknown and not any(book.matches(rule, *place) for place in held):
                yield f"{_subject(rule)} matches no float32 {'weight' if is_of_weights else 'node'}"


def _unknown_attrs(book: books.Book, rule: UserRule, nodes: Sequence[_Place]) -> list[str]:
    if not rule.attrs:
        return []
    matched = [node for scope, node in nodes if book.matches(rule, scope, node)]
    known = {attr for node in matched for attr, _, _ in node.attr_vars}
    return [attr for attr in rule.attrs if matched and attr not in known]


def _subject(rule: UserRule) -> str:
    for prefix in (books.KEEP_PREFIX, books.FORCE_PREFIX):
        if rule.source.startswith(prefix):
            return f"`{prefix[2:-1]}` pattern `{rule.node}`"
    if rule.source.startswith("--"):
        return f"`{rule.source[2:]}`"
    return f"`{rule.source.partition(': ')[2]}`" if ": " in rule.source else rule.source


def _contradictions(book: books.Book, nodes: Sequence[_Place]) -> Iterator[str]:
    """Yields a sentence for each two rules of which one overrules the other somewhere."""
    found: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for scope, node in nodes:
        _expect_no_conflict(book, scope, node)
        rules = list(book.rules_of(scope, node))
        for rule in rules[:-1]:
            strongest = rules[-1]
            if (rule.category, rule.force_low) != (strongest.category, strongest.force_low):
                found[strongest.source, rule.source].append(books.names(scope, node)[-1])
    for (winner, loser), names in found.items():
        yield (f"`{winner}` and `{loser}` contradict each other on {named(names)}: `{winner}` wins")


def _expect_no_conflict(book: books.Book, scope: ir.Scope, node: ir.Node) -> None:
    if not book.options.force_low or not book.options.keep_float32:
        return
    flags = book.layers[1]
    patterns = [rule for rule in flags if rule.node and book.matches(rule, scope, node)]
    keep = next((rule for rule in patterns if not rule.force_low), None)
    force = next((rule for rule in patterns if rule.force_low), None)
    if keep is not None and force is not None:
        raise errors.FlagError(
            f"`{keep.source}` and `{force.source}` both match this node",
            "make one of the patterns narrower",
            scope=scope.name,
            node=node.name,
        )


def _forced(book: books.Book, flow: Flow, decisions: Decisions) -> Iterator[int]:
    if not any(rule.force_low for layer in book.layers for rule in layer):
        return
    variables: dict[tuple[int, int], list[int]] = collections.defaultdict(list)
    for var, place in enumerate(flow.program.type_vars):
        variables[place.scope, place.node].append(var)
    for (index, _), members in variables.items():
        scope, node = flow.program.scopes[index], flow.program.node_of(members[0])
        if node.proto is None or node.op in _FOLLOWERS:
            continue
        if any(decisions[flow.class_of[var]].low for var in members):
            continue
        rule = book.rule_of(scope, node)
        if rule is not None and rule.force_low:
            yield members[0]


def named(names: Sequence[str]) -> str:
    """Returns the first of `names`, and how many there are more."""
    shown = ", ".join(f"`{name}`" for name in names[:MAX_NAMED])
    more = len(names) - MAX_NAMED
    return f"{shown} and {more} more" if more > 0 else shown
