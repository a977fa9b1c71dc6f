"""One rule for every class of type variables: from tables, kernels, constants and user's wishes.

On exit it is known of each class what it may become on its own account; `classify` adds what its
neighbours make of it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence

from tf_amp_rewriter import dtypes
from tf_amp_rewriter.ir import constants, shapes, ties
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ir.flow import Flow
from tf_amp_rewriter.ops import calls, categories, handles, kernels
from tf_amp_rewriter.ops.attrs import attr_of
from tf_amp_rewriter.ops.conditions import CONDITIONS, NodeFacts
from tf_amp_rewriter.ops.rows import Category, OpRow
from tf_amp_rewriter.options import Options
from tf_amp_rewriter.patterns import find as patterns
from tf_amp_rewriter.reasons import Kind
from tf_amp_rewriter.rules import loops, origins, ranges, slices
from tf_amp_rewriter.rules.rule import Role, Rule

_FLOATS = (dtypes.DT_FLOAT, dtypes.DT_DOUBLE, dtypes.DT_HALF, dtypes.DT_BFLOAT16)

# Checkpoint keys, the share that may be lost -> whether their values fit the low precision.
VariableFit = Callable[[Sequence[str], float], dtypes.Fit]


def assign(flow: Flow, options: Options, variable_fit: VariableFit) -> list[Rule]:
    """Returns the rule of each class of `flow`.

    Args:
        flow: the program graph.
        options: the user's wishes.
        variable_fit: see `VariableFit`.
    """
    assigner = _Assigner(flow, options, variable_fit)
    rules = [assigner.rule(number) for number in range(len(flow.members))]
    ops = slices.ops_of(flow)
    rules = slices.keep_positions(flow, rules)
    rules = slices.keep_control(flow, rules)
    rules = loops.keep_sums(flow, ops, rules, options.low)
    rules = loops.keep_fixed_points(flow, ops, rules)
    rules = slices.keep_log_magnitudes(flow, ops, rules)
    rules = slices.keep_singular_probabilities(flow, ops, rules)
    rules = slices.keep_small_divisors(flow, ops, rules, options.low)
    return slices.keep_exact_tables(flow, ops, rules)


def unused_wishes(flow: Flow, options: Options) -> list[str]:
    """Returns a sentence for every op type and pattern of the user's that matches nothing."""
    ops = {flow.program.node_of(var).op for var in range(len(flow.program.type_vars))}
    names = {
        name
        for var, place in enumerate(flow.program.type_vars if options.keep_float32 else ())
        for name in _names(flow.program.scopes[place.scope], flow.program.node_of(var))
    }
    unused = [
        f"`{flag}` names op `{op}`, which no float32 node of the model has"
        for flag in ("allow_ops", "infer_ops", "clear_ops", "deny_ops")
        for op in getattr(options, flag)
        if op != "*" and op not in ops
    ]
    unused += [
        f"`keep_float32` pattern `{pattern}` matches no float32 node"
        for pattern in options.keep_float32
        if not any(re.search(pattern, name) for name in names)
    ]
    return unused


