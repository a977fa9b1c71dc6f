"""What decides the way that control takes: which branch runs, and how often a loop does."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

from tf_amp_rewriter.dtypes import DT_BOOL
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ops import calls as call_table
from tf_amp_rewriter.ops import handles

Port = tuple[int, int, int]  # scope, node, port or input


@dataclasses.dataclass(frozen=True)
class Control:
    """The type variables of the float32 values that loops and branches hang on.

    Attributes:
        steering: of all that predicates are made of, through integers and booleans, also into
            functions and around loops, back to the comparisons that read float32.
        loop_tests: of the comparisons that end a loop; only booleans are followed, not the tokens
            that an ArgMax chose.
    """

    steering: frozenset[int]
    loop_tests: frozenset[int]


def find(program: ir.Program) -> Control:
    """Returns what controls `program`. Linear in the number of nodes."""
    branches, loops = _predicates(program)
    callers = _callers(program) if branches or loops else {}
    return Control(
        frozenset(_floats_behind(program, callers, [*branches, *loops], lambda _: True)),
        frozenset(_floats_behind(program, callers, loops, lambda dtype: dtype == DT_BOOL)),
    )


def _floats_behind(
    program: ir.Program,
    callers: Mapping[tuple[int, int], Sequence[Port]],
    predicates: Sequence[Port],
    follows: Callable[[int], bool],
) -> Iterator[int]:
    """Yields the float32 inputs of what predicates are made of, through the dtypes followed."""
    stack: list[Port] = []
    for scope_index, index, position in predicates:
        node = program.scopes[scope_index].nodes[index]
        if node.in_vars[position] != ir.NO_VAR:
            yield node.in_vars[position]
        else:
            stack.append((scope_index, *node.inputs[position]))
    seen = set(stack)
    while stack:
        scope_index, index, port = stack.pop()
        scope = program.scopes[scope_index]
        node = scope.nodes[index]
        if node.op == ir.ARG:
            found = [*callers.get((scope_index, index), ())]
        elif node.op in handles.SHAPE_READERS:
            continue
        elif node.op in call_table.CALLS:
            found = list(_results(program, scope, (scope_index, index, port)))
        else:
            yield from (var for var in node.in_vars if var != ir.NO_VAR)
            found = [
                (scope_index, *source)
                for source, var, dtype in zip(node.inputs, node.in_vars, node.in_types, strict=True)
                if var == ir.NO_VAR and follows(dtype)
            ]
        for place in found:
            if place not in seen:
                seen.add(place)
                stack.append(place)


def _predicates(program: ir.Program) -> tuple[list[Port], list[Port]]:
    """Returns the inputs that say which branch runs, and those that say whether a loop goes on."""
    branches: list[Port] = []
    loops: list[Port] = []
    for scope_index, scope in enumerate(program.scopes):
        if not handles.SWITCHES.isdisjoint(scope.ops):
            for index, node in enumerate(scope.nodes):
                if node.op in handles.SWITCHES:
                    is_loop = scope.nodes[node.inputs[1][0]].op == handles.LOOP_CONDITION
                    (loops if is_loop else branches).append((scope_index, index, 1))
        for index, callees in scope.calls.items():
            if call_table.CALLS[scope.nodes[index].op].first_input:
                branches.append((scope_index, index, 0))
            for callee in callees:
                if not callee.gives_results:
                    results = program.scopes[callee.scope].results
                    loops.extend((callee.scope, result, 0) for result in results)
    return branches, loops


def _callers(program: ir.Program) -> dict[tuple[int, int], list[Port]]:
    """Returns (scope, argument) -> the outputs that calls give it, and loops carry to it."""
    found: dict[tuple[int, int], list[Port]] = collections.defaultdict(list)
    for scope_index, scope in enumerate(program.scopes):
        for index, callees in scope.calls.items():
            node = scope.nodes[index]
            for callee in callees:
                for argument in range(program.scopes[callee.scope].num_args):
                    place = (callee.scope, argument)
                    found[place].append((scope_index, *node.inputs[argument + callee.first_input]))
            # what the body gives is the argument of the body and of the condition in the next step
            bodies = [c.scope for c in callees if c.is_loop and c.gives_results]
            for body in bodies:
                for argument, result in enumerate(program.scopes[body].results):
                    source = program.scopes[body].nodes[result].inputs[0]
                    for callee in callees:
                        found[callee.scope, argument].append((body, *source))
    return found


def _results(program: ir.Program, scope: ir.Scope, port: Port) -> Iterator[Port]:
    """Yields what the output of a call is: a result of its functions; of a loop, its input too."""
    scope_index, index, number = port
    node = scope.nodes[index]
    for callee in scope.calls[index]:
        if callee.gives_results:
            body = program.scopes[callee.scope]
            yield callee.scope, *body.nodes[body.results[number]].inputs[0]
            if callee.is_loop:
                yield scope_index, *node.inputs[number]
