"""Equations of Einsum, and how a product of matrices computes them.

TensorFlow's CPU kernel of Einsum sums in the low precision, that of BatchMatMulV2 in float32. A
`Plan` says what stands around the product, so that it gives what the equation says.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tf_amp_rewriter.ops import handles

EINSUM: Final = "Einsum"
MATRIX_PRODUCT: Final = "BatchMatMulV2"
TRANSPOSE: Final = "Transpose"
RESHAPE: Final = "Reshape"
INSERT: Final = "ExpandDims"
REMOVE: Final = "Squeeze"
# Shapes are computed with these: their int32 kernels work in host memory, on a GPU as well. Those
# of GatherV2 and Prod do not, and each would wait for the GPU. Source: TensorFlow 2.21's registry.
SHAPE: Final = "Shape"
UNPACK: Final = "Unpack"
PACK: Final = "Pack"
MULTIPLY: Final = "Mul"
# The name of an op's first output, as references in functions have it.
OUTPUT_ARGS: Final[Mapping[str, str]] = {
    **dict.fromkeys((MATRIX_PRODUCT, RESHAPE, INSERT, REMOVE, SHAPE, UNPACK, PACK), "output"),
    handles.CONSTANT: "output",
    TRANSPOSE: "y",
    MULTIPLY: "z",
}

Groups = tuple[str, ...]  # the labels of each dimension; none for a dimension of size 1


@dataclasses.dataclass(frozen=True)
class Operand:
    """How one input of the Einsum becomes a stack of matrices.

    Attributes:
        labels: its labels in the equation.
        permutation: as Transpose takes it; empty if the dimensions stay in their order.
        groups: the dimensions of the stack; labels that stand together are merged.
    """

    labels: str
    permutation: tuple[int, ...]
    groups: Groups


@dataclasses.dataclass(frozen=True)
class Plan:
    """An Einsum as `Transpose(Split(MatrixProduct(left, right)))`.

    Attributes:
        operands: the inputs, in the order of the Einsum.
        is_swapped: the second input is the left one of the product.
        adj_x: the left matrices are transposed.
        adj_y: the right matrices are transposed.
        groups: the dimensions of the product; labels that stand together must be split.
        permutation: from the order of the product's labels to that of the output; empty if equal.
    """

    operands: tuple[Operand, Operand]
    is_swapped: bool
    adj_x: bool
    adj_y: bool
    groups: Groups
    permutation: tuple[int, ...]

    @property
    def last_op(self) -> str:
        """The op that gives the output."""
        if self.permutation:
            return TRANSPOSE
        if is_merged(self.groups):
            return RESHAPE
        return REMOVE if "" in self.groups else MATRIX_PRODUCT


def problem(equation: bytes) -> str:
    """Returns why the attribute of a node can't be an equation, or an empty string."""
    if equation.isascii():
        return ""
    return f"attribute `equation` is {equation!r}, expected ASCII text"


@functools.cache
def plan(equation: str) -> Plan | None:
    """Returns the plan with the fewest Transposes, then Reshapes; None if no product computes it.

    Of the labels that only the first operand and the output have, one counts the rows of the
    matrices. The others count matrices, as do those that all three have: BatchMatMulV2 broadcasts.
    Labels that only the second operand and the output have are merged into the columns. The
    operands may change places.

    A product can compute it if there are two operands and `->`, no `...`, no label twice in an
    operand or the output, and each label in at least two of the three.
    """
    parts = _parts(equation)
    if parts is None:
        return None
    first, second, output = parts
    return min(
        [*_plans(first, second, output, False), *_plans(second, first, output, True)], key=_cost
    )


def known_sizes(
    equation: str, shapes: Sequence[tuple[int | None, ...] | None]
) -> Mapping[str, int]:
    """Returns the sizes of labels that the static shapes of the operands tell."""
    operands = equation.replace(" ", "").partition("->")[0].split(",")
    sizes: dict[str, int] = {}
    for operand, shape in zip(operands, shapes, strict=False):
        sizes.update(_sizes(operand, shape))
    return sizes


