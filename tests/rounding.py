"""How far a rewritten graph may be from the original: an error bound per tensor, derived op by op.

Each value v of the original has a value v' in the rewritten graph. `error_bounds` carries a bound
e >= max |v' - v| from the inputs to the outputs. For a node that computes f:

    e(out) = A(e(inputs)) + r * (u * (max |out| + A) + tiny)

*   A is how much f can amplify what is already there: for x @ w, summed over K terms, it is e_x *
    (sum of |w| over K) + K * e_w * (max|x| + e_x); for relu, tanh, softmax e_x (their slope is at
    most 1); for exp max|out| * (exp(e_x) - 1); and so on, one row of `AMPLIFY` each. No bound is
    claimed for an op without a row: that is an error in the test.
*   r counts the roundings of a kernel: at most 2 in general (its result, and one inside: the
    table of measurements shows none with more but those in `ROUNDINGS`), and K where the CPU
    kernel accumulates in the low type.
*   u is the largest relative error of one rounding, 2**-11 in half, 2**-8 in bfloat16, and 2**-24
    in float32 where the inputs differ; tiny is what a rounding near 0 can lose, none in float32.

A comparison, an ArgMax or a Cast to int of inputs that may differ can flip: its bound is infinite,
nothing is claimed. Where the inputs are the same bits (e = 0) its result must be the same.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tf_amp_rewriter import dtypes

Array = NDArray[np.generic]


@dataclasses.dataclass(frozen=True)
class Step:
    """One node: the original's values of its inputs and output, and the errors of its inputs."""

    op: tf.Operation
    x: Sequence[Array]
    e: Sequence[float]
    out: Array


def largest(values: Array) -> float:
    """Returns the largest finite magnitude; 0 for an empty array or other than numbers."""
    if values.dtype.kind not in "fiuV" or not values.size:
        return 0.0
    numbers = np.abs(values.astype(np.float64))
    return float(np.max(numbers, where=np.isfinite(numbers), initial=0.0))


def smallest(values: Array) -> float:
    return float(np.min(np.abs(values.astype(np.float64)))) if values.size else 0.0


def _contracted(step: Step) -> int:
    """Returns K, the number of products that one output sums."""
    first, second = step.x[0].shape, step.x[1].shape
    match step.op.type:
        case "Conv2DBackpropInput":
            return math.prod(second[:2]) * second[3]
        case "DepthwiseConv2dNative":
            return math.prod(second[:2])
        case "Conv2D" | "Conv3D":
            return math.prod(second[:-1])
        case "Einsum":
            inputs, output = step.op.get_attr("equation").decode().split("->")
            left, right = inputs.split(",")
            sizes = dict(zip(left + right, first + second, strict=True))
            return math.prod(size for label, size in sizes.items() if label not in output)
    attr = "transpose_a" if step.op.type in ("MatMul", "SparseMatMul") else "adj_x"
    return first[-2] if step.op.get_attr(attr) else first[-1]


def _product(step: Step) -> float:
    (x, y), (ex, ey) = step.x[-2:], step.e[-2:]
    return ex * largest(y) + ey * largest(x) + ex * ey


def _matmul(step: Step) -> float:
    """e_x meets the magnitudes of one output's weights, e_w at most K values of x."""
    weights = np.abs(step.x[-1] if step.op.type != "Conv2DBackpropInput" else step.x[1])
    terms = _contracted(step)
    (ex, ew), x = step.e[-2:], step.x[-2]
    if step.op.type == "Conv2DBackpropInput":
        return terms * (step.e[2] * largest(step.x[1]) + step.e[1] * largest(step.x[2]))
    sums = weights.astype(np.float64).sum(axis=_summed_axes(step))
    return ex * largest(sums) + terms * ew * (largest(x) + ex)


def _summed_axes(step: Step) -> tuple[int, ...]:
    """Returns the axes of the second input that one output sums over; all where not known."""
    match step.op.type:
        case "MatMul" | "SparseMatMul":
            return (-1,) if step.op.get_attr("transpose_b") else (-2,)
        case "BatchMatMul" | "BatchMatMulV2":
            return (-1,) if step.op.get_attr("adj_y") else (-2,)
        case "DepthwiseConv2dNative":
            return (0, 1)
        case "Conv2D" | "Conv3D":
            return tuple(range(step.x[1].ndim - 1))
        case _:
            return tuple(range(step.x[1].ndim))


