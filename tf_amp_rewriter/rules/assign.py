"""One rule for every class of type variables: from tables, kernels, constants and user's wishes.

On exit it is known of each class what it may become on its own account; `classify` adds what its
neighbours make of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from tf_amp_rewriter import dtypes
from tf_amp_rewriter.ir import constants, op_defs, shapes, ties
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ir.flow import Flow
from tf_amp_rewriter.ops import calls, categories, handles, kernels
from tf_amp_rewriter.ops.attrs import attr_of
from tf_amp_rewriter.ops.conditions import CONDITIONS, NodeFacts
from tf_amp_rewriter.ops.rows import Category, OpRow
from tf_amp_rewriter.options import Options
from tf_amp_rewriter.patterns import find as patterns
from tf_amp_rewriter.reasons import Kind
from tf_amp_rewriter.rules import book as books
from tf_amp_rewriter.rules import loops, origins, ranges, slices
from tf_amp_rewriter.rules.rule import Role, Rule
from tf_amp_rewriter.user_rules import UserRule

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
    rules = slices.keep_angles(flow, ops, rules)
    rules = slices.keep_overflowing(flow, ops, rules, options.low)
    rules = slices.keep_control(flow, rules)
    rules = loops.keep_sums(flow, ops, rules, options.low)
    rules = loops.keep_fixed_points(flow, ops, rules)
    rules = slices.keep_log_magnitudes(flow, ops, rules)
    rules = slices.keep_singular_probabilities(flow, ops, rules)
    rules = slices.keep_small_divisors(flow, ops, rules, options.low)
    return slices.keep_exact_tables(flow, ops, rules)


class _Assigner:
    """Finds the rule of one class at a time; keeps only what all of them share."""

    def __init__(self, flow: Flow, options: Options, variable_fit: VariableFit) -> None:
        self.flow = flow
        self.options = options
        self.low = options.low
        self.variable_fit = variable_fit
        self.book = books.book(options)
        self.carried = frozenset(ties.carried_arguments(flow.program))
        self.table_misfit = origins.misfit_of_tables(flow.program, options.low)
        self.patterns = patterns.find(flow.program, options.low)

    def rule(self, number: int) -> Rule:
        members = self.flow.members[number]
        if number in self.flow.variable_of:
            return self.variable_rule(number)
        rules = [self.member_rule(var) for var in members]
        rule = min(rules, key=lambda r: (r.eligible, not r.by_user, not r.limit))
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
        row = self.variable_row(number)
        fit = self.variable_fit(values, ranges.max_loss(row))
        return ranges.fitted(rule, fit, row, self.options)

    def is_pinned(self, var: int) -> bool:
        return self.flow.class_of[var] in self.flow.pinned

    def weight_row(self, place: ir.TypeVar) -> OpRow | None:
        """Returns what is known about a constant or variable for itself."""
        scope = self.flow.program.scopes[place.scope]
        known = self.patterns.get((place.scope, place.node))
        return self.book.weight_row(scope, scope.nodes[place.node], known)

    def variable_row(self, number: int) -> OpRow | None:
        """Returns what is known about a variable for itself, at the node that holds it first."""
        holders_first = sorted(
            self.flow.members[number],
            key=lambda var: self.flow.program.node_of(var).op not in books.HOLDERS,
        )
        rows = (self.weight_row(self.flow.program.type_vars[var]) for var in holders_first)
        return next(filter(None, rows), None)

    def is_kept(self, var: int) -> bool:
        scope = self.flow.program.scopes[self.flow.program.type_vars[var].scope]
        wish = self.book.rule_of(scope, self.flow.program.node_of(var))
        return wish is not None and not wish.lowers

    def member_rule(self, var: int) -> Rule:
        place = self.flow.program.type_vars[var]
        node = self.flow.program.node_of(var)
        if not node.known:
            return Rule(Category.KEEP, Role.NODE, Kind.UNKNOWN_OP, f"nobody knows op `{node.op}`")
        if place.attr == ir.FIXED:
            row = categories.row_for(node.op, self.low, self.device_of(node))
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
        wish = self.book.rule_of(scope, node)
        if wish is not None and not wish.lowers:
            told = books.source_of(wish)
            return Rule(Category.KEEP, Role.NODE, Kind.USER, wish.reason, source=told)
        if source == target:
            return Rule(Category.CLEAR, Role.NODE, Kind.CLEAR, eligible=True)
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
            Role.CAST_BACK if source == self.low.proto else Role.CAST_UP,
            Kind.CLEAR,
            eligible=True,
            taints=self.low == dtypes.HALF
            and is_integer
            and origins.is_count(scope, place.scope, node, self.carried),
            only_if_wanted=True,
        )

    def op_rule(self, place: ir.TypeVar, node: ir.Node) -> Rule:
        scope = self.flow.program.scopes[place.scope]
        wish = self.book.rule_of(scope, node)
        row = self.row(place, node, wish)
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
            by_user=wish is not None and not wish.is_broad,
            source=row.source,
        )
        if wish is not None and not wish.lowers:
            return dataclasses.replace(rule, kind=Kind.USER)
        if node.op in handles.TABLE_LOOKUPS and self.table_misfit:
            return dataclasses.replace(rule, kind=Kind.RANGE, detail=self.table_misfit, taints=True)
        if row.category in (Category.DENY, Category.KEEP):
            return rule
        return self.lowered(place, node, row, rule)

    def lowered(self, place: ir.TypeVar, node: ir.Node, row: OpRow, rule: Rule) -> Rule:
        """Returns the rule of a node whose row lets it be low, if its attribute and kernel do."""
        if row.attrs and place.attr not in row.attrs:
            detail = f"attribute `{place.attr}` of op `{node.op}` stays float32"
            return dataclasses.replace(
                rule, category=Category.KEEP, kind=Kind.KEEP, detail=detail, taints=False
            )
        missing = self.missing_kernel(place, node, rule)
        if missing:
            return dataclasses.replace(rule, kind=Kind.NO_KERNEL, detail=missing)
        refused = self.refused(place, node, row)
        if refused:
            return dataclasses.replace(rule, kind=Kind.CONDITION, detail=refused)
        return dataclasses.replace(rule, eligible=True)

    def missing_kernel(self, place: ir.TypeVar, node: ir.Node, rule: Rule) -> str:
        """Returns why there is no low kernel, or ""; of custom ops the user knows better."""
        if rule.by_user and not kernels.is_known(node.op):
            graph = self.flow.program.graphs[self.flow.program.scopes[place.scope].graph]
            return op_defs.forbids(node.op, place.attr, self.low, graph.op_defs)
        device = self.device_of(node)
        if kernels.has_kernel(node.op, place.attr, self.low, device):
            return ""
        where = {"any": "GPU and CPU both", "gpu": "the GPU", "cpu": "the CPU"}
        is_pinned = device != self.options.device
        place_text = "the CPU, to which the model pins it" if is_pinned else where[device]
        return f"no {self.low.name} kernel on {place_text}"

    def device_of(self, node: ir.Node) -> str:
        return self.book.device_of(node)

    def row(self, place: ir.TypeVar, node: ir.Node, wish: UserRule | None) -> OpRow | None:
        """Returns the user's row, else the one of a pattern, else the one of the op."""
        op = origins.effective_op(self.flow.program.scopes[place.scope], node)
        row = categories.row_for(op, self.low, self.device_of(node))
        if wish is None:
            return self.patterns.get((place.scope, place.node), row)
        if not wish.force_low:
            return books.as_row(wish, node.op, row)
        attrs = wish.attrs or (row.attrs if row is not None else ())
        positions = row is not None and row.positions
        source = books.source_of(wish)
        return OpRow(node.op, Category.ALLOW, source, attrs=attrs, positions=positions)

    def refused(self, place: ir.TypeVar, node: ir.Node, row: OpRow) -> str:
        if not row.condition:
            return ""
        assert node.proto is not None
        scope = self.flow.program.scopes[place.scope]
        facts = NodeFacts(
            node.proto, self.low, self.device_of(node), shapes.input_shapes(scope, node)
        )
        return CONDITIONS[row.condition](facts)


def _role(scope: ir.Scope, node: ir.Node) -> Role:
    if node.op in handles.SHAPE_READERS:
        return Role.SHAPE
    if node.op in handles.TABLE_READERS and origins.is_large_table(scope, node):
        return Role.TABLE
    return Role.NODE
