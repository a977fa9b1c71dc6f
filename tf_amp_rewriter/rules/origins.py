"""Where a node's inputs come from, as far as rules depend on it."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final

import numpy as np
from tensorflow.python.framework import tensor_util

from tf_amp_rewriter import dtypes
from tf_amp_rewriter.dtypes import LowPrecision
from tf_amp_rewriter.ir import constants, outsiders, reach, shapes
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ops import handles
from tf_amp_rewriter.ops.attrs import attr_of
from tf_amp_rewriter.ops.exactness import COUNTS, OF_ONE_TENSOR

# A smaller table saves less than the Cast behind it costs.
MIN_TABLE_VALUES: Final = 1024
# A size is made of a few integer ops; what is farther away is something else.
MAX_COUNT_STEPS: Final = 64


def effective_op(scope: ir.Scope, node: ir.Node) -> str:
    """Returns what the op amounts to: a product of a tensor with itself is a square."""
    if node.op not in OF_ONE_TENSOR or len(node.inputs) != 2 or node.proto is None:
        return node.op
    terms = attr_of(node.proto, "equation").s.partition(b"->")[0].split(b",")
    is_square = terms[0] == terms[-1] and reach.are_same(scope, *node.inputs)
    return OF_ONE_TENSOR[node.op] if is_square else node.op


def is_large_table(scope: ir.Scope, node: ir.Node) -> bool:
    """Returns whether the table that a gather reads is no small constant."""
    table = scope.nodes[reach.origin(scope, *node.inputs[0])[0]]
    if table.op == handles.CONSTANT and table.proto is not None:
        size = constants.num_values(attr_of(table.proto, "value").tensor)
        return size >= MIN_TABLE_VALUES
    return True


def is_large_variable(handle: ir.Node) -> bool:
    """Returns whether a variable, as far as its handle tells, is large for a table."""
    if handle.proto is None or "shape" not in handle.proto.attr:
        return True
    shape = attr_of(handle.proto, "shape").shape
    sizes = [dim.size for dim in shape.dim]
    return shape.unknown_rank or min(sizes, default=0) < 0 or math.prod(sizes) >= MIN_TABLE_VALUES


def misfit_of_cast_constant(scope: ir.Scope, cast: ir.Node, low: LowPrecision) -> str:
    """Returns why a constant that `cast` reads does not fit `low`, or an empty string."""
    producer = scope.nodes[reach.origin(scope, *cast.inputs[0])[0]]
    if producer.op != handles.CONSTANT or producer.proto is None:
        return ""
    values = tensor_util.MakeNdarray(attr_of(producer.proto, "value").tensor)
    if values.dtype.kind not in "iuf":
        return ""
    with np.errstate(over="ignore"):
        return dtypes.misfit(values.astype(np.float32), low)


def misfit_of_tables(program: ir.Program, low: LowPrecision) -> str:
    """Returns why a constant that fills some hash table does not fit `low`, or an empty string.

    Which table a lookup asks is not followed: its handle is a capture that a function of the object
    graph makes when the model is loaded.
    """
    for scope in program.scopes:
        for node in () if scope.ops.isdisjoint(handles.TABLE_FILLERS) else scope.nodes:
            position = handles.TABLE_FILLERS.get(node.op, -1)
            if 0 <= position < len(node.inputs) and node.in_vars[position] != ir.NO_VAR:
                source = _constant_of(program, scope, node.inputs[position])
                if source is not None and source.proto is not None:
                    values = constants.values(attr_of(source.proto, "value").tensor)
                    misfit = dtypes.misfit(values, low)
                    if misfit:
                        return f"a table holds it: {misfit}"
    return ""


def _constant_of(program: ir.Program, scope: ir.Scope, place: tuple[int, int]) -> ir.Node | None:
    """Returns the constant that an input gets, also one that the loader binds to an argument."""
    index = reach.origin(scope, *place)[0]
    name = outsiders.captured_arguments(program, scope).get(index)
    if name is not None:
        return next(n for n in program.main_scope(scope.graph).nodes if n.name == name)
    node = scope.nodes[index]
    return node if node.op == handles.CONSTANT else None


def is_count(
    scope: ir.Scope, scope_index: int, cast: ir.Node, carried: Collection[tuple[int, int]]
) -> bool:
    """Returns whether the integers that `cast` reads are made of sizes, positions or counters.

    A scalar that is not constant counts as one: masks and pixels have dimensions.

    Args:
        scope: the scope of `cast`.
        scope_index: its index.
        cast: a Cast of integers.
        carried: (scope, argument) of what loops carry from step to step.
    """
    producer = reach.origin(scope, *cast.inputs[0])[0]
    if _is_scalar(scope, cast) and scope.nodes[producer].op != handles.CONSTANT:
        return True
    stack, seen = [producer], {producer}
    while stack and len(seen) < MAX_COUNT_STEPS:
        index = stack.pop()
        node = scope.nodes[index]
        if node.op in COUNTS or node.op in handles.BACK_EDGES or (scope_index, index) in carried:
            return True
        for (producer, _), dtype in zip(node.inputs, node.in_types, strict=True):
            if producer not in seen and dtype in (dtypes.DT_INT32, dtypes.DT_INT64):
                seen.add(producer)
                stack.append(producer)
    return False


def _is_scalar(scope: ir.Scope, cast: ir.Node) -> bool:
    if cast.proto is not None and "_output_shapes" in cast.proto.attr:
        stated = cast.proto.attr["_output_shapes"].list.shape
        if stated and not stated[0].unknown_rank:
            return not stated[0].dim
    return shapes.input_shapes(scope, cast)[0] == ()
