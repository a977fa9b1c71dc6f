"""What outsiders see of a program, and so stays float32: inputs, outputs, faces of functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from tensorflow.core.framework import function_pb2

from tf_amp_rewriter import errors
from tf_amp_rewriter.ir import build, calls
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ops import calls as call_table
from tf_amp_rewriter.ops import handles

# How a function names the other of a pair that TensorFlow made to train with.
TRAINING_PAIR: Final = ("forward_function_name", "backward_function_name")
IMPLEMENTS: Final = "api_implements"  # what a function is an implementation of
_COLOCATION: Final = "_class"


def faces(program: ir.Program) -> Mapping[int, str]:
    """Returns the functions whose arguments and results stay float32, with the reason."""
    found = dict(seen(program))
    called = {callee for scope in program.scopes for callee in scope.callees}
    for group in alternatives(program):
        if not called.isdisjoint(group):
            called.update(group)
    for index, scope in enumerate(program.scopes):
        if scope.function >= 0 and index not in called:
            found.setdefault(index, "nothing in the graph calls the function")
    return found


def seen(program: ir.Program) -> Mapping[int, str]:
    """Returns the functions that outsiders call, or ops that are not followed, with the reason."""
    found: dict[int, str] = {}
    for index, scope in enumerate(program.scopes):
        for node, function in calls.other_functions_in(program, scope):
            found[function] = f"op `{node.op}` calls the function"
        if scope.name in program.graphs[scope.graph].visible:
            found[index] = "the function can be called from outside of the graph"
    return found


def of_training(library: function_pb2.FunctionDefLibrary) -> Iterator[str]:
    """Yields the names of functions that a gradient or a training pair names."""
    for gradient in library.gradient:
        yield gradient.function_name
        yield gradient.gradient_func
    yield from (gradient.gradient_func for gradient in library.registered_gradients)
    for function in library.function:
        for attr in TRAINING_PAIR:
            if attr in function.attr:
                yield function.signature.name
                yield function.attr[attr].s.decode("utf-8", "replace")


def alternatives(program: ir.Program) -> Iterator[tuple[int, ...]]:
    """Yields functions of which TensorFlow may call any where one is called.

    Source: tensorflow/core/grappler/optimizers/implementation_selector.cc: a call of one becomes a
    call of another that fits the device better, with the arguments as they are.
    """
    groups: dict[tuple[int, bytes, int, int], list[int]] = defaultdict(list)
    for index, scope in enumerate(program.scopes):
        if scope.function < 0:
            continue
        function = scope.function_in(program.graphs[scope.graph].graph_def)
        if IMPLEMENTS in function.attr:
            name = function.attr[IMPLEMENTS].s
            groups[scope.graph, name, scope.num_args, scope.num_results].append(index)
    for group in groups.values():
        if len(group) > 1:
            yield tuple(group)


def pinned(program: ir.Program, faces: Mapping[int, str]) -> Iterator[tuple[int, str]]:
    """Yields the type variables that must be float32, with the reason.

    Args:
        program: the program.
        faces: the functions that outsiders call; see `faces`.

    Raises:
        errors.InputError: a feed or fetch names an output that its node does not have.
    """
    for index, scope in enumerate(program.scopes):
        if scope.function < 0:
            yield from _pinned_in_main_graph(program.graphs[scope.graph], scope)
        elif index in faces:
            captured = captured_arguments(program, scope)
            for position in [*range(scope.num_args), *scope.results]:
                if position in captured:
                    continue
                node = scope.nodes[position]
                for var in {*node.in_vars, *node.out_vars} - {ir.NO_VAR}:
                    yield var, faces[index]
        yield from _pinned_at_foreign_calls(scope)


def captured_arguments(program: ir.Program, scope: ir.Scope) -> Mapping[int, str]:
    """Returns argument -> Const node, for arguments that the loader binds to a constant."""
    bound = program.graphs[scope.graph].captured.get(scope.name, ())
    first = scope.num_args - len(bound)
    return {first + offset: name for offset, name in enumerate(bound) if name}


def _pinned_at_foreign_calls(scope: ir.Scope) -> Iterator[tuple[int, str]]:
    for node in scope.nodes:
        row = call_table.CALLS.get(node.op)
        if row is not None and row.tie is call_table.Tie.FOREIGN:
            for attr, _, var in node.attr_vars:
                if attr not in row.captured:
                    yield var, f"op `{node.op}` cuts or joins it itself"


def _pinned_in_main_graph(source: ir.GraphSource, scope: ir.Scope) -> Iterator[tuple[int, str]]:
    index_of = {node.name: node for node in scope.nodes}
    for node in scope.nodes:
        if node.op in handles.PLACEHOLDERS:
            for var in {*node.in_vars, *node.out_vars} - {ir.NO_VAR}:
                yield var, "a model input"
    for names, reason in ((source.feeds, "a model input"), (source.fetches, "a model output")):
        for tensor in sorted(names):
            name, _, digits = tensor.partition(":")
            node = index_of[name]
            port = build.port_number(digits or "0")
            if node.known and not node.out_vars:
                continue  # an op that is run for its effect, such as a SavedModel's init op
            if port is None or (node.known and port >= len(node.out_vars)):
                raise errors.InputError(
                    f"`{tensor}` is named as {reason}, but the node has {len(node.out_vars)} "
                    "outputs",
                    node=name,
                )
            if port < len(node.out_vars) and node.out_vars[port] != ir.NO_VAR:
                yield node.out_vars[port], reason


def needed_otherwise(program: ir.Program, scope: ir.Scope) -> frozenset[str]:
    """Returns the nodes of a scope that someone needs besides those that read their values.

    That is who waits for them, who is placed where they are, and who fetches or runs them.
    """
    source = program.graphs[scope.graph]
    protos = scope.protos_in(source.graph_def)
    needed = {ref[1:] for proto in protos for ref in proto.input if ref[:1] == "^"}
    for proto in protos:
        if _COLOCATION in proto.attr:
            places = proto.attr[_COLOCATION].list.s
            needed.update(place.removeprefix(b"loc:@").decode() for place in places)
    if scope.function >= 0:
        return frozenset(needed | set(scope.function_in(source.graph_def).control_ret.values()))
    seen = {tensor.partition(":")[0] for tensor in (*source.fetches, *source.feeds)}
    return frozenset(needed | seen | set(source.roots))
