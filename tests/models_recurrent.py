"""Recurrent models of Keras 3 and Keras 2: dynamic lengths, masks, layers saved as functions."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from tests.models import Builder, TestModel
from tests.models_keras import SERVING, token_ids

if TYPE_CHECKING:
    import tf_keras

WORDS: Final = 40
LENGTHS: Final = (9, 6, 4, 1)
STEPS: Final = 9


def _walks(seed: int, steps: int, features: int, scale: float = 0.5) -> NDArray[np.float32]:
    """Returns random walks, [4, steps, features], that stay in about -3..3 however long."""
    noise = np.random.default_rng(seed).normal(0, scale, (4, steps, features))
    walk = np.zeros((4, features))
    steps_of_walk = []
    for index in range(steps):
        walk = 0.9 * walk + noise[:, index]
        steps_of_walk.append(walk)
    return np.stack(steps_of_walk, axis=1).astype(np.float32)


def _padded(seed: int, features: int) -> NDArray[np.float32]:
    """Returns random walks that are 0, which `Masking` skips, after each of `LENGTHS`."""
    kept = np.arange(STEPS) < np.array(LENGTHS)[:, None]
    return _walks(seed, STEPS, features) * kept[:, :, None].astype(np.float32)


def build_keras_masked(directory: Path) -> TestModel:
    """Keras 3, any length: a tower of an embedding that masks, a tower behind `Masking`."""
    import keras
    from keras import layers

    keras.utils.set_random_seed(16)
    ids = keras.Input((None,), dtype="int32", name="ids")
    normal = keras.initializers.RandomNormal(stddev=1.0)
    x = layers.Embedding(WORDS, 12, mask_zero=True, embeddings_initializer=normal)(ids)
    x = layers.LSTM(48)(layers.LSTM(64, return_sequences=True)(x))
    sequence = keras.Input((None, 8), name="sequence")
    y = layers.Masking()(sequence)
    y = layers.Bidirectional(layers.GRU(64, return_sequences=True))(y)
    y = layers.Bidirectional(layers.GRU(48))(y)
    scores = layers.Dense(6, name="scores")(layers.Concatenate()([x, y]))
    model = keras.Model([ids, sequence], scores)
    path = directory / "keras_masked"
    model.export(path, verbose=False)
    keras.backend.clear_session()
    inputs = {"ids": token_ids(WORDS, LENGTHS, STEPS), "sequence": _padded(17, 8)}
    return TestModel(path, "saved_model", inputs, SERVING)


def _build_plain_lstm(steps: int, directory: Path) -> TestModel:
    """Case C04: LSTM(6) on [None, steps, 4]."""
    import keras

    keras.utils.set_random_seed(18)
    sequence = keras.Input((steps, 4), name="sequence")
    model = keras.Model(sequence, keras.layers.LSTM(6, name="state")(sequence))
    path = directory / f"lstm_{steps}"
    model.export(path, verbose=False)
    keras.backend.clear_session()
    return TestModel(path, "saved_model", {"sequence": _walks(19, steps, 4)}, SERVING)


def _save(model: tf_keras.Model, path: Path) -> None:
    """Saves as Keras 2 does: the functions of every layer, those of training too."""
    import tf_keras

    model.save(str(path), save_format="tf")
    tf_keras.backend.clear_session()


def _export(model: tf_keras.Model, path: Path) -> None:
    """Saves the function that serves, and no other."""
    import tf_keras

    model.export(path)
    tf_keras.backend.clear_session()


def build_tf_keras_rnn(directory: Path) -> TestModel:
    """Keras 2, exported: any length, masked, in both directions.

    TensorFlow may swap the functions of these layers for fused ones.
    """
    path = directory / "tf_keras_rnn"
    _export(_build_masked_lstm(bidirectional=True), path)
    return TestModel(path, "saved_model", {"ids": token_ids(WORDS, LENGTHS, STEPS)}, SERVING)


def build_tf_keras_saved_rnn(directory: Path) -> TestModel:
    """The same in one direction, saved: with two directions it has 350 functions, with one 140."""
    path = directory / "tf_keras_saved_rnn"
    _save(_build_masked_lstm(bidirectional=False), path)
    return TestModel(path, "saved_model", {"ids": token_ids(WORDS, LENGTHS, STEPS)}, SERVING)


def _build_masked_lstm(*, bidirectional: bool) -> tf_keras.Model:
    import tf_keras
    from tf_keras import layers

    tf_keras.utils.set_random_seed(20)
    ids = layers.Input((None,), dtype="int32", name="ids")
    normal = tf_keras.initializers.RandomNormal(stddev=1.0)
    x = layers.Embedding(WORDS, 12, mask_zero=True, embeddings_initializer=normal)(ids)
    layer = layers.LSTM(64)
    x = (layers.Bidirectional(layer) if bidirectional else layer)(x)
    return tf_keras.Model(ids, layers.Dense(6, name="scores")(x))


def build_tf_keras_plain(directory: Path) -> TestModel:
    """Keras 2, exported: any length, of a kind that has no fused form: no bias, rectified."""
    import tf_keras
    from tf_keras import layers

    tf_keras.utils.set_random_seed(21)
    kinds: Any = {"unroll": False, "use_bias": False, "activation": "relu"}
    sequence = layers.Input((None, 8), name="sequence")
    x = layers.Masking()(sequence)
    x = layers.LSTM(64, return_sequences=True, **kinds)(x)
    x = layers.GRU(48, reset_after=False, **kinds)(x)
    path = directory / "tf_keras_plain"
    _export(tf_keras.Model(sequence, layers.Dense(6, name="scores")(x)), path)
    return TestModel(path, "saved_model", {"sequence": _padded(22, 8)}, SERVING)


def build_resaved_rnn(directory: Path) -> TestModel:
    """A Keras 2 model, loaded, called by a module, and saved again: three levels of calls."""
    import tensorflow as tf
    import tf_keras
    from tf_keras import layers

    tf_keras.utils.set_random_seed(23)
    sequence = layers.Input((None, 8), name="sequence")
    hidden = layers.GRU(48)(sequence)
    _save(tf_keras.Model(sequence, layers.Dense(6)(hidden)), directory / "inner")

    class Outer(tf.Module):
        """Calls the loaded model on a sequence and on its reverse."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = tf.saved_model.load(str(directory / "inner"))
            self.mix = tf.Variable(
                tf.random.stateless_normal((6, 6), (24, 0), stddev=0.5), name="mix"
            )

        @tf.function(input_signature=[tf.TensorSpec((None, None, 8), tf.float32, name="sequence")])
        def serve(self, sequence: tf.Tensor) -> dict[str, tf.Tensor]:
            forward = self.inner(sequence, training=False)
            backward = self.inner(tf.reverse(sequence, [1]), training=False)
            return {"scores": forward + tf.matmul(backward, self.mix)}

    path = directory / "resaved_rnn"
    module = Outer()
    tf.saved_model.save(module, str(path), signatures=module.serve)
    return TestModel(path, "saved_model", {"sequence": _walks(25, STEPS, 8)}, SERVING)


BUILDERS: Final[Mapping[str, Builder]] = {
    "keras_masked": build_keras_masked,
    "lstm_5": functools.partial(_build_plain_lstm, 5),
    "lstm_500": functools.partial(_build_plain_lstm, 500),
    "tf_keras_rnn": build_tf_keras_rnn,
    "tf_keras_saved_rnn": build_tf_keras_saved_rnn,
    "tf_keras_plain": build_tf_keras_plain,
    "resaved_rnn": build_resaved_rnn,
}
