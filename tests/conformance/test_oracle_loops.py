"""A differential test against grappler on loops of control flow v1 (OF-8, OF-9): node by node.

The agreed differences: what a loop adds up stays float32, one carried
value has one precision, and no value is rounded without need.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from tensorflow.core.framework import graph_pb2

import tf_amp_rewriter
from tests import graph_text, oracle
from tests.conformance.rings import ring
from tf_amp_rewriter.ir import text as ir_text

RING = ("enter", "merge", "switch", "next", "exit")
CLEAR = ("Relu", "Identity", "Enter", "Merge", "Switch", "NextIteration", "Exit")
GAINS = ("MatMul", *CLEAR)
BODIES = {
    length: ["".join(ops) for ops in itertools.product("wgcb", repeat=length)]
    for length in (1, 2, 3)
}
LOOPS = [
    *itertools.product(["", "w", "b", "c"], BODIES[1] + BODIES[2], ["w", "c"]),
    *itertools.product(["c"], BODIES[3], ["c"]),
]


def is_series(body: str) -> bool:
    """Whether the next value is the carried one and something more, step by step."""
    return set(body) <= {"g", "c"} and "g" in body


class Result:
    """One graph, and which of its nodes are low with us."""

    def __init__(self, graph: graph_pb2.GraphDef, low: frozenset[str]) -> None:
        self.low = low
        self.ops: Mapping[str, str] = {node.name: node.op for node in graph.node}
        self.inputs: Mapping[str, Sequence[str]] = {
            node.name: [
                name
                for name in (i.split(":")[0] for i in node.input if not i.startswith("^"))
                if self.ops[name] != "Const"
            ]
            for node in graph.node
        }

    def data(self, name: str) -> Sequence[str]:
        """Returns the float inputs: a Switch reads its predicate second."""
        return self.inputs[name][:1] if self.ops[name] == "Switch" else self.inputs[name]

    def readers(self, name: str) -> list[str]:
        return [reader for reader in self.ops if name in self.data(reader)]

    def wanted(self, name: str) -> bool:
        """Whether all that reads the value reads it low, and gains from that."""
        readers = self.readers(name)
        return bool(readers) and all(r in self.low and self.ops[r] in GAINS for r in readers)

    def ring_is_low(self) -> bool:
        """Rule 4, for a carried value: all its sources are low, or all its readers want low."""
        sources = [self.data("enter")[0], self.data("next")[0]]
        readers = [r for name in ("switch", "exit") for r in self.readers(name) if r not in RING]
        gain = all(r in self.low and self.ops[r] in GAINS for r in readers)
        return gain or all(source in self.low for source in sources)

    def is_low(self, name: str) -> bool:
        """What rules 3 and 4 say of a node, given the precision of those around it."""
        some = [source in self.low for source in self.data(name)]
        if self.ops[name] in CLEAR:
            return all(some) or self.wanted(name)
        return any(some)


def test_every_precision_that_differs_from_grapplers_follows_from_our_rules(
    grappler: oracle.Oracle,
) -> None:
    differing = same = series = 0
    for before, body, after in LOOPS:
        graph = graph_text.parse(ring(before, body, after, ""))
        options = tf_amp_rewriter.Options(dtype="half", device="gpu", outputs=("fetch",))
        rewritten = tf_amp_rewriter.rewrite_graph_def(graph, options).graph_def
        assert rewritten is not None
        ours = oracle.low_nodes(rewritten) & {
            node.name for node in graph.node if node.op != "Const"
        }
        theirs = oracle.low_nodes(grappler.rewrite(graph, ("fetch",)))
        result = Result(graph, ours)
        where = f"{before}/{body}/{after}: {{}}\n{ir_text.graph_text(rewritten)}"
        for name in sorted(result.ops):
            if result.ops[name] == "Const" or (name in ours) == (name in theirs):
                same += 1
                continue
            differing += 1
            if name in RING and is_series(body):
                assert name not in ours, where.format(name)
                series += 1
            elif name in RING:
                assert (name in ours) == result.ring_is_low(), where.format(name)
            else:
                assert result.ops[name] != "MatMul", where.format(name)
                assert (name in ours) == result.is_low(name), where.format(name)

    assert same > 5 * differing > 0
    assert series
