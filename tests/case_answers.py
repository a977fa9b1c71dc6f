"""Graphs whose right answer is known: run as written, for any device, for a CPU and for a GPU.

The graphs stand in the tests as pictures; the expected values are worked out there in float64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from tensorflow.core.framework import graph_pb2

import tf_amp_rewriter
from tests import checks, graph_text

# Relative to the range of the output; "exact" is 0.
TOLERANCE: Final = {"half": 2e-3, "bfloat16": 2e-2}
DEVICES: Final = ("any", "cpu", "gpu")


def check_answer(
    text: str,
    expected: object,
    dtypes: Sequence[str] = checks.BOTH,
    exact: bool = False,
    *,
    devices: Sequence[str] = DEVICES,
    steps: int = 0,
    options: Mapping[str, object] | None = None,
    **feeds: object,
) -> None:
    """Rewrites the graph of `text` for each device and compares its output `fetch`.

    The claims in the text are those for any device; all that `checks.check_precision` checks is
    checked for each. What is for a GPU runs as `tests/gpu_simulation.py` has it, all else with the
    CPU's own kernels.

    Args:
        text: the graph.
        expected: the right value of `fetch`, as the float32 model has it.
        dtypes: the low precisions to try.
        exact: no error at all is allowed; else TOLERANCE, relative to the largest magnitude.
        devices: the devices to rewrite for.
        steps: as for `checks.check_precision`.
        options: fields of `Options`.
        **feeds: values of placeholders; floats are float32, all else as it is.
    """
    arrays = {
        name: np.asarray(value, np.float32 if np.asarray(value).dtype.kind == "f" else None)
        for name, value in feeds.items()
    }
    for dtype in dtypes:
        graph = graph_text.parse(text, dtype)
        outputs = checks.sinks(graph)
        done: list[graph_pb2.GraphDef] = []  # what is the same for two devices runs once
        for device in devices:
            of_device = {"outputs": outputs, **(options or {}), "device": device, "dtype": dtype}
            report = tf_amp_rewriter.rewrite_graph_def(graph, tf_amp_rewriter.Options(**of_device))
            if device == "any":
                checks.assert_claims(text, report, dtype)
            assert report.graph_def is not None
            run = checks.runnable(report.graph_def, of_device)
            if run in done:
                continue
            done.append(run)
            checks.checked_rewrite(graph, dtype, arrays, options=of_device, steps=steps)
            actual = checks.run_graph(checks.imported(run), ["fetch:0"], arrays)["fetch:0"]
            _compare(actual, expected, 0 if exact else TOLERANCE[dtype], f"{dtype}, {device}")


def _compare(actual: NDArray[np.generic], expected: object, tolerance: float, where: str) -> None:
    values: NDArray[np.generic] = np.broadcast_to(np.asarray(expected), actual.shape)
    allowed = tolerance * float(np.abs(values).max())
    np.testing.assert_allclose(actual, values, rtol=0, atol=allowed, err_msg=where)
