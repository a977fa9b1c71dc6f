"""Walks a GraphDef with its function library: where a value comes from, what a signature runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from tensorflow.core.framework import graph_pb2, node_def_pb2, types_pb2

Node = node_def_pb2.NodeDef

# Ops that hand on their first input.
_HANDS_ON: Final = frozenset(
    """Enter ExpandDims Exit Identity Merge NextIteration Reshape Squeeze StopGradient Switch
    Transpose""".split()
)
_LOOPS: Final = frozenset({"StatelessWhile", "While"})
# Calls whose first input is not an argument.
_SELECTS: Final = frozenset({"Case", "If", "RemoteCall", "StatelessCase", "StatelessIf"})
_CONTRACTIONS: Final = frozenset(
    """BatchMatMul BatchMatMulV2 BatchMatMulV3 Conv2D Conv2DBackpropInput Conv3D
    DepthwiseConv2dNative Einsum MatMul""".split()
)
_FLOATS: Final = frozenset({types_pb2.DT_FLOAT, types_pb2.DT_HALF, types_pb2.DT_BFLOAT16})


@dataclasses.dataclass(frozen=True)
class _Call:
    """One call of a function: who calls, what it passes, and the body that loops, if one does."""

    scope: str
    inputs: tuple[str, ...]
    body: str = ""


class Walk:
    """A graph with indexes. The name of the main graph's scope is the empty string."""

    def __init__(self, graph_def: graph_pb2.GraphDef) -> None:
        functions = graph_def.library.function
        self.scopes: Mapping[str, Mapping[str, Node]] = {
            "": {node.name: node for node in graph_def.node},
            **{f.signature.name: {n.name: n for n in f.node_def} for f in functions},
        }
        self._arguments = {
            f.signature.name: {a.name: i for i, a in enumerate(f.signature.input_arg)}
            for f in functions
        }
        self._results = {
            f.signature.name: [f.ret[a.name] for a in f.signature.output_arg] for f in functions
        }
        self._calls: dict[str, list[_Call]] = {}
        for scope, nodes in self.scopes.items():
            for node in nodes.values():
                for name in self.called_by(node):
                    inputs = _data_inputs(node)[1 if node.op in _SELECTS else 0 :]
                    body = node.attr["body"].func.name if node.op in _LOOPS else ""
                    self._calls.setdefault(name, []).append(_Call(scope, inputs, body))

    def called_by(self, node: Node) -> tuple[str, ...]:
        """Returns the library functions that a node calls."""
        names = [a.func.name for a in node.attr.values() if a.HasField("func")]
        names += [f.name for a in node.attr.values() for f in a.list.func]
        return tuple(n for n in [*names, node.op] if n and n in self.scopes)

    def sources(self, scope: str, reference: str) -> set[tuple[str, str]]:
        """Returns (scope, node) of what made a value, past ops that only hand it on.

        A value that a function gets as its argument is followed to all callers; one that nobody
        passes is (scope, argument).
        """
        found: set[tuple[str, str]] = set()
        seen: set[tuple[str, str]] = set()
        stack = [(scope, reference)]
        while stack:
            place = (stack[-1][0], stack.pop()[1].split(":")[0])
            if place in seen:
                continue
            seen.add(place)
            inside, name = place
            node = self.scopes[inside].get(name)
            if node is None:
                index = self._arguments[inside][name]
                calls = self._calls.get(inside, ())
                stack.extend((call.scope, call.inputs[index]) for call in calls)
                stack.extend((c.body, self._results[c.body][index]) for c in calls if c.body)
                if not calls:
                    found.add(place)
            elif node.op in _HANDS_ON:
                inputs = _data_inputs(node)
                stack.extend((inside, i) for i in (inputs if node.op == "Merge" else inputs[:1]))
            else:
                found.add(place)
        return found

    def casts_on_weights(self, low: int) -> Iterator[str]:
        """Yields a line for each Cast from float32 to type `low` of nothing but a weight.

        A weight is a Const, or a variable that only its initializer and a restore assign.
        """
        assigned = self._assigned_variables()
        for scope, nodes in self.scopes.items():
            for node in nodes.values():
                if node.op != "Cast" or node.attr["DstT"].type != low:
                    continue
                if node.attr["SrcT"].type != types_pb2.DT_FLOAT:
                    continue
                made = self.sources(scope, node.input[0])
                if made and all(self._is_weight(place, assigned) for place in made):
                    yield f"{scope}/{node.name} on {sorted(made)}"

    def _is_weight(self, place: tuple[str, str], assigned: set[str]) -> bool:
        node = self.scopes[place[0]].get(place[1])
        if node is None:
            return False
        if node.op == "ReadVariableOp":
            return not self._variables(place[0], node.input[0]) & assigned
        return node.op == "Const" or (node.op == "VariableV2" and node.name not in assigned)

    def _variables(self, scope: str, reference: str) -> set[str]:
        """Returns the names of the variables that a handle may stand for."""
        names = set()
        for inside, name in self.sources(scope, reference):
            node = self.scopes[inside].get(name)
            shared = node.attr["shared_name"].s.decode() if node is not None else ""
            names.add(shared or name)
        return names

    def _assigned_variables(self) -> set[str]:
        """Returns variables that functions assign, other than in restoring a checkpoint."""
        names: set[str] = set()
        for scope, nodes in self.scopes.items():
            restores = any(node.op == "RestoreV2" for node in nodes.values())
            if restores or not scope:
                continue
            for node in nodes.values():
                writes = node.op.startswith(("Assign", "ResourceApply", "ResourceScatter"))
                if writes and not self._assigns_its_initial_value(scope, node):
                    names |= self._variables(scope, node.input[0])
        return names

    def _assigns_its_initial_value(self, scope: str, node: Node) -> bool:
        """Whether what is assigned comes from a RestoreV2: a restore function's inner function."""
        values = self.sources(scope, node.input[1]) if node.op == "AssignVariableOp" else set()
        made = [self.scopes[inside].get(name) for inside, name in values]
        return bool(made) and all(m is not None and m.op == "RestoreV2" for m in made)

    def in_loops(self, references: Sequence[str]) -> Iterator[tuple[str, Node]]:
        """Yields (scope, node) of what runs once a step of a loop, for tensors of the main graph.

        That is all of the bodies and conditions of While ops and of what they call, and what of
        control flow v1 `framed` names.
        """
        reached = list(self.reachable(references))
        framed = {scope: self.framed(scope) for scope in {scope for scope, _ in reached}}
        bodies: set[str] = set()
        stack = [
            name
            for scope, node in reached
            if node.op in _LOOPS or node.name in framed[scope]
            for name in self.called_by(node)
        ]
        while stack:
            name = stack.pop()
            if name not in bodies:
                bodies.add(name)
                stack.extend(n for node in self.scopes[name].values() for n in self.called_by(node))
        yield from ((s, n) for s, n in reached if s in bodies or n.name in framed[s])

    def framed(self, scope: str) -> set[str]:
        """Returns the names of the nodes of control flow v1 that run once a step of a loop.

        They stand behind an Enter. A loop is left at the first output of a Switch that its LoopCond
        steers: what stands behind that, up to the Exit and beyond, runs once, as the loop ends.
        """
        nodes = self.scopes[scope]
        consumers: dict[str, list[tuple[str, str]]] = {}
        for node in nodes.values():
            for reference in node.input:
                name = reference.lstrip("^").split(":")[0]
                consumers.setdefault(name, []).append((node.name, reference))
        depths = dict.fromkeys(nodes, 0)
        stack = [name for name, node in nodes.items() if node.op in {"Enter", "RefEnter"}]
        depths.update(dict.fromkeys(stack, 1))
        while stack:
            name = stack.pop()
            for consumer, reference in consumers.get(name, ()):
                depth = depths[name] - self._leaves_loop(scope, reference)
                depth += nodes[consumer].op in {"Enter", "RefEnter"}
                if depth > depths[consumer]:  # at most as often as loops are nested
                    depths[consumer] = depth
                    stack.append(consumer)
        return {name for name, depth in depths.items() if depth}

    def _leaves_loop(self, scope: str, reference: str) -> bool:
        """Whether a value, not a control input, is there only when a loop ends."""
        name, _, port = reference.partition(":")
        node = self.scopes[scope].get(name)  # none of a control input's name
        if node is None or node.op not in {"RefSwitch", "Switch"} or port not in {"", "0"}:
            return False
        steers = self.scopes[scope].get(node.input[1].split(":")[0])
        return steers is not None and steers.op == "LoopCond"

    def reachable(self, references: Sequence[str]) -> Iterator[tuple[str, Node]]:
        """Yields (scope, node) of all that is computed for tensors of the main graph."""
        seen: set[tuple[str, str]] = set()
        stack = [("", reference) for reference in references]
        while stack:
            scope, reference = stack.pop()
            place = (scope, reference.lstrip("^").split(":")[0])
            node = self.scopes[scope].get(place[1])
            if place in seen or node is None:
                continue
            seen.add(place)
            yield scope, node
            stack.extend((scope, i) for i in node.input)
            for name in self.called_by(node):
                stack.extend((name, result) for result in self._results[name])


def contractions(walk: Walk, references: Sequence[str]) -> list[tuple[str, Node]]:
    """Returns (scope, node) of the float contractions that tensors of the main graph depend on."""
    return float_contractions(walk.reachable(references))


def float_contractions(nodes: Iterable[tuple[str, Node]]) -> list[tuple[str, Node]]:
    """Returns those of `nodes` that multiply float matrices."""
    return [
        (scope, node)
        for scope, node in nodes
        if node.op in _CONTRACTIONS and node.attr["T"].type in _FLOATS
    ]


def float_casts(nodes: Iterable[tuple[str, Node]]) -> list[str]:
    """Returns `scope/node`, and the types, of the Casts among `nodes` from float to float."""
    return [
        f"{scope}/{node.name}: {_name(node, 'SrcT')} to {_name(node, 'DstT')}"
        for scope, node in nodes
        if node.op == "Cast" and {node.attr[a].type for a in ("SrcT", "DstT")} <= _FLOATS
    ]


def _name(node: Node, attribute: str) -> str:
    return types_pb2.DataType.Name(node.attr[attribute].type)


def _data_inputs(node: Node) -> tuple[str, ...]:
    return tuple(i for i in node.input if not i.startswith("^"))
