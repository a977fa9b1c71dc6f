"""One call per op that adds up many terms: its result shows in which type it does so.

A probe gets a function that makes its tensors, `make(*shape, low=0.0, high=1.0)`, and returns a
result and what it is where every element is `high` and nothing was lost. What it loses on such
equal terms, and on random ones between `low` and `high`, says in which type they were added up.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import tensorflow as tf

from tf_amp_rewriter import dtypes

raw = tf.raw_ops
Make = Callable[..., tf.Tensor]
Probe = Callable[[Make], tuple[Any, float]]
TERMS: Final = 4096
CLASSES: Final = 70_000  # beyond the largest finite half
FACTORS: Final = 1000
_VALID: Final = {"strides": [1] * 4, "padding": "VALID"}
_VALID_3D: Final = {"strides": [1] * 5, "padding": "VALID"}
_NO_PADS: Final = np.zeros((4, 2), np.int32)
_IDS: Final = np.zeros(TERMS, np.int32)


def _i32(*values: int) -> Any:
    return np.array(values, np.int32)


def _segments(op: str, full: float) -> Probe:
    """One segment of all terms."""
    others: dict[str, Any] = {}
    if op.startswith("Sparse"):
        others["indices"] = np.arange(TERMS, dtype=np.int32)
    if op.startswith("Unsorted") or op.endswith("NumSegments"):
        others["num_segments"] = 1
    call = getattr(raw, op)
    return lambda make: (call(data=make(TERMS, 2), segment_ids=_IDS, **others), full)


def _product_of_segment(op: str, **others: Any) -> Probe:
    ids = np.zeros(FACTORS, np.int32)
    call = getattr(raw, op)
    return lambda make: (call(data=_factors(make, FACTORS, 64), segment_ids=ids, **others), 1.0)


def _factors(make: Make, *shape: int) -> tf.Tensor:
    """Numbers close to 1, so that the product of many stays finite."""
    return make(*shape, low=0.998, high=1.004)


def _block_cell(op: str) -> Probe:
    """One step of one cell: tanh of a product with the weights is its sixth output."""

    def probe(make: Make) -> tuple[Any, float]:
        x, zeros = make(8, TERMS), tf.zeros_like(make(8, 2))
        peephole = zeros[0]
        given = {
            "x": x, "cs_prev": zeros, "h_prev": zeros, "wci": peephole, "wcf": peephole,
            "wco": peephole, "b": tf.zeros_like(make(8)), "w": make(TERMS + 2, 8, high=1 / TERMS),
        }  # fmt: skip
        if op != "LSTMBlockCell":
            given |= {"x": x[None], "seq_len_max": np.int64(1)}
        return getattr(raw, op)(**given).ci, float(np.tanh(1.0))

    return probe


def _scan(op: str, full: float) -> Probe:
    return lambda make: (getattr(raw, op)(x=make(TERMS, 2), axis=0)[-1], full)


def _pool_gradient(make: Make) -> tuple[Any, float]:
    """The pixel in the middle is in every window of 64x64."""
    grad = raw.AvgPoolGrad(
        orig_input_shape=_i32(1, 127, 127, 1), grad=make(1, 64, 64, 1), ksize=[1, 64, 64, 1],
        **_VALID,
    )  # fmt: skip
    return grad[:, 63, 63], 1.0


def _pool_gradient_3d(make: Make) -> tuple[Any, float]:
    grad = raw.AvgPool3DGrad(
        orig_input_shape=_i32(1, 31, 31, 31, 1), grad=make(1, 16, 16, 16, 1),
        ksize=[1, 16, 16, 16, 1], **_VALID_3D,
    )  # fmt: skip
    return grad[:, 15, 15, 15], 1.0


def _depthwise_gradient(make: Make) -> tuple[Any, float]:
    grad = raw.DepthwiseConv2dNativeBackpropInput(
        input_sizes=_i32(1, 127, 127, 2), filter=make(64, 64, 2, 1),
        out_backprop=make(1, 64, 64, 2), **_VALID,
    )  # fmt: skip
    return grad[:, 63, 63], TERMS


def _statistics(make: Make) -> tuple[Any, float]:
    """The mean of a batch, which a batch norm in training computes."""
    result = raw.FusedBatchNormV3(
        x=make(1, 64, 64, 4), scale=[1.0] * 4, offset=[0.0] * 4, mean=[], variance=[],
        is_training=True,
    )  # fmt: skip
    return result.batch_mean, 1.0


def _normalised(make: Make) -> tuple[Any, float]:
    """1 over the sum of the squares around one place."""
    x = make(1, 1, 1, 2 * TERMS)
    result = raw.LRN(input=x, depth_radius=TERMS // 2, bias=0.0, alpha=1.0, beta=1.0)
    return result[..., TERMS], 1 / (TERMS + 1)


PROBES: Final[Mapping[str, Probe]] = {
    "AddN": lambda make: (raw.AddN(inputs=[make(64) for _ in range(1000)]), 1000),
    "AvgPool": lambda make: (
        raw.AvgPool(value=make(1, 64, 64, 8), ksize=[1, 64, 64, 1], **_VALID), 1
    ),
    "AvgPool3D": lambda make: (
        raw.AvgPool3D(input=make(1, 16, 16, 16, 1), ksize=[1, 16, 16, 16, 1], **_VALID_3D), 1
    ),
    "AvgPool3DGrad": _pool_gradient_3d,
    "AvgPoolGrad": _pool_gradient,
    "BatchMatMul": lambda make: (raw.BatchMatMul(x=make(2, 2, TERMS), y=make(2, TERMS, 2)), TERMS),
    "BatchMatMulV2": lambda make: (
        raw.BatchMatMulV2(x=make(2, 2, TERMS), y=make(2, TERMS, 2)), TERMS
    ),
    "BatchMatMulV3": lambda make: (
        raw.BatchMatMulV3(x=(x := make(2, 2, TERMS)), y=make(2, TERMS, 2), Tout=x.dtype), TERMS
    ),
    "BiasAddGrad": lambda make: (raw.BiasAddGrad(out_backprop=make(TERMS, 2)), TERMS),
    "BlockLSTM": _block_cell("BlockLSTM"),
    "BlockLSTMV2": _block_cell("BlockLSTMV2"),
    "Conv": lambda make: (
        raw.Conv(input=make(1, 4, 4, 4, 64), filter=make(4, 4, 4, 64, 8), explicit_paddings=[],
                 **_VALID_3D), TERMS
    ),
    "Conv2D": lambda make: (
        raw.Conv2D(input=make(1, 4, 4, 256), filter=make(4, 4, 256, 2), **_VALID), TERMS
    ),
    "Conv2DBackpropFilter": lambda make: (
        raw.Conv2DBackpropFilter(
            input=make(1, 64, 64, 2), filter_sizes=_i32(1, 1, 2, 2),
            out_backprop=make(1, 64, 64, 2), **_VALID), TERMS
    ),
    "Conv2DBackpropInput": lambda make: (
        raw.Conv2DBackpropInput(
            input_sizes=_i32(1, 4, 4, 2), filter=make(1, 1, 2, TERMS),
            out_backprop=make(1, 4, 4, TERMS), **_VALID), TERMS
    ),
    "Conv3D": lambda make: (
        raw.Conv3D(input=make(1, 4, 4, 4, 64), filter=make(4, 4, 4, 64, 8), **_VALID_3D), TERMS
    ),
    "Conv3DBackpropFilterV2": lambda make: (
        raw.Conv3DBackpropFilterV2(
            input=make(1, 16, 16, 16, 2), filter_sizes=_i32(1, 1, 1, 2, 2),
            out_backprop=make(1, 16, 16, 16, 2), **_VALID_3D), TERMS
    ),
    "Conv3DBackpropInputV2": lambda make: (
        raw.Conv3DBackpropInputV2(
            input_sizes=_i32(1, 4, 4, 4, 2), filter=make(1, 1, 1, 2, TERMS),
            out_backprop=make(1, 4, 4, 4, TERMS), **_VALID_3D), TERMS
    ),
    "Cumprod": lambda make: (raw.Cumprod(x=_factors(make, FACTORS, 64), axis=0)[-1], 1.0),
    "Cumsum": _scan("Cumsum", TERMS),
    "CumulativeLogsumexp": _scan("CumulativeLogsumexp", 1 + float(np.log(TERMS))),
    "DepthwiseConv2dNative": lambda make: (
        raw.DepthwiseConv2dNative(input=make(1, 64, 64, 2), filter=make(64, 64, 2, 1), **_VALID),
        TERMS
    ),
    "DepthwiseConv2dNativeBackpropFilter": lambda make: (
        raw.DepthwiseConv2dNativeBackpropFilter(
            input=make(1, 64, 64, 2), filter_sizes=_i32(1, 1, 2, 1),
            out_backprop=make(1, 64, 64, 2), **_VALID), TERMS
    ),
    "DepthwiseConv2dNativeBackpropInput": _depthwise_gradient,
    "Einsum": lambda make: (
        raw.Einsum(inputs=[make(2, TERMS), make(TERMS, 2)], equation="ij,jk->ik"), TERMS
    ),
    "EuclideanNorm": lambda make: (
        raw.EuclideanNorm(input=make(TERMS, 2), axis=[0]), TERMS**0.5
    ),
    "FusedBatchNormV3": _statistics,
    "FusedPadConv2D": lambda make: (
        raw.FusedPadConv2D(input=make(1, 4, 4, 256), paddings=_NO_PADS,
                           filter=make(4, 4, 256, 2), mode="REFLECT", **_VALID), TERMS
    ),
    "L2Loss": lambda make: (raw.L2Loss(t=make(TERMS)), TERMS / 2),
    "LRN": _normalised,
    "LSTMBlockCell": _block_cell("LSTMBlockCell"),
    "LogSoftmax": lambda make: (
        raw.LogSoftmax(logits=make(1, CLASSES, low=0.5)), -float(np.log(CLASSES))
    ),
    "MatMul": lambda make: (raw.MatMul(a=make(2, TERMS), b=make(TERMS, 2)), TERMS),
    "Mean": lambda make: (raw.Mean(input=make(TERMS, 2), axis=[0]), 1),
    "Prod": lambda make: (raw.Prod(input=_factors(make, FACTORS, 64), axis=[0]), 1.0),
    "ScatterNd": lambda make: (
        raw.ScatterNd(indices=_IDS[:, None], updates=make(TERMS), shape=[1]), TERMS
    ),
    "SegmentMean": _segments("SegmentMean", 1),
    "SegmentProd": _product_of_segment("SegmentProd"),
    "SegmentSum": _segments("SegmentSum", TERMS),
    "Softmax": lambda make: (raw.Softmax(logits=make(1, CLASSES, low=0.5)), 1 / CLASSES),
    "SparseMatMul": lambda make: (raw.SparseMatMul(a=make(2, TERMS), b=make(TERMS, 2)), TERMS),
    "SparseSegmentMean": _segments("SparseSegmentMean", 1),
    "SparseSegmentMeanWithNumSegments": _segments("SparseSegmentMeanWithNumSegments", 1),
    "SparseSegmentSqrtN": _segments("SparseSegmentSqrtN", TERMS**0.5),
    "SparseSegmentSqrtNWithNumSegments": _segments(
        "SparseSegmentSqrtNWithNumSegments", TERMS**0.5
    ),
    "SparseSegmentSum": _segments("SparseSegmentSum", TERMS),
    "SparseSegmentSumWithNumSegments": _segments("SparseSegmentSumWithNumSegments", TERMS),
    "SparseTensorDenseMatMul": lambda make: (
        raw.SparseTensorDenseMatMul(
            a_indices=[[0, k] for k in range(TERMS)], a_values=make(TERMS), a_shape=[1, TERMS],
            b=make(TERMS, 2)), TERMS
    ),
    "Sum": lambda make: (raw.Sum(input=make(TERMS, 2), axis=[0]), TERMS),
    "TensorScatterAdd": lambda make: (
        raw.TensorScatterAdd(tensor=tf.zeros_like(make(1)), indices=_IDS[:, None],
                             updates=make(TERMS)), TERMS
    ),
    "UnsortedSegmentProd": _product_of_segment("UnsortedSegmentProd", num_segments=1),
    "UnsortedSegmentSum": _segments("UnsortedSegmentSum", TERMS),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Loss:
    """What a kernel loses.

    Attributes:
        missing: the share of equal terms that is not in the result.
        roundings: the RMS of the error on random terms, in maximal roundings of the result.
    """

    missing: float
    roundings: float


def measure(probe: Probe, low: dtypes.LowPrecision) -> Loss:
    """Returns what the CPU's kernel loses in `low`."""

    def equal(_: float, high: float, shape: tuple[int, ...]) -> Any:
        return np.full(shape, high, low.numpy)

    def random(to: np.dtype[Any]) -> tuple[Any, float]:
        seeds = itertools.count()
        return _run(
            probe,
            lambda least, high, shape: (
                np.random.default_rng(next(seeds))
                .uniform(least, high, shape)
                .astype(low.numpy)
                .astype(to)
            ),
        )

    of_equal, full = _run(probe, equal)
    exact, got = random(np.dtype(np.float32))[0], random(low.numpy)[0]
    error = np.sqrt(np.mean((got - exact) ** 2) / np.mean(exact**2)) / low.epsilon
    return Loss(_finite(np.max(np.abs(of_equal / full - 1))), _finite(error))


def _run(probe: Probe, values: Callable[[float, float, tuple[int, ...]], Any]) -> tuple[Any, float]:
    def make(*shape: int, low: float = 0.0, high: float = 1.0) -> tf.Tensor:
        return tf.constant(values(low, high, shape))

    with tf.device("/CPU:0"), np.errstate(over="ignore", invalid="ignore"):
        result, full = probe(make)
        return tf.cast(result, tf.float64).numpy(), full


def _finite(value: Any) -> float:
    """JSON has no infinity and no NaN: 1e9 stands for them."""
    return float(value) if np.isfinite(value) else 1e9


def main() -> None:
    """Prints the losses of the probes named as `Op dtype`, as JSON."""
    losses = {}
    for name in sys.argv[1:]:
        op, low = name.split()
        losses[name] = dataclasses.astuple(measure(PROBES[op], dtypes.LOW_PRECISIONS[low]))
    sys.stdout.write(json.dumps(losses))


if __name__ == "__main__":
    main()
