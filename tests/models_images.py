"""The four image networks of Keras, at full size, with statistics as if they were trained.

Random weights alone let activations die or explode and make all images' outputs alike. So every
batch normalization is calibrated on a batch of pictures, as training would do, and the classifier
is scaled until the logits spread as a trained one's do.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from tests.models import Builder, TestModel

if TYPE_CHECKING:
    import keras

SIZE: Final = 224
LOGIT_SPREAD: Final = 2.0  # standard deviation; softmax of 1000 classes is then far from uniform
# Names of the layers whose output is added to a residual: `_3_bn` in ResNet, and so on.
RESIDUAL_ENDS: Final = ("_3_bn", "_project_bn", "project_bn", "_layer_scale")


def pictures(count: int, seed: int = 0, size: int = SIZE) -> NDArray[np.float32]:
    """Returns smooth random pictures of different colour and grain, [count, size, size, 3], 0..255.

    White noise would do badly: all its pictures look alike to a network that pools.
    """
    generator = np.random.default_rng(seed)
    y, x = np.mgrid[0:size, 0:size] / size
    result = np.empty((count, size, size, 3), np.float32)
    for index in range(count):
        for channel in range(3):
            wave = generator.uniform(-0.5, 0.5) + np.zeros_like(x)
            for _ in range(6):
                across, down = generator.normal(0, 2.0 * 3**index, 2)
                wave += generator.normal(0, 0.5) * np.sin(
                    2 * np.pi * (across * x + down * y) + generator.uniform(0, 6)
                )
            result[index, :, :, channel] = 127.5 + 127.5 * np.tanh(wave)
    return result


def _build(network: str, scale: float, directory: Path) -> TestModel:
    """Exports `keras.applications.<network>`; its inputs are pictures divided by `scale`."""
    import keras

    keras.utils.set_random_seed(1)
    model = getattr(keras.applications, network)(weights=None)
    images = (pictures(2) / scale).astype(np.float32)
    _randomize(model)
    _calibrate(model, images)
    path = directory / network
    model.export(path, verbose=False)
    keras.backend.clear_session()
    return TestModel(path, "saved_model", {_input_name(path): images}, "serving_default")


def _input_name(path: Path) -> str:
    from tensorflow.core.protobuf import saved_model_pb2

    proto = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    (name,) = proto.meta_graphs[0].signature_def["serving_default"].inputs
    return str(name)


def _layers(model: keras.Model) -> Iterator[Any]:
    for layer in model.layers:
        if hasattr(layer, "layers"):
            yield from _layers(layer)
        else:
            yield layer


def _randomize(model: keras.Model) -> None:
    """Gives normalizations a scale and offset, and ConvNeXt's layer scales a size that counts.

    With scales near 1 and offsets near 0, a random network is chaotic, which no trained one is: it
    amplifies a rounding of its input 40 times. So most activations are on the sloping side, and the
    last scale of a residual branch is small, as training (which starts it at 0) leaves it.
    """
    generator = np.random.default_rng(2)
    for layer in _layers(model):
        last = layer.name.endswith(RESIDUAL_ENDS)
        sloping = not last and type(layer).__name__ == "BatchNormalization"
        for variable in layer.weights:
            kind = variable.path.rsplit("/", 1)[-1]
            if kind == "gamma":
                variable.assign(
                    generator.uniform(*((0.1, 0.3) if last else (0.3, 0.7)), variable.shape)
                )
            elif kind == "beta":
                variable.assign(generator.normal(float(sloping), 0.1, variable.shape))
            elif kind == "bias":
                variable.assign(generator.normal(0, 0.1, variable.shape))


def _calibrate(model: keras.Model, images: NDArray[np.float32]) -> None:
    """Sets all moving averages to the statistics of `images` and scales the classifier."""
    import keras

    layers = list(_layers(model))
    saved = []
    for layer in layers:
        for name, value in (("momentum", 0.0), ("rate", 0.0), ("drop_path_rate", 0.0)):
            if hasattr(layer, name):
                saved.append((layer, name, getattr(layer, name)))
                setattr(layer, name, value)
    model(images, training=True)
    for layer, name, value in saved:
        setattr(layer, name, value)

    classifier = next(layer for layer in reversed(layers) if layer.weights)
    until = keras.Model(model.input, classifier.output)
    activation = classifier.activation
    classifier.activation = keras.activations.linear
    spread = float(np.std(until(images, training=False)))
    classifier.kernel.assign(classifier.kernel * (LOGIT_SPREAD / spread))
    classifier.activation = activation


BUILDERS: Final[Mapping[str, Builder]] = {
    "resnet50": functools.partial(_build, "ResNet50", 64.0),
    "mobilenet_v3_small": functools.partial(_build, "MobileNetV3Small", 1.0),
    "efficientnet_b0": functools.partial(_build, "EfficientNetB0", 1.0),
    "convnext_tiny": functools.partial(_build, "ConvNeXtTiny", 1.0),
}
