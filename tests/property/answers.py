"""Compares what a random program and its rewritten form answer, under the bounds of both."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from tensorflow.core.framework import graph_pb2

from tests import checks
from tests.property import program_bounds
from tests.property.programs import Example


def compare_answers(
    original: graph_pb2.GraphDef, rewritten: graph_pb2.GraphDef, example: Example
) -> None:
    """Runs both graphs; their outputs are as near as the derived bounds of both say."""
    feeds, names = example.feeds(), example.outputs
    originals = program_bounds.weights(original)
    try:
        known = program_bounds.run(original, originals, feeds, names)
        bounds = program_bounds.run(rewritten, originals, feeds, names)
    except program_bounds.UndecidedError:
        return
    fetches = [f"{name}:0" for name in names]
    expected = checks.run_graph(checks.imported(original), fetches, feeds)
    actual = checks.run_graph(checks.imported(rewritten), fetches, feeds)
    for name, value, bound in zip(fetches, known, bounds, strict=True):
        expect_within(name, value.center, expected[name], value.error)
        expect_within(name, expected[name], actual[name], value.error + bound.error)


def expect_within(
    name: str,
    expected: NDArray[np.generic],
    actual: NDArray[np.generic],
    bound: NDArray[np.generic],
) -> None:
    assert actual.dtype == np.float32, name
    assert expected.shape == actual.shape, name
    error = np.abs(actual.astype(np.float64) - expected)
    worst = np.unravel_index(int(np.argmax(error - bound)), error.shape)
    assert error[worst] <= bound[worst], (
        f"{name}{[int(i) for i in worst]}: {actual[worst]:.7g}, expected {expected[worst]:.7g}, "
        f"off by {error[worst]:.3g}, the bound is {bound[worst]:.3g}"
    )
