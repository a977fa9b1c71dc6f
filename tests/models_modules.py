"""Models of plain `tf.Module`: what a signature, a capture, a table or a tied weight looks like."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.core.protobuf import saved_model_pb2

from tests.models import Builder, TestModel
from tests.models_keras import SERVING, token_ids

WORDS: Final = 50


def _normal(seed: int, *shape: int, scale: float | None = None) -> NDArray[np.float32]:
    """Returns normal values; by default scaled so that a product with them keeps its variance."""
    factor = shape[0] ** -0.5 if scale is None else scale
    return (np.random.default_rng(seed).normal(0, 1, shape) * factor).astype(np.float32)


class Encoder(tf.Module):
    """A transformer encoder written out: additive -1e9 masks, layer norm and GELU in plain ops."""

    def __init__(self, words: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.heads = heads
        self.table = tf.Variable(_normal(20, words, width, scale=1.0), name="table")
        self.layers = [self._layer(30 + 10 * index, width) for index in range(layers)]
        self.out = tf.Variable(_normal(21, width, 10, scale=0.4), name="out")

    @staticmethod
    def _layer(seed: int, width: int) -> dict[str, tf.Variable]:
        shapes = {
            "query": (width, width),
            "key": (width, width),
            "value": (width, width),
            "join": (width, width),
            "up": (width, 4 * width),
            "down": (4 * width, width),
        }
        weights = {
            name: tf.Variable(_normal(seed + index, *shape), name=name)
            for index, (name, shape) in enumerate(shapes.items())
        }
        for name in ("norm1", "norm2"):
            weights[name + "_scale"] = tf.Variable(tf.ones(width), name=name + "_scale")
            weights[name + "_offset"] = tf.Variable(tf.zeros(width), name=name + "_offset")
        return weights

    @tf.function(input_signature=[tf.TensorSpec((None, None), tf.int32, name="ids")])
    def serve(self, ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns class scores, and the encoding of each token."""
        kept = tf.cast(tf.not_equal(ids, 0), tf.float32)
        mask = (1.0 - kept)[:, None, None, :] * -1e9
        x = tf.gather(self.table, ids)
        for layer in self.layers:
            x = _norm(x + self._attend(layer, x, mask), layer, "norm1")
            inner = _gelu(tf.matmul(x, layer["up"]))
            x = _norm(x + tf.matmul(inner, layer["down"]), layer, "norm2")
        total = tf.reduce_sum(x * kept[:, :, None], axis=1)
        mean = total / tf.reduce_sum(kept, axis=1, keepdims=True)
        return {"scores": tf.matmul(mean, self.out), "encoded": x}

    def _attend(self, layer: Mapping[str, tf.Variable], x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        query, key, value = (self._split(tf.matmul(x, layer[k])) for k in ("query", "key", "value"))
        size = tf.cast(tf.shape(query)[-1], tf.float32)
        logits = tf.matmul(query, key, transpose_b=True) / tf.sqrt(size) + mask
        mixed = tf.transpose(tf.matmul(tf.nn.softmax(logits), value), (0, 2, 1, 3))
        return tf.matmul(tf.reshape(mixed, tf.shape(x)), layer["join"])

    def _split(self, x: tf.Tensor) -> tf.Tensor:
        shape = tf.shape(x)
        parts = tf.reshape(x, (shape[0], shape[1], self.heads, x.shape[-1] // self.heads))
        return tf.transpose(parts, (0, 2, 1, 3))


def _norm(x: tf.Tensor, layer: Mapping[str, tf.Variable], name: str) -> tf.Tensor:
    mean = tf.reduce_mean(x, axis=-1, keepdims=True)
    variance = tf.reduce_mean(tf.math.squared_difference(x, tf.stop_gradient(mean)), -1, True)
    normal = (x - mean) * tf.math.rsqrt(variance + 1e-12)
    return normal * layer[name + "_scale"] + layer[name + "_offset"]


def _gelu(x: tf.Tensor) -> tf.Tensor:
    return 0.5 * x * (1.0 + tf.math.erf(x * 0.7071067811865476))


def build_encoder(directory: Path) -> TestModel:
    """The written-out encoder."""
    path = directory / "encoder"
    module = Encoder(words=300, width=64, heads=4, layers=3)
    tf.saved_model.save(module, str(path), signatures=module.serve)
    return TestModel(path, "saved_model", {"ids": token_ids(300, (20, 11, 4), 20)}, SERVING)


class Texts(tf.Module):
    """Words to ids by a table from a vocabulary file; embeddings, pooling, two dense layers."""

    def __init__(self, vocabulary: Path) -> None:
        super().__init__()
        self.asset = tf.saved_model.Asset(str(vocabulary))
        file = tf.lookup.TextFileInitializer(
            self.asset,
            tf.string,
            tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER,
        )
        self.ids = tf.lookup.StaticHashTable(file, WORDS)
        self.table = tf.Variable(_normal(40, WORDS + 1, 32, scale=1.0), name="table")
        self.hidden = tf.Variable(_normal(41, 32, 64), name="hidden")
        self.out = tf.Variable(_normal(42, 64, 6), name="out")

    @tf.function(input_signature=[tf.TensorSpec((None,), tf.string, name="text")])
    def classify(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns scores by class and, as strings, the text that was understood."""
        words = tf.strings.split(text)
        ids = tf.ragged.map_flat_values(self.ids.lookup, words).to_tensor(WORDS)
        kept = tf.cast(tf.not_equal(ids, WORDS), tf.float32)[:, :, None]
        vectors = tf.nn.embedding_lookup(self.table, ids) * kept
        pooled = tf.reduce_sum(vectors, axis=1) / tf.maximum(tf.reduce_sum(kept, axis=1), 1.0)
        scores = tf.matmul(tf.nn.relu(tf.matmul(pooled, self.hidden)), self.out)
        return {"scores": scores, "seen": tf.strings.reduce_join(words, axis=-1, separator=" ")}

    @tf.function(
        input_signature=[
            tf.TensorSpec((None,), tf.string, name="key"),
            tf.TensorSpec((None, 32), tf.float32, name="features"),
        ]
    )
    def score(self, key: tf.Tensor, features: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns, with each key given, the scores of features that were embedded before."""
        scores = tf.matmul(tf.nn.relu(tf.matmul(features, self.hidden)), self.out)
        return {"scores": scores, "key": tf.identity(key)}


def build_string_table(directory: Path) -> TestModel:
    """Contract case C33: two signatures, string input, a table from an asset file, extra assets."""
    vocabulary = directory / "vocabulary.txt"
    vocabulary.write_text("".join(f"word{index}\n" for index in range(WORDS)))
    path = directory / "string_table"
    module = Texts(vocabulary)
    signatures = {SERVING: module.classify, "score": module.score}
    tf.saved_model.save(module, str(path), signatures=signatures)
    extra = path / "assets.extra"
    extra.mkdir()
    (extra / "notes.bin").write_bytes(bytes(range(256)))
    texts = [b"word1 word7 word49", b"word3 a_word_that_the_table_does_not_hold word3", b"word20"]
    features = {
        "key": np.array([b"a key of more than twenty-two bytes", b"b"], dtype=object),
        "features": _normal(43, 2, 32, scale=1.0),
    }
    inputs = {"text": np.array(texts, dtype=object)}
    return TestModel(path, "saved_model", inputs, SERVING, others={"score": features})


class Tied(tf.Module):
    """One table that embeds and, transposed, scores (case C29)."""

    def __init__(self) -> None:
        super().__init__()
        self.table = tf.Variable(_normal(50, 1000, 64, scale=0.125), name="table")

    @tf.function(input_signature=[tf.TensorSpec((None, None), tf.int32, name="ids")])
    def embed(self, ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns rows of the table, gathered from the variable."""
        return {"rows": tf.gather(self.table, ids)}

    @tf.function(input_signature=[tf.TensorSpec((None, None), tf.int32, name="ids")])
    def scores(self, ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the scores of the next token; rows are gathered from the variable's value."""
        rows = tf.raw_ops.GatherV2(params=self.table.read_value(), indices=ids, axis=0)
        return {"scores": tf.matmul(tf.reduce_sum(rows, 1), self.table, transpose_b=True)}


def build_tied_embedding(directory: Path) -> TestModel:
    """Case C29."""
    path = directory / "tied_embedding"
    module = Tied()
    tf.saved_model.save(
        module, str(path), signatures={SERVING: module.scores, "embed": module.embed}
    )
    inputs = {"ids": token_ids(1000, (6, 6, 6), 6)}
    return TestModel(path, "saved_model", inputs, SERVING, others={"embed": inputs})


class TwoSignatures(tf.Module):
    """Two signatures, one weight of 8 x 4 (case C28), a counter, and a state that is assigned."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = tf.Variable(_normal(60, 8, 4), name="weight")
        self.bias = tf.Variable(_normal(61, 4, scale=0.1), name="bias")
        self.state = tf.Variable(tf.zeros(4), name="state")
        self.calls = tf.Variable(0, dtype=tf.int64, name="calls")

    @tf.function(input_signature=[tf.TensorSpec((None, 8), tf.float32, name="x")])
    def forward(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns x W + b, and a probability."""
        y = tf.nn.bias_add(tf.matmul(x, self.weight), self.bias)
        return {"y": y, "probability": tf.nn.sigmoid(y)}

    @tf.function(input_signature=[tf.TensorSpec((None, 4), tf.float32, name="y")])
    def backward(self, y: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns y W^T; counts its calls and keeps the last mean in a variable."""
        self.calls.assign_add(1)
        self.state.assign(tf.reduce_mean(y, axis=0))
        with tf.control_dependencies([self.calls.value()]):
            return {"x": tf.matmul(y - self.state, self.weight, transpose_b=True)}


def build_two_signatures(directory: Path) -> TestModel:
    """Case C28, with state."""
    path = directory / "two_signatures"
    module = TwoSignatures()
    signatures = {SERVING: module.forward, "backward": module.backward}
    tf.saved_model.save(module, str(path), signatures=signatures)
    inputs = {"x": _normal(62, 6, 8, scale=1.0)}
    others = {"backward": {"y": _normal(63, 6, 4, scale=1.0)}}
    return TestModel(path, "saved_model", inputs, SERVING, others=others)


def build_custom_op(directory: Path) -> TestModel:
    """A model with the op `AcmeSoftShrink`, which only the model's own op list describes.

    y = MatMul(AcmeSoftShrink(MatMul(x, w1)), w2). TensorFlow has neither its definition nor a
    kernel: the model can be rewritten, not run.
    """

    class Module(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = tf.Variable(_normal(70, 8, 8), name="first")
            self.second = tf.Variable(_normal(71, 8, 3), name="second")

        @tf.function(input_signature=[tf.TensorSpec((None, 8), tf.float32, name="x")])
        def serve(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
            return {"y": tf.matmul(tf.nn.softsign(tf.matmul(x, self.first)), self.second)}

    path = directory / "custom_op"
    module = Module()
    tf.saved_model.save(module, str(path), signatures=module.serve)
    _rename_op(path / "saved_model.pb", "Softsign", "AcmeSoftShrink")
    inputs = {"x": _normal(72, 4, 8, scale=1.0)}
    return TestModel(path, "saved_model", inputs, SERVING)


def _rename_op(file: Path, before: str, after: str) -> None:
    """Renames an op everywhere in a SavedModel, and gives the new one a definition of its own."""
    saved_model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    (meta_graph,) = saved_model.meta_graphs
    graph: Any = meta_graph.graph_def
    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        for node in nodes:
            if node.op == before:
                node.op = after
                node.attr["lambda"].f = 0.25
    for definition in meta_graph.meta_info_def.stripped_op_list.op:
        if definition.name == before:
            definition.name = after
            definition.attr.add(name="lambda", type="float").default_value.f = 0.5
    file.write_bytes(saved_model.SerializeToString(deterministic=True))


BUILDERS: Final[Mapping[str, Builder]] = {
    "encoder": build_encoder,
    "string_table": build_string_table,
    "tied_embedding": build_tied_embedding,
    "two_signatures": build_two_signatures,
    "custom_op": build_custom_op,
}
