"""Whole models rewritten for the CPU, against the originals in float32; the small ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import GetModel
from tests.gpu import comparisons

pytestmark = [
    # TensorFlow's own, from loading and saving; ours still are errors.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorflow"),
    pytest.mark.filterwarnings("ignore::UserWarning:keras"),
]

SMALL = (
    "mobilenet_v3_small",
    "transformer",
    "encoder",
    "lstm",
    "gru",
    "string_table",
    "tied_embedding",
    "tf1",
    "tf1_two_graphs",
)


@pytest.mark.parametrize("dtype", ["half", "bfloat16"])
@pytest.mark.parametrize("name", SMALL)
def test_a_model_rewritten_for_the_cpu_answers_like_the_original(
    name: str, dtype: str, model: GetModel, tmp_path: Path
) -> None:
    comparisons.check_model(model(name), name, dtype, "cpu", tmp_path / "rewritten")
