"""Whole models of functions that are seen and called from inside: every way to run them works."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.core.framework import graph_pb2
from tensorflow.python.framework import convert_to_constants

import tf_amp_rewriter
from tests import bounds, loaders
from tests.checks import BOTH
from tests.conftest import GetModel
from tests.models_keras import SERVING
from tests.models_loops import weight_values
from tests.rewritten import files_of, meta_graphs_of
from tf_amp_rewriter import dtypes

pytestmark = [
    # TensorFlow's own, from loading and saving; ours still are errors.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorflow"),
    pytest.mark.filterwarnings("ignore::UserWarning:keras"),
]

Arrays = Mapping[str, NDArray[Any]]


@dataclasses.dataclass(frozen=True)
class Pair:
    """A model and its rewritten form.

    Attributes:
        source: directory of the original.
        path: directory of the rewritten model.
        dtype: the low precision.
        calls: inputs by signature.
    """

    source: Path
    path: Path
    dtype: str
    calls: Mapping[str, Arrays]

    @property
    def graph_def(self) -> graph_pb2.GraphDef:
        (meta_graph,) = meta_graphs_of(self.path)
        return meta_graph.graph_def

    def assert_close(self, wanted: Arrays, got: Arrays) -> None:
        steps = bounds.longest_low_path(self.graph_def)
        low = dtypes.LOW_PRECISIONS[self.dtype]
        bounds.assert_close_to_original(wanted, got, low, steps)


def inner_functions(graph: graph_pb2.GraphDef) -> set[str]:
    names = [function.signature.name for function in graph.library.function]
    return {name.partition("inference_")[2] for name in names if name.endswith("__amp")}


def rewritten(source: Path, dtype: str, calls: Mapping[str, Arrays]) -> Pair:
    path = source.parent / f"{source.name}_{dtype}"
    tf_amp_rewriter.rewrite_saved_model(source, path, tf_amp_rewriter.Options(dtype=dtype))
    return Pair(source, path, dtype, calls)


def check_everywhere(pair: Pair) -> None:
    """Checks all loaders, a second rewrite, and saving again, of the rewritten model."""
    for signature, inputs in pair.calls.items():
        wanted = loaders.run_tf2(pair.source, signature, inputs)
        for loader in loaders.LOADERS.values():
            pair.assert_close(wanted, loader(pair.path, signature, inputs))

    twice = pair.path.parent / f"{pair.path.name}_twice"
    options = tf_amp_rewriter.Options(dtype=pair.dtype)
    assert tf_amp_rewriter.rewrite_saved_model(pair.path, twice, options).lowered_nothing
    assert files_of(pair.path) == files_of(twice)

    again = pair.path.parent / f"{pair.path.name}_again"
    loaders.resave(pair.path, again)
    for signature, inputs in pair.calls.items():
        wanted = loaders.run_tf2(pair.path, signature, inputs)
        for name, value in loaders.run_tf2(again, signature, inputs).items():
            np.testing.assert_array_equal(wanted[name], value, err_msg=name)


# --- modules -------------------------------------------------------------------------------------


class OneBody(tf.Module):
    """Case C07: one function, called on the input of one signature, and on Cumsum of another's."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = tf.Variable(weight_values(1, 8, 8), name="weight")

    @tf.function(input_signature=[tf.TensorSpec((None, 8), tf.float32, name="x")])
    def body(self, x: tf.Tensor) -> tf.Tensor:
        return tf.nn.relu(tf.matmul(x, self.weight))

    @tf.function(input_signature=[tf.TensorSpec((None, 8), tf.float32, name="x")])
    def a(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": self.body(x)}

    @tf.function(input_signature=[tf.TensorSpec((None, 8), tf.float32, name="x")])
    def b(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": self.body(tf.cumsum(x))}


@pytest.mark.parametrize("dtype", BOTH)
def test_one_body_with_two_callers_keeps_its_float32_face(dtype: str, tmp_path: Path) -> None:
    module = OneBody()
    source = tmp_path / "model"
    tf.saved_model.save(module, str(source), signatures={"a": module.a, "b": module.b})
    x = weight_values(2, 5, 8)

    pair = rewritten(source, dtype, {"a": {"x": x}, "b": {"x": x}})

    assert inner_functions(pair.graph_def) == set()  # both callers give float32 and take float32
    (matmul,) = [n for f in pair.graph_def.library.function for n in f.node_def if n.op == "MatMul"]
    assert matmul.attr["T"].type == dtypes.LOW_PRECISIONS[dtype].proto
    check_everywhere(pair)


class Nest(tf.Module):
    """Three functions in each other, all visible; one has an effect, one an odd argument."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = [tf.Variable(weight_values(10 + i, 8, 8), name=f"w{i}") for i in range(5)]
        self.calls = tf.Variable(0, dtype=tf.int64, name="calls")

    @tf.function(input_signature=[tf.TensorSpec((None, 8), tf.float32, name="x")])
    def serve(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        y = self.outer(tf.matmul(x, self.weights[0]))
        return {"y": tf.matmul(y, self.weights[1])}

    @tf.function(input_signature=[tf.TensorSpec((None, 8), tf.float32, name="x")])
    def outer(self, x: tf.Tensor) -> tf.Tensor:
        y, _ = self.middle(tf.matmul(x, self.weights[2]), tf.constant(["a"]))
        return tf.matmul(y, self.weights[3])

    @tf.function(
        input_signature=[
            tf.TensorSpec((None, 8), tf.float32, name="x"),
            tf.TensorSpec((None,), tf.string, name="StatefulPartitionedCall"),
        ]
    )
    def middle(self, x: tf.Tensor, text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.nn.relu(self.inner(x)), text

    @tf.function(input_signature=[tf.TensorSpec((None, 8), tf.float32, name="x")])
    def inner(self, x: tf.Tensor) -> tf.Tensor:
        self.calls.assign_add(1)
        return tf.matmul(x, self.weights[4])


@pytest.mark.parametrize("dtype", BOTH)
def test_a_nest_of_functions_has_casts_at_its_ends_alone(dtype: str, tmp_path: Path) -> None:
    module = Nest()
    source = tmp_path / "model"
    tf.saved_model.save(module, str(source), signatures=module.serve)
    x = weight_values(3, 6, 8)

    pair = rewritten(source, dtype, {SERVING: {"x": x}})

    inner = inner_functions(pair.graph_def)
    assert sorted(name.partition("_")[0] for name in inner) == ["inner", "middle", "outer"]
    library = {f.signature.name: f for f in pair.graph_def.library.function}
    casts = {name: [n.name for n in f.node_def if n.op == "Cast"] for name, f in library.items()}
    assert [names for name, names in casts.items() if name.endswith("__amp")] == [[], [], []]
    assert [len(v) for k, v in casts.items() if k.startswith("__inference_serve")] == [2]
    check_everywhere(pair)


@pytest.mark.parametrize("dtype", BOTH)
def test_restored_functions_take_and_give_float32_and_keep_their_effects(
    dtype: str, tmp_path: Path
) -> None:
    module = Nest()
    source = tmp_path / "model"
    tf.saved_model.save(module, str(source), signatures=module.serve)
    x, text = tf.constant(weight_values(3, 6, 8)), tf.constant(["b", "c"])
    pair = rewritten(source, dtype, {})

    original, loaded = (tf.saved_model.load(str(path)) for path in (source, pair.path))
    ways: dict[str, Callable[[Any], Any]] = {
        "serve": lambda m: m.serve(x)["y"],
        "outer": lambda m: m.outer(x),
        "middle": lambda m: m.middle(x, text)[0],
        "inner": lambda m: m.inner(x),
    }
    wanted = {name: way(original).numpy() for name, way in ways.items()}
    got = {name: way(loaded).numpy() for name, way in ways.items()}

    pair.assert_close(wanted, got)
    np.testing.assert_array_equal(text, loaded.middle(x, text)[1])
    assert loaded.calls.numpy() == 5  # each of the calls above runs the innermost function once
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(loaded.inner(x))
    with tf.GradientTape() as wanted_tape:
        wanted_tape.watch(x)
        wanted_y = tf.reduce_sum(original.inner(x))
    gradients = {"x": wanted_tape.gradient(wanted_y, x).numpy()}
    pair.assert_close(gradients, {"x": tape.gradient(y, x).numpy()})


@tf.custom_gradient
def clipped(x: tf.Tensor) -> Any:
    """Relu, with a gradient that Relu does not have."""
    return tf.nn.relu(x), lambda dy: 3.0 * dy


class Bound(tf.Module):
    """Functions with captured constants, and one with a gradient of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = tf.constant(weight_values(41, 8, 8))
        self.offset = tf.constant(weight_values(42, 8))

    @tf.function(input_signature=[tf.TensorSpec((None, 8), tf.float32, name="x")])
    def bend(self, x: tf.Tensor) -> tf.Tensor:
        return clipped(x) + self.offset

    @tf.function(input_signature=[tf.TensorSpec((None, 8), tf.float32, name="x")])
    def serve(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": tf.matmul(self.bend(tf.matmul(x, self.weight)), self.weight)}


@pytest.mark.parametrize("dtype", BOTH)
def test_originals_keep_their_gradients_and_captured_constants(dtype: str, tmp_path: Path) -> None:
    module = Bound()
    source = tmp_path / "model"
    tf.saved_model.save(module, str(source), signatures=module.serve)
    x = weight_values(43, 6, 8)

    pair = rewritten(source, dtype, {SERVING: {"x": x}})

    check_everywhere(pair)  # saves `_again`, too
    # what `serve` gives the constants to is no face: it is not copied for them
    assert [n.partition("_")[0] for n in inner_functions(pair.graph_def)] == ["bend"]
    again = pair.path.parent / f"{pair.path.name}_again"
    for path in (pair.path, again):
        loaded = tf.saved_model.load(str(path))
        np.testing.assert_array_equal(module.bend(x), loaded.bend(x))
        with tf.GradientTape() as tape:
            variable = tf.Variable(x)
            y = tf.reduce_sum(loaded.bend(variable))
        np.testing.assert_array_equal(np.full_like(x, 3.0), tape.gradient(y, variable))


# --- Keras 2, loaded and saved again -------------------------------------------------------------


def wrap(model: Any) -> tf.Module:
    """Returns a module that calls a restored Keras model between two layers of its own."""

    class Wrapper(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model
            self.weight = tf.Variable(weight_values(20, 5, 4), name="weight")

        @tf.function(input_signature=[tf.TensorSpec((None, 16, 16, 3), tf.float32, name="image")])
        def serve(self, image: tf.Tensor) -> dict[str, tf.Tensor]:
            return {"y": tf.matmul(self.model(image, training=False), self.weight)}

    return Wrapper()


@pytest.mark.parametrize("dtype", BOTH)
def test_a_keras_2_model_called_by_a_module(dtype: str, model: GetModel, tmp_path: Path) -> None:
    original = model("tf_keras")
    module = wrap(tf.saved_model.load(str(original.path)))
    source = tmp_path / "model"
    tf.saved_model.save(module, str(source), signatures=module.serve)

    pair = rewritten(source, dtype, {SERVING: original.inputs})

    check_everywhere(pair)
    assert [name for name in inner_functions(pair.graph_def) if name.startswith("model_layer_call")]
    loaded = tf.saved_model.load(str(pair.path))
    image = tf.constant(original.inputs["image"])
    wanted, got = (m.model(image, training=False).numpy() for m in (module, loaded))
    pair.assert_close({"y": wanted}, {"y": got})


@pytest.mark.parametrize("dtype", BOTH)
def test_a_keras_2_model_loaded_and_saved_again(
    dtype: str, model: GetModel, tmp_path: Path
) -> None:
    original = model("tf_keras")
    source = tmp_path / "model"
    loaders.resave(original.path, source)

    check_everywhere(rewritten(source, dtype, {SERVING: original.inputs}))


@pytest.mark.parametrize("dtype", BOTH)
def test_a_tower_of_layers_runs_two_casts_and_its_layers_can_be_called(
    dtype: str, model: GetModel, tmp_path: Path
) -> None:
    original = model("resaved_tower")
    pair = Pair(original.path, tmp_path / "out", dtype, {SERVING: original.inputs})
    tf_amp_rewriter.rewrite_saved_model(
        pair.source, pair.path, tf_amp_rewriter.Options(dtype=dtype)
    )
    once_more = tmp_path / "saved"
    tf.saved_model.save(tf.saved_model.load(str(pair.path)), str(once_more))

    check_everywhere(pair)
    assert len(casts_on_the_way(pair.path)) == 2
    modules = [tf.saved_model.load(str(path)) for path in (pair.source, pair.path, once_more)]
    wanted, *others = [
        calls_of_layers(module.inner, original.inputs["image"]) for module in modules
    ]
    assert len(wanted) == 9
    for got in others:
        pair.assert_close(wanted, got)
        # behind a float32 face, and without a contraction, all is float32
        for name in ("relu", "add", "pooling", "global pooling"):
            np.testing.assert_array_equal(wanted[name], got[name], err_msg=name)


def casts_on_the_way(path: Path) -> list[str]:
    """Returns the Casts of the signature, all calls inlined and all variables constants."""
    loaded = tf.saved_model.load(str(path))
    function = loaded.signatures[SERVING]
    flat = convert_to_constants.convert_variables_to_constants_v2(function)
    return [node.name for node in flat.graph.as_graph_def().node if node.op == "Cast"]


def calls_of_layers(model: Any, image: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Calls a layer of each kind from Python, with float32; a restored layer has only a number."""
    random = np.random.default_rng(31)
    shapes = ((2, 32, 32, 32), (2, 16, 16, 32), (2, 16, 16, 64))
    narrow, pooled, wide = (random.normal(0, 1, shape).astype(np.float32) for shape in shapes)
    layers = {
        "convolution": (1, image),
        "normalization": (2, narrow),
        "relu": (3, narrow),
        "inner convolution": (4, narrow),
        "add": (10, [narrow, narrow[::-1]]),
        "pooling": (11, narrow),
        "convolution with relu": (12, pooled),
        "global pooling": (13, wide),
        "dense": (14, wide[:, 0, 0, :]),
    }
    return {
        name: getattr(model, f"layer-{number}")(tf.nest.map_structure(tf.constant, value)).numpy()
        for name, (number, value) in layers.items()
    }
