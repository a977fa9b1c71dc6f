"""Loops and conditionals of control flow v1, in TF1 SavedModels and in frozen GraphDefs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf

from tests.models import Builder, Inputs, TestModel
from tests.models_frozen import freeze
from tests.models_tf1 import SERVING, control_flow_v1, sequence, v1, weight

UNITS: Final = 12
FEATURES: Final = 8

Net = Callable[[Mapping[str, tf.Tensor]], Mapping[str, tf.Tensor]]


def _lstm(joined: tf.Tensor, c: tf.Tensor, kernel: Any, bias: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns h and c after one step of an LSTM whose input is `joined`, [x, h]."""
    write, new, forget, show = tf.split(tf.nn.bias_add(tf.matmul(joined, kernel), bias), 4, axis=1)
    c = tf.sigmoid(forget + 1.0) * c + tf.sigmoid(write) * tf.tanh(new)
    return tf.sigmoid(show) * tf.tanh(c), c


class _Cell:
    """What `dynamic_rnn` takes for a cell; the cells of TensorFlow 1 are in TensorFlow no more."""

    state_size: Final = (UNITS, UNITS)
    output_size: Final = UNITS

    def zero_state(self, batch: Any, dtype: tf.DType) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.zeros((batch, UNITS), dtype), tf.zeros((batch, UNITS), dtype)

    def __call__(
        self, x: tf.Tensor, state: tuple[tf.Tensor, tf.Tensor], scope: str | None = None
    ) -> tuple[tf.Tensor, tuple[tf.Tensor, tf.Tensor]]:
        with v1.variable_scope(scope or "cell", reuse=v1.AUTO_REUSE):
            kernel = weight("kernel", (x.shape[-1] + UNITS, 4 * UNITS), True, 160)
            bias = weight("bias", (4 * UNITS,), True, 161)
        h, c = _lstm(tf.concat([x, state[1]], axis=1), state[0], kernel, bias)
        return h, (c, h)


def _dynamic_rnn(inputs: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
    """`dynamic_rnn` with lengths: beyond them it copies states, in a conditional in the loop."""
    states, (c, _) = v1.nn.dynamic_rnn(_Cell(), inputs["x"], inputs["length"], dtype=tf.float32)
    flat = tf.reshape(states, (-1, UNITS))
    scores = tf.matmul(flat, weight("out", (UNITS, 5), True, 162))
    return {"scores": tf.reshape(scores, (-1, tf.shape(states)[1], 5)), "c": c}


def _lstm_by_hand(inputs: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
    """An LSTM that reads one TensorArray and writes another: grappler's test GP-10."""
    x = tf.transpose(inputs["x"], (1, 0, 2))
    steps, batch = tf.shape(x)[0], tf.shape(x)[1]
    read = v1.TensorArray(tf.float32, steps).unstack(x)
    kernel = weight("kernel", (FEATURES + UNITS, 4 * UNITS), True, 163)
    bias = weight("bias", (4 * UNITS,), True, 164)

    def step(index: tf.Tensor, h: tf.Tensor, c: tf.Tensor, written: Any) -> tuple[Any, ...]:
        h, c = _lstm(tf.concat([read.read(index), h], axis=1), c, kernel, bias)
        return index + 1, h, c, written.write(index, h)

    start = tf.zeros((batch, UNITS))
    loop = (tf.constant(0), start, start, v1.TensorArray(tf.float32, steps))
    _, h, c, written = v1.while_loop(lambda index, *_: index < steps, step, loop)
    states = tf.transpose(written.stack(), (1, 0, 2))
    return {"states": states, "scores": tf.matmul(h + c, weight("out", (UNITS, 5), True, 165))}


def _nested(inputs: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
    """A map over examples, a loop in a loop, and a conditional in it and after it."""
    enter = weight("enter", (FEATURES, UNITS), True, 166)
    recur = weight("recur", (UNITS, UNITS), True, 167)
    rows = v1.map_fn(lambda x: tf.nn.relu(tf.matmul(x, enter)), inputs["x"])
    steps = tf.shape(rows)[1]

    def outer(index: tf.Tensor, state: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        def inner(turn: tf.Tensor, state: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return turn + 1, tf.tanh(rows[:, index] + tf.matmul(state, recur))

        _, state = v1.while_loop(lambda turn, _: turn < 2, inner, (tf.constant(0), state))
        return index + 1, v1.cond(
            tf.equal(index % 2, 0), lambda: tf.matmul(state, recur), lambda: tf.nn.relu(state)
        )

    start = (tf.constant(0), tf.zeros((tf.shape(rows)[0], UNITS)))
    _, state = v1.while_loop(lambda index, _: index < steps, outer, start)
    out = weight("out", (UNITS, 5), True, 168)
    scores = v1.cond(
        tf.shape(state)[0] > 1, lambda: tf.matmul(state, out), lambda: tf.zeros((1, 5))
    )
    return {"rows": rows, "scores": scores}


NETS: Final[Mapping[str, Net]] = {
    "dynamic_rnn": _dynamic_rnn,
    "lstm_by_hand": _lstm_by_hand,
    "nested_loops": _nested,
}


def _placeholders(net: str) -> Mapping[str, tf.Tensor]:
    steps = 7 if net == "nested_loops" else None
    found = {"x": v1.placeholder(tf.float32, (None, steps, FEATURES), "x")}
    if net == "dynamic_rnn":
        found["length"] = v1.placeholder(tf.int32, (None,), "length")
    return found


def _inputs(net: str) -> Inputs:
    found = {"x": sequence(features=FEATURES)}
    if net == "dynamic_rnn":
        return {**found, "length": np.array([7, 3, 5, 1, 6], np.int32)}
    return found


def _build_saved(net: str, directory: Path) -> TestModel:
    path = directory / f"tf1_{net}"
    with control_flow_v1(), tf.Graph().as_default(), v1.Session() as session:
        inputs = _placeholders(net)
        outputs = NETS[net](inputs)
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(session, str(path), dict(inputs), dict(outputs))
    return TestModel(path, "saved_model", _inputs(net), SERVING)


def _build_frozen(net: str, directory: Path) -> TestModel:
    file = directory / f"frozen_{net}.pb"
    with control_flow_v1(), tf.Graph().as_default(), v1.Session() as session:
        outputs = NETS[net](_placeholders(net))
        named = [tf.identity(value, f"{name}_out") for name, value in outputs.items()]
        session.run(v1.global_variables_initializer())
        freeze(session, named, file)
    feeds = {f"{name}:0": value for name, value in _inputs(net).items()}
    return TestModel(file, "graph_def", feeds, outputs=tuple(f"{name}_out:0" for name in outputs))


BUILDERS: Final[Mapping[str, Builder]] = {
    **{f"tf1_{net}": functools.partial(_build_saved, net) for net in NETS},
    **{f"frozen_{net}": functools.partial(_build_frozen, net) for net in NETS},
}
