"""Folds the bias of a contraction into the batch norm behind it; all is decided anew then.

Before (`f` and `o` are computed from weights: a batch norm as elementwise math):

    a = BiasAdd(x, b)
    p = Mul(a, f)
    y = AddV2(p, o)

After:

    y/bias = Mul(b, f)
    y/offset = AddV2(y/bias, o)
    p = Mul(x, f)
    y = AddV2(p, y/offset)

The offset is computed in float32 and rounded once, so a low `y` has one rounding less, and the
device one pass over the data. What `x` loses in the low precision it has lost before the bias.
Where `f` is one over the deviation of `a`, `x * f` is beyond the range of half only if the values
of `a` differ by less than the digits of `x` in half.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from tf_amp_rewriter.dtypes import DT_FLOAT
from tf_amp_rewriter.ir import outsiders
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ir.flow import Flow
from tf_amp_rewriter.ops.attrs import attr_of
from tf_amp_rewriter.patterns.view import View, view
from tf_amp_rewriter.reasons import Decisions
from tf_amp_rewriter.rewrite import names

_ADDS: Final = frozenset({"Add", "AddV2"})
_SHAPES: Final = "_output_shapes"
_OUTPUT: Final = "z"  # the output argument of AddV2, Mul and Sub


@dataclasses.dataclass(frozen=True)
class Biased:
    """A bias in front of a batch norm.

    Attributes:
        scope: index of the scope.
        addition: the node that adds the bias; nothing but `product` reads it.
        product: the node that multiplies by the factor; nothing but `end` reads it.
        end: the node that adds the offset.
        data, bias, factor, offset: what they read, as (node, input).
        summed: the input of `product` that reads `addition`.
    """

    scope: int
    addition: int
    product: int
    end: int
    data: tuple[int, int]
    bias: tuple[int, int]
    factor: tuple[int, int]
    offset: tuple[int, int]
    summed: int

    @property
    def nodes(self) -> frozenset[int]:
        """The nodes that are edited or removed."""
        return frozenset({self.addition, self.product, self.end})


def foldable(flow: Flow, decisions: Decisions) -> list[Biased]:
    """Returns the low biases in front of low batch norms. Linear in the number of nodes."""
    program = flow.program
    found = []
    for index, scope in enumerate(program.scopes):
        if not scope.ops & {"BiasAdd", *_ADDS} or "Mul" not in scope.ops:
            continue
        seen = view(program, index)
        kept = outsiders.needed_otherwise(program, scope)
        used: set[int] = set()
        for number, node in enumerate(scope.nodes):
            if node.op == "BiasAdd" or node.op in _ADDS:
                biased = _biased(seen, number)
                if biased is None:
                    continue
                removed_or_changed = (scope.nodes[place].name for place in (number, biased.product))
                if (
                    used.isdisjoint(biased.nodes)  # the second of a chain stays as it is
                    and kept.isdisjoint(removed_or_changed)
                    and all(_is_low(flow, decisions, scope.nodes[n]) for n in biased.nodes)
                ):
                    found.append(biased)
                    used |= biased.nodes
    return found


def _is_low(flow: Flow, decisions: Decisions, node: ir.Node) -> bool:
    var = node.out_vars[0]
    return var != ir.NO_VAR and decisions[flow.class_of[var]].low


def _biased(seen: View, addition: int) -> Biased | None:
    node = seen.scope.nodes[addition]
    if node.op == "BiasAdd" and node.proto is not None:
        if attr_of(node.proto, "data_format").s == b"NCHW":
            return None
        side = 0
    else:
        sides = [side for side in range(2) if _is_weight(seen, (addition, 1 - side))]
        if len(sides) != 1:
            return None
        side = sides[0]
    product, summed = _sole_reader(seen, addition, frozenset({"Mul"}))
    end, position = _sole_reader(seen, product, _ADDS | {"Sub"}) if product >= 0 else (-1, 0)
    if end < 0 or (seen.op(end) == "Sub" and position != 0):
        return None
    factor, offset = (product, 1 - summed), (end, 1 - position)
    bias = (addition, 1 - side)
    if not all(_is_weight(seen, place) for place in (bias, factor, offset)):
        return None
    if not seen.has_root(factor):
        return None  # any other factor may bring x beyond the range where it does not bring x + b
    return Biased(
        seen.index, addition, product, end, (addition, side), bias, factor, offset, summed
    )


def _sole_reader(seen: View, node: int, ops: frozenset[str]) -> tuple[int, int]:
    """Returns the one (node, input) that reads a node, if it is one of `ops`; else (-1, 0)."""
    readers = seen.readers.get((node, 0), ())
    if len(readers) == 1 and seen.op(readers[0][0]) in ops:
        return readers[0]
    return -1, 0


def _is_weight(seen: View, place: tuple[int, int]) -> bool:
    return seen.is_of_weights(seen.scope.nodes[place[0]].inputs[place[1]][0])


def fold(scope: ir.Scope, protos: ir.Protos, biased: Biased, taken: set[str]) -> None:
    """Folds a bias, in place; the node that adds it is left to be removed."""

    def new(part: str, op: str, refs: Sequence[str]) -> str:
        node = protos.add(name=names.unique(f"{end.name}/{part}", taken), op=op, input=refs)
        node.device = end.device
        node.attr["T"].type = DT_FLOAT
        return f"{node.name}:{_OUTPUT}:0" if scope.function >= 0 else node.name

    def ref(place: tuple[int, int]) -> str:
        return scope.nodes[place[0]].refs[place[1]]

    end = protos[biased.end - scope.num_args]
    product = protos[biased.product - scope.num_args]
    bias = new("bias", "Mul", [ref(biased.bias), ref(biased.factor)])
    if end.op == "Sub":
        offset = new("offset", "Sub", [ref(biased.offset), bias])
    else:
        offset = new("offset", "AddV2", [bias, ref(biased.offset)])
    product.input[biased.summed] = ref(biased.data)
    end.input[biased.offset[1]] = offset
    names.wait_for_all(product, [protos[biased.addition - scope.num_args]])
    if _SHAPES in product.attr:  # the bias may have had more dimensions
        del product.attr[_SHAPES]
