"""Which nodes, functions, objects and checkpoint keys are one and the same variable.

They are tied together by what the model itself does with them: handles that flow through calls,
captures that the object graph binds to arguments, and checkpoint keys that restore functions assign
to handles; never by guessing from names.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Mapping

from tf_amp_rewriter.dtypes import DT_RESOURCE
from tf_amp_rewriter.ir import op_defs, reach
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ir.handles import Handles, Port, Use
from tf_amp_rewriter.ops import calls as call_table
from tf_amp_rewriter.ops import handles as handle_ops
from tf_amp_rewriter.ops.attrs import attr_of

Object = tuple[int, int]  # graph, node id in its object graph


@dataclasses.dataclass(frozen=True)
class Links:
    """What a SavedModel says about its variables outside of its graphs.

    Attributes:
        bound: (graph, function name) -> objects bound to the function's last arguments.
        object_keys: object -> checkpoint key of its value.
        float_keys: checkpoint keys that hold a whole float32 tensor.
        foreign_keys: checkpoint keys that a meta graph which is not rewritten restores as well.
        slots: an optimizer's slot variable -> the variable that it is for. The loader makes slots
            in the dtype of that variable (tensorflow/python/saved_model/load.py).
    """

    bound: Mapping[tuple[int, str], tuple[int, ...]] = dataclasses.field(default_factory=dict)
    object_keys: Mapping[Object, str] = dataclasses.field(default_factory=dict)
    float_keys: frozenset[str] = frozenset()
    foreign_keys: frozenset[str] = frozenset()
    slots: Mapping[Object, Object] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Variable:
    """One float32 variable, or several that one function reads through one argument.

    Attributes:
        keys: its checkpoint keys, sorted.
        slot_keys: those of `keys` that hold an optimizer's state, which no signature reads.
        type_vars: the type variables that must equal its dtype.
        objects: its nodes in the object graphs.
        handle_args: (scope, argument) pairs that carry its handle.
        mutable: why its value changes while the model runs; empty if it does not.
        blocked: why it must stay float32; empty if it may become low.
    """

    keys: tuple[str, ...]
    slot_keys: tuple[str, ...]
    type_vars: tuple[int, ...]
    objects: tuple[Object, ...]
    handle_args: tuple[tuple[int, int], ...]
    mutable: str
    blocked: str


def find(program: ir.Program, handles: Handles, links: Links) -> list[Variable]:
    """Returns all float32 variables of `program`. Linear in the number of nodes.

    Args:
        program: the program.
        handles: where its handles flow; more of them are tied together here.
        links: what ties variables together outside of the graphs.
    """
    search = _Search(program, handles, links)
    for scope_index, scope in enumerate(program.scopes):
        search.visit_scope(scope_index, scope)
    for use in handles.uses:
        search.visit_use(use)
    search.tie_objects()
    return list(search.variables())


@dataclasses.dataclass
class _Group:
    """What is known so far of one variable."""

    keys: set[str] = dataclasses.field(default_factory=set)
    type_vars: set[int] = dataclasses.field(default_factory=set)
    objects: set[Object] = dataclasses.field(default_factory=set)
    handle_args: set[tuple[int, int]] = dataclasses.field(default_factory=set)
    handles: int = 0
    mutable: str = ""
    blocked: str = ""


class _Search:
    """Collects handles and accesses, scope by scope; lives only as long as `find`."""

    def __init__(self, program: ir.Program, handles: Handles, links: Links) -> None:
        self.program = program
        self.links = links
        self.sets = handles.sets
        self.tokens: dict[object, int] = dict(handles.tokens.items())
        self.facts: list[tuple[int, str, object]] = []  # (token, what, value)
        self.dtype_vars = {
            (v.scope, v.node, v.attr): i for i, v in enumerate(program.type_vars) if v.index < 0
        }
        self.readers: dict[int, dict[tuple[int, int], list[tuple[int, int]]]] = {}
        self.slots = frozenset(links.slots)
        self.running = [reach.ancestors_of_fetches(program, g) for g in range(len(program.graphs))]

    def token(self, key: object) -> int:
        if key not in self.tokens:
            self.tokens[key] = self.sets.add()
        return self.tokens[key]

    def tie(self, left: object, right: object) -> None:
        self.sets.union(self.token(left), self.token(right))

    def note(self, key: object, what: str, value: object) -> None:
        self.facts.append((self.token(key), what, value))

    def visit_scope(self, scope_index: int, scope: ir.Scope) -> None:
        for index, node in enumerate(scope.nodes):
            place = (scope_index, index)
            if node.op == handle_ops.RESOURCE_VARIABLE or node.op in handle_ops.REF_VARIABLES:
                self.visit_variable(place, scope, node)
            elif node.op == ir.ARG and node.out_types[0] == DT_RESOURCE:
                self.note((*place, 0), "handle_arg", place)
            elif node.op == handle_ops.RESTORE:
                self.visit_restore(place, scope, node)
            for position, (producer, _) in enumerate(node.inputs):
                if scope.nodes[producer].op in handle_ops.REF_VARIABLES:
                    self.visit_ref_use(place, scope, node, position)

    def visit_variable(self, place: tuple[int, int], scope: ir.Scope, node: ir.Node) -> None:
        port = (*place, 0)
        self.note(port, "handle", node.name)
        self.note_dtype(port, place, "dtype")
        if node.proto is not None:
            shared = attr_of(node.proto, "shared_name").s
            container = attr_of(node.proto, "container").s
            if shared or scope.function < 0:
                self.tie(port, ("name", scope.graph, container, shared or node.name.encode()))

    def note_dtype(self, port: Port, place: tuple[int, int], attr: str) -> None:
        var = self.dtype_vars.get((*place, attr))
        if var is not None:
            self.note(port, "type_var", var)

    def visit_use(self, use: Use) -> None:
        scope = self.program.scopes[use.scope]
        node = scope.nodes[use.node]
        row = handle_ops.RESOURCE_ACCESS.get(node.op)
        if row is not None and use.position == 0:
            self.visit_access((use.scope, use.node), scope, node, row, use.port)
        elif node.op == ir.RETVAL:
            if scope.name in self.program.graphs[scope.graph].visible:
                self.note(use.port, "blocked", f"function `{scope.name}` gives its handle away")
        else:
            self.note(use.port, "blocked", f"op `{node.op}` uses its handle")
            self.note(use.port, "mutable", f"op `{node.op}` uses its handle")

    def visit_ref_use(
        self, place: tuple[int, int], scope: ir.Scope, node: ir.Node, position: int
    ) -> None:
        source = (place[0], *node.inputs[position])
        row = handle_ops.REF_ACCESS.get(node.op)
        if row is not None and position == 0:
            self.visit_access(place, scope, node, row, source)
        elif node.op == handle_ops.SAVE:
            self.note(source, "type_var", node.in_vars[position])
        elif _takes_reference(node.op):
            self.note(source, "blocked", f"op `{node.op}` changes it")
            self.note(source, "mutable", f"op `{node.op}` changes it")
        else:
            self.follow_to_save(source, place, position)

    def visit_access(
        self,
        place: tuple[int, int],
        scope: ir.Scope,
        node: ir.Node,
        row: handle_ops.AccessRow,
        source: Port,
    ) -> None:
        if row.dtype:
            self.note_dtype(source, place, row.dtype)
        if row.access is handle_ops.Access.READ:
            for reader, position in self.readers_in(place[0]).get((place[1], 0), ()):
                self.follow_to_save(source, (place[0], reader), position)
        elif row.access is handle_ops.Access.ASSIGN and not self.is_restored(place, node):
            in_main_graph = scope.function < 0
            if not in_main_graph or place[1] in self.running[scope.graph]:
                where = f"function `{scope.name}`" if scope.name else "a signature"
                self.note(source, "blocked", f"`{node.name}` in {where} assigns it")
                self.note(source, "mutable", f"`{node.name}` in {where} assigns it")

    def is_restored(self, place: tuple[int, int], node: ir.Node) -> bool:
        """Returns whether the assigned value comes from a RestoreV2."""
        scope = self.program.scopes[place[0]]
        producer, _ = reach.origin(scope, *node.inputs[1])
        return scope.nodes[producer].op == handle_ops.RESTORE

    def readers_in(self, scope: int) -> dict[tuple[int, int], list[tuple[int, int]]]:
        if scope not in self.readers:
            self.readers[scope] = reach.consumers_of(self.program.scopes[scope])
        return self.readers[scope]

    def follow_to_save(self, source: Port, place: tuple[int, int], position: int) -> None:
        """Notes the type variables between a read and a SaveV2, if that is where it leads."""
        path: list[int] = []
        stack = [(place, position, path)]
        while stack:
            (scope_index, index), position, path = stack.pop()
            scope = self.program.scopes[scope_index]
            node = scope.nodes[index]
            if node.op == handle_ops.SAVE:
                for var in [*path, node.in_vars[position]]:
                    self.note(source, "type_var", var)
            elif node.op == handle_ops.IDENTITY:
                path = [*path, node.in_vars[0]]
                for reader, at in self.readers_in(scope_index).get((index, 0), ()):
                    stack.append(((scope_index, reader), at, path))
            elif node.op in call_table.CALLS:
                for callee in scope.calls[index]:
                    argument = position - callee.first_input
                    if argument < 0 or callee.is_loop:
                        continue
                    body = self.program.scopes[callee.scope]
                    extra = [*path, node.in_vars[position], body.nodes[argument].out_vars[0]]
                    for reader, at in self.readers_in(callee.scope).get((argument, 0), ()):
                        stack.append(((callee.scope, reader), at, extra))

    def visit_restore(self, place: tuple[int, int], scope: ir.Scope, node: ir.Node) -> None:
        names = _constant_strings(scope, node, handle_ops.RESTORE_NAMES_INPUT, len(node.out_vars))
        slices = _constant_strings(scope, node, handle_ops.RESTORE_SLICES_INPUT, len(node.out_vars))
        readers = self.readers_in(place[0])
        for port, var in enumerate(node.out_vars):
            if var == ir.NO_VAR:
                continue
            if names is None or slices is None:
                continue  # float_keys then stays without its variable, and so blocked
            key = ("key", names[port])
            self.note(key, "type_var", var)
            if slices[port]:
                self.note(key, "blocked", "it is restored in slices")
            for reader, at in readers.get((place[1], port), ()):
                self.follow_restore(key, place[0], reader, at)

    def follow_restore(self, key: object, scope_index: int, index: int, position: int) -> None:
        scope = self.program.scopes[scope_index]
        node = scope.nodes[index]
        row = handle_ops.RESOURCE_ACCESS.get(node.op) or handle_ops.REF_ACCESS.get(node.op)
        if row is not None and row.access is handle_ops.Access.ASSIGN and position == 1:
            self.tie(key, (scope_index, *node.inputs[0]))
        elif node.op == handle_ops.IDENTITY:
            self.note(key, "type_var", node.in_vars[0])
            for reader, at in self.readers_in(scope_index).get((index, 0), ()):
                self.follow_restore(key, scope_index, reader, at)
        else:
            self.note(key, "blocked", f"node `{node.name}` reads it from the checkpoint")

    def tie_objects(self) -> None:
        """Ties captures to arguments, and objects to checkpoint keys, as the object graph says."""
        for (graph, function), bound in self.links.bound.items():
            scope_index = self.program.function_scopes[graph].get(function)
            if scope_index is None:
                continue
            first = self.program.scopes[scope_index].num_args - len(bound)
            for offset, node_id in enumerate(bound):
                port = (scope_index, first + offset, 0)
                if port in self.tokens:
                    self.tie(port, ("object", graph, node_id))
        for (graph, node_id), key in self.links.object_keys.items():
            self.tie(("object", graph, node_id), ("key", key))
            self.note(("key", key), "object", (graph, node_id))
        for slot, original in self.links.slots.items():
            self.tie(("object", *slot), ("object", *original))

    def variables(self) -> Iterator[Variable]:
        groups: dict[int, _Group] = collections.defaultdict(_Group)
        for key, token in self.tokens.items():
            if isinstance(key, tuple) and key[0] == "key":
                groups[self.sets.find(token)].keys.add(key[1])
        for token, what, value in self.facts:
            _add_fact(groups[self.sets.find(token)], what, value)
        for group in groups.values():
            if group.handles and group.type_vars:
                yield self.variable(group)

    def variable(self, group: _Group) -> Variable:
        blocked = group.blocked
        odd = sorted(group.keys - self.links.float_keys)
        foreign = sorted(group.keys & self.links.foreign_keys)
        if not group.keys:
            blocked = blocked or "its values are not in the checkpoint"
        elif odd:
            blocked = blocked or f"the checkpoint holds no whole float32 tensor `{odd[0]}`"
        elif foreign:
            blocked = blocked or "a meta graph without the given tags restores it too"
        slot_keys = {self.links.object_keys.get(place) for place in group.objects & self.slots}
        return Variable(
            tuple(sorted(group.keys)),
            tuple(sorted(group.keys & slot_keys)),
            tuple(sorted(group.type_vars)),
            tuple(sorted(group.objects)),
            tuple(sorted(group.handle_args)),
            group.mutable,
            blocked,
        )


def _add_fact(group: _Group, what: str, value: object) -> None:
    match what:
        case "type_var" if value != ir.NO_VAR:
            group.type_vars.add(value)  # type: ignore[arg-type]
        case "object":
            group.objects.add(value)  # type: ignore[arg-type]
        case "handle_arg":
            group.handle_args.add(value)  # type: ignore[arg-type]
        case "handle":
            group.handles += 1
        case "mutable":
            group.mutable = group.mutable or str(value)
        case "blocked":
            group.blocked = group.blocked or str(value)


def _constant_strings(
    scope: ir.Scope, node: ir.Node, position: int, count: int
) -> list[str] | None:
    """Returns the strings of a constant input; None if it is not constant."""
    producer = scope.nodes[reach.origin(scope, *node.inputs[position])[0]]
    if producer.op != handle_ops.CONSTANT or producer.proto is None:
        return None
    tensor = attr_of(producer.proto, "value").tensor
    values = [value.decode("utf-8", "surrogateescape") for value in tensor.string_val]
    if values and len(values) < count:
        values += values[-1:] * (count - len(values))
    return values or None


def _takes_reference(op: str) -> bool:
    op_def = op_defs.registered(op)
    return op_def is None or any(arg.is_ref for arg in op_def.input_arg)
