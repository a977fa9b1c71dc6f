"""Models of `tf.Module` whose work is in loops: maps, scans, decoders, streaming."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tests.models import Builder, Inputs, TestModel
from tests.models_keras import SERVING

# Of some hundred seeds each (of the beam search 3,000), one whose answers stay the same when all
# weights change by up to 3 %: what is chosen does not hang on a rounding.
BEAM_SEED: Final = 12430
DECODER_SEED: Final = 700

Array = NDArray[np.float32]


def weight_values(seed: int, *shape: int, gain: float = 1.0) -> Array:
    """Returns normal values, scaled so that a product with them multiplies variance by gain**2."""
    values = np.random.default_rng(seed).normal(0, gain * shape[0] ** -0.5, shape)
    return values.astype(np.float32)


def random_values(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)


def save_module(
    directory: Path,
    name: str,
    module: Any,
    inputs: Inputs,
    others: Mapping[str, tuple[Any, Inputs]] | None = None,
) -> TestModel:
    """Saves `module.serve`, and the functions of `others` as further signatures."""
    others = others or {}
    path = directory / name
    signatures = {SERVING: module.serve, **{key: function for key, (function, _) in others.items()}}
    tf.saved_model.save(module, str(path), signatures=signatures)
    return TestModel(
        path,
        "saved_model",
        inputs,
        SERVING,
        others={key: arrays for key, (_, arrays) in others.items()},
    )


# ---------------------------------------------------------------- maps and scans


class Mapped(tf.Module):
    """`tf.map_fn` over rows of a tensor and over rows of a ragged tensor, which are variants."""

    def __init__(self) -> None:
        super().__init__()
        self.first = tf.Variable(weight_values(100, 6, 16, gain=1.4), name="first")
        self.second = tf.Variable(weight_values(101, 16, 5), name="second")

    @tf.function(input_signature=[tf.TensorSpec((None, 4, 6), tf.float32, name="x")])
    def serve(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns, for each example, the scores of its rows, and the largest one by class."""
        spec = (tf.TensorSpec((4, 5), tf.float32), tf.TensorSpec((5,), tf.float32))
        scores, best = tf.map_fn(self._rows, x, fn_output_signature=spec)
        return {"scores": scores, "best": best}

    @tf.function(
        input_signature=[
            tf.TensorSpec((None, 6), tf.float32, name="values"),
            tf.TensorSpec((None,), tf.int64, name="splits"),
        ]
    )
    def ragged(self, values: tf.Tensor, splits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the scores of all rows, flat, and the largest of each ragged row by class."""
        x = tf.RaggedTensor.from_row_splits(values, splits)
        spec = (
            tf.RaggedTensorSpec((None, 5), tf.float32, ragged_rank=0),
            tf.TensorSpec((5,), tf.float32),
        )
        scores, best = tf.map_fn(self._rows, x, fn_output_signature=spec)
        return {"scores": scores.flat_values, "best": best}

    def _rows(self, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        scores = tf.matmul(tf.nn.relu(tf.matmul(rows, self.first)), self.second)
        return scores, tf.reduce_max(scores, axis=0)


def build_map_fn(directory: Path) -> TestModel:
    """Maps over tensors and ragged tensors."""
    module = Mapped()
    ragged = {"values": random_values(103, 9, 6), "splits": np.array([0, 4, 4 + 2, 9], np.int64)}
    others = {"ragged": (module.ragged, ragged)}
    return save_module(directory, "map_fn", module, {"x": random_values(102, 3, 4, 6)}, others)


class Scanned(tf.Module):
    """`tf.scan` of a gated cell over time, then one of a running mean over what it gave."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = tf.Variable(weight_values(110, 8, 24), name="enter")
        self.recur = tf.Variable(weight_values(111, 12, 24), name="recur")
        self.out = tf.Variable(weight_values(112, 12, 5), name="out")

    @tf.function(input_signature=[tf.TensorSpec((None, None, 8), tf.float32, name="x")])
    def serve(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns scores at every step, [batch, steps, 5], and the mean state at the end."""
        start = tf.zeros((tf.shape(x)[0], 12))
        states = tf.scan(self._step, tf.transpose(x, (1, 0, 2)), start)
        means = tf.scan(lambda mean, state: 0.875 * mean + 0.125 * state, states, start)
        scores = tf.matmul(states, self.out[None])
        return {"scores": tf.transpose(scores, (1, 0, 2)), "mean": means[-1]}

    def _step(self, state: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        gate, new = tf.split(tf.matmul(x, self.enter) + tf.matmul(state, self.recur), 2, axis=1)
        gate = tf.sigmoid(gate)
        return gate * state + (1.0 - gate) * tf.tanh(new)


def build_scan(directory: Path) -> TestModel:
    """A scan with contractions, and one that is a moving average."""
    return save_module(directory, "scan", Scanned(), {"x": random_values(113, 4, 7, 8)})


# ---------------------------------------------------------------- decoders


class BeamSearch(tf.Module):
    """A recurrent decoder that keeps the best beams: loop, TopK, gathered states, log scores.

    Cell, embedding and output are of a scale at which no two hypotheses score almost the same with
    the inputs of the test; `test_loops_whole.py` holds them to that.
    """

    beams: Final = 3
    words: Final = 12
    steps: Final = 4
    units: Final = 16

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.table = tf.Variable(random_values(seed, self.words, 8), name="table")
        self.enter = tf.Variable(weight_values(seed + 1, 8, self.units, gain=1.5), name="enter")
        self.recur = tf.Variable(weight_values(seed + 2, self.units, self.units), name="recur")
        self.out = tf.Variable(
            weight_values(seed + 3, self.units, self.words, gain=5.0), name="out"
        )

    @tf.function(input_signature=[tf.TensorSpec((None, 16), tf.float32, name="start")])
    def serve(self, start: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the tokens of each beam, [batch, beams, steps], and their log probabilities."""
        batch = tf.shape(start)[0]
        states = tf.repeat(start[:, None], self.beams, axis=1)
        tokens = tf.zeros((batch, self.beams), tf.int32)
        first = tf.constant([0.0] + [-1e9] * (self.beams - 1))
        scores = tf.repeat(first[None], batch, axis=0)
        written = [tf.TensorArray(tf.int32, self.steps, element_shape=(None, self.beams))] * 2
        step = tf.constant(0)
        loop = (step, states, tokens, scores, *written)
        _, _, _, scores, tokens_kept, parents_kept = tf.while_loop(
            lambda step, *_: step < self.steps, self._step, loop
        )
        return {"tokens": self._trace(tokens_kept, parents_kept), "scores": scores}

    def _step(
        self,
        step: tf.Tensor,
        states: tf.Tensor,
        tokens: tf.Tensor,
        scores: tf.Tensor,
        tokens_kept: tf.TensorArray,
        parents_kept: tf.TensorArray,
    ) -> tuple[Any, ...]:
        x = tf.gather(self.table.read_value(), tokens)  # a table that flattening can't handle else
        states = tf.tanh(tf.matmul(x, self.enter[None]) + tf.matmul(states, self.recur[None]))
        steps = tf.nn.log_softmax(tf.matmul(states, self.out[None]))
        total = tf.reshape(scores[:, :, None] + steps, (-1, self.beams * self.words))
        scores, chosen = tf.math.top_k(total, self.beams)
        parents, tokens = chosen // self.words, chosen % self.words
        states = tf.gather(states, parents, batch_dims=1)
        tokens_kept = tokens_kept.write(step, tokens)
        return step + 1, states, tokens, scores, tokens_kept, parents_kept.write(step, parents)

    def _trace(self, tokens: tf.TensorArray, parents: tf.TensorArray) -> tf.Tensor:
        """Follows the parents back from the last step; integers only."""
        beam = tf.repeat(tf.range(self.beams)[None], tf.shape(tokens.read(0))[0], axis=0)
        path = tf.TensorArray(tf.int32, self.steps, element_shape=(None, self.beams))
        for step in tf.range(self.steps - 1, -1, -1):
            path = path.write(step, tf.gather(tokens.read(step), beam, batch_dims=1))
            beam = tf.gather(parents.read(step), beam, batch_dims=1)
        return tf.transpose(path.stack(), (1, 2, 0))


def build_beam_search(directory: Path) -> TestModel:
    """A beam search."""
    return save_module(
        directory, "beam_search", BeamSearch(BEAM_SEED), {"start": random_values(121, 2, 16)}
    )


class Decoder(tf.Module):
    """An attention decoder: each token's key and value join a cache, and the best word goes back.

    Ends when every example has said the last word, or after `steps`. The words are far apart with
    the inputs of the test; `test_loops_whole.py` holds them to that.
    """

    words: Final = 12
    steps: Final = 6
    width: Final = 16

    def __init__(self, seed: int) -> None:
        super().__init__()
        width = self.width
        self.table = tf.Variable(random_values(seed, self.words, width), name="table")
        for index, name in enumerate(("query", "key", "value", "ask", "join")):
            weight = weight_values(seed + 1 + index, width, width)
            setattr(self, name, tf.Variable(weight, name=name))
        self.out = tf.Variable(weight_values(seed + 6, width, self.words, gain=4.0), name="out")

    @tf.function(input_signature=[tf.TensorSpec((None, None, 16), tf.float32, name="memory")])
    def serve(self, memory: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the words, [batch, steps], and the scores of the last step."""
        batch = tf.shape(memory)[0]
        cache = tf.zeros((batch, 0, self.width))
        words = tf.ones((batch, 1), tf.int32)
        scores = tf.zeros((batch, self.words))
        _, words, _, _, scores = tf.while_loop(
            lambda step, words, *_: (step < self.steps) & tf.reduce_any(words[:, -1] > 0),
            lambda *loop: self._step(memory, *loop),
            (tf.constant(0), words, cache, cache, scores),
            shape_invariants=(
                tf.TensorShape(()),
                tf.TensorShape((None, None)),
                tf.TensorShape((None, None, self.width)),
                tf.TensorShape((None, None, self.width)),
                tf.TensorShape((None, self.words)),
            ),
        )
        return {"words": words[:, 1:], "scores": scores}

    @tf.function(input_signature=[tf.TensorSpec((None, None), tf.int32, name="ids")])
    def score(self, ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the scores of each word by itself; rows are gathered from the variable."""

        def row(ids: tf.Tensor) -> tf.Tensor:
            return tf.matmul(tf.gather(self.table, ids), self.out)

        spec = tf.TensorSpec((None, self.words), tf.float32)
        return {"alone": tf.map_fn(row, ids, fn_output_signature=spec)}

    def _step(
        self,
        memory: tf.Tensor,
        step: tf.Tensor,
        words: tf.Tensor,
        keys: tf.Tensor,
        values: tf.Tensor,
        _: tf.Tensor,
    ) -> tuple[tf.Tensor, ...]:
        x = tf.gather(self.table.read_value(), words[:, -1:])
        keys = tf.concat([keys, tf.matmul(x, self.key[None])], axis=1)
        values = tf.concat([values, tf.matmul(x, self.value[None])], axis=1)
        x += _attend(tf.matmul(x, self.query[None]), keys, values)
        x += _attend(tf.matmul(x, self.ask[None]), memory, tf.matmul(memory, self.join[None]))
        scores = tf.matmul(tf.tanh(x)[:, 0], self.out)
        chosen = tf.argmax(scores, axis=1, output_type=tf.int32)
        return step + 1, tf.concat([words, chosen[:, None]], axis=1), keys, values, scores


def _attend(query: tf.Tensor, keys: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    logits = tf.matmul(query, keys, transpose_b=True) * query.shape[-1] ** -0.5
    return tf.matmul(tf.nn.softmax(logits), values)


def build_decoder(directory: Path) -> TestModel:
    """A greedy attention decoder with a growing cache."""
    module = Decoder(DECODER_SEED)
    ids = {"ids": np.array([[1, 5, 3], [11, 2, 7]], np.int32)}
    others = {"score": (module.score, ids)}
    return save_module(
        directory, "decoder", module, {"memory": random_values(131, 4, 5, 16)}, others
    )


# ---------------------------------------------------------------- streaming


class Streaming(tf.Module):
    """A recurrent encoder and decoder, called chunk by chunk: states are inputs and outputs.

    The number of streams is fixed: else TensorFlow can't stack the scores of an empty chunk.
    """

    streams: Final = 4

    def __init__(self) -> None:
        super().__init__()
        self.encode = tf.Variable(weight_values(150, 8 + 16, 64), name="encode")
        self.decode = tf.Variable(weight_values(151, 16 + 16, 64), name="decode")
        self.bias = tf.Variable(weight_values(152, 64, gain=1.0), name="bias")
        self.out = tf.Variable(weight_values(153, 16, 5, gain=2.0), name="out")

    @tf.function(
        input_signature=[
            tf.TensorSpec((streams, None, 8), tf.float32, name="x"),
            tf.TensorSpec((streams, 16), tf.float32, name="h1"),
            tf.TensorSpec((streams, 16), tf.float32, name="c1"),
            tf.TensorSpec((streams, 16), tf.float32, name="h2"),
            tf.TensorSpec((streams, 16), tf.float32, name="c2"),
        ]
    )
    def serve(
        self, x: tf.Tensor, h1: tf.Tensor, c1: tf.Tensor, h2: tf.Tensor, c2: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Returns the scores of every step of the chunk, and the states for the next one."""
        x = tf.transpose(x, (1, 0, 2))
        encoded, h1, c1 = self._run(self.encode, x, h1, c1)
        decoded, h2, c2 = self._run(self.decode, encoded, h2, c2)
        scores = tf.transpose(tf.matmul(decoded, self.out[None]), (1, 0, 2))
        return {"scores": scores, "h1": h1, "c1": c1, "h2": h2, "c2": c2}

    def _run(
        self, kernel: tf.Variable, x: tf.Tensor, h: tf.Tensor, c: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        steps = tf.shape(x)[0]
        read = tf.TensorArray(tf.float32, steps).unstack(x)
        written = tf.TensorArray(tf.float32, steps, element_shape=h.shape)

        def step(
            index: tf.Tensor, h: tf.Tensor, c: tf.Tensor, written: tf.TensorArray
        ) -> tuple[Any, ...]:
            joined = tf.concat([read.read(index), h], axis=1)
            gates = tf.nn.bias_add(tf.matmul(joined, kernel), self.bias)
            write, forget, new, show = tf.split(gates, 4, axis=1)
            c = tf.sigmoid(forget) * c + tf.sigmoid(write) * tf.tanh(new)
            h = tf.sigmoid(show) * tf.tanh(c)
            return index + 1, h, c, written.write(index, h)

        _, h, c, written = tf.while_loop(
            lambda index, *_: index < steps, step, (tf.constant(0), h, c, written)
        )
        return written.stack(), h, c


def build_streaming(directory: Path) -> TestModel:
    """A streaming recurrent net."""
    states = {
        n: 0.5 * random_values(155 + i, 4, 16) for i, n in enumerate(("h1", "c1", "h2", "c2"))
    }
    return save_module(
        directory, "streaming", Streaming(), {"x": random_values(154, 4, 7, 8), **states}
    )


BUILDERS: Final[Mapping[str, Builder]] = {
    "map_fn": build_map_fn,
    "scan": build_scan,
    "beam_search": build_beam_search,
    "decoder": build_decoder,
    "streaming": build_streaming,
}
