"""What the DENY rows claim, on the CPU's kernels: each claim is an answer that is wrong.

`test_accumulation.py` and `test_overflow.py` have which ops add up low, and which overflow where.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
import tensorflow as tf

from tests.ops import sum_probes
from tf_amp_rewriter import dtypes
from tf_amp_rewriter.ops import accumulation, deny, overflow
from tf_amp_rewriter.ops.rows import Category

raw = tf.raw_ops
HALF, BFLOAT16 = dtypes.HALF, dtypes.BFLOAT16
IDS: Final = np.zeros(4096, np.int32)


def filled(value: float, *shape: int, low: dtypes.LowPrecision = HALF) -> tf.Tensor:
    return tf.constant(np.full(shape, value, low.numpy))


def on_cpu(call: Callable[[], Any]) -> float:
    """The first number of a result."""
    with tf.device("/CPU:0"):
        return float(tf.reshape(tf.cast(call(), tf.float64), [-1])[0])


@pytest.mark.parametrize(("low", "stop"), [(HALF, 2048.0), (BFLOAT16, 256.0)])
@pytest.mark.parametrize(
    ("op", "add_up"),
    [
        ("Cumsum", lambda ones: raw.Cumsum(x=ones, axis=0)[-1]),
        ("SegmentSum", lambda ones: raw.SegmentSum(data=ones, segment_ids=IDS)),
        ("SegmentMean", lambda ones: 4096 * raw.SegmentMean(data=ones, segment_ids=IDS)),
        (
            "UnsortedSegmentSum",
            lambda ones: raw.UnsortedSegmentSum(data=ones, segment_ids=IDS, num_segments=1),
        ),
    ],
)  # fmt: skip
def test_4096_ones_stop_adding_up(op, add_up, low, stop):
    assert on_cpu(lambda: add_up(filled(1.0, 4096, low=low))) == stop, op


@pytest.mark.parametrize(
    ("claim", "found", "expected"),
    [
        ("Sum stalls over outer axes", lambda: raw.Sum(input=filled(1, 4096, 2), axis=[0]), 2048),
        ("Sum overflows", lambda: raw.Sum(input=filled(8, 16384), axis=[0]), np.inf),
        ("Mean overflows on its way to 8",
         lambda: raw.Mean(input=filled(8, 16384), axis=[0]), np.inf),
        ("Mean counts beyond half", lambda: raw.Mean(input=filled(1, 300, 300), axis=[0, 1]),
         np.nan),
        ("EuclideanNorm squares", lambda: raw.EuclideanNorm(input=filled(8, 4096), axis=[0]),
         np.inf),
        ("L2Loss squares", lambda: raw.L2Loss(t=filled(256, 1)), np.inf),
        ("Prod overflows", lambda: raw.Prod(input=filled(2, 16), axis=[0]), np.inf),
        ("Prod underflows", lambda: raw.Prod(input=filled(0.5, 25), axis=[0]), 0),
        ("Cumprod overflows", lambda: raw.Cumprod(x=filled(2, 16), axis=0)[-1], np.inf),
        ("SegmentProd overflows",
         lambda: raw.SegmentProd(data=filled(2, 16), segment_ids=IDS[:16]), np.inf),
        ("UnsortedSegmentProd overflows",
         lambda: raw.UnsortedSegmentProd(data=filled(2, 16), segment_ids=IDS[:16], num_segments=1),
         np.inf),
        ("UnsortedSegmentMax fills with the lowest half",
         lambda: raw.UnsortedSegmentMax(data=filled(1, 1), segment_ids=IDS[:1] + 1, num_segments=2),
         -65504),
        ("UnsortedSegmentMin fills with the highest half",
         lambda: raw.UnsortedSegmentMin(data=filled(1, 1), segment_ids=IDS[:1] + 1, num_segments=2),
         65504),
        ("SparseReduceSum overflows",
         lambda: raw.SparseReduceSum(
             input_indices=np.stack([IDS[:64], np.arange(64)], 1).astype(np.int64),
             input_values=filled(2048, 64), input_shape=[1, 64], reduction_axes=[1]), np.inf),
        ("LRN squares", lambda: raw.LRN(input=filled(256, 1, 1, 1, 1), bias=1.0), 0),
        ("the sum of a loss overflows",
         lambda: raw.SoftmaxCrossEntropyWithLogits(
             features=filled(0, 1, 70000), labels=filled(1 / 70000, 1, 70000))[0], np.inf),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_wrong_answer_in_half(claim, found, expected):
    np.testing.assert_equal(on_cpu(found), expected, err_msg=claim)


def test_half_rounds_a_sum_with_an_epsilon_that_rsqrt_reads():
    """A variance of 1e-6 and an epsilon of 1e-6 in half: a relative error of 1 %."""
    with tf.device("/CPU:0"):
        inside = filled(1e-6, 1) + filled(1e-6, 1)
        found = on_cpu(lambda: raw.Rsqrt(x=inside))
    assert abs(found * np.sqrt(2e-6) - 1) > 5 * HALF.epsilon


def test_tan_magnifies_the_rounding_of_its_argument():
    x = np.array([1.5703])
    found = on_cpu(lambda: raw.Tan(x=tf.constant(x.astype(np.float16))))
    assert abs(found / np.tan(x[0]) - 1) > 40 * HALF.epsilon


def test_every_row_has_its_claim_measured():
    """By a probe of its sum, by the limits of its range, or above."""
    here = {
        "BatchNormWithGlobalNormalization",  # TensorFlow runs it in old graphs only
        "Rsqrt",
        "SoftmaxCrossEntropyWithLogits",
        "SparseReduceSum",
        "SparseReduceSumSparse",  # one kernel with SparseReduceSum
        "SparseSoftmaxCrossEntropyWithLogits",  # one sum with SoftmaxCrossEntropyWithLogits
        "Tan",
        "UnsortedSegmentMax",
        "UnsortedSegmentMin",
    }
    sums = {
        row.op for row in accumulation.ROWS if row.compute == "low" and row.op in sum_probes.PROBES
    }
    ranges = {row.op for row in overflow.RANGES if row.largest or row.smallest}
    denied = {row.op for row in deny.ROWS if row.category is Category.DENY}

    assert denied - sums - ranges == here
