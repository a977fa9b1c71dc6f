"""Makes a FusedBatchNorm of version 1, all float32, one of version 3, whose data may be low.

Before (x is low):

    y, mean, variance, reserve_space_1, reserve_space_2 = FusedBatchNorm(x, ..)

After:

    y, mean, variance, reserve_space_1, reserve_space_2, reserve_space_3 = FusedBatchNormV3(x, ..)

The kernel and the first five outputs are the same; of the sixth nobody knows yet.
Source: tensorflow/core/kernels/fused_batch_norm_op.cc, TensorFlow 2.21.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator
from typing import Final

from tensorflow.core.framework import graph_pb2

from tf_amp_rewriter.dtypes import DT_FLOAT
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ir import reach
from tf_amp_rewriter.ir.flow import Flow
from tf_amp_rewriter.reasons import Decisions, Kind

_V1: Final = "FusedBatchNorm"
_V3: Final = "FusedBatchNormV3"
_RESERVED: Final = (3, 4)  # ports that a gradient reads; it expects those of its own version

Places = frozenset[tuple[int, int]]  # (scope, node)


def upgradable(flow: Flow, decisions: Decisions) -> Places:
    """Returns the nodes that read low data, and may be of version 3. Linear in all nodes."""
    return frozenset(_upgradable(flow, decisions))


def _upgradable(flow: Flow, decisions: Decisions) -> Iterator[tuple[int, int]]:
    for index, scope in enumerate(flow.program.scopes):
        if _V1 not in scope.ops:
            continue
        readers = reach.consumers_of(scope)
        for number, node in enumerate(scope.nodes):
            if node.op != _V1 or node.proto is None or node.in_vars[0] == ir.NO_VAR:
                continue
            if decisions[flow.class_of[node.in_vars[0]]].kind is Kind.USER:
                continue
            producer, port = node.inputs[0]
            source = scope.nodes[producer]
            data = source.out_vars[port if source.known else 0]
            if data == ir.NO_VAR or not decisions[flow.class_of[data]].low:
                continue
            if not any(readers.get((number, port)) for port in _RESERVED):
                yield index, number


def lowered(flow: Flow, decisions: Decisions, upgraded: Places) -> Places:
    """Returns those of the nodes, of version 3 now, whose data are low."""
    nodes = ((place, flow.program.scopes[place[0]].nodes[place[1]]) for place in upgraded)
    return frozenset(p for p, node in nodes if decisions[flow.class_of[node.in_vars[0]]].low)


def upgrade(program: ir.Program, places: Collection[tuple[int, int]]) -> list[ir.GraphSource]:
    """Returns the graphs of `program` with these nodes of version 3; `program` is not changed."""
    graph_defs: dict[int, graph_pb2.GraphDef] = {}
    for index, number in sorted(places):
        scope = program.scopes[index]
        if scope.graph not in graph_defs:
            graph_defs[scope.graph] = graph_pb2.GraphDef()
            graph_defs[scope.graph].CopyFrom(program.graphs[scope.graph].graph_def)
        proto = scope.protos_in(graph_defs[scope.graph])[number - scope.num_args]
        proto.op = _V3
        proto.attr["U"].type = DT_FLOAT
        if "_output_shapes" in proto.attr:
            proto.attr["_output_shapes"].list.shape.add().unknown_rank = True
    return [
        dataclasses.replace(source, graph_def=graph_defs.get(graph, source.graph_def))
        for graph, source in enumerate(program.graphs)
    ]
