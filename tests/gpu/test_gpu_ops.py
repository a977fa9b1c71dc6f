"""What the tables say about ops, on the GPU's kernels."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tests.gpu import comparisons, op_cases
from tf_amp_rewriter import dtypes

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not tf.config.list_physical_devices("GPU"), reason=comparisons.NO_GPU),
]

LOWERED = [
    pytest.param(tested, low, id=f"{tested}-{low.name}")
    for tested in op_cases.CASES
    for low in dtypes.LOW_PRECISIONS.values()
    if not comparisons.why_not(tested, low, "gpu")
]


@pytest.mark.parametrize(("tested", "low"), LOWERED)
def test_an_op_on_the_gpu_is_as_exact_as_its_rule(
    tested: comparisons.Case, low: dtypes.LowPrecision
) -> None:
    comparisons.check_op(tested, low, "gpu")
