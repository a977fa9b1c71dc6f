"""`tests/gpu_simulation.py` sums in float32 where a GPU does, and lends the CPU missing kernels."""

from __future__ import annotations

import numpy as np
import pytest

from tests import checks, gpu_simulation, graph_text

EIGHTS = {"x": np.full((1, 112, 112, 4), 8.0, np.float32)}
MEAN = """
    x: f32[1,112,112,4] = Placeholder
    axes = Const([1, 2])
    down = Cast(x, DstT=f16)
    mean = Mean(down, axes)
    fetch = Cast(mean, DstT=f32)
"""
IN_FUNCTION = """
    x: f32[1,112,112,4] = Placeholder
    y: f32 = PartitionedCall([x], Tout=[f32], f=@f)
    fetch = Identity(y)

    @f(x: f32) -> (y=up)
      axes = Const([1, 2])
      down = Cast(x, DstT=f16)
      mean = Mean(down, axes)
      up = Cast(mean, DstT=f32)
"""


def run(text: str, feeds: checks.Feeds, on_gpu: bool) -> np.ndarray:
    graph = graph_text.parse(text)
    graph = gpu_simulation.as_on_gpu(graph) if on_gpu else graph
    return checks.run_graph(checks.imported(graph), ["fetch:0"], feeds)["fetch:0"]


@pytest.mark.parametrize("text", [MEAN, IN_FUNCTION], ids=["main graph", "function"])
def test_a_mean_of_half_is_summed_in_float32_on_a_gpu_only(text: str) -> None:
    np.testing.assert_array_equal(np.full((1, 4), 8.0, np.float32), run(text, EIGHTS, True))
    assert np.all(run(text, EIGHTS, False) < 7)


def test_its_result_is_rounded() -> None:
    feeds = {"x": np.full((1, 112, 112, 4), 1.0, np.float32)}
    feeds["x"][0, 0, 0, :] = 2048.0

    expected = np.float16((12543 + 2048) / 12544).astype(np.float32)
    np.testing.assert_array_equal(np.full((1, 4), expected), run(MEAN, feeds, True))


def test_an_op_without_a_cpu_kernel_runs() -> None:
    text = """
        x: f32[1,4,4,4,1] = Placeholder
        down = Cast(x, DstT=f16)
        pool = AvgPool3D(down, ksize=[1,2,2,2,1], strides=[1,2,2,2,1], padding='VALID')
        fetch = Cast(pool, DstT=f32)
    """
    feeds = {"x": np.arange(64, dtype=np.float32).reshape(1, 4, 4, 4, 1)}

    # the mean of a 2x2x2 block is that of its first and last value
    corners = np.array([[[0, 2], [8, 10]], [[32, 34], [40, 42]]]) + (0 + 21) / 2
    np.testing.assert_array_equal(corners, run(text, feeds, True)[0, ..., 0])


def test_a_sum_that_a_gpu_makes_in_low_precision_is_refused() -> None:
    with pytest.raises(ValueError, match="a GPU's `Sum` sums in half, a CPU's does not"):
        gpu_simulation.as_on_gpu(graph_text.parse(MEAN.replace("Mean", "Sum")))
