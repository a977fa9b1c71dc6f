"""All patterns of a program: what is known about nodes for the computation that they are part of.

A pattern finds its nodes and gives each a row, as the tables in `ops/` give one to every op. Such a
row beats the one of the op, and the user's wishes beat both.
"""

from __future__ import annotations

from collections.abc import Mapping

from tf_amp_rewriter.dtypes import LowPrecision
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ops.rows import OpRow
from tf_amp_rewriter.patterns import (
    attention,
    batch_norms,
    bounds,
    exponentials,
    gelu,
    norms,
    view,
)

Rows = Mapping[tuple[int, int], OpRow]  # (scope, node) -> how the pass treats the node


def find(program: ir.Program, low: LowPrecision) -> Rows:
    """Returns the rows of all nodes that belong to a pattern.

    Args:
        program: the program.
        low: the low precision asked for.
    """
    found: dict[tuple[int, int], OpRow] = {}
    for index in range(len(program.scopes)):
        scope = view.view(program, index)
        rows = (
            *attention.rows(scope, program, low),
            *batch_norms.rows(scope, low),
            *bounds.rows(scope, low),
            *exponentials.rows(scope),
            *gelu.rows(scope),
            *norms.rows(scope, low),
        )
        for node, row in rows:
            found[index, node] = row
    return found