def static_shape(groups: Groups, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    """Returns the shape that Reshape takes, with -1 for what is not known; None if that's not one.

    Beside a known size of 0, Reshape can't tell what -1 stands for.
    """
    dims = tuple(
        math.prod(sizes[label] for label in group) if set(group) <= set(sizes) else -1
        for group in groups
    )
    unknown = dims.count(-1)
    return dims if unknown == 0 or (unknown == 1 and 0 not in dims) else None


def is_merged(groups: Groups) -> bool:
    """Says whether some dimension holds several labels."""
    return any(len(group) > 1 for group in groups)


def _parts(equation: str) -> tuple[str, str, str] | None:
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    operands = inputs.split(",")
    if not arrow or len(operands) != 2:
        return None
    parts = (operands[0], operands[1], output)
    if not all(part == "" or (part.isascii() and part.isalpha()) for part in parts):
        return None
    if any(len(set(part)) < len(part) for part in parts):
        return None
    counts = [sum(label in part for part in parts) for label in set("".join(parts))]
    return parts if min(counts, default=2) > 1 else None


def _plans(x: str, y: str, output: str, is_swapped: bool) -> Iterator[Plan]:
    """Yields the plans with `x` on the left of the product."""
    batch = set(x) & set(y) & set(output)
    left, right, summed = set(x) - set(y), set(y) - set(x), set(x) - set(output)
    for row in _ordered(left, x) or ("",):
        spread = left - {row}
        stacks = [
            _ordered(batch | spread, x),
            _ordered(batch | spread, output),
            _ordered(spread, x) + _ordered(batch, y),
        ]
        columns = [_ordered(right, y), _ordered(right, output)]
        depths = [_ordered(summed, x), _ordered(summed, y)]
        for stack, column, depth, adj_x, adj_y in itertools.product(
            dict.fromkeys(stacks),
            dict.fromkeys(columns),
            dict.fromkeys(depths),
            (False, True),
            (False, True),
        ):
            shared = [label if label in batch else "" for label in stack]
            missing = next((i for i, label in enumerate(shared) if label), len(shared))
            operands = (
                _operand(x, (*stack, *((depth, row) if adj_x else (row, depth)))),
                _operand(y, (*shared[missing:], *((column, depth) if adj_y else (depth, column)))),
            )
            yield Plan(
                operands[::-1] if is_swapped else operands,
                is_swapped,
                adj_x,
                adj_y,
                (*stack, row, column),
                _permutation(stack + row + column, output),
            )


def _cost(plan: Plan) -> tuple[int, ...]:
    """Orders plans; where all else is equal, the first one counts."""
    permutations = [plan.permutation, *(operand.permutation for operand in plan.operands)]
    all_groups = [plan.groups, *(operand.groups for operand in plan.operands)]
    return (
        sum(permutation != () for permutation in permutations),
        sum(is_merged(groups) for groups in all_groups),
        sum("" in groups for groups in all_groups),
        # A Transpose that leaves the last dimension in place moves whole rows.
        sum(place != axis for moved in permutations for place, axis in enumerate(moved)),
    )


def _operand(labels: str, groups: Groups) -> Operand:
    return Operand(labels, _permutation(labels, "".join(groups)), groups)


def _permutation(before: str, after: str) -> tuple[int, ...]:
    return () if before == after else tuple(before.index(label) for label in after)


def _ordered(labels: set[str], order: str) -> str:
    return "".join(label for label in order if label in labels)


def _sizes(operand: str, shape: tuple[int | None, ...] | None) -> dict[str, int]:
    """Returns the known sizes of the labels of `operand`; those after `...` count from the end."""
    if shape is None:
        return {}
    before, _, after = operand.partition("...")
    if len(shape) < len(before) + len(after):
        return {}
    places = [
        *zip(before, shape, strict=False),
        *zip(after, shape[len(shape) - len(after) :], strict=True),
    ]
    return {label: dim for label, dim in places if dim is not None}