def _divide(step: Step) -> float:
    left = smallest(step.x[1]) - step.e[1]
    return (step.e[0] + largest(step.out) * step.e[1]) / left if left > 0 else math.inf


def _square(difference: Callable[[Step], Array]) -> Callable[[Step], float]:
    def amplify(step: Step) -> float:
        error = sum(step.e)
        return 2 * largest(difference(step)) * error + error**2

    return amplify


def _slope(at_most: float) -> Callable[[Step], float]:
    """For what moves, selects, averages or squashes: the slope is bounded everywhere."""
    return lambda step: at_most * max(step.e, default=0.0)


def _steep(slope: Callable[[float], float], shift: float = 0.0) -> Callable[[Step], float]:
    """For log, sqrt, 1/x: `slope` of the smallest magnitude that an input can have."""

    def amplify(step: Step) -> float:
        left = float(np.min(step.x[0].astype(np.float64) + shift, initial=math.inf)) - step.e[0]
        return step.e[0] * slope(left) if left > 0 else math.inf

    return amplify


def _folded(step: Step) -> float:
    """For sums: as many errors add up as inputs meet in one output."""
    return step.x[0].size / max(step.out.size, 1) * step.e[0]


def _scan(step: Step) -> float:
    return step.x[0].shape[int(step.x[1])] * step.e[0]


def _batch_norm(step: Step) -> float:
    """Inference only, statistics exact: x * s + (offset - mean * s), s = scale / deviation."""
    if step.op.get_attr("is_training") or any(step.e[1:]):
        raise ValueError("no bound for a batch norm in training or with lowered statistics")
    variance = step.x[4].astype(np.float64) + step.op.get_attr("epsilon")
    return step.e[0] * float(np.max(np.abs(step.x[1]) / np.sqrt(variance)))


def _exp(step: Step) -> float:
    return largest(step.out) * math.expm1(step.e[0]) if step.e[0] < 700 else math.inf


def _flips(step: Step) -> float:
    return math.inf if max(step.e, default=0.0) else 0.0


AMPLIFY: dict[str, Callable[[Step], float]] = {
    **dict.fromkeys(
        "MatMul BatchMatMul BatchMatMulV2 Conv2D Conv3D Conv2DBackpropInput Einsum SparseMatMul "
        "DepthwiseConv2dNative".split(),
        _matmul,
    ),
    **dict.fromkeys("Add AddV2 Sub BiasAdd AddN".split(), lambda step: sum(step.e)),
    **dict.fromkeys(
        "Identity IdentityN Relu Relu6 Abs Neg Reshape Transpose Squeeze ExpandDims Pad PadV2 "
        "MirrorPad Pack Unpack ConcatV2 Split SplitV Slice StridedSlice GatherV2 GatherNd Tile "
        "Select SelectV2 Maximum Minimum Max Min MaxPool AvgPool Mean ClipByValue TopKV2 Tanh "
        "Sigmoid Softmax Softplus Softsign LeakyRelu Elu StopGradient BroadcastTo Fill "
        "ResizeBilinear ResizeNearestNeighbor SpaceToBatchND BatchToSpaceND DepthToSpace "
        "SpaceToDepth ReverseV2 Snapshot OnesLike ZerosLike EnsureShape Sin Cos "
        "MatrixBandPart".split(),
        _slope(1.0),
    ),
    **dict.fromkeys(["Erf", "Erfc"], _slope(2 / math.sqrt(math.pi))),
    "Selu": _slope(1.76),
    "LogSoftmax": _slope(2.0),
    "Mul": _product,
    **dict.fromkeys(["RealDiv", "DivNoNan"], _divide),
    "Square": _square(lambda step: step.x[0]),
    "SquaredDifference": _square(lambda step: np.subtract(step.x[0], step.x[1])),
    "Exp": _exp,
    "Log": _steep(lambda left: 1 / left),
    "Log1p": _steep(lambda left: 1 / left, 1.0),
    "Sqrt": lambda step: math.sqrt(step.e[0]),  # of x >= 0: |sqrt a - sqrt b| <= sqrt |a - b|
    "Rsqrt": _steep(lambda left: 1 / (2 * left**1.5)),
    **dict.fromkeys(["Reciprocal", "Inv"], _steep(lambda left: 1 / left**2)),
    "Sum": _folded,
    "Cumsum": _scan,
    **dict.fromkeys(["FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"], _batch_norm),
    **dict.fromkeys("Shape ShapeN Size Rank".split(), lambda _: 0.0),
    **dict.fromkeys(
        "Greater GreaterEqual Less LessEqual Equal NotEqual ArgMax ArgMin Floor Ceil Round Sign "
        "LogicalNot LogicalAnd LogicalOr Range Pow Where IsNan IsInf IsFinite Prod".split(),
        _flips,
    ),
}
ROUNDINGS = {"Sigmoid": 3, "AddN": 64}
LOW_ACCUMULATION = ("Einsum", "DepthwiseConv2dNative", "Conv2DBackpropInput", "Conv3D")


