"""Whole models rewritten for the GPU, against the originals in float32 on the same GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from tests import models
from tests.conftest import GetModel
from tests.gpu import comparisons

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not tf.config.list_physical_devices("GPU"), reason=comparisons.NO_GPU),
    # TensorFlow's own, from loading and saving; ours still are errors.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorflow"),
    pytest.mark.filterwarnings("ignore::UserWarning:keras"),
]

NOT_RUNNABLE = {"custom_op"}


@pytest.mark.parametrize("dtype", ["half", "bfloat16"])
@pytest.mark.parametrize("name", sorted(set(models.builders()) - NOT_RUNNABLE))
def test_a_model_rewritten_for_the_gpu_answers_like_the_original(
    name: str, dtype: str, model: GetModel, tmp_path: Path
) -> None:
    comparisons.check_model(model(name), name, dtype, "gpu", tmp_path / "rewritten")
