"""TF1 SavedModels: sessions, ref and resource variables, collections, control flow v1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tests.models import Builder, TestModel

v1 = tf.compat.v1
SERVING: Final = "serving_default"
UNITS: Final = 24
ALL_RESOURCES: Final = frozenset({"project", "recur", "bias", "out"})
MIXED: Final = frozenset({"recur", "out"})


@contextmanager
def control_flow_v1() -> Iterator[None]:
    """Makes loops and conditionals of Switch, Merge, Enter, Exit and NextIteration."""
    was_on = v1.control_flow_v2_enabled()
    v1.disable_control_flow_v2()
    try:
        yield
    finally:
        if was_on:
            v1.enable_control_flow_v2()


def sequence(batch: int = 5, steps: int = 7, features: int = 12) -> NDArray[np.float32]:
    """Returns normal values, [batch, steps, features]."""
    return np.random.default_rng(9).normal(0, 1, (batch, steps, features)).astype(np.float32)


def weight(name: str, shape: tuple[int, ...], resource: bool, seed: int) -> Any:
    """Returns a new variable: VarHandleOp if `resource`, else VariableV2."""
    initializer = v1.random_normal_initializer(0, shape[0] ** -0.5, seed=seed)
    return v1.get_variable(name, shape, tf.float32, initializer, use_resource=resource)


def recurrent_net(x: tf.Tensor, resources: frozenset[str]) -> tf.Tensor:
    """A small recurrent net over x [batch, steps, features]: a while loop and a conditional.

    Args:
        x: the input.
        resources: which of the variables `project`, `recur`, `bias` and `out` are resource
            variables; the others are ref variables. All of them are read outside the loop and,
            through Enter, inside it.
    """
    project = weight("project", (x.shape[-1], UNITS), "project" in resources, seed=1)
    recur = weight("recur", (UNITS, UNITS), "recur" in resources, seed=2)
    bias = weight("bias", (UNITS,), "bias" in resources, seed=3)
    out = weight("out", (UNITS, 6), "out" in resources, seed=4)
    flat = tf.reshape(x, (-1, x.shape[-1]))
    projected = tf.reshape(tf.matmul(flat, project), (-1, tf.shape(x)[1], UNITS))
    inputs = v1.TensorArray(tf.float32, tf.shape(x)[1]).unstack(tf.transpose(projected, (1, 0, 2)))

    def step(index: tf.Tensor, state: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        mixed = tf.nn.bias_add(inputs.read(index) + tf.matmul(state, recur), bias)
        return index + 1, tf.tanh(mixed)

    start = (tf.constant(0), tf.zeros((tf.shape(x)[0], UNITS)))
    _, state = v1.while_loop(lambda index, _: index < tf.shape(x)[1], step, start)
    state = v1.cond(
        tf.shape(x)[1] > 3, lambda: tf.nn.relu(tf.matmul(state, recur)), lambda: tf.square(state)
    )
    return tf.matmul(state, out)


def _save(
    directory: Path, name: str, resources: frozenset[str], more_tags: tuple[str, ...] = ()
) -> tuple[Path, Mapping[str, Any]]:
    """Saves the net with tags `serve`, and again with `serve` and `more_tags` beside it."""
    path = directory / name
    with control_flow_v1(), tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, (None, None, 12), "x")
        with v1.variable_scope("net"):
            scores = recurrent_net(x, resources)
        probabilities = tf.nn.softmax(scores, name="probabilities")
        step = v1.train.get_or_create_global_step()
        v1.add_to_collection("probe", probabilities)
        v1.summary.scalar("mean_score", tf.reduce_mean(scores))
        session.run([v1.global_variables_initializer(), step.initializer])
        signature = v1.saved_model.predict_signature_def(
            {"x": x}, {"scores": scores, "probabilities": probabilities}
        )
        builder = v1.saved_model.Builder(str(path))
        signatures = {SERVING: signature}
        builder.add_meta_graph_and_variables(
            session, ["serve"], signatures, strip_default_attrs=True
        )
        if more_tags:
            builder.add_meta_graph(["serve", *more_tags], {SERVING: signature, "again": signature})
        builder.save()
    return path, {"x": sequence()}


def build_tf1(directory: Path) -> TestModel:
    """One meta graph; ref variables (which TensorFlow 2 can't save again) and resources."""
    path, inputs = _save(directory, "tf1", MIXED)
    return TestModel(path, "saved_model", inputs, SERVING, resavable=False)


def build_tf1_resources(directory: Path) -> TestModel:
    """One meta graph; resource variables only."""
    path, inputs = _save(directory, "tf1_resources", ALL_RESOURCES)
    return TestModel(path, "saved_model", inputs, SERVING)


def build_tf1_two_graphs(directory: Path) -> TestModel:
    """Two meta graphs, `serve` and `serve,gpu`, that share one checkpoint; loads the second."""
    path, inputs = _save(directory, "tf1_two_graphs", MIXED, ("gpu",))
    return TestModel(
        path,
        "saved_model",
        inputs,
        SERVING,
        tags=("serve", "gpu"),
        others={"again": inputs},
        resavable=False,
    )


def build_tf1_constants(directory: Path) -> TestModel:
    """A SavedModel without any variable: its weights are constants in the graph."""
    path = directory / "tf1_constants"
    generator = np.random.default_rng(10)
    first = (generator.normal(0, 1, (16, 32)) / 4).astype(np.float32)
    second = (generator.normal(0, 1, (32, 5)) / 6).astype(np.float32)
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, (None, 16), "x")
        y = tf.matmul(tf.nn.relu(tf.matmul(x, first)), second, name="y")
        v1.saved_model.simple_save(session, str(path), {"x": x}, {"y": y})
    x_value = generator.normal(0, 1, (6, 16)).astype(np.float32)
    return TestModel(path, "saved_model", {"x": x_value}, SERVING)


BUILDERS: Final[Mapping[str, Builder]] = {
    "tf1": build_tf1,
    "tf1_resources": build_tf1_resources,
    "tf1_two_graphs": build_tf1_two_graphs,
    "tf1_constants": build_tf1_constants,
}
