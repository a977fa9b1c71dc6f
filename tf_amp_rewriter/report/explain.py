"""Why nodes have their precisions, as text: `--explain`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from tf_amp_rewriter import errors
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ops import accumulation, calls, devices, handles
from tf_amp_rewriter.ops.rows import Category
from tf_amp_rewriter.options import expect_pattern
from tf_amp_rewriter.report import advice, model
from tf_amp_rewriter.report.chains import Chain, Chains
from tf_amp_rewriter.report.trace import Trace, attribute
from tf_amp_rewriter.rules.rule import WEIGHTS, Rule

MAX_ATTRIBUTES: Final = 4  # of a longer list the end is left out
_LABEL: Final = 11  # width of what stands in front of each line
_MEANINGS: Final = {
    Category.ALLOW: "always gains from low precision",
    Category.INFER: "safe unless what flows in is unsafe",
    Category.CLEAR: "moves or selects values, changes none",
    Category.DENY: "numerically unsafe in low precision",
    Category.KEEP: "stays float32, which taints nothing",
}

_Place = tuple[int, int]  # scope and node


def explain(report: model.Report, *patterns: str) -> str:
    """Returns why the nodes that `patterns` match have their precisions.

    For each float32 type attribute of each node: its precision now, the reason, the rule with its
    source, the way to the op that the reason comes from, and the flags that would change it.

    Args:
        report: what a rewrite, or `decide_saved_model`, returned; not one read from JSON.
        patterns: names of nodes (`node` or `function/node`); one that no node has is a regular
            expression, for `re.search` in these names.

    Raises:
        errors.FlagError: a pattern matches no node with a float32 type attribute, or is no regular
            expression; or the report has nothing to explain.
    """
    trace = report.trace
    if trace is None:
        raise errors.FlagError(
            "the report does not know its model any more", "explain the report that a run returned"
        )
    program = trace.flow.program
    places = dict.fromkeys(place for pattern in patterns for place in _matching(program, pattern))
    chains = Chains(trace)
    blocks = [_block(trace, chains, place) for place in places]
    return "\n\n".join("\n".join(lines) for lines in blocks) + "\n"


def _matching(program: ir.Program, pattern: str) -> list[_Place]:
    nodes = [
        ((scope_index, index), _names(scope, node))
        for scope_index, scope in enumerate(program.scopes)
        for index, node in enumerate(scope.nodes)
        if node.proto is not None
    ]
    found = [place for place, names in nodes if pattern in names]
    if not found:
        expect_pattern("explain", pattern)
        search = re.compile(pattern).search
        found = [place for place, names in nodes if any(map(search, names))]
    explained = [place for place in found if _type_vars(program, place)]
    if explained:
        return explained
    if found:
        count = f"{len(found)} node" if len(found) == 1 else f"{len(found)} nodes"
        raise errors.FlagError(
            f"`explain` has `{pattern}`, which matches {count}, none float32",
            "there is nothing to explain: only float32 may become low",
        )
    known = dict.fromkeys(name for _, names in nodes for name in names)
    near = difflib.get_close_matches(pattern, list(known), n=3)
    meant = f"did you mean {' or '.join(f'`{name}`' for name in near)}?" if near else ""
    raise errors.FlagError(f"`explain` has `{pattern}`, which matches no node", meant)


def _names(scope: ir.Scope, node: ir.Node) -> tuple[str, ...]:
    functions = (scope.name, scope.face)
    return (node.name, *(f"{function}/{node.name}" for function in functions if function))


def _type_vars(program: ir.Program, place: _Place) -> list[int]:
    node = program.scopes[place[0]].nodes[place[1]]
    return [var for attr, _, var in node.attr_vars if attr != ir.FIXED]


def _block(trace: Trace, chains: Chains, place: _Place) -> Iterator[str]:
    """Yields the lines about one node: its type attributes that have one reason are told once."""
    program = trace.flow.program
    scope = program.scopes[place[0]]
    node = scope.nodes[place[1]]
    inside = f" in function `{scope.name}`" if scope.name else ""
    graph = f" (meta graph {scope.graph})" if len(program.graphs) > 1 else ""
    yield f"{node.op} `{node.name}`{inside}{graph}"
    alike: dict[tuple[str, ...], list[int]] = {}
    for var in _type_vars(program, place):
        number = trace.flow.class_of[var]
        decision = trace.decisions[number]
        key = (trace.precision(number), decision.kind.name, trace.sentence(decision))
        alike.setdefault(key, []).append(var)
    for (precision, kind, reason), members in alike.items():
        number = trace.flow.class_of[members[0]]
        chain = chains.of(number)
        if trace.decisions[number].cause in chain.steps:
            reason = trace.sentence(trace.decisions[number], named=False)
        yield _line("precision", f"{precision}   ({_attributes(program, members)})")
        yield _line("reason", f"{kind}: {reason}")
        yield _line("rule", _rule(trace, members[0]))
        yield from _lines("chain", _chain(trace, chain, members[0]))
        yield from _lines("to change", advice.advice(trace, members[0]))


def _line(label: str, text: str) -> str:
    return f"  {label:{_LABEL}}{text}"


def _lines(label: str, texts: Iterable[str]) -> Iterator[str]:
    for index, text in enumerate(texts):
        yield _line("" if index else label, text)


def _attributes(program: ir.Program, members: Sequence[int]) -> str:
    names = [attribute(program.type_vars[var]) for var in members]
    more = len(names) - MAX_ATTRIBUTES
    return ", ".join(names[:MAX_ATTRIBUTES]) + (f" and {more} more" if more > 0 else "")


def _rule(trace: Trace, var: int) -> str:
    """Returns what decides about a type variable on its own account."""
    number = trace.flow.class_of[var]
    node, rule = trace.flow.program.node_of(var), trace.rules[number]
    if rule.role in WEIGHTS or number in trace.flow.variable_of:
        return "a weight: low where low precision ops read it, if its values fit"
    if node.op in calls.CALLS:
        return "a call: as what flows into its function, or out of it"
    if node.op == handles.CAST:
        return "a Cast of the model's: only Casts that lose nothing are merged"
    if not rule.source:
        return f"none for op `{node.op}`"
    device = devices.effective_device(trace.options.device, node.proto.device if node.proto else "")
    compute = accumulation.compute(node.op, trace.options.low, device)
    triple = f"{rule.category.name}{compute and f', compute {compute}'}, output {_output(rule)}"
    return f"{node.op} is {triple}: {_MEANINGS[rule.category]}; source: {rule.source}"


def _output(rule: Rule) -> str:
    """Returns what the results of a node of this rule are fit for."""
    if rule.category is Category.KEEP:
        return "float32"
    return "float32" if rule.category is Category.DENY and rule.taints else "low"


def _chain(trace: Trace, chain: Chain, var: int) -> Iterator[str]:
    """Yields a line for each step that is not left out; none for a single step."""
    steps = chain.steps
    if len(steps) < 2:
        return
    kinds = [trace.decisions[number].kind.name for number in steps]
    widths = len("bfloat16"), max(map(len, kinds))
    home = trace.flow.program.type_vars[var].scope
    for index, number in enumerate(steps):
        if chain.left_out and index == chain.gap:
            yield f"{'..':{widths[0]}}  {'..':{widths[1]}}  {chain.left_out} more steps"
        name = f"{chain.relation} {_class_name(trace, number, home)}"
        if index == 0:
            name = _name(trace, var, home)
        is_last = index == len(steps) - 1
        reason = f": {trace.sentence(trace.decisions[number], named=False)}" if is_last else ""
        precision = trace.precision(number)
        yield f"{precision:{widths[0]}}  {kinds[index]:{widths[1]}}  {name}{reason}"


def _class_name(trace: Trace, number: int, home: int) -> str:
    """Returns what a class is to people: a variable, or a node, best one of the scope `home`."""
    if number in trace.flow.variable_of:
        keys = trace.flow.variables[trace.flow.variable_of[number]].keys
        if keys:
            return f"variable `{keys[0]}`"
    program = trace.flow.program

    def rank(var: int) -> tuple[bool, bool]:
        return program.type_vars[var].scope != home, program.node_of(var).proto is None

    return _name(trace, min(trace.flow.members[number], key=rank), home)


def _name(trace: Trace, var: int, home: int) -> str:
    program = trace.flow.program
    node = program.node_of(var)
    what = {ir.ARG: "argument", ir.RETVAL: "result"}.get(node.op, node.op)
    path = node.name if program.type_vars[var].scope == home else trace.path(var)
    return f"{what} `{path}`"
