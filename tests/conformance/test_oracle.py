"""A differential test against grappler: random graphs, node by node, low or float32.

Both decide for the GPU in half. Where they differ, a rule of `LOW_WITH_US` or of `FLOAT32_WITH_US`
must say why; they tell what the two mean to do differently, from what each says of itself. Anything
else is a bug of ours, or a fact that nobody wrote down.
"""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping

import hypothesis
from hypothesis import strategies
from tensorflow.core.framework import graph_pb2

import tf_amp_rewriter
from tests import checks, graph_text, oracle
from tf_amp_rewriter.ir import text as ir_text

ALLOW = ("MatMul",)
# Not Log: it keeps probabilities before it float32 with us, which has tests of its own.
INFER = ("AddV2", "Mul", "BiasAdd", "Tanh", "Sigmoid", "Softmax", "Sqrt")
CLEAR = ("Relu", "ConcatV2", "Slice", "Reshape", "Identity", "Transpose")
DENY = ("Exp",)  # not Mean: its half kernel on GPU sums in float32
BOUNDED = ("Tanh", "Sigmoid", "Softmax")
WEIGHTS = """
x: f32[4,4] = Placeholder
y: f32[4,4] = Placeholder
w: f32[4,4] = Const(seed=1)
b: f32[4] = Const(seed=2)
row: f32[1,4] = Const(seed=3)
zero = Const(0)
one = Const([1])
origin = Const([0, 0])
shape = Const([4, 4])
turn = Const([1, 0])
"""
# One line of a random graph, of the tensors {0} and {1}; each gives a tensor of 4 x 4.
LINES = (
    "{n} = MatMul({0}, w)",
    "{n} = MatMul({0}, {1})",
    "{n} = AddV2({0}, {1})",
    "{n} = Mul({0}, {1})",
    "{n} = BiasAdd({0}, b)",
    "{n} = Relu({0})",
    "{n} = Tanh({0})",
    "{n} = Sigmoid({0})",
    "{n} = Softmax({0})",
    "{n} = Sqrt({0})",
    "{n} = Exp({0})",
    "{n} = Identity({0})",
    "{n} = Reshape({0}, shape)",
    "{n} = Transpose({0}, turn)",
    "{n}c = ConcatV2([{0}, {1}], zero)\n{n} = Slice({n}c, origin, shape)",
    "{n}m = Mean({0}, one, keep_dims=True)\n{n} = AddV2({1}, {n}m)",
    "{n}m = Mean({0}, one, keep_dims=True)\n{n} = MatMul({n}m, row)",
)


