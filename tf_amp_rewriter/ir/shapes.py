"""Static shapes of tensors, as far as the protos state them."""

from __future__ import annotations

from tensorflow.core.framework import tensor_shape_pb2

from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ops.attrs import attr_of

Shape = tuple[int | None, ...] | None
_HAND_ON = ("Identity", "Enter")


def input_shapes(scope: ir.Scope, node: ir.Node) -> tuple[Shape, ...]:
    """Returns the static shape of each data input of `node`; None where unknown.

    Constants state theirs; other nodes may have the attribute `_output_shapes`.
    """
    return tuple(_output_shape(scope, producer, port) for producer, port in node.inputs)


def _output_shape(scope: ir.Scope, producer: int, port: int) -> Shape:
    seen: set[int] = set()  # a damaged graph may have a cycle
    while producer not in seen:
        seen.add(producer)
        node = scope.nodes[producer]
        if node.proto is None:
            return None
        attr = node.proto.attr
        if node.op == "Const":
            return _dims(attr_of(node.proto, "value").tensor.tensor_shape)
        if "_output_shapes" in attr and port < len(attr["_output_shapes"].list.shape):
            return _dims(attr["_output_shapes"].list.shape[port])
        if node.op not in _HAND_ON or not node.inputs:
            return None
        producer, port = node.inputs[0]
    return None


def _dims(shape: tensor_shape_pb2.TensorShapeProto) -> Shape:
    if shape.unknown_rank:
        return None
    return tuple(None if dim.size < 0 else dim.size for dim in shape.dim)
