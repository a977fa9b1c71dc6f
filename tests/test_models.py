"""The test equipment itself: the models, the loaders and the bound can be relied on."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from tests import bounds, loaders, models
from tests.conftest import GetModel
from tests.rewritten import Outputs
from tf_amp_rewriter import dtypes

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorflow"),
    pytest.mark.filterwarnings("ignore::UserWarning:keras"),
]

Answers = Callable[[str], Mapping[str, Outputs]]
RUNNABLE = sorted(set(models.builders()) - {"custom_op"})
FLOAT32 = dtypes.LowPrecision("float32", 1, np.dtype(np.float32), 3.4e38, 2.0**-24, 2.0**-149)


@pytest.mark.parametrize("name", RUNNABLE)
def test_outputs_differ_between_examples_and_loaders_agree(
    name: str, model: GetModel, answers: Answers
) -> None:
    built = model(name)
    expected = answers(name)[built.signature]  # as the first loader gives them
    others = [run for run in loaders.LOADERS.values() if run is not loaders.run_tf2]

    for output, value in expected.items():
        if value.dtype.kind == "f":
            assert np.ptp(value, axis=0).max() > 0.1 * np.ptp(value), output
    for run in others if built.kind == "saved_model" else ():
        result = run(built.path, built.signature, built.inputs, built.tags)
        bounds.assert_close_to_original(expected, result, FLOAT32, rounded_steps=1000)


def test_an_op_without_kernel_cannot_be_run(model: GetModel) -> None:
    built = model("custom_op")

    with pytest.raises(Exception, match="AcmeSoftShrink"):
        loaders.run_tf2(built.path, built.signature, built.inputs)


@pytest.mark.parametrize(
    ("got", "message"),
    [
        ([0.0, 1.0, 1.5], r"`y`\[2\]: 1.5, expected 2: off by"),
        ([0.0, 1.0, np.nan], r"`y`\[2\]: nan, expected 2: NaN at 1 places, expected 0"),
        ([0.0, -np.inf, 2.0], r"`y`\[1\]: -inf, expected 1: -inf at 1 places, expected 0"),
    ],
)
def test_the_bound_says_where_an_output_is_off(got: list[float], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        bounds.assert_close_to_original(
            {"y": np.float32([0, 1, 2])},
            {"y": np.float32(got)},
            dtypes.HALF,
            rounded_steps=4,
        )


def test_a_rounding_is_within_the_bound() -> None:
    value = np.random.default_rng(0).normal(1000, 1e-3, 500).astype(np.float32)

    rounded = value.astype(np.float16).astype(np.float32)

    bounds.assert_close_to_original({"y": value}, {"y": rounded}, dtypes.HALF, rounded_steps=1)
