"""The whole flow: what is published, what is refused, and what stays untouched."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.framework import graph_pb2

import tf_amp_rewriter
from tests import graph_text
from tf_amp_rewriter import pipeline
from tf_amp_rewriter.ir import check

GRAPH = """
x: f32[2,4] = Placeholder
w: f32[4,4] = Const(seed=1)
m = MatMul(x, w)
out = Identity(m)
"""


class Doubler(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = tf.Variable(tf.ones([4, 4]))

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32)])
    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        return x @ self.weight


@pytest.fixture
def model(tmp_path: Path) -> Path:
    module = Doubler()
    tf.saved_model.save(module, str(tmp_path / "in"), signatures=module.__call__)
    return tmp_path / "in"


def files(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_a_graph_that_breaks_an_invariant_is_our_bug_and_not_published(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the rewritten graph, looked at first, is wrong, and the original is not
    answers = iter([["a Cast reads a Cast"], []])
    monkeypatch.setattr(check, "check", lambda _source: next(answers))

    with pytest.raises(tf_amp_rewriter.InternalError) as caught:
        tf_amp_rewriter.rewrite_saved_model(model, tmp_path / "out")

    assert str(caught.value) == (
        f"{model}: the rewritten graph is not valid: a Cast reads a Cast\n"
        "hint: this is a bug of tf_amp_rewriter; please report it with this message"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_the_source_is_not_touched(model: Path, tmp_path: Path) -> None:
    before = files(model)

    tf_amp_rewriter.rewrite_saved_model(model, tmp_path / "out")

    assert before == files(model)


def test_the_graph_in_memory_is_not_touched() -> None:
    graph = graph_text.parse(GRAPH)
    before = graph.SerializeToString(deterministic=True)

    report = tf_amp_rewriter.rewrite_graph_def(graph)

    assert before == graph.SerializeToString(deterministic=True)
    assert not report.lowered_nothing


def test_an_output_that_does_not_exist_is_named() -> None:
    options = tf_amp_rewriter.Options(outputs=("m", "probs"))

    with pytest.raises(tf_amp_rewriter.InputError) as caught:
        tf_amp_rewriter.rewrite_graph_def(graph_text.parse(GRAPH), options)

    assert str(caught.value) == (
        "`outputs` names `probs`, but no node has that name\n"
        "hint: the last nodes are `w`, `m`, `out`"
    )


@pytest.mark.parametrize("suffix", [".pb", ".pbtxt"])
def test_a_frozen_graph_goes_from_file_to_file(suffix: str, tmp_path: Path) -> None:
    source, destination = tmp_path / "in.pb", tmp_path / f"out{suffix}"
    source.write_bytes(graph_text.parse(GRAPH).SerializeToString())
    options = tf_amp_rewriter.Options(outputs=("out",))

    report = pipeline.rewrite_frozen_graph(source, destination, options)

    written = tf.io.read_file(str(destination)).numpy()
    if suffix == ".pbtxt":
        assert report.graph_def == text_format.Parse(written.decode(), graph_pb2.GraphDef())
    else:
        assert report.graph_def == graph_pb2.GraphDef.FromString(written)


def test_a_frozen_graph_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    source, destination = tmp_path / "in.pb", tmp_path / "out.pb"
    source.write_bytes(graph_text.parse(GRAPH).SerializeToString())
    destination.write_bytes(b"precious")

    with pytest.raises(tf_amp_rewriter.OutputError) as caught:
        pipeline.rewrite_frozen_graph(source, destination, tf_amp_rewriter.Options())

    assert str(caught.value) == (
        f"{destination}: exists already\nhint: give another path, or `--overwrite` to replace it"
    )
    assert destination.read_bytes() == b"precious"
