"""The float values of a hash table stand in the model, and may not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import tf_amp_rewriter
from tests import loaders


class Weighted(tf.Module):
    """Scales a low product by what a table holds for a word."""

    def __init__(self, largest: float) -> None:
        super().__init__()
        words = tf.lookup.KeyValueTensorInitializer(["a", "b"], [0.25, largest])
        self.table = tf.lookup.StaticHashTable(words, 1.0)
        self.weight = tf.Variable(np.eye(4, dtype=np.float32))

    @tf.function(
        input_signature=[
            tf.TensorSpec((None, 4), tf.float32, name="x"),
            tf.TensorSpec((None,), tf.string, name="words"),
        ]
    )
    def serve(self, x: tf.Tensor, words: tf.Tensor) -> dict[str, tf.Tensor]:
        scale = self.table.lookup(words)[:, None]
        return {"y": tf.matmul(x, self.weight) * scale / 100000.0}


@pytest.mark.parametrize(("largest", "low"), [(2.5, True), (123456.0, False)])
def test_a_value_that_does_not_fit_keeps_what_reads_it_float32(
    largest: float, low: bool, tmp_path: Path
) -> None:
    module = Weighted(largest)
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=module.serve)

    report = tf_amp_rewriter.rewrite_saved_model(tmp_path / "model", tmp_path / "half")

    products = {e.precision for e in report.type_variables if e.op == "Mul"}
    assert products == {"half" if low else "float32"}
    inputs = {
        "x": np.float32([[1, 2, 3, 4], [-4, 3, -2, 1]]),
        "words": np.array([b"b", b"a"], object),
    }
    got = loaders.run_tf2(tmp_path / "half", "serving_default", inputs, ("serve",))["y"]
    scale = np.array([[largest], [0.25]])
    np.testing.assert_allclose(got, inputs["x"] * scale / 1e5, rtol=4 * 2.0**-11, atol=1e-7)
