"""Writes a low Einsum out as a product of matrices.

Before (q, k and the Einsum low):

    scores = Einsum([q, k], equation='BTNH,BSNH->BNTS')

After:

    scores/left/Transpose/perm = Const([0, 2, 1, 3])
    scores/left/Transpose = Transpose(q, scores/left/Transpose/perm)
    scores/right/Transpose/perm = Const([0, 2, 1, 3])
    scores/right/Transpose = Transpose(k, scores/right/Transpose/perm)
    scores = BatchMatMulV2(scores/left/Transpose, scores/right/Transpose, adj_y=True)

The last op has the name of the Einsum, so fetches and control inputs stay as they are.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Final

from tensorflow.core.framework import node_def_pb2

from tf_amp_rewriter.dtypes import DT_INT32, LowPrecision
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ops import einsum, handles
from tf_amp_rewriter.rewrite import names

_SIDES: Final = ("left", "right")


@dataclasses.dataclass(frozen=True)
class Place:
    """Where new nodes go.

    Attributes:
        protos: the nodes of the scope; new ones are added.
        taken: the names in the scope; new ones are added.
        in_function: whether references name the output's argument: `a:output:0`.
        anchor: a node that constants wait for, so that they are in the loop of control flow v1 that
            the Einsum is in; empty if there is none.
    """

    protos: ir.Protos
    taken: set[str]
    in_function: bool
    anchor: str


def expand(
    proto: node_def_pb2.NodeDef,
    plan: einsum.Plan,
    sizes: Mapping[str, int],
    low: LowPrecision,
    place: Place,
) -> None:
    """Replaces an Einsum, in place, by the ops of `plan`.

    What reads its output in a function must name it as `plan.last_op` does.

    Args:
        proto: the Einsum; it becomes the last op.
        plan: the plan of its equation.
        sizes: the static sizes of labels, as far as known.
        low: the low precision that it has.
        place: where new nodes go.
    """
    _Expansion(proto, plan, sizes, low, place).write()


class _Expansion:
    """The state of one expansion; lives only as long as `expand`."""

    def __init__(
        self,
        proto: node_def_pb2.NodeDef,
        plan: einsum.Plan,
        sizes: Mapping[str, int],
        low: LowPrecision,
        place: Place,
    ) -> None:
        self.proto = proto
        self.plan = plan
        self.sizes = sizes
        self.low = low
        self.place = place
        self.inputs = [ref for ref in proto.input if not ref.startswith("^")]
        self.controls = [ref for ref in proto.input if ref.startswith("^")]
        self.unpacked: dict[int, str] = {}  # operand -> node that gives its dimensions

    def write(self) -> None:
        matrices = [self.matrices(side) for side in range(2)]
        if self.plan.is_swapped:
            matrices.reverse()
        product = self.node(einsum.MATRIX_PRODUCT, "product", matrices)
        product.attr["adj_x"].b = self.plan.adj_x
        product.attr["adj_y"].b = self.plan.adj_y
        result = self.split(_reference(self.place, product))
        if self.plan.permutation:
            self.transpose("product", result, self.plan.permutation)
        # All that is left reads the product, so it waits for what the Einsum waited for.
        product.input.extend(self.controls)

    def matrices(self, side: int) -> str:
        """Returns the input as a stack of matrices."""
        operand = self.plan.operands[side]
        ref = self.inputs[side]
        if operand.permutation:
            ref = self.transpose(_SIDES[side], ref, operand.permutation)
        ones = operand.groups.count("")
        if einsum.is_merged(operand.groups) or ones > 1:
            return self.reshape(_SIDES[side], ref, operand.groups)
        return self.insert(_SIDES[side], ref, operand.groups.index("")) if ones else ref

    def split(self, ref: str) -> str:
        """Returns the product with one dimension per label."""
        groups = self.plan.groups
        if einsum.is_merged(groups):
            return self.reshape("product", ref, tuple("".join(groups)))
        if "" not in groups:
            return ref
        removed = self.node(einsum.REMOVE, "product/Squeeze", [ref])
        removed.attr["squeeze_dims"].list.i.extend(
            axis for axis, group in enumerate(groups) if not group
        )
        return _reference(self.place, removed)

    def transpose(self, part: str, ref: str, permutation: Sequence[int]) -> str:
        moved = self.node(einsum.TRANSPOSE, f"{part}/Transpose", [ref])
        moved.input.append(self.constant(f"{moved.name}/perm", list(permutation)))
        moved.attr["Tperm"].type = DT_INT32
        return _reference(self.place, moved)

    def insert(self, part: str, ref: str, axis: int) -> str:
        inserted = self.node(einsum.INSERT, f"{part}/ExpandDims", [ref])
        inserted.input.append(self.constant(f"{inserted.name}/dim", axis))
        inserted.attr["Tdim"].type = DT_INT32
        return _reference(self.place, inserted)

    def reshape(self, part: str, ref: str, groups: einsum.Groups) -> str:
        reshaped = self.node(einsum.RESHAPE, f"{part}/Reshape", [ref])
        shape = einsum.static_shape(groups, self.sizes)
        wish = f"{reshaped.name}/shape"
        reshaped.input.append(
            self.shape(wish, groups) if shape is None else self.constant(wish, list(shape))
        )
        reshaped.attr["Tshape"].type = DT_INT32
        return _reference(self.place, reshaped)

    def shape(self, wish: str, groups: einsum.Groups) -> str:
        """Returns the shape as the model computes it."""
        packed = self.new(einsum.PACK, wish, [self.size(f"{wish}/size", g) for g in groups])
        packed.attr["T"].type = DT_INT32
        packed.attr["N"].i = len(groups)
        packed.attr["axis"].i = 0
        return _reference(self.place, packed)

    def size(self, wish: str, group: str) -> str:
        """Returns the product of the sizes of some labels."""
        known = math.prod(self.sizes.get(label, 1) for label in group)
        factors = [self.dimension(label) for label in group if label not in self.sizes]
        if known != 1 or not factors:
            factors.append(self.constant(wish, known))
        product = factors[0]
        for factor in factors[1:]:
            multiplied = self.new(einsum.MULTIPLY, wish, [product, factor])
            multiplied.attr["T"].type = DT_INT32
            product = _reference(self.place, multiplied)
        return product

    def dimension(self, label: str) -> str:
        """Returns the size of a label as the operand has it that was asked before."""
        sides = [side for side in range(2) if label in self.plan.operands[side].labels]
        side = next((side for side in sides if side in self.unpacked), sides[0])
        labels = self.plan.operands[side].labels
        if side not in self.unpacked:
            name = f"{self.proto.name}/{_SIDES[side]}"
            shape = self.new(einsum.SHAPE, f"{name}/Shape", [self.inputs[side]])
            shape.attr["T"].type = self.low.proto
            shape.attr["out_type"].type = DT_INT32
            unpacked = self.new(einsum.UNPACK, f"{name}/Unpack", [_reference(self.place, shape)])
            unpacked.attr["T"].type = DT_INT32
            unpacked.attr["num"].i = len(labels)
            unpacked.attr["axis"].i = 0
            self.unpacked[side] = unpacked.name
        port = labels.index(label)
        return _port(self.place, self.unpacked[side], einsum.UNPACK, port)

    def node(self, op: str, part: str, refs: Sequence[str]) -> node_def_pb2.NodeDef:
        """Returns a new node of the low precision; the last one is what was the Einsum."""
        if op == self.plan.last_op and part.startswith("product"):
            node = self.proto
            node.op = op
            node.input[:] = refs
            for attr in [name for name in node.attr if not name.startswith("_")]:
                del node.attr[attr]
        else:
            node = self.new(op, f"{self.proto.name}/{part}", refs)
        node.attr["T"].type = self.low.proto
        return node

    def constant(self, wish: str, value: int | list[int]) -> str:
        refs = [f"^{self.place.anchor}"] if self.place.anchor else []
        constant = self.new(handles.CONSTANT, wish, refs)
        constant.attr["dtype"].type = DT_INT32
        tensor = constant.attr["value"].tensor
        tensor.dtype = DT_INT32
        if isinstance(value, int):
            tensor.tensor_shape.SetInParent()
            tensor.int_val.append(value)
        else:
            tensor.tensor_shape.dim.add(size=len(value))
            tensor.int_val.extend(value)
        return _reference(self.place, constant)

    def new(self, op: str, wish: str, refs: Sequence[str]) -> node_def_pb2.NodeDef:
        name = names.unique(wish, self.place.taken)
        return self.place.protos.add(name=name, op=op, input=refs, device=self.proto.device)


def _reference(place: Place, node: node_def_pb2.NodeDef) -> str:
    return _port(place, node.name, node.op, 0)


def _port(place: Place, name: str, op: str, port: int) -> str:
    if place.in_function:
        return f"{name}:{einsum.OUTPUT_ARGS[op]}:{port}"
    return f"{name}:{port}" if port else name
