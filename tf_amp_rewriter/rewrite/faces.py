"""Functions that both outsiders and signatures reach: a copy for the calls of signatures.

Before (`relu` is named by the object graph as well, so its face must stay float32):

    @serve(x: f32, w: f32) -> (y=b)          called by a signature
      a: f32 = MatMul(x, w)
      r: f32 = PartitionedCall([a], Tout=[f32], f=@relu)
      b: f32 = MatMul(r, w)

    @relu(x: f32) -> (y=r)
      r: f32 = Relu(x)

After, before any precision is decided:

    @serve(x: f32, w: f32) -> (y=b)
      a: f32 = MatMul(x, w)
      r: f32 = PartitionedCall([a], Tout=[f32], f=@relu__amp)
      b: f32 = MatMul(r, w)

    @relu(x: f32) -> (y=r)
      r: f32 = Relu(x)

    @relu__amp(x: f32) -> (y=r)
      r: f32 = Relu(x)

A wrapper around one body for both would not do: what outsiders give is float32, so a Relu between
two contractions, or an Add, would have to stay float32 for all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2

from tf_amp_rewriter.ir import calls, outsiders, reach
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.rewrite import gradients, names

_SUFFIX: Final = "__amp"


def split(program: ir.Program, graph: int, functions: Collection[str]) -> ir.GraphSource:
    """Returns a graph of `program` in which signatures call copies of some functions.

    What those call is copied, too, unless it has a face of its own. A copy is named `NAME__amp` and
    stands behind its original; all that names the original in another way than by a row of
    `ops/calls.py` still does. No original is dropped: outsiders reach each, or what is put in its
    place (`api_implements`). Linear in the number of nodes.

    Args:
        program: the program; it is not changed.
        graph: index of the graph.
        functions: names of functions of its library, of those that `face_calls.candidates` gives.
            If there are none, the source of the graph itself is returned.
    """
    source = program.graphs[graph]
    if not functions:
        return source
    copied = _copied(program, graph, functions)
    in_place = _in_place(program, graph, copied)
    library = source.graph_def.library.function
    taken = {function.signature.name for function in library}
    inner = {
        function.signature.name: names.unique(function.signature.name + _SUFFIX, taken)
        for function in library
        if function.signature.name in copied
    }
    # Where the originals stand for signatures, they keep their faces, but call like one.
    of_originals = {} if _has_signatures(program, graph) else {f: inner[f] for f in functions}
    graph_def = graph_pb2.GraphDef()
    graph_def.CopyFrom(source.graph_def)
    _redirect(graph_def.node, inner)
    del graph_def.library.function[:]
    for function in library:
        name = function.signature.name
        graph_def.library.function.add().CopyFrom(function)
        function_nodes = graph_def.library.function[-1].node_def
        _redirect(function_nodes, inner if name in in_place else of_originals)
        if name in inner:
            copy = graph_def.library.function.add()
            copy.CopyFrom(function)
            _rename(copy, inner[name])
            _redirect(copy.node_def, inner)
            # the gradient is of the original, and takes float32
            gradients.sever(copy.node_def, source.graph_def.library)
    behind = {inner_name: name for name, inner_name in inner.items()}
    return dataclasses.replace(source, graph_def=graph_def, inner={**source.inner, **behind})


def serving(program: ir.Program) -> set[int]:
    """Returns the scopes that run when a signature does: the main graphs, and what they call.

    Where no signature calls anything, what outsiders can call stands for signatures: a `tf.Module`
    may be saved without any, and then its main graph calls only what saves and restores.
    """
    return _reached(program, _roots(program), ())


def shared(program: ir.Program) -> set[int]:
    """Returns the functions that signatures and others reach: they must suit both, or be copied."""
    serves = serving(program)
    seen = set(outsiders.seen(program))
    others = _reached(program, seen - serves, seen & serves)
    return (seen | others) & serves


def _has_signatures(program: ir.Program, graph: int) -> bool:
    running = reach.ancestors_of_fetches(program, graph)
    return not running.isdisjoint(program.main_scope(graph).calls)


def _roots(program: ir.Program) -> list[int]:
    has_signatures = [_has_signatures(program, graph) for graph in range(len(program.graphs))]
    seen = outsiders.seen(program)
    return [
        index
        for index, scope in enumerate(program.scopes)
        if scope.function < 0 or (index in seen and not has_signatures[scope.graph])
    ]


def _reached(program: ir.Program, roots: Iterable[int], but: Collection[int]) -> set[int]:
    """Returns `roots` and what they call, directly or not; not `but`, and what only those call."""
    return reach.closure(
        roots, lambda index: [c for c in program.scopes[index].callees if c not in but]
    )


def _copied(program: ir.Program, graph: int, functions: Collection[str]) -> set[str]:
    """Returns `functions`, and what they call that has no face.

    Where TensorFlow may replace a function by another that implements the same, all are copied.
    """
    scopes = program.function_scopes[graph]
    chosen = {scopes[name] for name in functions}
    alternatives = {i: group for group in outsiders.alternatives(program) for i in group}
    with_face = set(outsiders.faces(program)) - chosen
    found = chosen
    grown = True
    while grown:
        called = _reached(program, found, with_face)
        mates = {mate for index in called for mate in alternatives.get(index, ())}
        grown = not mates <= called
        found = called | mates
    return {program.scopes[index].name for index in found}


def _in_place(program: ir.Program, graph: int, copied: Collection[str]) -> set[str]:
    """Returns the functions without a copy that signatures reach."""
    scopes = program.function_scopes[graph]
    but = {scopes[name] for name in copied}
    roots = [index for index in _roots(program) if index not in but]
    found = _reached(program, roots, but)
    return {program.scopes[i].name for i in found if program.scopes[i].graph == graph}


def _redirect(nodes: Iterable[node_def_pb2.NodeDef], inner: Mapping[str, str]) -> None:
    for node in nodes:
        for _, called in calls.named_in(node):
            called.name = inner.get(called.name, called.name)


def _rename(function: function_pb2.FunctionDef, name: str) -> None:
    function.signature.name = name
    for attr in outsiders.TRAINING_PAIR:  # the other would not fit the copy
        if attr in function.attr:
            del function.attr[attr]
    if outsiders.IMPLEMENTS in function.attr:  # the copies are alternatives of each other alone
        function.attr[outsiders.IMPLEMENTS].s += _SUFFIX.encode()
