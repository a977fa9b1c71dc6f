"""Frozen GraphDefs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf

from tests.models import Builder, TestModel
from tests.models_tf1 import control_flow_v1, recurrent_net, sequence, v1, weight


def freeze(session: Any, outputs: Sequence[tf.Tensor], file: Path) -> None:
    """Writes what `outputs` need of the session's graph, its variables as constants."""
    graph_def = session.graph.as_graph_def()
    names = [output.op.name for output in outputs]
    frozen = v1.graph_util.convert_variables_to_constants(session, graph_def, names)
    file.write_bytes(frozen.SerializeToString(deterministic=True))


def build_frozen_loop(directory: Path) -> TestModel:
    """The recurrent net of `models_tf1`, with its Switch, Merge, Enter and Exit nodes."""
    file = directory / "frozen_loop.pb"
    with control_flow_v1(), tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, (None, None, 12), "x")
        scores = tf.identity(recurrent_net(x, frozenset({"out"})), "scores")
        session.run(v1.global_variables_initializer())
        freeze(session, [scores], file)
    return TestModel(file, "graph_def", {"x:0": sequence()}, outputs=("scores:0",))


def build_frozen_cnn(directory: Path) -> TestModel:
    """A small residual CNN with folded weights; two inputs, one of them an integer."""
    file = directory / "frozen_cnn.pb"
    generator = np.random.default_rng(15)
    with tf.Graph().as_default(), v1.Session() as session:
        image = v1.placeholder(tf.float32, (None, 24, 24, 3), "image")
        row = v1.placeholder(tf.int32, (None,), "row")
        x = tf.nn.relu(
            v1.nn.conv2d(image, weight("stem", (3, 3, 3, 16), False, 20), padding="SAME")
        )
        for index in range(3):
            kernel = v1.get_variable(
                f"kernel{index}",
                (3, 3, 16, 16),
                initializer=v1.random_normal_initializer(0, 0.08, seed=30 + index),
                use_resource=False,
            )
            x = tf.nn.relu(x + v1.nn.conv2d(x, kernel, padding="SAME"))
        pooled = tf.gather(tf.reduce_mean(x, (1, 2)), row)
        out = tf.identity(tf.matmul(pooled, weight("out", (16, 7), False, 40)), "scores")
        session.run(v1.global_variables_initializer())
        freeze(session, [out], file)
    images = generator.normal(0, 1, (3, 24, 24, 3)) + generator.normal(0, 1, (3, 1, 1, 3))
    feeds = {"image:0": images.astype(np.float32), "row:0": np.array([2, 0, 1, 2], np.int32)}
    return TestModel(file, "graph_def", feeds, outputs=("scores:0",))


BUILDERS: Final[Mapping[str, Builder]] = {
    "frozen_loop": build_frozen_loop,
    "frozen_cnn": build_frozen_cnn,
}
