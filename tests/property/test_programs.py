"""Random programs: what must hold of every rewritten graph, whatever calls, loops and lists it has.

`--hypothesis-profile` is left alone: the number of examples is that of CI, and AMP_PROPERTY_EXAMPLES
asks for more, with other examples in each run; a failing example prints as a text for a test.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from tensorflow.core.framework import graph_pb2

from tests import checks, graph_text
from tests.property import program_bounds, rounding_checker
from tests.property.programs import Example, examples

MORE = int(os.environ.get("AMP_PROPERTY_EXAMPLES", "0"))
IN_CI = 60


def trials(number: int) -> settings:
    return settings(
        max_examples=MORE or number,
        deadline=None,
        derandomize=not MORE,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.parametrize("dtype", checks.BOTH)
@trials(IN_CI)
@given(example=examples())
def test_a_random_program_is_rewritten_right(dtype: str, example: Example) -> None:
    graph = graph_text.parse(example.text)
    # Also: the input is not changed, the same input gives the same bytes, a second run, on the
    # result, changes nothing, and TensorFlow imports the result.
    report = checks.checked_rewrite(
        graph, dtype, not_run="see below", options={"outputs": example.outputs}
    )
    assert report.graph_def is not None
    assert rounding_checker.violations(graph, report.graph_def) == []
    compare_answers(graph, report.graph_def, example)


def compare_answers(
    original: graph_pb2.GraphDef, rewritten: graph_pb2.GraphDef, example: Example
) -> None:
    """Runs both graphs; their outputs are as near as the derived bounds of both say."""
    feeds, names = example.feeds(), example.outputs
    originals = program_bounds.weights(original)
    try:
        known = program_bounds.run(original, originals, feeds, names)
        bounds = program_bounds.run(rewritten, originals, feeds, names)
    except program_bounds.Undecided:
        return
    fetches = [f"{name}:0" for name in names]
    expected = checks.run_graph(checks.imported(original), fetches, feeds)
    actual = checks.run_graph(checks.imported(rewritten), fetches, feeds)
    for name, value, bound in zip(fetches, known, bounds, strict=True):
        _expect_within(name, value.center, expected[name], value.error)
        _expect_within(name, expected[name], actual[name], value.error + bound.error)


def _expect_within(
    name: str, expected: program_bounds.Array, actual: program_bounds.Array, bound: object
) -> None:
    assert actual.dtype == np.float32, name
    assert expected.shape == actual.shape, name
    error = np.abs(actual.astype(np.float64) - expected)
    excess = error - bound  # type: ignore[operator]
    worst = np.unravel_index(int(np.argmax(excess)), excess.shape)
    assert excess[worst] <= 0, (
        f"{name}{[int(i) for i in worst]}: {actual[worst]:.7g}, expected {expected[worst]:.7g}, "
        f"off by {error[worst]:.3g}, the bound is {np.broadcast_to(bound, error.shape)[worst]:.3g}"
    )
