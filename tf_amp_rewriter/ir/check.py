"""What must hold of every graph that we write; shares no code with the pass.

TensorFlow's own importer checks types and shapes of all scopes; calls, which it checks only when
they run, are checked here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, cast

from tensorflow.core.framework import graph_pb2, node_def_pb2
from tensorflow.python.client import pywrap_tf_session  # type: ignore[attr-defined]
from tensorflow.python.framework import c_api_util, errors_impl, ops

from tf_amp_rewriter import dtypes, errors
from tf_amp_rewriter.ir import build, constants, op_defs
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ops import calls as call_table
from tf_amp_rewriter.ops import handles
from tf_amp_rewriter.ops.attrs import attr_of

# The name of a node in a graph to import, as TensorFlow's messages quote it; see `_importable`.
_IMPORTED_NAME: Final = re.compile(r"(?:\{\{node )?'?\bn(\d+)(?:_\d+)?\b'?(?:\}\})?")
# A constant that shapes are inferred from is smaller, in its proto and when TensorFlow fills it.
_LARGE_BYTES: Final = 4096
_LARGE_VALUES: Final = 4096


def check(source: ir.GraphSource) -> list[str]:
    """Returns a sentence for every invariant that the graph breaks; empty if all hold.

    1. Every input is resolved and every name is unique.
    2. The types of every call are those of the function.
    3. TensorFlow imports the main graph and the body of every function.
    """
    try:
        program = build.program([source])  # 1
    except errors.InputError as error:
        return [str(error)]
    violations = list(_odd_calls(program))  # 2
    for scope in program.scopes:  # 3
        problem = _import_problem(program, scope)
        if problem:
            place = f"function `{scope.name}`" if scope.name else "the main graph"
            violations.append(f"TensorFlow does not import {place}: {problem}")
    return violations


def _odd_calls(program: ir.Program) -> Iterator[str]:
    for scope in program.scopes:
        for index, callees in scope.calls.items():
            node = scope.nodes[index]
            row = call_table.CALLS[node.op]
            assert node.proto is not None
            given = [t for name in row.input_types for t in attr_of(node.proto, name).list.type]
            results = list(attr_of(node.proto, row.output_types).list.type)
            for callee in callees:
                body = program.scopes[callee.scope]
                signature = body.function_in(program.graphs[body.graph].graph_def).signature
                arguments = [arg.type for arg in signature.input_arg]
                if arguments != given:
                    yield f"`{node.name}` calls `{body.name}` with {given}, expected {arguments}"
                outputs = [arg.type for arg in signature.output_arg]
                if callee.gives_results and outputs != results:
                    yield f"`{node.name}` takes {results} from `{body.name}`, expected {outputs}"


def _import_problem(program: ir.Program, scope: ir.Scope) -> str:
    graph_def = _importable(program, scope)
    graph = ops.Graph()
    options = c_api_util.ScopedTFImportGraphDefOptions()  # type: ignore[no-untyped-call]
    with (
        graph._c_graph.get() as c_graph,
        c_api_util.tf_buffer(graph_def.SerializeToString()) as serialized,
    ):
        try:
            pywrap_tf_session.TF_GraphImportGraphDefWithResults(
                c_graph, serialized, options.options
            )
        except errors_impl.OpError as error:
            return _in_our_words(scope, str(error.message))
        except ValueError as error:
            return _in_our_words(scope, str(error))
    return ""


def _in_our_words(scope: ir.Scope, message: str) -> str:
    """Returns what TensorFlow says of an import on one line, with the model's names of nodes."""

    def name_of(found: re.Match[str]) -> str:
        index = int(found[1])
        return f"`{scope.nodes[index].name}`" if index < len(scope.nodes) else found[0]

    return _IMPORTED_NAME.sub(name_of, " ".join(message.partition("; Op<")[0].split()))


def _importable(program: ir.Program, scope: ir.Scope) -> graph_pb2.GraphDef:
    """Returns the scope as a main graph.

    Arguments, and outputs of ops that TensorFlow itself does not know, become placeholders, and so
    do large constants, so that the copy stays small.
    """
    result = graph_pb2.GraphDef(versions=program.graphs[scope.graph].graph_def.versions)
    foreign = frozenset(op for op in scope.ops if op_defs.registered(op) is None)
    stand_ins: dict[tuple[int, int], int] = {}  # output of an op that TensorFlow does not know
    texts: dict[tuple[int, int], str] = {}
    for index, node in enumerate(scope.nodes):
        if node.proto is None:
            if node.op == ir.ARG:
                _add_placeholder(result, f"n{index}", node.out_types[0])
            continue
        if node.op in foreign:
            continue
        for place, in_type in zip(node.inputs, node.in_types, strict=True) if foreign else ():
            source = scope.nodes[place[0]]
            if source.proto is not None and source.op in foreign:
                stand_ins[place] = in_type
                texts[place] = f"n{place[0]}_{place[1]}"
        for place in node.inputs:
            if place not in texts:
                producer, port = place
                texts[place] = f"n{producer}:{port}" if port else f"n{producer}"
        _add_copy(result, node, f"n{index}", [texts[place] for place in node.inputs])
    for place, dtype in sorted(stand_ins.items()):
        _add_placeholder(result, texts[place], dtype)
    return result


def _add_placeholder(graph_def: graph_pb2.GraphDef, name: str, dtype: int) -> None:
    node = graph_def.node.add(name=name, op="Placeholder")
    node.attr["dtype"].type = cast("dtypes.DataType", dtype)
    node.attr["shape"].shape.unknown_rank = True


def _is_large(constant: node_def_pb2.NodeDef) -> bool:
    return (
        constant.ByteSize() > _LARGE_BYTES
        or constants.num_values(attr_of(constant, "value").tensor) > _LARGE_VALUES
    )


def _add_copy(
    graph_def: graph_pb2.GraphDef, node: ir.Node, name: str, inputs: Sequence[str]
) -> None:
    """Adds a node with its attributes; the importer adds their defaults, and runs nothing."""
    assert node.proto is not None
    copy = graph_def.node.add()
    if node.op == handles.CONSTANT and _is_large(node.proto):
        _make_stand_in(copy, node.proto)
    else:
        copy.CopyFrom(node.proto)
        del copy.input[:]
    copy.name = name
    copy.input.extend(inputs)
    if "_class" in copy.attr:  # colocation with names that are gone here
        del copy.attr["_class"]


def _make_stand_in(copy: node_def_pb2.NodeDef, constant: node_def_pb2.NodeDef) -> None:
    copy.op = "Placeholder"
    copy.attr["dtype"].type = attr_of(constant, "dtype").type
    copy.attr["shape"].shape.CopyFrom(attr_of(constant, "value").tensor.tensor_shape)
