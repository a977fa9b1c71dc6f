"""A model of `tf.Module` that detects: a map over images, with a conditional in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
import tensorflow as tf

from tests.models import Builder, TestModel
from tests.models_loops import Array, random_values, save_module, weight_values

# Of some hundred seeds, one whose answers stay the same when all weights change by up to 3 %.
DETECTOR_SEED: Final = 890


class Detector(tf.Module):
    """A convolutional detector: boxes of each image by non-maximum suppression, if there are any.

    What it finds is told apart by wide margins with the images of the test; `test_loops_whole.py`
    holds it to that.
    """

    kept: Final = 3

    def __init__(self, seed: int) -> None:
        super().__init__()
        kernels = {"stem": (3, 3, 3, 12), "body": (3, 3, 12, 16), "head": (1, 1, 16, 5)}
        self.kernels = {
            name: tf.Variable(self._kernel(seed + index, shape), name=name)
            for index, (name, shape) in enumerate(kernels.items())
        }
        self.describe = tf.Variable(weight_values(seed + 3, 16, 8), name="describe")

    @staticmethod
    def _kernel(seed: int, shape: tuple[int, ...]) -> Array:
        return weight_values(seed, int(np.prod(shape[:-1])), shape[-1], gain=1.4).reshape(shape)

    @tf.function(input_signature=[tf.TensorSpec((None, 24, 24, 3), tf.float32, name="image")])
    def serve(self, image: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns boxes, scores, descriptions, [batch, kept, ...], and places in the grid or -1."""
        x = tf.nn.relu(tf.nn.conv2d(image, self.kernels["stem"], 4, "SAME"))
        x = tf.nn.relu(tf.nn.conv2d(x, self.kernels["body"], 1, "SAME"))
        head = tf.nn.conv2d(x, self.kernels["head"], 1, "SAME")
        features = tf.reshape(x, (-1, 36, 16))
        boxes, scores = self._decode(tf.reshape(head, (-1, 36, 5)))
        spec = (
            tf.TensorSpec((self.kept, 4), tf.float32),
            tf.TensorSpec((self.kept,), tf.float32),
            tf.TensorSpec((self.kept, 8), tf.float32),
            tf.TensorSpec((self.kept,), tf.int32),
        )
        found = tf.map_fn(self._find, (boxes, scores, features), fn_output_signature=spec)
        return dict(zip(("boxes", "scores", "described", "chosen"), found, strict=True))

    def _decode(self, head: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns corners in pixels of a 24 x 24 image, and a score of each box."""
        places = np.stack(np.meshgrid(np.arange(6), np.arange(6), indexing="ij"), axis=-1)
        anchors = tf.constant(4.0 * places.reshape(36, 2) + 2.0, tf.float32)
        centers = anchors + 2.0 * tf.tanh(head[:, :, 0:2])
        sizes = 4.0 * tf.exp(0.3 * tf.tanh(head[:, :, 2:4]))
        boxes = tf.concat([centers - sizes, centers + sizes], axis=-1)
        return boxes, tf.sigmoid(head[:, :, 4])

    def _find(self, image: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, ...]:
        boxes, scores, features = image
        chosen = tf.image.non_max_suppression(boxes, scores, self.kept, 0.3, 0.6)
        number = tf.size(chosen)

        def some() -> tuple[tf.Tensor, ...]:
            rows = [[0, self.kept - number], [0, 0]]
            described = tf.matmul(tf.gather(features, chosen), self.describe)
            return (
                tf.pad(tf.gather(boxes, chosen), rows),
                tf.pad(tf.gather(scores, chosen), rows[:1]),
                tf.pad(described, rows),
            )

        def none() -> tuple[tf.Tensor, ...]:
            return tf.zeros((self.kept, 4)), tf.zeros(self.kept), tf.zeros((self.kept, 8))

        chosen_or_none = tf.pad(chosen, [[0, self.kept - number]], constant_values=-1)
        return (*tf.cond(number > 0, some, none), chosen_or_none)


def build_detector(directory: Path) -> TestModel:
    """A detector; the last image is empty, and nothing is found in it."""
    images = random_values(141, 4, 24, 24, 3)
    images[-1] = 0.0
    return save_module(directory, "detector", Detector(DETECTOR_SEED), {"image": images})


BUILDERS: Final[Mapping[str, Builder]] = {"detector": build_detector}