def error_bounds(
    graph: tf.Graph, values: Mapping[str, Array], low: dtypes.LowPrecision
) -> dict[str, float]:
    """Returns the bound of each tensor of the rewritten `graph`.

    Args:
        graph: the rewritten graph, without loops and calls.
        values: the original's value of each tensor, by name.
        low: the low precision.

    Raises:
        ValueError: an op that has no row in `AMPLIFY`.
    """
    bounds: dict[str, float] = {}
    known = dict(values)
    for op in _in_order(graph):
        x = [known[tensor.name] for tensor in op.inputs]
        e = [bounds[tensor.name] for tensor in op.inputs]
        for output in op.outputs:
            if output.name not in known:  # a node of ours: a Cast, or the copy of a constant
                known[output.name] = x[0] if x else _constant(op)
            step = Step(op, x, e, known[output.name])
            with np.errstate(invalid="ignore"):  # inf - inf in what is not finite anyway
                bound = _bound(step, output.dtype, low, output.name in values)
            bounds[output.name] = math.inf if math.isnan(bound) else bound  # inf * 0: no claim
    return bounds


def _in_order(graph: tf.Graph) -> list[tf.Operation]:
    """Returns the ops such that inputs come first; raises on loops."""
    order: dict[str, tf.Operation] = {}
    waiting = list(graph.get_operations())
    while waiting:
        rest = []
        for op in waiting:
            if all(tensor.op.name in order for tensor in op.inputs):
                order[op.name] = op
            else:
                rest.append(op)
        if len(rest) == len(waiting):
            raise ValueError("no bound for a graph with loops")
        waiting = rest
    return list(order.values())


def _constant(op: tf.Operation) -> Array:
    return tf.make_ndarray(op.get_attr("value"))


def _bound(step: Step, dtype: tf.DType, low: dtypes.LowPrecision, known: bool) -> float:
    is_low = dtype.as_datatype_enum == low.proto
    if step.op.type in ("Placeholder", "NoOp"):
        return 0.0
    if step.op.type == "Const":
        changed = is_low and not (known and step.out.dtype == dtype.as_numpy_dtype)
        return low.epsilon * largest(step.out) + low.tiny if changed else 0.0
    if step.op.type == "Cast":
        amplified = step.e[0] if dtype.is_floating else _flips(step)
        rounds = 1
    elif step.op.type in AMPLIFY:
        amplified = AMPLIFY[step.op.type](step)
        rounds = _roundings(step, is_low)
    else:
        raise ValueError(f"no bound is known for `{step.op.type}`: add a row or say `not_run`")
    if not dtype.is_floating or (not is_low and amplified == 0):
        return amplified
    unit, tiny = (low.epsilon, low.tiny) if is_low else (2.0**-24, 0.0)
    return amplified + rounds * (unit * (largest(step.out) + amplified) + tiny)


def _roundings(step: Step, is_low: bool) -> int:
    if AMPLIFY[step.op.type] is _matmul and (not is_low or step.op.type in LOW_ACCUMULATION):
        return 2 + _contracted(step)
    if step.op.type in ("Mean", "Sum", "AvgPool") and not is_low:
        return 2 + step.x[0].size // max(step.out.size, 1)
    return ROUNDINGS.get(step.op.type, 2)
