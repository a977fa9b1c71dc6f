"""The conditions, and their limits measured on the CPU kernels against float64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2

from tf_amp_rewriter import dtypes
from tf_amp_rewriter.ops import conditions

HALF, BFLOAT16 = dtypes.HALF, dtypes.BFLOAT16
LOWS = [pytest.param(low, id=low.name) for low in (HALF, BFLOAT16)]
# RMS of the relative error that a node may have on CPU, for what the module says.
MOST_LOSS = {"half": 5e-3, "bfloat16": 9e-3}


def facts(
    op: str,
    low: dtypes.LowPrecision,
    *shapes: Sequence[int | None] | None,
    device: str = "any",
    **attrs: bytes | int | list[int],
) -> conditions.NodeFacts:
    node = node_def_pb2.NodeDef(name="n", op=op)
    for name, value in attrs.items():
        if isinstance(value, bytes):
            node.attr[name].s = value
        elif isinstance(value, int):
            node.attr[name].i = value
        else:
            node.attr[name].list.i.extend(value)
    static = tuple(tuple(shape) if shape is not None else None for shape in shapes)
    return conditions.NodeFacts(node, low, device, static)


def einsum(equation: str, low: dtypes.LowPrecision, *shapes, device: str = "any") -> str:
    return conditions.einsum_depth(
        facts("Einsum", low, *shapes, device=device, equation=equation.encode())
    )


@pytest.mark.parametrize(
    ("equation", "shapes", "terms"),
    [
        ("ij,jk->ik", ([2, 7], [7, 3]), 7),
        ("ij,jk->ik", ([None, 7], [None, 3]), 7),
        ("ij,jk->ik", ([2, None], [7, 3]), 7),
        ("ij,jk->ik", ([2, None], None), None),
        ("ij,jk->ik", ([2, None], [None, 3]), None),
        ("abc,cde->abde", ([None, None, 512], [512, 8, 64]), 512),
        ("abcd,cde->abe", ([None, None, 8, 64], [8, 64, 512]), 512),
        ("...ij,...jk->...ik", ([4, 2, 2, 7], [7, 3]), 7),
        ("i...,i->...", ([5, 2, 2], [5]), 5),
        ("...i->i", ([2, 3], ), None),
        ("ii->", ([6, 6], ), 6),
        ("ij->ji", (None, ), 1),
        ("ij,jk", ([2, 7], [7, 3]), None),
    ],
)  # fmt: skip
def test_terms_of_einsum(equation, shapes, terms):
    found = conditions._einsum_terms(equation, facts("Einsum", HALF, *shapes))
    assert found == terms


def test_an_einsum_that_no_product_of_matrices_computes():
    assert einsum("...j,jk->...k", HALF, [2, 512], [512, 3]) == ""
    assert "513 terms" in einsum("...j,jk->...k", HALF, [2, 513], [513, 3])
    assert "unknown" in einsum("...j,jk->...k", HALF, None, None)
    assert einsum("...j,jk->...k", BFLOAT16, [2, 8], [8, 3]) == ""
    assert "9 terms in bfloat16" in einsum("...j,jk->...k", BFLOAT16, [2, 9], [9, 3])
    assert einsum("...j,jk->...k", BFLOAT16, None, None, device="gpu") == ""


@pytest.mark.parametrize(
    ("low", "shapes", "device", "is_needed"),
    [
        (HALF, ([2, 512], [512, 3]), "any", False),
        (HALF, ([2, 513], [513, 3]), "any", True),
        (HALF, ([2, 513], [513, 3]), "cpu", True),
        (HALF, ([2, 513], [513, 3]), "gpu", False),
        (HALF, (None, None), "any", True),
        (BFLOAT16, ([2, 8], [8, 3]), "any", False),
        (BFLOAT16, ([2, 9], [9, 3]), "any", True),
        (BFLOAT16, (None, None), "gpu", False),
    ],
)
def test_an_einsum_that_may_be_low_as_a_product_of_matrices(low, shapes, device, is_needed):
    node = facts("Einsum", low, *shapes, device=device, equation=b"ij,jk->ik")

    assert conditions.einsum_depth(node) == ""
    assert conditions.needs_expansion(node) == is_needed


def test_an_einsum_that_no_product_of_matrices_computes_is_not_written_out():
    assert not conditions.needs_expansion(facts("Einsum", HALF, None, None, equation=b"ij,jk->k"))


@pytest.mark.parametrize(
    ("low", "shape", "device", "is_fine"),
    [
        (HALF, [8, 8, 32, 1], "any", True),
        (HALF, [9, 8, 32, 1], "any", False),
        (HALF, [9, 9, 32, 1], "gpu", True),
        (BFLOAT16, [5, 5, None, 1], "cpu", True),
        (BFLOAT16, [7, 7, 32, 1], "any", False),
        (HALF, None, "any", False),
        (HALF, [None, 3, 32, 1], "any", False),
    ],
)
def test_depthwise_window(low, shape, device, is_fine):
    reason = conditions.depthwise_window(
        facts("DepthwiseConv2dNative", low, None, shape, device=device)
    )
    assert (reason == "") == is_fine


def test_pool_window():
    assert conditions.pool_window(facts("AvgPool", HALF, None, ksize=[1, 24, 24, 1])) == ""
    assert conditions.pool_window(facts("AvgPool", HALF, None, ksize=[1, 25, 24, 1])) != ""
    assert conditions.pool_window(facts("AvgPool", BFLOAT16, None, ksize=[1, 8, 8, 1])) == ""
    assert conditions.pool_window(facts("AvgPool3D", BFLOAT16, None, ksize=[1, 8, 8, 2, 1])) != ""
    gpu = facts("AvgPool", HALF, None, device="gpu", ksize=[1, 99, 99, 1])
    assert conditions.pool_window(gpu) != ""


def test_add_n_inputs():
    assert conditions.add_n_inputs(facts("AddN", HALF, N=16)) == ""
    assert "17 tensors" in conditions.add_n_inputs(facts("AddN", HALF, N=17))
    assert conditions.add_n_inputs(facts("AddN", HALF, device="gpu", N=17)) != ""


def test_softmax_width():
    assert conditions.softmax_width(facts("Softmax", HALF, [1, 65504])) == ""
    assert conditions.softmax_width(facts("Softmax", HALF, [1, 65505])) != ""
    assert conditions.softmax_width(facts("Softmax", HALF, [1, 65505], device="gpu")) == ""
    assert conditions.softmax_width(facts("Softmax", BFLOAT16, [1, 100000])) == ""
    assert conditions.softmax_width(facts("Softmax", HALF, [None, None])) == ""
    assert conditions.softmax_width(facts("Softmax", HALF, None)) == ""


def test_conv_rank():
    assert conditions.conv_rank(facts("Conv", BFLOAT16, None, [3, 3, 8, 8])) == ""
    assert conditions.conv_rank(facts("Conv", BFLOAT16, None, [3, 3, 3, 8, 8])) != ""
    assert conditions.conv_rank(facts("Conv", BFLOAT16, None, None)) != ""
    assert conditions.conv_rank(facts("Conv", HALF, None, None)) == ""


def test_sums_in_bfloat16():
    assert conditions.sums_in_bfloat16(facts("Conv3D", HALF)) == ""
    assert conditions.sums_in_bfloat16(facts("Conv3D", BFLOAT16)) != ""
    assert conditions.sums_in_bfloat16(facts("Conv3D", BFLOAT16, device="gpu")) == ""


def low_data(
    shape: Sequence[int], low: dtypes.LowPrecision, seed: int = 0, sign: str = "both"
) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal(shape)
    return (np.abs(values) if sign == "positive" else values).astype(low.numpy)


def loss(compute, arrays: Sequence[np.ndarray]) -> float:
    """The RMS of the relative error of `compute` in low precision, against float64."""
    with tf.device("/CPU:0"):
        exact = compute(*[tf.constant(array.astype(np.float64)) for array in arrays]).numpy()
        got = compute(*[tf.constant(array) for array in arrays]).numpy().astype(np.float64)
    return float(np.sqrt(np.mean((got - exact) ** 2) / np.mean(exact**2)))


@pytest.mark.parametrize("sign", ["both", "positive"])
@pytest.mark.parametrize("low", LOWS)
def test_limits_hold_on_cpu(low, sign):
    depth = conditions.EINSUM_DEPTHS[low.name]
    side = int(conditions.DEPTHWISE_AREAS[low.name] ** 0.5)
    pool = int(conditions.POOL_AREAS[low.name] ** 0.5)

    def data(*shape: int, seed: int = 0) -> np.ndarray:
        return low_data(shape, low, seed, sign)

    found = {
        "Einsum": loss(
            lambda a, b: tf.einsum("ij,jk->ik", a, b), [data(32, depth), data(depth, 32, seed=1)]
        ),
        "DepthwiseConv2dNative": loss(
            lambda x, w: tf.nn.depthwise_conv2d(x, w, [1, 1, 1, 1], "VALID"),
            [data(1, 16, 16, 8), data(side, side, 8, 1, seed=1)],
        ),
        "AvgPool": loss(
            lambda x: tf.nn.avg_pool2d(x, pool, 1, "VALID"),
            [low_data([1, pool, pool, 64], low, 0, "positive")],
        ),
        "AddN": loss(
            lambda *x: tf.add_n(x),
            [data(64, 64, seed=seed) for seed in range(conditions.ADD_N_INPUTS)],
        ),
    }
    assert {op: error for op, error in found.items() if error > MOST_LOSS[low.name]} == {}


def test_half_keeps_its_error_small_in_other_convolutions_on_cpu():
    x, w = low_data([1, 4, 6, 6, 32], HALF), low_data([3, 3, 3, 32, 8], HALF, 1)
    assert loss(lambda a, b: tf.nn.conv3d(a, b, [1] * 5, "VALID"), [x, w]) < MOST_LOSS["half"]
    x, w = low_data([1, 8, 8, 64], HALF), low_data([3, 3, 8, 64], HALF, 1)
    transposed = lambda a, b: tf.nn.conv2d_transpose(a, b, [1, 16, 16, 8], 2)  # noqa: E731
    assert loss(transposed, [x, w]) < MOST_LOSS["half"]


def test_half_softmax_of_the_widest_kind_on_cpu():
    probabilities = tf.nn.softmax(np.zeros([1, 65504], np.float16)).numpy().astype(np.float64)
    assert probabilities.sum() == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize("low", LOWS)
def test_contractions_without_a_condition_accumulate_in_float32_on_cpu(low):
    """4096 ones add up to 4096; in low precision the sum would stop at 2048 or 256."""
    ones = lambda *shape: tf.ones(shape, low.proto)  # noqa: E731
    raw = tf.raw_ops
    strides = [1, 1, 1, 1]
    with tf.device("/CPU:0"):
        results = {
            "BatchMatMulV2": raw.BatchMatMulV2(x=ones(2, 2, 4096), y=ones(2, 4096, 2)),
            "Conv": raw.Conv(
                input=ones(1, 3, 3, 512), filter=ones(2, 4, 512, 2)[:, :2], strides=strides,
                padding="VALID", explicit_paddings=[],
            ),
            "Conv2D": tf.nn.conv2d(ones(1, 4, 4, 256), ones(4, 4, 256, 2), 1, "VALID"),
            "MatMul": tf.matmul(ones(2, 4096), ones(4096, 2)),
            "SparseSegmentSum": raw.SparseSegmentSum(
                data=ones(4096, 2), indices=tf.range(4096), segment_ids=tf.zeros(4096, tf.int32)
            ),
        }  # fmt: skip
        if low == BFLOAT16:
            results["Mean"] = 4096 * tf.reduce_mean(ones(64, 64, 2), [0, 1])
            results["Sum"] = tf.reduce_sum(ones(64, 64, 2), [0, 1])
        else:
            results["SparseTensorDenseMatMul"] = raw.SparseTensorDenseMatMul(
                a_indices=[[0, k] for k in range(4096)], a_values=ones(4096),
                a_shape=[1, 4096], b=ones(4096, 2),
            )  # fmt: skip
    sums = {op: float(np.asarray(value).reshape(-1)[0]) for op, value in results.items()}
    expected = {op: 2048.0 if op == "Conv" else 4096.0 for op in sums}
    assert sums == expected


@pytest.mark.parametrize("low", LOWS)
@pytest.mark.parametrize(
    "name",
    ["Erf", "Erfc", "Log1p", "LogSoftmax", "Sigmoid", "Softmax", "Softplus", "Softsign", "Tanh"],
)
def test_functions_are_exact_to_about_two_roundings_on_cpu(name, low):
    op = getattr(tf.raw_ops, name)
    argument = {"Softmax": "logits", "LogSoftmax": "logits"}.get(name)
    argument = argument or ("features" if name.startswith("Soft") else "x")
    x = low_data([64, 64], low)
    x = np.abs(x) if name == "Log1p" else x
    # in units of a maximal rounding; the RMS of one rounding is about 0.4 of that
    assert loss(lambda value: op(**{argument: value}), [x]) < 2.0 * low.epsilon
