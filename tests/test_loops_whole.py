"""Whole models with loops: what runs in a loop runs low, and nothing is cast there step by step."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests import loaders, models_tf1, walk
from tests.conftest import GetModel
from tests.rewritten import DTYPES, Rewrite, Rewritten, outputs_of
from tf_amp_rewriter import dtypes

v1 = tf.compat.v1

pytestmark = [
    # TensorFlow's own, from loading and saving; ours still are errors.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorflow"),
    pytest.mark.filterwarnings("ignore::UserWarning:keras"),
]

# Their loops carry nothing that has to stay float32: LSTM and GRU cells, in every form.
RECURRENT = (
    "lstm",
    "gru",
    "keras_masked",
    "lstm_5",
    "lstm_500",
    "tf_keras_rnn",
    "tf_keras_saved_rnn",
    "tf_keras_plain",
    "resaved_rnn",
    "tf1",
    "tf1_resources",
    "tf1_dynamic_rnn",
    "tf1_lstm_by_hand",
    "frozen_loop",
    "frozen_dynamic_rnn",
    "frozen_lstm_by_hand",
)
# Also loops of scores, boxes, averages or words, which may stay float32; and of states that are
# inputs and outputs of the model: after no step, one that was low would come out rounded.
LOOPS = (
    *RECURRENT,
    "streaming",
    "map_fn",
    "scan",
    "beam_search",
    "decoder",
    "detector",
    "tf1_nested_loops",
    "frozen_nested_loops",
)
# Their padding, zeros at the end of an example, changes nothing.
MASKED = ("keras_masked", "tf_keras_saved_rnn", "tf_keras_plain")
# What each of these chooses: outputs that are integers.
CHOSEN = {"beam_search": "tokens", "decoder": "words", "detector": "chosen"}
# Of a weight; the largest relative error of one rounding is 2**-8 in bfloat16, 2**-11 in half.
CHANGE = 8 * 2.0**-8


def in_loops(rewritten: Rewritten) -> list[tuple[str, walk.Node]]:
    """Returns (scope, node) of what runs once a step of a loop for any signature."""
    return list(walk.Walk(rewritten.graph_def).in_loops(outputs_of(rewritten.model)))


@pytest.mark.parametrize("flow", [models_tf1.control_flow_v1, contextlib.nullcontext])
def test_the_walk_tells_loops_from_what_is_around_them(flow: Any) -> None:
    square = np.eye(2, dtype=np.float32)
    with flow(), tf.Graph().as_default() as graph:

        def inner(index: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return index + 1, tf.nn.relu(tf.matmul(x, square, name="in_inner"))

        def outer(index: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            y = tf.matmul(x, square, name="in_outer")
            _, y = v1.while_loop(lambda i, _: i < 3, inner, (index, y))
            return index + 1, tf.nn.relu(tf.matmul(y, square, name="behind_inner"))

        x = tf.matmul(v1.placeholder(tf.float32, (2, 2)), square, name="before")
        _, x = v1.while_loop(lambda i, _: i < 2, outer, (tf.constant(0), x))
        y = tf.matmul(x, square, name="after")

    found = walk.float_contractions(walk.Walk(graph.as_graph_def()).in_loops([y.name]))

    names = sorted(node.name.split("/")[-1] for _, node in found)
    assert names == ["behind_inner", "in_inner", "in_outer"]


@pytest.mark.parametrize("place", ["loop_end", "step"])
def test_the_walk_leaves_a_loop_where_its_switch_does(place: str) -> None:
    with models_tf1.control_flow_v1(), tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (2, 2))
        y = v1.while_loop(lambda x: tf.reduce_sum(x) < 9, lambda x: x * x, [x], name="loop")
    graph_def = graph.as_graph_def()
    (switch,) = (node for node in graph_def.node if node.op == "Switch")
    port = {"loop_end": 0, "step": 1}[place]
    reader = {"loop_end": "Exit", "step": "Identity"}[place]
    (reads,) = (n for n in graph_def.node if n.op == reader and n.input[0].startswith(switch.name))
    cast = graph_def.node.add(
        name=f"{switch.name}/Cast", op="Cast", input=[f"{switch.name}:{port}"]
    )
    for attribute in ("SrcT", "DstT"):
        cast.attr[attribute].type = dtypes.DT_FLOAT
    reads.input[0] = cast.name

    found = walk.float_casts(walk.Walk(graph_def).in_loops([y.name]))

    assert len(found) == port


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", LOOPS)
def test_every_contraction_in_a_loop_is_low(name: str, dtype: str, rewrite: Rewrite) -> None:
    rewritten = rewrite(name, dtype)

    found = walk.float_contractions(in_loops(rewritten))

    assert found
    types = {f"{scope}/{node.name}": node.attr["T"].type for scope, node in found}
    assert {k: v for k, v in types.items() if v != rewritten.low.proto} == {}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", RECURRENT)
def test_nothing_is_cast_in_a_recurrent_loop(name: str, dtype: str, rewrite: Rewrite) -> None:
    nodes = in_loops(rewrite(name, dtype))

    casts = walk.float_casts(nodes)

    assert nodes
    assert casts == []


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_state_that_enters_and_leaves_the_model_is_carried_in_float32(
    dtype: str, rewrite: Rewrite
) -> None:
    rewritten = rewrite("streaming", dtype)
    states = {k: v for k, v in rewritten.original.inputs.items() if k != "x"}
    reached = walk.Walk(rewritten.graph_def).reachable(outputs_of(rewritten.model))
    loops = [node for _, node in reached if node.op in {"StatelessWhile", "While"}]

    ended = loaders.run_tf2(
        rewritten.model.path,
        rewritten.model.signature,
        {"x": np.zeros((4, 0, 8), np.float32), **states},
    )

    carried = [[t for t in n.attr["T"].list.type if tf.as_dtype(t).is_floating] for n in loops]
    assert carried == [[dtypes.DT_FLOAT] * 2] * 2
    for name, state in states.items():
        np.testing.assert_array_equal(ended[name], state)
        assert np.any(state != state.astype(rewritten.low.numpy))  # a rounding would show


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_a_mask_selects_is_low(dtype: str, rewrite: Rewrite) -> None:
    rewritten = rewrite("keras_masked", dtype)
    reached = walk.Walk(rewritten.graph_def).reachable(outputs_of(rewritten.model))

    selects = [n for _, n in reached if n.op == "SelectV2" and "/masking" in n.name]

    assert selects
    assert {node.attr["T"].type for node in selects} == {rewritten.low.proto}


@pytest.mark.parametrize("name", CHOSEN)
def test_what_a_model_chooses_does_not_hang_on_a_rounding(name: str, model: GetModel) -> None:
    """Else a rewritten model could choose otherwise and be right."""
    built = model(name)
    loaded = tf.saved_model.load(str(built.path))  # holds the variables
    serve = loaded.signatures[built.signature]
    inputs = {key: tf.constant(value) for key, value in built.inputs.items()}
    expected = serve(**inputs)[CHOSEN[name]].numpy()
    generator = np.random.default_rng(0)
    weights = [(variable, variable.numpy()) for variable in serve.variables]

    for _ in range(10):
        for variable, value in weights:
            variable.assign(value * changes(generator, value.shape))
        np.testing.assert_array_equal(serve(**inputs)[CHOSEN[name]], expected)

    assert len(np.unique(expected)) >= 3  # nor does it choose the same always


@pytest.mark.parametrize("name", MASKED)
def test_a_masked_model_ignores_its_padding(name: str, model: GetModel, answers: Any) -> None:
    built = model(name)
    wider = {
        key: np.pad(value, [(0, 0), (0, 3)] + [(0, 0)] * (value.ndim - 2))
        for key, value in built.inputs.items()
    }

    padded = loaders.run_tf1(built.path, built.signature, wider)

    for output, value in answers(name)[built.signature].items():
        np.testing.assert_allclose(padded[output], value, atol=1e-6)


def changes(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return (1 + generator.uniform(-CHANGE, CHANGE, shape)).astype(np.float32)