class _Assigner:
    """Finds the rule of one class at a time; keeps only what all of them share."""

    def __init__(self, flow: Flow, options: Options, variable_fit: VariableFit) -> None:
        self.flow = flow
        self.options = options
        self.low = options.low
        self.variable_fit = variable_fit
        self.wishes = _wishes(options)
        self.carried = frozenset(ties.carried_arguments(flow.program))
        self.table_misfit = origins.misfit_of_tables(flow.program, options.low)
        self.keep = [re.compile(pattern) for pattern in options.keep_float32]
        self.patterns = patterns.find(flow.program, options.low)

    def rule(self, number: int) -> Rule:
        members = self.flow.members[number]
        if number in self.flow.variable_of:
            return self.variable_rule(number)
        rules = [self.member_rule(var) for var in members]
        kept = next((r for r in rules if not r.eligible), None)
        rule = kept or next((r for r in rules if r.limit), rules[0])
        if len(members) > 1 and any(r.role is Role.CONSTANT for r in rules):
            rule = dataclasses.replace(rule, role=Role.CAPTURED)
        if number in self.flow.pinned and rule.role is not Role.CONSTANT:
            return dataclasses.replace(
                rule, eligible=False, kind=Kind.PINNED, detail=self.flow.pinned[number]
            )
        return rule

    def variable_rule(self, number: int) -> Rule:
        variable = self.flow.variables[self.flow.variable_of[number]]
        rule = Rule(Category.CLEAR, Role.VARIABLE, Kind.FREE, eligible=True)
        tables = [
            var
            for var in self.flow.members[number]
            if self.flow.program.node_of(var).op in handles.TABLE_READERS
        ]
        nodes = [self.flow.program.node_of(var) for var in self.flow.members[number]]
        if tables and all(origins.is_large_variable(node) for node in nodes):
            rule = dataclasses.replace(rule, role=Role.TABLE)
        if number in self.flow.pinned:
            reason = self.flow.pinned[number]
            return dataclasses.replace(rule, eligible=False, kind=Kind.PINNED, detail=reason)
        if not variable.keys and not self.flow.readers[number]:
            return dataclasses.replace(
                rule, eligible=False, kind=Kind.CONSUMERS, detail="nothing reads or restores it"
            )
        if variable.blocked:
            return dataclasses.replace(
                rule, eligible=False, kind=Kind.PINNED, detail=variable.blocked
            )
        if any(self.is_kept(var) for var in tables):
            return dataclasses.replace(rule, eligible=False, kind=Kind.USER)
        values = [key for key in variable.keys if key not in variable.slot_keys]
        rows = [self.weight_row(self.flow.program.type_vars[v]) for v in self.flow.members[number]]
        row = next(filter(None, rows), None)
        fit = self.variable_fit(values, ranges.max_loss(row))
        return ranges.fitted(rule, fit, row, self.options)

    def is_pinned(self, var: int) -> bool:
        return self.flow.class_of[var] in self.flow.pinned

    def weight_row(self, place: ir.TypeVar) -> OpRow | None:
        """Returns what is known about a constant or variable for itself."""
        return self.patterns.get((place.scope, place.node))

    def is_named(self, scope: ir.Scope, node: ir.Node) -> bool:
        """Returns whether a pattern of the user's matches the node's name, or `function/node`."""
        return any(pattern.search(name) for pattern in self.keep for name in _names(scope, node))

    def is_kept(self, var: int) -> bool:
        scope = self.flow.program.scopes[self.flow.program.type_vars[var].scope]
        return self.is_kept_node(scope, self.flow.program.node_of(var))

    def is_kept_node(self, scope: ir.Scope, node: ir.Node) -> bool:
        denied = self.wishes.get(node.op) is Category.DENY or self.options.deny_ops == ("*",)
        return denied or self.is_named(scope, node)

    def member_rule(self, var: int) -> Rule:
        place = self.flow.program.type_vars[var]
        node = self.flow.program.node_of(var)
        if not node.known:
            return Rule(Category.KEEP, Role.NODE, Kind.UNKNOWN_OP, f"nobody knows op `{node.op}`")
        if place.attr == ir.FIXED:
            row = categories.row_for(node.op, self.low, self.options.device)
            return Rule(
                Category.KEEP,
                Role.NODE,
                Kind.KEEP,
                f"op `{node.op}` is defined for float32 alone here",
                taints=row is not None and row.taints,
                positions=row is not None and row.positions,
            )
        if node.op in calls.CALLS or node.op in (ir.ARG, ir.RETVAL):
            return self.call_rule(place, node)
        if node.op == handles.CONSTANT:
            return self.constant_rule(place, node)
        if node.op == handles.CAST:
            return self.cast_rule(place, node)
        return self.op_rule(place, node)

    def call_rule(self, place: ir.TypeVar, node: ir.Node) -> Rule:
        row = calls.CALLS.get(node.op)
        if row is not None and place.attr not in (*row.input_types, row.output_types):
            return Rule(Category.KEEP, Role.NODE, Kind.KEEP, "it decides a branch")
        return Rule(Category.CLEAR, Role.NODE, Kind.CLEAR, eligible=True)

    def constant_rule(self, place: ir.TypeVar, node: ir.Node) -> Rule:
        assert node.proto is not None
        row = self.weight_row(place)
        if row is not None and row.in_place and self.is_pinned(node.out_vars[0]):
            row = None  # outsiders see its values
        values = constants.values(attr_of(node.proto, "value").tensor)
        fit = ranges.fit_of_constant(values, self.low, row)
        rule = Rule(Category.CLEAR, Role.CONSTANT, Kind.FREE, eligible=True)
        return ranges.fitted(rule, fit, row, self.options)

    def cast_rule(self, place: ir.TypeVar, node: ir.Node) -> Rule:
        """A user's Cast: only pairs that provably lose nothing are merged."""
        assert node.proto is not None
        source, target = attr_of(node.proto, "SrcT").type, attr_of(node.proto, "DstT").type
        scope = self.flow.program.scopes[place.scope]
        if self.is_kept_node(scope, node):
            return Rule(Category.KEEP, Role.NODE, Kind.USER)
        if place.attr == "SrcT":
            if target == self.low.proto and not attr_of(node.proto, "Truncate").b:
                return Rule(Category.CLEAR, Role.CAST_DOWN, Kind.CLEAR, eligible=True)
            integer = target not in _FLOATS and target != dtypes.DT_BOOL
            detail = "a Cast to an integer reads it" if integer else "a Cast of the model reads it"
            return Rule(Category.KEEP, Role.NODE, Kind.KEEP, detail, positions=integer)
        misfit = origins.misfit_of_cast_constant(scope, node, self.low)
        if misfit:
            return Rule(Category.KEEP, Role.NODE, Kind.RANGE, misfit, taints=True)
        if source == dtypes.DT_DOUBLE:
            return Rule(Category.KEEP, Role.NODE, Kind.KEEP, "a Cast from float64 gives it")
        is_integer = source not in _FLOATS and source != dtypes.DT_BOOL
        return Rule(
            Category.CLEAR,
            Role.CAST_UP,
            Kind.CLEAR,
            eligible=True,
            taints=self.low == dtypes.HALF
            and is_integer
            and origins.is_count(scope, place.scope, node, self.carried),
            only_if_wanted=True,
        )

    def op_rule(self, place: ir.TypeVar, node: ir.Node) -> Rule:
        scope = self.flow.program.scopes[place.scope]
        row = self.row(place, node)
        if self.is_named(scope, node):
            return Rule(Category.KEEP, Role.NODE, Kind.USER, "`keep_float32` matches its name")
        if row is None:
            return Rule(Category.KEEP, Role.NODE, Kind.KEEP, f"no rule knows op `{node.op}`")
        rule = Rule(
            row.category,
            _role(scope, node),
            Kind[row.category.value],
            row.note,
            taints=row.taints,
            taints_from_weights=row.taints and not row.safe_on_weights,
            bounded=row.bounded,
            discrete=row.discrete,
            only_if_wanted=row.only_if_wanted,
            only_inside=row.only_inside,
            positions=row.positions,
        )
        if node.op in self.wishes or self.options.deny_ops == ("*",):
            by_user = node.op in self.wishes
            rule = dataclasses.replace(rule, detail="", by_user=by_user)
            if row.category is Category.DENY:
                return dataclasses.replace(rule, kind=Kind.USER)
        if node.op in handles.TABLE_LOOKUPS and self.table_misfit:
            return dataclasses.replace(rule, kind=Kind.RANGE, detail=self.table_misfit, taints=True)
        if row.category in (Category.DENY, Category.KEEP):
            return rule
        if row.attrs and place.attr not in row.attrs:
            detail = f"attribute `{place.attr}` of op `{node.op}` stays float32"
            return dataclasses.replace(
                rule, category=Category.KEEP, kind=Kind.KEEP, detail=detail, taints=False
            )
        if not kernels.has_kernel(node.op, place.attr, self.low, self.options.device):
            where = {"any": "GPU and CPU both", "gpu": "the GPU", "cpu": "the CPU"}
            detail = f"no {self.low.name} kernel on {where[self.options.device]}"
            return dataclasses.replace(rule, kind=Kind.NO_KERNEL, detail=detail)
        refused = self.refused(place, node, row)
        if refused:
            return dataclasses.replace(rule, kind=Kind.CONDITION, detail=refused)
        return dataclasses.replace(rule, eligible=True)

    def row(self, place: ir.TypeVar, node: ir.Node) -> OpRow | None:
        wish = self.wishes.get(node.op)
        if wish is None and self.options.deny_ops == ("*",):
            wish = Category.DENY
        op = origins.effective_op(self.flow.program.scopes[place.scope], node)
        row = categories.row_for(op, self.low, self.options.device)
        if wish is None:
            return self.patterns.get((place.scope, place.node), row)
        attrs = row.attrs if row is not None else ()
        return OpRow(node.op, wish, "the user's list", attrs=attrs)

    def refused(self, place: ir.TypeVar, node: ir.Node, row: OpRow) -> str:
        if not row.condition:
            return ""
        assert node.proto is not None
        scope = self.flow.program.scopes[place.scope]
        facts = NodeFacts(
            node.proto, self.low, self.options.device, shapes.input_shapes(scope, node)
        )
        return CONDITIONS[row.condition](facts)


def _names(scope: ir.Scope, node: ir.Node) -> tuple[str, ...]:
    functions = (scope.name, scope.face)
    return (node.name, *(f"{function}/{node.name}" for function in functions if function))


def _role(scope: ir.Scope, node: ir.Node) -> Role:
    if node.op in handles.SHAPE_READERS:
        return Role.SHAPE
    if node.op in handles.TABLE_READERS and origins.is_large_table(scope, node):
        return Role.TABLE
    return Role.NODE


def _wishes(options: Options) -> Mapping[str, Category]:
    wishes = dict.fromkeys(options.allow_ops, Category.ALLOW)
    wishes |= dict.fromkeys(options.infer_ops, Category.INFER)
    wishes |= dict.fromkeys(options.clear_ops, Category.CLEAR)
    return wishes | dict.fromkeys(options.deny_ops, Category.DENY)
