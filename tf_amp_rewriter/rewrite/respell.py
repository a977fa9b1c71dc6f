"""Spells computations in another way where low precision gains by it; all is decided anew then."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from tensorflow.core.framework import graph_pb2, node_def_pb2

from tf_amp_rewriter.dtypes import LowPrecision
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ir.flow import Flow
from tf_amp_rewriter.patterns.norms import Norm
from tf_amp_rewriter.reasons import Decisions
from tf_amp_rewriter.rewrite import biases, norms

_Spelled = TypeVar("_Spelled", Norm, biases.Biased)


@dataclasses.dataclass(frozen=True)
class Spellings:
    """What is to be spelled in another way.

    Attributes:
        norms: see `rewrite/norms.py`.
        biases: see `rewrite/biases.py`; they have no node in common with the norms.
    """

    norms: Sequence[Norm]
    biases: Sequence[biases.Biased]

    def __bool__(self) -> bool:
        """Whether there is anything."""
        return bool(self.norms or self.biases)


def find(flow: Flow, decisions: Decisions, low: LowPrecision) -> Spellings:
    """Returns what low precision would gain by. Linear in the number of nodes."""
    indirect = norms.indirect(flow, decisions, low)
    taken = {(norm.scope, node) for norm in indirect for node in (*norm.inner, norm.end)}
    folded = [
        biased
        for biased in biases.foldable(flow, decisions)
        if taken.isdisjoint((biased.scope, node) for node in biased.nodes)
    ]
    return Spellings(indirect, folded)


def respell(program: ir.Program, found: Spellings) -> list[ir.GraphSource]:
    """Returns the graphs of `program` with these computations spelled in the other way.

    Linear in the number of nodes; the graphs of `program` are not changed.
    """
    norms_of, biases_of = _by_scope(found.norms), _by_scope(found.biases)
    graph_defs: dict[int, graph_pb2.GraphDef] = {}
    for index in sorted(norms_of.keys() | biases_of.keys()):
        scope = program.scopes[index]
        if scope.graph not in graph_defs:
            graph_defs[scope.graph] = graph_pb2.GraphDef()
            graph_defs[scope.graph].CopyFrom(program.graphs[scope.graph].graph_def)
        protos = scope.protos_in(graph_defs[scope.graph])
        taken = {node.name for node in scope.nodes}
        removed: set[int] = set()
        for norm in norms_of.get(index, ()):
            norms.respell(scope, protos, norm, taken)
            removed.update(norm.inner)
        for biased in biases_of.get(index, ()):
            biases.fold(scope, protos, biased, taken)
            removed.add(biased.addition)
        _remove(protos, {node - scope.num_args for node in removed})
    return [
        dataclasses.replace(source, graph_def=graph_defs.get(graph, source.graph_def))
        for graph, source in enumerate(program.graphs)
    ]


def _by_scope(found: Sequence[_Spelled]) -> Mapping[int, Sequence[_Spelled]]:
    result: dict[int, list[_Spelled]] = {}
    for place in found:
        result.setdefault(place.scope, []).append(place)
    return result


def _remove(protos: ir.Protos, places: Collection[int]) -> None:
    left = []
    for place, proto in enumerate(protos):
        if place not in places:
            left.append(node_def_pb2.NodeDef())
            left[-1].CopyFrom(proto)
    del protos[:]
    protos.extend(left)
