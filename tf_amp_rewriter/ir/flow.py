"""Where float32 values flow: edges between type variables, and which of them must be equal.

On exit every type variable is in one class, classes have edges to those that read them, and what
outsiders can see, or what this version can't follow, is pinned with the reason.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence

from tf_amp_rewriter import errors
from tf_amp_rewriter.dtypes import DT_FLOAT
from tf_amp_rewriter.ir import build, calls, variables
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ir.union import UnionFind
from tf_amp_rewriter.ops import handles
from tf_amp_rewriter.ops.rows import TIED_ATTRS


@dataclasses.dataclass(frozen=True)
class Flow:
    """The program graph: classes of type variables and the edges between them.

    Attributes:
        program: what it was made from.
        class_of: type variable -> class.
        members: class -> its type variables.
        sources: class -> classes that it reads.
        readers: class -> classes that read it.
        pinned: class -> why outsiders or unknown parts of the model need it to be float32.
        variables: all float32 variables.
        variable_of: class -> index of the variable that it is.
    """

    program: ir.Program
    class_of: Sequence[int]
    members: Sequence[Sequence[int]]
    sources: Sequence[Sequence[int]]
    readers: Sequence[Sequence[int]]
    pinned: Mapping[int, str]
    variables: Sequence[variables.Variable]
    variable_of: Mapping[int, int]


def flow(program: ir.Program, links: variables.Links) -> Flow:
    """Returns the program graph of `program`. Linear in the number of nodes.

    Raises:
        errors.InputError: a node reads a tensor of another dtype than it says, or does not fit the
            function that it calls.
    """
    _expect_calls_fit(program)
    sets = UnionFind.of_size(len(program.type_vars))
    pins = dict(_pinned_by_outsiders(program))
    pins.update(_pinned_in_loops(program))
    found = variables.find(program, links)
    for variable in found:
        for var in variable.type_vars[1:]:
            sets.union(variable.type_vars[0], var)
    for left, right in _ties(program):
        sets.union(left, right)

    numbers: dict[int, int] = {}
    class_of = [
        numbers.setdefault(sets.find(var), len(numbers)) for var in range(len(program.type_vars))
    ]
    members: list[list[int]] = [[] for _ in numbers]
    for var, number in enumerate(class_of):
        members[number].append(var)
    sources: list[set[int]] = [set() for _ in numbers]
    readers: list[set[int]] = [set() for _ in numbers]
    for producer, reader in _edges(program):
        source, target = class_of[producer], class_of[reader]
        if source != target:
            sources[target].add(source)
            readers[source].add(target)
    pinned: dict[int, str] = {}
    for var, reason in pins.items():
        pinned.setdefault(class_of[var], reason)
    return Flow(
        program,
        tuple(class_of),
        tuple(tuple(m) for m in members),
        tuple(tuple(sorted(s)) for s in sources),
        tuple(tuple(sorted(r)) for r in readers),
        pinned,
        tuple(found),
        {class_of[v.type_vars[0]]: i for i, v in enumerate(found)},
    )


def _expect_calls_fit(program: ir.Program) -> None:
    """Refuses a call with more or fewer values than its function has arguments and results."""
    for scope in program.scopes:
        for node in scope.nodes:
            for callee in calls.callees(program, scope, node):
                problem = _misfit(node, callee, program.scopes[callee.scope])
                if problem:
                    hint = "the model is damaged: export it again"
                    raise errors.InputError(problem, hint, scope=scope.name, node=node.name)


def _misfit(node: ir.Node, callee: calls.Callee, body: ir.Scope) -> str:
    given, taken = len(node.in_vars) - callee.first_input, len(node.out_vars)
    if given != body.num_args:
        return f"calls `{body.name}` with {given} values, expected {body.num_args}"
    if callee.gives_results and taken != body.num_results:
        return f"takes {taken} values from `{body.name}`, expected {body.num_results}"
    return ""


def _edges(program: ir.Program) -> Iterator[tuple[int, int]]:
    """Yields (producer, reader) for every float32 tensor that a node reads."""
    for scope in program.scopes:
        for node in scope.nodes:
            for position, (producer, port) in enumerate(node.inputs):
                reader = node.in_vars[position]
                source = scope.nodes[producer]
                if not source.known:
                    if reader != ir.NO_VAR:
                        yield source.out_vars[0], reader
                    continue
                if port >= len(source.out_types):
                    raise errors.InputError(
                        f"input {position} is output {port} of `{source.name}`, which has "
                        f"{len(source.out_types)}",
                        scope=scope.name,
                        node=node.name,
                    )
                if reader == ir.NO_VAR:
                    continue
                if source.out_vars[port] != ir.NO_VAR:
                    yield source.out_vars[port], reader
                elif node.known and source.out_types[port] != 0:
                    raise errors.InputError(
                        f"input {position} has dtype number {source.out_types[port]}, expected "
                        f"{DT_FLOAT} (float32)",
                        scope=scope.name,
                        node=node.name,
                    )


def _ties(program: ir.Program) -> Iterator[tuple[int, int]]:
    """Yields pairs of type variables that calls, or the kernels of an op, make equal."""
    constants = [_index_of(program, graph) for graph in range(len(program.graphs))]
    for scope in program.scopes:
        for argument, name in _captured_arguments(program, scope).items():
            yield from _tie(
                scope.nodes[argument].out_vars[0], constants[scope.graph][name].out_vars[0]
            )
        for node in scope.nodes:
            if node.op in TIED_ATTRS:
                tied = [var for attr, _, var in node.attr_vars if attr in TIED_ATTRS[node.op]]
                yield from itertools.pairwise(tied)
            for callee in calls.callees(program, scope, node):
                body = program.scopes[callee.scope]
                if callee.is_loop:
                    yield from _loop_ties(node, body, gives_results=callee.gives_results)
                    continue
                for argument in range(body.num_args):
                    yield from _tie(
                        node.in_vars[argument + callee.first_input],
                        body.nodes[argument].out_vars[0],
                    )
                if callee.gives_results:
                    for port, result in enumerate(body.results):
                        yield from _tie(node.out_vars[port], body.nodes[result].in_vars[0])


def _index_of(program: ir.Program, graph: int) -> Mapping[str, ir.Node]:
    return {node.name: node for node in program.main_scope(graph).nodes}


def _tie(left: int, right: int) -> Iterator[tuple[int, int]]:
    if left != ir.NO_VAR and right != ir.NO_VAR:
        yield left, right


def _loop_ties(node: ir.Node, body: ir.Scope, *, gives_results: bool) -> Iterator[tuple[int, int]]:
    for argument in range(body.num_args):
        yield from _tie(node.in_vars[argument], body.nodes[argument].out_vars[0])
        if gives_results:
            result = body.nodes[body.results[argument]]
            yield from _tie(node.out_vars[argument], result.in_vars[0])
            if result.in_vars[0] != ir.NO_VAR:
                for var in _forwarding_path(body, result, argument) or ():
                    yield var, result.in_vars[0]


def _forwarding_path(body: ir.Scope, result: ir.Node, argument: int) -> list[int] | None:
    """Returns the type variables from argument to result if the loop only hands the value on."""
    path: list[int] = []
    producer, port = result.inputs[0]
    seen: set[int] = set()  # a damaged graph may have a cycle
    while body.nodes[producer].op == handles.IDENTITY and producer not in seen:
        seen.add(producer)
        path.extend(body.nodes[producer].in_vars)
        producer, port = body.nodes[producer].inputs[0]
    return path if (producer, port) == (argument, 0) else None


def _pinned_in_loops(program: ir.Program) -> Iterator[tuple[int, str]]:
    """Yields what loops carry from one step to the next; loop invariants are not among it."""
    for scope in program.scopes:
        for node in scope.nodes:
            for callee in calls.callees(program, scope, node):
                if not (callee.is_loop and callee.gives_results):
                    continue
                body = program.scopes[callee.scope]
                for argument in range(body.num_args):
                    var = body.nodes[argument].out_vars[0]
                    result = body.nodes[body.results[argument]]
                    if var != ir.NO_VAR and _forwarding_path(body, result, argument) is None:
                        yield var, f"loop `{node.name}` carries it from step to step"
            if node.op in handles.MERGES and any(
                scope.nodes[producer].op == "NextIteration" for producer, _ in node.inputs
            ):
                for var in {*node.in_vars, *node.out_vars} - {ir.NO_VAR}:
                    yield var, "a loop carries it from step to step"


def _pinned_by_outsiders(program: ir.Program) -> Iterator[tuple[int, str]]:
    faces = _faces(program)
    for index, scope in enumerate(program.scopes):
        if scope.function < 0:
            yield from _pinned_in_main_graph(program.graphs[scope.graph], scope)
        elif index in faces:
            captured = _captured_arguments(program, scope)
            for position in [*range(scope.num_args), *scope.results]:
                if position in captured:
                    continue
                node = scope.nodes[position]
                for var in {*node.in_vars, *node.out_vars} - {ir.NO_VAR}:
                    yield var, faces[index]


def _captured_arguments(program: ir.Program, scope: ir.Scope) -> Mapping[int, str]:
    """Returns argument -> Const node, for arguments that the loader binds to a constant."""
    bound = program.graphs[scope.graph].captured.get(scope.name, ())
    first = scope.num_args - len(bound)
    return {first + offset: name for offset, name in enumerate(bound) if name}


def _faces(program: ir.Program) -> Mapping[int, str]:
    """Returns the functions whose arguments and results stay float32, with the reason."""
    called: set[int] = set()
    faces: dict[int, str] = {}
    for index, scope in enumerate(program.scopes):
        functions = program.function_scopes[scope.graph]
        for node in scope.nodes:
            called.update(callee.scope for callee in calls.callees(program, scope, node))
            for name in calls.other_functions(node):
                if name in functions:
                    faces[functions[name]] = f"op `{node.op}` calls the function"
        if scope.name in program.graphs[scope.graph].visible:
            faces[index] = "the function can be called from outside of the graph"
    for index in range(len(program.scopes)):
        if index not in called:
            faces.setdefault(index, "nothing in the graph calls the function")
    return faces


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