@dataclasses.dataclass(frozen=True)
class Node:
    """One node where the two differ, with what our side decided around it.

    Attributes:
        name: its name.
        op: its op type.
        inputs: its float inputs that are not constants.
        consumers: the nodes that read it.
        ops: op type by node.
        low: the nodes that are low with us.
        tainted: the nodes whose value is tainted with us.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    consumers: tuple[str, ...]
    ops: Mapping[str, str]
    low: frozenset[str]
    tainted: frozenset[str]

    def wanted(self) -> bool:
        """Whether every consumer reads it low, and is an op that gains from that."""
        gains = (*ALLOW, *CLEAR)
        return bool(self.consumers) and all(
            name in self.low and self.ops[name] in gains for name in self.consumers
        )


def infer_runs_on(node: Node) -> bool:
    """Rule 3: an INFER op is low behind any low value; grappler needs a contraction beyond it."""
    return (
        node.op in INFER
        and any(name in node.low for name in node.inputs)
        and not any(name in node.tainted for name in node.inputs)
    )


def clear_runs_on(node: Node) -> bool:
    """Rule 4: a CLEAR op is low behind low values; grappler denies it between two denied ops."""
    return node.op in CLEAR and all(name in node.low for name in node.inputs)


def mean_is_wanted(node: Node) -> bool:
    """The half Mean on GPU sums in float32: low if its consumers are; grappler denies it."""
    return node.op == "Mean" and any(name in node.low for name in node.inputs)


def rounding_is_needless(node: Node) -> bool:
    """A float32 value that a float32 op reads stays so; grappler spreads low over CLEAR ops."""
    return (
        node.op in CLEAR and any(name not in node.low for name in node.inputs) and not node.wanted()
    )


def probabilities_leave(node: Node) -> bool:
    """A Softmax whose result only leaves the model stays float32; grappler lowers it."""
    return node.op == "Softmax" and all(
        node.ops[name] in CLEAR and name not in node.low for name in node.consumers
    )


Predicate = Callable[[Node], bool]
LOW_WITH_US: tuple[Predicate, ...] = (infer_runs_on, clear_runs_on, mean_is_wanted)
FLOAT32_WITH_US: tuple[Predicate, ...] = (probabilities_leave, rounding_is_needless)


@strategies.composite
def graphs(draw: strategies.DrawFn) -> str:
    """Draws a graph of 3 to 14 lines; what nobody reads is an output."""
    tensors = ["x", "y"]
    lines = []
    for index in range(draw(strategies.integers(3, 14))):
        line = draw(strategies.sampled_from(LINES))
        # The nearer, the likelier: chains say more than fans.
        first, second = (
            tensors[-1 - min(draw(strategies.integers(0, 7)) // 2, len(tensors) - 1)]
            for _ in range(2)
        )
        if line.startswith("{n} = Mul") and first == second:
            second = "y" if first != "y" else "x"  # a square is denied, which has its own test
        lines.append(line.format(first, second, n=f"n{index}"))
        tensors.append(f"n{index}")
    text = WEIGHTS + "\n".join(lines) + "\n"
    ends = [name for name in tensors[2:] if not re.search(rf"[(\[ ]{name}[),\]]", text)]
    return text + "\n".join(f"out_{name} = Identity({name})" for name in ends)


def differing(
    graph: graph_pb2.GraphDef, ours: frozenset[str], theirs: frozenset[str]
) -> Iterator[Node]:
    """Yields the nodes that are low in one of the two results."""
    ops = {node.name: node.op for node in graph.node}
    inputs = {
        node.name: tuple(name for name in node.input if ops[name] != "Const") for node in graph.node
    }
    tainted: set[str] = set()
    for node in graph.node:
        flows_in = any(name in tainted for name in inputs[node.name])
        passes = node.op in (*INFER, *CLEAR) and node.op not in BOUNDED and flows_in
        if node.op in DENY or passes:
            tainted.add(node.name)
    for name in sorted(ours ^ theirs):
        if name in ops:
            consumers = tuple(reader for reader in ops if name in inputs[reader])
            yield Node(name, ops[name], inputs[name], consumers, ops, ours, frozenset(tainted))


def test_we_differ_from_grappler_only_where_a_written_rule_says_why(
    grappler: oracle.Oracle,
) -> None:
    met: collections.Counter[str] = collections.Counter()

    @hypothesis.settings(
        max_examples=150,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(graphs())
    def compare(text: str) -> None:
        graph = graph_text.parse(text)
        outputs = checks.sinks(graph)
        options = tf_amp_rewriter.Options(dtype="half", device="gpu", outputs=outputs)
        result = tf_amp_rewriter.rewrite_graph_def(graph, options).graph_def
        ours = oracle.low_nodes(result)
        theirs = oracle.low_nodes(grappler.rewrite(graph, outputs))
        met["contractions"] += len([n for n in graph.node if n.op == "MatMul" and n.name in ours])

        for node in differing(graph, ours, theirs):
            rules = LOW_WITH_US if node.name in ours else FLOAT32_WITH_US
            reasons = [rule.__name__ for rule in rules if rule(node)]
            side = "low" if node.name in ours else "float32"
            assert reasons, (
                f"`{node.name}` is {side} with us only\n{ir_text.graph_text(graph)}\n"
                f"ours: {sorted(ours)}\ngrappler: {sorted(theirs)}"
            )
            met.update(reasons)

    compare()

    assert met["contractions"] > 100
    # Every rule is there because it is met: one that is not should go.
    unmet = [rule.__name__ for rule in (*LOW_WITH_US, *FLOAT32_WITH_US) if not met[rule.__name__]]
    assert not unmet
