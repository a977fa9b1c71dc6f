"""`Program`: one typed view of all graphs of a model: scopes, nodes, tensors, type variables.

The protos stay the truth; the view knows names, dtypes and edges, and holds no tensor data.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

from google.protobuf.internal import containers
from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2, op_def_pb2

Protos = containers.RepeatedCompositeFieldContainer[node_def_pb2.NodeDef]

ARG: Final = "_Arg"  # op of the pseudo-node that stands for a function's argument
RETVAL: Final = "_Retval"  # op of the pseudo-node that stands for a function's result
NO_VAR: Final = -1  # the port has no float32 type variable
FIXED: Final = ""  # attribute name of the type variable of ports that are float32 by definition


@dataclasses.dataclass(frozen=True, slots=True)
class TypeVar:
    """The unit that gets a precision: a type attribute whose value is `DT_FLOAT`.

    Attributes:
        scope: index of the scope in `Program.scopes`.
        node: index of the node in `Scope.nodes`.
        attr: name of the type attribute; `FIXED` for ports that the definition says are float32.
        index: index in a list attribute; -1 for a plain attribute.
    """

    scope: int
    node: int
    attr: str
    index: int


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """A node, an argument or a result.

    Attributes:
        name: its name in its scope; arguments and results have the name in the signature.
        op: its op type; `ARG` and `RETVAL` for arguments and results.
        proto: its NodeDef; None for arguments and results.
        inputs: (node index, port) per data input.
        refs: the text of each data input in the proto.
        in_vars: type variable per data input, `NO_VAR` where the input is not float32.
        out_vars: type variable per output, likewise.
        out_types: dtype number per output; 0 where unknown.
        in_types: dtype number per data input; 0 where unknown.
        attr_vars: (type attribute, index in it, type variable) of all its type variables.
        known: whether the op's definition is known.
    """

    name: str
    op: str
    proto: node_def_pb2.NodeDef | None
    inputs: tuple[tuple[int, int], ...]
    refs: tuple[str, ...]
    in_vars: tuple[int, ...]
    out_vars: tuple[int, ...]
    out_types: tuple[int, ...]
    in_types: tuple[int, ...]
    attr_vars: tuple[tuple[str, int, int], ...] = ()
    known: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Callee:
    """One function that a node calls.

    Attributes:
        scope: index of the function's scope.
        first_input: index of the node's data input that is argument 0.
        gives_results: whether the function's results are the node's outputs.
        is_loop: whether argument i, result i, input i and output i are one loop-carried value.
    """

    scope: int
    first_input: int
    gives_results: bool
    is_loop: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Scope:
    """The main graph of one meta graph, or the body of one function of its library.

    Attributes:
        graph: index of the graph in `Program.graphs`.
        function: index of the function in the graph's library; -1 for the main graph.
        name: name of the function; empty for the main graph.
        nodes: arguments first, then the nodes in the proto's order, then the results.
        num_args: number of arguments.
        num_results: number of results.
        calls: index of a node -> the functions that it calls by a row of `ops/calls.py`.
        ops: the op types of its nodes.
        face: name of the function that it is a copy of; see `GraphSource.inner`.
    """

    graph: int
    function: int
    name: str
    nodes: tuple[Node, ...]
    num_args: int
    num_results: int
    calls: Mapping[int, tuple[Callee, ...]]
    ops: frozenset[str]
    face: str = ""

    @property
    def results(self) -> range:
        """Indexes of the result pseudo-nodes."""
        return range(len(self.nodes) - self.num_results, len(self.nodes))

    @property
    def callees(self) -> tuple[int, ...]:
        """The scopes of the functions that its nodes call, each once."""
        called = (callee.scope for callees in self.calls.values() for callee in callees)
        return tuple(dict.fromkeys(called))

    def function_in(self, graph: graph_pb2.GraphDef) -> function_pb2.FunctionDef:
        """Returns the proto of this function in its graph or a copy of it."""
        return graph.library.function[self.function]

    def protos_in(self, graph: graph_pb2.GraphDef) -> Protos:
        """Returns the protos of its nodes, without arguments and results, likewise."""
        return graph.node if self.function < 0 else self.function_in(graph).node_def


@dataclasses.dataclass(frozen=True)
class GraphSource:
    """A graph to rewrite, and what outsiders see of it.

    Attributes:
        graph_def: the main graph and its function library; read-only.
        op_defs: definitions that the model itself carries (`stripped_op_list`).
        feeds: names of tensors (`node:port`) that are fed; placeholders need not be named.
        fetches: names of tensors (`node:port`) that are fetched.
        roots: names of nodes that a session runs for their effect (init and train ops).
        visible: names of functions that outsiders call or look at.
        captured: function -> names of the Const nodes that the object graph binds to its last
            arguments; empty where it binds something else. The loader sets these, not a caller.
        inner: function -> the function with a face that it is a copy of, for calls of signatures.
    """

    graph_def: graph_pb2.GraphDef
    op_defs: Mapping[str, op_def_pb2.OpDef] = dataclasses.field(default_factory=dict)
    feeds: frozenset[str] = frozenset()
    fetches: frozenset[str] = frozenset()
    roots: frozenset[str] = frozenset()
    visible: frozenset[str] = frozenset()
    captured: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    inner: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Program:
    """All scopes of all graphs with their type variables.

    Attributes:
        graphs: what the program was built from.
        scopes: all scopes; for each graph its main graph first, then its functions.
        type_vars: all type variables; other parts name them by index.
        function_scopes: per graph, function name -> index of its scope.
    """

    graphs: Sequence[GraphSource]
    scopes: Sequence[Scope]
    type_vars: Sequence[TypeVar]
    function_scopes: Sequence[Mapping[str, int]]

    def main_scope(self, graph: int) -> Scope:
        """Returns the main graph of one of `graphs`."""
        return self.scopes[self.main_index(graph)]

    def main_index(self, graph: int) -> int:
        """Returns the index, in `scopes`, of the main graph of one of `graphs`."""
        return graph + sum(len(functions) for functions in self.function_scopes[:graph])

    def node_of(self, type_var: int) -> Node:
        """Returns the node that a type variable belongs to."""
        place = self.type_vars[type_var]
        return self.scopes[place.scope].nodes[place.node]
