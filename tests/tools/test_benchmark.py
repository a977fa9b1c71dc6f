"""The figures of tools/benchmark, on graphs small enough to work them out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests import models, models_tf1
from tools import benchmark, census, flat_graphs

v1 = tf.compat.v1


def graph_of(build: Callable[[], object]) -> tf.Graph:
    with tf.Graph().as_default() as graph:
        build()
    return census.static_graph(graph.as_graph_def(), {"x": (8, 4)})


def placeholder(name: str = "x") -> Any:
    return v1.placeholder(tf.float32, (None, 4), name)


def test_a_float32_product_moves_its_inputs_and_its_output() -> None:
    def build() -> None:
        tf.matmul(placeholder(), tf.ones((4, 2)))

    figures = census.census(graph_of(build))

    assert (figures.contractions_low, figures.contractions) == (0, 1)
    assert figures.traffic_mb == (8 * 4 + 4 * 2 + 8 * 2) * 4 / 1e6
    assert {"MatMul": figures.traffic_mb} == figures.traffic_by_op
    assert (figures.weight_mb, figures.weight_mb_low) == (4 * 2 * 4 / 1e6, 0.0)
    assert (figures.activation_casts, figures.weight_casts) == (0, 0)


def test_casts_on_activations_and_on_weights_are_told_apart() -> None:
    def build() -> None:
        weight = tf.transpose(tf.identity(tf.ones((2, 4))))
        low = tf.matmul(tf.cast(placeholder(), tf.float16), tf.cast(weight, tf.float16))
        tf.cast(low, tf.float32)

    figures = census.census(graph_of(build))

    assert (figures.contractions_low, figures.contractions) == (1, 1)
    assert figures.activation_casts == 2
    assert figures.activation_cast_mb == (8 * 4 * (4 + 2) + 8 * 2 * (2 + 4)) / 1e6
    assert figures.weight_casts == 1
    assert figures.weight_cast_mb == 4 * 2 * (4 + 2) / 1e6
    assert figures.weight_mb == 2 * 4 * 4 / 1e6
    transpose, product = 2 * 4 * 2 * 4, (8 * 4 + 4 * 2 + 8 * 2) * 2
    casts = 8 * 4 * 6 + 4 * 2 * 6 + 8 * 2 * 6
    assert (transpose + product + casts) / 1e6 == figures.traffic_mb


def test_low_weights_are_counted_apart() -> None:
    def build() -> None:
        tf.matmul(tf.cast(placeholder(), tf.bfloat16), tf.ones((4, 2), tf.bfloat16))

    figures = census.census(graph_of(build))

    assert (figures.weight_mb, figures.weight_mb_low) == (4 * 2 * 2 / 1e6,) * 2
    assert figures.weight_casts == 0


def test_casts_in_a_loop_are_counted_apart_and_once() -> None:
    def build() -> None:
        weight = tf.ones((4, 4))
        low = tf.cast(placeholder(), tf.float16)

        def step(index: tf.Tensor, state: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            product = tf.matmul(state, tf.cast(weight, tf.float16))
            return index + 1, tf.cast(tf.cast(product, tf.float32), tf.float16)

        with models_tf1.control_flow_v1():
            loop = (tf.constant(0), low)
            _, state = v1.while_loop(lambda index, _: index < 3, step, loop)
        tf.cast(state, tf.float32)

    figures = census.census(graph_of(build))

    assert (figures.activation_casts, figures.weight_casts) == (4, 1)
    assert figures.loop_casts == 3


def test_the_table_tells_casts_in_loops() -> None:
    figures = {"activation_casts": 4, "loop_casts": 3, "unknown_shape_casts": 0}
    cells = {"contractions": 3, "activation_cast_mb": 0.0, "weight_cast_mb": 0.0, "weight_mb": 1.0}
    rows = [row(graph, **cells, **figures) for graph in ("float32", "grappler")]

    (_, line) = benchmark.table_lines({"model": "m", "rows": rows, "failure": ""})

    assert "| 4 (3 in loops) |" in line


def test_integers_and_moves_are_no_traffic() -> None:
    def build() -> None:
        tf.reshape(tf.identity(placeholder()), (-1,))
        tf.cast(placeholder("y"), tf.int32)

    figures = census.census(graph_of(build))

    assert figures.traffic_by_op == {"Cast": 4 * 4 / 1e6}  # y is not fed: a row, as far as known
    assert figures.activation_casts == 0


def test_a_cast_of_unknown_rank_is_counted_but_not_measured() -> None:
    def build() -> None:
        tf.cast(v1.placeholder(tf.float32, None, "any"), tf.float16)

    figures = census.census(graph_of(build))

    assert (figures.activation_casts, figures.unknown_shape_casts) == (1, 1)
    assert 0.0 == figures.activation_cast_mb == figures.traffic_mb


@pytest.mark.parametrize(
    ("shape", "filled"),
    [((), ()), ((None,), (8,)), ((None, None, 3), (8, 64, 3)), ((2, None), (2, 64))],
)
def test_unknown_dimensions_are_filled_in(
    shape: tuple[int | None, ...], filled: tuple[int, ...]
) -> None:
    assert filled == census.feed_shape(shape)


@pytest.mark.parametrize(
    ("expected", "actual", "error"),
    [
        pytest.param([0, 4], [0, 4], 0.0, id="equal"),
        pytest.param([0, 4], [1, 4], 0.25, id="over the spread"),
        pytest.param([-np.inf, 0, 4], [-np.inf, 0, 2], 0.5, id="infinite in both"),
        pytest.param([-np.inf, 0, 4], [-9, 0, 4], math.inf, id="finite where it is infinite"),
        pytest.param([0, 4], [0, np.nan], math.inf, id="not a number"),
        pytest.param([np.nan, 4], [np.nan, 4], 0.0, id="no number in both"),
        pytest.param([3, 3], [3, 3], 0.0, id="no spread, equal"),
        pytest.param([3, 3], [3, 4], math.inf, id="no spread"),
    ],
)
def test_the_output_error(expected: list[float], actual: list[float], error: float) -> None:
    outputs = [
        {"y": np.array(values, np.float32), "ids": np.array([1, 2])}
        for values in (expected, actual)
    ]

    assert census.output_error(*outputs) == error


def test_the_first_input_set_is_the_model_s_own() -> None:
    values = [[1, 2], [3, 4]]
    feeds = {"ids": np.array(values), "x": np.array(values, np.float32)}

    first, other, again = (flat_graphs.varied(feeds, seed) for seed in (0, 1, 1))

    assert {name: value.tolist() for name, value in first.items()} == {
        "ids": [[1, 2], [3, 4]],
        "x": [[1.0, 2.0], [3.0, 4.0]],
    }
    assert set(other["ids"][:, 0]) <= {1, 3}
    assert set(other["ids"][:, 1]) <= {2, 4}
    scales = other["x"] / feeds["x"]
    assert np.abs(scales - 1).max() <= 0.2
    np.testing.assert_allclose(scales[:, 0], scales[:, 1], rtol=1e-6)
    assert np.array_equal(other["x"], again["x"])


def test_a_half_mean_accumulates_in_float32_as_on_the_gpu() -> None:
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float16, (4096, 3), "x")
        tf.identity(tf.reduce_mean(x, axis=0), "y")
    feeds = {"x:0": np.ones((4096, 3), np.float16)}
    flat = flat_graphs.Flat(graph.as_graph_def(), feeds, ("y:0",), {})

    on_cpu, on_gpu = (
        flat_graphs.run(run)[0]["0"].tolist() for run in (flat, flat_graphs.as_on_gpu(flat))
    )

    assert on_cpu != [1.0, 1.0, 1.0]  # it stops at 2048
    assert on_gpu == [1.0, 1.0, 1.0]


def row(graph: str, error: float | None = 0.5, **figures: float) -> dict[str, Any]:
    base = {"contractions_low": 3, "weight_casts": 0, "traffic_mb": 2.0}
    return {"graph": graph, "census": base | figures, "error": error, "failure": ""}


@pytest.mark.parametrize(
    ("ours", "marks"),
    [
        (row("ours any", traffic_mb=1.9), []),
        (row("ours any"), ["traffic"]),
        (row("ours any", traffic_mb=1.0, weight_casts=1), ["weight casts"]),
        (row("ours any", traffic_mb=1.0, contractions_low=2), ["contractions"]),
        (row("ours any", traffic_mb=1.0, error=0.6), ["error"]),
        (row("ours any", traffic_mb=1.0, error=None), []),
        (row("float32"), []),
    ],
)
def test_what_is_not_better_is_marked(ours: dict[str, Any], marks: list[str]) -> None:
    assert marks == benchmark.not_better(ours, row("grappler", weight_casts=9))


def test_a_model_that_fails_says_why_in_the_table() -> None:
    result = {"model": "m", "rows": [], "failure": "ValueError: no"}

    (line,) = benchmark.table_lines(result)

    assert line.startswith("| m | FAILED: ValueError: no |")
    assert len(benchmark.HEADER) == line.count(" |")
    assert benchmark.failures(result) == ["m: ValueError: no"]


def test_a_process_that_dies_is_a_failure_with_its_last_words() -> None:
    result = benchmark.measure("no_such_model", "half", ["any"])

    assert result["failure"] != ""
    assert result["rows"] == []


def test_every_model_of_the_benchmark_can_be_built() -> None:
    assert set() == set(benchmark.MODELS) - set(models.builders())


def test_one_model_from_end_to_end() -> None:
    result = benchmark.measure("frozen_cnn", "half", ["any"])

    assert benchmark.failures(result) == []
    rows = {row["graph"]: row for row in result["rows"]}
    assert list(rows) == ["float32", "grappler", "ours any"]
    figures = {graph: row["census"] for graph, row in rows.items()}
    # The stem, three residual convolutions and the classifier; grappler casts all their weights.
    assert figures["float32"]["contractions_low"] == 0
    assert figures["grappler"]["contractions_low"] == 5
    assert figures["ours any"]["contractions_low"] == 5
    assert figures["grappler"]["weight_casts"] == 5
    values = 3 * 3 * 3 * 16 + 3 * 3 * 3 * 16 * 16 + 16 * 7
    assert figures["grappler"]["weight_cast_mb"] == pytest.approx(values * 6 / 1e6)
    assert figures["ours any"]["weight_casts"] == 0
    assert 0.0 < rows["ours any"]["error"] < 2e-3
