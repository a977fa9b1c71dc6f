"""Models of Keras 3 and Keras 2: a transformer, recurrent nets, a mixed-precision export."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from tests.models import Builder, TestModel

if TYPE_CHECKING:
    import keras

SERVING: Final = "serving_default"


def token_ids(words: int, lengths: tuple[int, ...], steps: int) -> NDArray[np.int32]:
    """Returns random ids in 1..words-1, [len(lengths), steps], padded with 0 after each length."""
    ids = np.random.default_rng(5).integers(1, words, (len(lengths), steps)).astype(np.int32)
    return np.where(np.arange(steps) < np.array(lengths)[:, None], ids, 0).astype(np.int32)


def _sequences(features: int) -> NDArray[np.float32]:
    """Returns random walks, [4, 20, features]: what a recurrent net must remember something of."""
    steps = np.random.default_rng(6).normal(0, 0.5, (4, 20, features))
    return np.cumsum(steps, axis=1).astype(np.float32)


def _export(model: keras.Model, path: Path) -> None:
    import keras

    model.export(path, verbose=False)
    keras.backend.clear_session()


def build_transformer(directory: Path) -> TestModel:
    """An encoder of Keras' MultiHeadAttention, which masks padding by adding -1e9."""
    import keras
    from keras import layers, ops

    keras.utils.set_random_seed(11)
    words, width, heads, steps = 500, 64, 4, 24

    ids = keras.Input((steps,), dtype="int32", name="ids")
    padding = ops.expand_dims(ops.not_equal(ids, 0), 1)
    positions = layers.Embedding(steps, width, embeddings_initializer="normal")
    x = layers.Embedding(words, width, embeddings_initializer="normal")(ids)
    x = 20.0 * ops.add(x, positions(ops.arange(steps)))
    for _ in range(3):
        attention = layers.MultiHeadAttention(heads, width // heads)
        x = layers.LayerNormalization()(x + attention(x, x, attention_mask=padding))
        inner = layers.Dense(4 * width, activation="gelu")(x)
        x = layers.LayerNormalization()(x + layers.Dense(width)(inner))
    pooled = layers.GlobalAveragePooling1D()(x)
    model = keras.Model(ids, layers.Dense(12, activation="softmax", name="classes")(pooled))
    kernel = model.get_layer("classes").kernel
    kernel.assign(kernel * 4.0)
    path = directory / "transformer"
    _export(model, path)
    inputs = {"ids": token_ids(words, (24, 17, 9, 3), steps)}
    return TestModel(path, "saved_model", inputs, SERVING)


def build_transformer_decoder(directory: Path) -> TestModel:
    """A decoder: causal attention, attention to a memory, and a norm before each of its parts."""
    import keras
    from keras import layers

    keras.utils.set_random_seed(17)
    words, width, heads, steps, seen = 500, 64, 4, 24, 16

    ids = keras.Input((steps,), dtype="int32", name="ids")
    memory = keras.Input((seen, width), name="memory")
    x = 20.0 * layers.Embedding(words, width, embeddings_initializer="normal")(ids)
    for _ in range(3):
        normal = layers.LayerNormalization(epsilon=1e-6)(x)
        attention = layers.MultiHeadAttention(heads, width // heads)
        x = x + attention(normal, normal, use_causal_mask=True)
        normal = layers.LayerNormalization(epsilon=1e-6)(x)
        x = x + layers.MultiHeadAttention(heads, width // heads)(normal, memory)
        normal = layers.RMSNormalization()(x)
        inner = layers.Dense(4 * width, activation=lambda y: keras.ops.gelu(y, approximate=True))
        x = x + layers.Dense(width)(inner(normal))
    logits = layers.Dense(words, name="logits")(layers.LayerNormalization()(x))
    path = directory / "transformer_decoder"
    _export(keras.Model([ids, memory], logits), path)
    generator = np.random.default_rng(18)
    inputs = {
        "ids": token_ids(words, (24, 17, 9, 3), steps),
        "memory": generator.normal(0, 1, (4, seen, width)).astype(np.float32),
    }
    return TestModel(path, "saved_model", inputs, SERVING)


def _build_recurrent(kind: str, directory: Path) -> TestModel:
    """Two bidirectional layers of LSTM or GRU, the second giving only its last output."""
    import keras
    from keras import layers

    keras.utils.set_random_seed(12)
    cell = getattr(layers, kind)
    sequence = keras.Input((20, 16), name="sequence")
    x = layers.Bidirectional(cell(32, return_sequences=True))(sequence)
    x = layers.Bidirectional(cell(24))(x)
    x = layers.Dense(32, activation="relu")(x)
    model = keras.Model(sequence, layers.Dense(8, name="scores")(x))
    path = directory / kind.lower()
    _export(model, path)
    return TestModel(path, "saved_model", {"sequence": _sequences(16)}, SERVING)


def build_mixed_float16(directory: Path) -> TestModel:
    """A net of policy `mixed_float16`: float32 variables, cast to half wherever they are read."""
    import keras
    from keras import layers

    keras.utils.set_random_seed(13)
    policy = {"dtype": "mixed_float16", "kernel_initializer": "he_normal"}
    plain = {"dtype": "mixed_float16"}
    image = keras.Input((32, 32, 3), name="image")
    x = image
    for width in (16, 32):
        x = layers.Conv2D(width, 3, padding="same", use_bias=False, **policy)(x)
        x = layers.BatchNormalization(**plain)(x)
        x = layers.ReLU(**plain)(x)
        x = layers.DepthwiseConv2D(3, padding="same", depthwise_initializer="he_normal", **plain)(x)
        x = layers.MaxPooling2D(**plain)(x)
    x = layers.Flatten(**plain)(x)
    x = layers.Dense(64, activation="relu", **policy)(x)
    model = keras.Model(image, layers.Dense(10, dtype="float32", name="scores")(x))
    images = np.random.default_rng(7).normal(0, 1, (4, 32, 32, 3)).astype(np.float32)
    path = directory / "mixed_float16"
    _export(model, path)
    return TestModel(path, "saved_model", {"image": images}, SERVING)


def build_tf_keras(directory: Path) -> TestModel:
    """A Keras 2 model as `model.save` writes it: nested, with dropout, optimizer and own functions.

    Trained for a few steps, so that batch normalization has its statistics and the optimizer its
    slots; the object graph names every layer's functions for training and for inference.
    """
    import tensorflow as tf
    import tf_keras

    tf_keras.utils.set_random_seed(14)
    layers = tf_keras.layers

    class Block(tf_keras.Model):  # type: ignore[misc]
        """A nested model that behaves differently in training."""

        def __init__(self, units: int) -> None:
            super().__init__()
            self.dense = layers.Dense(units, use_bias=False)
            self.norm = layers.BatchNormalization(momentum=0.5)
            self.dropout = layers.Dropout(0.3)
            self.noise = self.add_weight(name="noise", shape=(), initializer="ones")

        def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
            y = self.norm(self.dense(x), training=training)
            if training:
                y += 0.01 * self.noise * tf.random.normal(tf.shape(y), seed=1)
            return self.dropout(tf.nn.relu(y), training=training)

        @tf.function(input_signature=[tf.TensorSpec((), tf.float32)])
        def set_noise(self, value: tf.Tensor) -> tf.Tensor:
            self.noise.assign(value)
            return tf.reduce_sum(self.dense.kernel) * value

    image = layers.Input((16, 16, 3), name="image")
    x = layers.Conv2D(16, 3, padding="same")(image)
    x = layers.BatchNormalization(momentum=0.5)(x)
    x = layers.Flatten()(layers.AveragePooling2D()(layers.ReLU()(x)))
    x = Block(32)(Block(64)(x))
    model = tf_keras.Model(image, layers.Dense(5, name="scores")(x))
    model.compile("adam", tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    generator = np.random.default_rng(8)
    images = generator.normal(0, 1, (32, 16, 16, 3)).astype(np.float32)
    model.fit(images, generator.integers(0, 5, 32), batch_size=16, epochs=4, verbose=0)
    path = directory / "tf_keras"
    model.save(str(path), save_format="tf")
    return TestModel(path, "saved_model", {"image": images[:4]}, SERVING)


def build_resaved_tower(directory: Path) -> TestModel:
    """A convolutional Keras 2 model, loaded, called by a module, and saved again.

    The object graph names each layer's function, of which many hold nothing that is low by itself.
    """
    import tensorflow as tf
    import tf_keras
    from tf_keras import layers

    tf_keras.utils.set_random_seed(15)
    image = layers.Input((32, 32, 3), name="image")
    x = y = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(32, 3, padding="same")(image)))
    for _ in range(2):
        y = layers.Conv2D(32, 3, padding="same", use_bias=False)(y)
        y = layers.ReLU()(layers.BatchNormalization()(y))
    x = layers.MaxPooling2D()(layers.Add()([x, y]))
    x = layers.Conv2D(64, 3, padding="same", activation="relu")(x)
    x = layers.GlobalMaxPooling2D()(x)
    inner = tf_keras.Model(image, layers.Dense(10, name="scores")(x))
    inner.save(str(directory / "inner"), save_format="tf")
    tf_keras.backend.clear_session()

    class Outer(tf.Module):
        """Calls the loaded model."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = tf.saved_model.load(str(directory / "inner"))

        @tf.function(input_signature=[tf.TensorSpec((None, 32, 32, 3), tf.float32, name="image")])
        def serve(self, image: tf.Tensor) -> dict[str, tf.Tensor]:
            return {"scores": self.inner(image, training=False)}

    path = directory / "resaved_tower"
    module = Outer()
    tf.saved_model.save(module, str(path), signatures=module.serve)
    images = np.random.default_rng(16).normal(0, 1, (4, 32, 32, 3)).astype(np.float32)
    return TestModel(path, "saved_model", {"image": images}, SERVING)


BUILDERS: Final[Mapping[str, Builder]] = {
    "transformer": build_transformer,
    "transformer_decoder": build_transformer_decoder,
    "lstm": functools.partial(_build_recurrent, "LSTM"),
    "gru": functools.partial(_build_recurrent, "GRU"),
    "mixed_float16": build_mixed_float16,
    "tf_keras": build_tf_keras,
    "resaved_tower": build_resaved_tower,
}
