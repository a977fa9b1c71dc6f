"""What users say about a node: the layers of their rules, weakest first.

All are stronger than tables and patterns: 1. the rules file, 2. flags, 3. grappler's environment
variables, 4. rules registered from Python. Within a layer the last rule that matches wins.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Final

from tf_amp_rewriter import errors
from tf_amp_rewriter.environment import GrapplerLists, ListEdit
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ir import shapes
from tf_amp_rewriter.ops import categories, devices, handles
from tf_amp_rewriter.ops.conditions import NodeFacts
from tf_amp_rewriter.ops.rows import Category, OpRow, Output
from tf_amp_rewriter.options import Options
from tf_amp_rewriter.user_rules import ANY_OP, LOW, OpRule, Registered, UserRule

LISTS: Final = ("allow_ops", "infer_ops", "clear_ops", "deny_ops")
KEEP_PREFIX: Final = "--keep_float32 "
FORCE_PREFIX: Final = "--force_low "
HOLDERS: Final = frozenset({handles.CONSTANT, handles.RESOURCE_VARIABLE, *handles.REF_VARIABLES})


@dataclasses.dataclass(frozen=True)
class Book:
    """The rules of a user.

    Attributes:
        options: what was asked for.
        layers: the rules that are data, weakest layer first.
        registered: op -> its rule from Python.
    """

    options: Options
    layers: tuple[tuple[UserRule, ...], ...]
    registered: dict[str, Registered]

    def rule_of(self, scope: ir.Scope, node: ir.Node) -> UserRule | None:
        """Returns the strongest rule that holds for a node, or None.

        Raises:
            errors.FlagError: a registered function fails, or returns no `OpRule`.
        """
        rule = None
        for rule in self.rules_of(scope, node):  # noqa: B007 # the last one
            pass
        return rule

    def rules_of(self, scope: ir.Scope, node: ir.Node) -> Iterator[UserRule]:
        """Yields the rule of each layer that holds for a node, weakest first."""
        for layer in self.layers:
            found = next(
                (r for r in reversed(layer) if r.decides and self.matches(r, scope, node)), None
            )
            if found is not None:
                yield found
        if node.op in self.registered and node.proto is not None and node.known:
            yield self.ask(self.registered[node.op], scope, node)

    def weight_row(self, scope: ir.Scope, node: ir.Node, known: OpRow | None) -> OpRow | None:
        """Returns `known`, which tables and patterns know of a weight, with the user's wishes."""
        if node.op not in HOLDERS:
            return known
        for layer in self.layers:
            for rule in layer:
                if rule.weighs and self.matches(rule, scope, node):
                    row = known or OpRow(node.op, Category.CLEAR, source_of(rule))
                    known = dataclasses.replace(
                        row,
                        saturate=row.saturate if rule.saturate is None else rule.saturate,
                        max_loss=row.max_loss if rule.max_loss is None else rule.max_loss,
                    )
        return known

    def matches(self, rule: UserRule, scope: ir.Scope, node: ir.Node) -> bool:
        """Says whether `rule` holds for a node."""
        if rule.ops and node.op not in rule.ops and not rule.is_broad:
            return False
        if not self.applies(rule, self.device_of(node)):
            return False
        if rule.node and not any(re.search(rule.node, name) for name in names(scope, node)):
            return False
        functions = [name for name in (scope.name, scope.face) if name]
        return not rule.function or any(re.search(rule.function, name) for name in functions)

    def applies(self, rule: UserRule, device: str) -> bool:
        """Says whether `rule` is one for the low precision asked for, and for `device`."""
        return rule.dtype in ("", self.options.dtype) and rule.device in ("", device)

    def ask(self, registered: Registered, scope: ir.Scope, node: ir.Node) -> UserRule:
        """Returns what a registered function says of a node."""
        assert node.proto is not None
        facts = NodeFacts(
            node.proto,
            self.options.low,
            self.device_of(node),
            shapes.input_shapes(scope, node),
        )
        try:
            said = registered.decide(facts)
        except Exception as error:
            raise errors.FlagError(
                f"the registered rule of op `{node.op}` failed: {type(error).__name__}: {error}",
                scope=scope.name,
                node=node.name,
            ) from error
        if not isinstance(said, OpRule):
            raise errors.FlagError(
                f"the registered rule of op `{node.op}` returned `{said!r}`, expected an `OpRule`",
                scope=scope.name,
                node=node.name,
            )
        return UserRule(
            "register_rule",
            said.category,
            compute=said.compute,
            output=said.output,
            reason=said.reason,
        )

    def device_of(self, node: ir.Node) -> str:
        """Returns the device that counts for a node."""
        pinned = node.proto.device if node.proto is not None else ""
        return devices.effective_device(self.options.device, pinned)


