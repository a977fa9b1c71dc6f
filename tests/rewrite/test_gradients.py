"""What a rewritten model says of custom gradients, here that of `tf.nn.swish`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

import tf_amp_rewriter
from tests import loaders

SERVING = "serving_default"


class Swish(tf.Module):
    """A low swish between two products, and a function that stays float32."""

    def __init__(self) -> None:
        super().__init__()
        self.up = tf.Variable(np.linspace(-0.5, 0.5, 48, dtype=np.float32).reshape(4, 12))
        self.down = tf.Variable(np.linspace(-0.5, 0.5, 48, dtype=np.float32).reshape(12, 4))

    @tf.function(input_signature=[tf.TensorSpec((None, 4), tf.float32)])
    def serve(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": tf.matmul(tf.nn.swish(tf.matmul(x, self.up)), self.down)}

    @tf.function(input_signature=[tf.TensorSpec((None, 4), tf.float32)])
    def bend(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": tf.nn.swish(x)}


@pytest.fixture(scope="module")
def swish(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gradients") / "swish"
    module = Swish()
    tf.saved_model.save(module, str(path), signatures={SERVING: module.serve, "bend": module.bend})
    return path


def gradient_types(path: Path) -> tuple[set[str], set[str]]:
    """Returns the gradients that ops name, and those that the library registers."""
    content = (path / "saved_model.pb").read_bytes()
    library = saved_model_pb2.SavedModel.FromString(content).meta_graphs[0].graph_def.library
    named = {
        node.attr["_gradient_op_type"].s.decode()
        for function in library.function
        for node in function.node_def
        if node.op == "IdentityN"
    }
    return named, {gradient.registered_op_type for gradient in library.registered_gradients}


@pytest.mark.parametrize("dtype", ["half", "bfloat16"])
def test_low_ops_name_no_registered_gradient_and_float32_ops_do(
    dtype: str, swish: Path, tmp_path: Path
) -> None:
    options = tf_amp_rewriter.Options(dtype=dtype)
    tf_amp_rewriter.rewrite_saved_model(swish, tmp_path / "low", options)

    named, registered = gradient_types(tmp_path / "low")

    before, _ = gradient_types(swish)
    assert before <= registered
    assert len(named & registered) == len(named - registered) == 1
    assert all("train the original model" in name for name in named - registered)


def test_what_stays_float32_has_its_gradient(swish: Path, tmp_path: Path) -> None:
    tf_amp_rewriter.rewrite_saved_model(swish, tmp_path / "low")
    x = tf.constant([[1.0, -2.0, 0.5, 3.0]])
    gradients = []
    for path in (swish, tmp_path / "low"):
        loaded = tf.saved_model.load(str(path))
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = loaded.bend(x)["y"]
        gradients.append(tape.gradient(y, x).numpy())
    np.testing.assert_array_equal(*gradients)


def test_a_low_model_can_be_saved_again_and_rewritten_again(swish: Path, tmp_path: Path) -> None:
    """Saving it would trace the gradient on half tensors, and give them to a float32 function."""
    tf_amp_rewriter.rewrite_saved_model(swish, tmp_path / "low")
    loaded = tf.saved_model.load(str(tmp_path / "low"))
    tf.saved_model.save(loaded, str(tmp_path / "again"), signatures=loaded.signatures)

    report = tf_amp_rewriter.rewrite_saved_model(tmp_path / "again", tmp_path / "twice")

    assert report.casts == 0
    inputs = {"x": np.float32([[1, -2, 0.5, 3], [0, 0, 0, 1]])}
    wanted = loaders.run_tf2(swish, SERVING, inputs, ("serve",))["y"]
    got = loaders.run_tf2(tmp_path / "twice", SERVING, inputs, ("serve",))["y"]
    np.testing.assert_allclose(got, wanted, atol=2e-3 * np.ptp(wanted))
