"""Where float32 values flow: edges between type variables, and which of them must be equal.

On exit every type variable is in one class, classes have edges to those that read them, and what
outsiders can see, or what this version can't follow, is pinned with the reason.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from tf_amp_rewriter import errors
from tf_amp_rewriter.dtypes import DT_FLOAT
from tf_amp_rewriter.ir import containers, control, handles, outsiders, ties, variables
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ir.union import UnionFind


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
        containers: all containers of float32 tensors.
        carried: classes of what loops carry from step to step, and of what containers hold.
        invariants: classes of what loops read at every step, unchanged.
        steering: classes of which loops and branches hang.
        loop_tests: those of them whose comparison ends a loop.
    """

    program: ir.Program
    class_of: Sequence[int]
    members: Sequence[Sequence[int]]
    sources: Sequence[Sequence[int]]
    readers: Sequence[Sequence[int]]
    pinned: Mapping[int, str]
    variables: Sequence[variables.Variable]
    variable_of: Mapping[int, int]
    containers: Sequence[containers.Container]
    carried: frozenset[int]
    invariants: frozenset[int]
    steering: frozenset[int]
    loop_tests: frozenset[int]


def flow(program: ir.Program, links: variables.Links) -> Flow:
    """Returns the program graph of `program`. Linear in the number of nodes.

    Raises:
        errors.InputError: a node reads a tensor of another dtype than it says, or does not fit the
            function that it calls.
    """
    _expect_calls_fit(program)
    sets = UnionFind.of_size(len(program.type_vars))
    faces = outsiders.faces(program)
    pins = dict(outsiders.pinned(program, faces))
    passed = handles.follow(program)
    held = containers.find(program, passed, faces)
    pins.update((c.type_vars[0], c.blocked) for c in held if c.blocked)
    found = variables.find(program, passed, links)
    for group in (*(v.type_vars for v in found), *(c.type_vars for c in held)):
        for var in group[1:]:
            sets.union(group[0], var)
    for left, right in ties.ties(program):
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
    found_control = control.find(program)
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
        tuple(held),
        frozenset(
            class_of[var] for var in (*ties.carried(program), *(c.type_vars[0] for c in held))
        ),
        frozenset(class_of[var] for var in ties.invariants(program)),
        frozenset(class_of[var] for var in found_control.steering),
        frozenset(class_of[var] for var in found_control.loop_tests),
    )


def topological_order(flow: Flow) -> list[int]:
    """Returns all classes, sources before readers; cycles are cut where they are entered."""
    order: list[int] = []
    state = bytearray(len(flow.sources))  # 0 new, 1 open, 2 done
    for root in range(len(flow.sources)):
        stack = [root]
        while stack:
            number = stack[-1]
            if state[number] == 0:
                state[number] = 1
                stack.extend(s for s in flow.sources[number] if state[s] == 0)
            else:
                stack.pop()
                if state[number] == 1:
                    state[number] = 2
                    order.append(number)
    return order


def _expect_calls_fit(program: ir.Program) -> None:
    """Refuses a call with more or fewer values than its function has arguments and results."""
    for scope in program.scopes:
        for index, callees in scope.calls.items():
            node = scope.nodes[index]
            for callee in callees:
                problem = _misfit(node, callee, program.scopes[callee.scope])
                if problem:
                    hint = "the model is damaged: export it again"
                    raise errors.InputError(problem, hint, scope=scope.name, node=node.name)


def _misfit(node: ir.Node, callee: ir.Callee, body: ir.Scope) -> str:
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