def book(options: Options) -> Book:
    """Returns the rules that `options` hold.

    Raises:
        errors.FlagError: a variable of grappler's adds an op that is on another list.
    """
    layers = (options.file_rules, _of_flags(options), _of_environment(options))
    return Book(options, layers, {rule.op: rule for rule in options.registered})


def names(scope: ir.Scope, node: ir.Node) -> tuple[str, ...]:
    """Returns the names by which a pattern may mean a node: its own, and `function/node`."""
    functions = (scope.name, scope.face)
    return (node.name, *(f"{function}/{node.name}" for function in functions if function))


def as_row(rule: UserRule, op: str, built_in: OpRow | None) -> OpRow:
    """Returns a rule that is no `force_low` as a row for `op`.

    Conditions of the built-in row (on what its kernels add up in the low precision) hold on only if
    the user says that the kernel does compute in it.
    """
    condition = built_in.condition if built_in is not None and rule.compute == LOW else ""
    return OpRow(
        op,
        Category[rule.category.upper()],
        source_of(rule),
        attrs=rule.attrs or (built_in.attrs if built_in is not None else ()),
        condition=condition,
        output=Output.LOW if rule.output == LOW else Output.FLOAT32,
        note=rule.reason,
    )


def source_of(rule: UserRule) -> str:
    """Returns where a rule is from, with the user's reason."""
    return f"{rule.source}: {rule.reason}" if rule.reason else rule.source


def environment_warnings(options: Options) -> Iterator[str]:
    """Yields a sentence for each of grappler's variables that does nothing here."""
    for edit in options.grappler_lists.edits:
        if edit.adds:
            continue
        listed = _listed(options)
        ops = [op for op in edit.ops if listed.get(op) != edit.category]
        if ops:
            shown = ", ".join(f"`{op}`" for op in ops)
            yield f"`{edit.variable}` removes {shown}, not on the {edit.category} list"
    for variable, value in options.grappler_lists.ignored:
        yield f"`{variable}` is `{value}`, which means nothing here"


def _of_flags(options: Options) -> tuple[UserRule, ...]:
    lists = [
        UserRule(f"--{name}", name.removesuffix("_ops"), ops=(op,))
        for name in LISTS
        for op in getattr(options, name)
    ]
    return (
        *sorted(lists, key=lambda rule: not rule.is_broad),
        *(
            UserRule(
                f"{KEEP_PREFIX}{pattern}",
                "keep",
                node=pattern,
                reason="`keep_float32` matches its name",
            )
            for pattern in options.keep_float32
        ),
        *(
            UserRule(f"{FORCE_PREFIX}{pattern}", force_low=True, node=pattern)
            for pattern in options.force_low
        ),
    )


def _of_environment(options: Options) -> tuple[UserRule, ...]:
    """Returns what grappler's variables make of the lists; adding comes first, as in grappler."""
    lists = options.grappler_lists
    _expect_no_conflict(options, lists)
    listed = _listed(options)
    added = [
        _as_rule(edit, op, edit.category) for edit in lists.edits if edit.adds for op in edit.ops
    ]
    removed = [edit for edit in lists.edits if not edit.adds]
    gone = {(op, edit.category) for edit in removed for op in edit.ops}
    kept = [
        _as_rule(edit, op, "keep")
        for edit in removed
        for op in edit.ops
        if listed.get(op) == edit.category
    ]
    return (*kept, *(rule for rule in added if (rule.ops[0], rule.category) not in gone))


def _as_rule(edit: ListEdit, op: str, category: str) -> UserRule:
    return UserRule(f"environment: {edit.variable}", category, ops=(op,))


def _expect_no_conflict(options: Options, lists: GrapplerLists) -> None:
    """Refuses an op that would stand on two lists, as grappler does."""
    gone = {(op, edit.category) for edit in lists.edits if not edit.adds for op in edit.ops}
    on = {op: (category, "the built-in lists") for op, category in _listed(options).items()}
    on = {op: place for op, place in on.items() if (op, place[0]) not in gone}
    for edit in lists.edits:
        for op in edit.ops if edit.adds else ():
            if (op, edit.category) in gone:
                continue
            category, where = on.setdefault(op, (edit.category, f"`{edit.variable}`"))
            if category != edit.category:
                raise errors.FlagError(
                    f"conflicting entries: `{edit.variable}` adds op `{op}` to the {edit.category} "
                    f"list, but {where} have it on the {category} list",
                    "to move it, remove it from that list in the environment as well",
                )


def _listed(options: Options) -> dict[str, str]:
    """Returns the list that each op of grappler's variables is on by tables and flags."""
    result = {}
    for op in {op for edit in options.grappler_lists.edits for op in edit.ops}:
        row = categories.row_for(op, options.low, options.device)
        if row is not None and row.category is not Category.KEEP:
            result[op] = row.category.value.lower()
        for name in LISTS:
            if op in getattr(options, name) and op != ANY_OP:
                result[op] = name.removesuffix("_ops")
    return result
