"""Whole models rewritten: once for each precision, and how to call and to read what came out."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

import tf_amp_rewriter
from tests import bounds, loaders, models
from tf_amp_rewriter import dtypes

# How often the longest loop of a model runs with the inputs of the tests.
LOOP_STEPS = {
    "lstm": 20,
    "gru": 20,
    "foolnltk_seg": 30,
    "lang_detect_tfjs": 3,
    "keras_masked": 9,
    "lstm_5": 5,
    "lstm_500": 500,
    "tf_keras_rnn": 9,
    "tf_keras_saved_rnn": 9,
    "tf_keras_plain": 9,
    "resaved_rnn": 9,
    "map_fn": 3,
    "beam_search": 4,
    "decoder": 6,
    "detector": 4,
    "tf1_nested_loops": 14,  # the inner one: 2 in each of 7 of the outer
    "frozen_nested_loops": 14,
}
OTHER_LOOP_STEPS = 7

DTYPES = ("half", "bfloat16")
Outputs = Mapping[str, NDArray[Any]]


@dataclasses.dataclass(frozen=True)
class Rewritten:
    """A model, its rewritten form, and the report of the rewrite."""

    name: str
    original: models.TestModel
    model: models.TestModel
    report: tf_amp_rewriter.Report

    @property
    def low(self) -> dtypes.LowPrecision:
        return dtypes.LOW_PRECISIONS[self.report.dtype]

    @functools.cached_property
    def graph_def(self) -> graph_pb2.GraphDef:
        return graph_of(self.model)

    @property
    def rounded_steps(self) -> int:
        loop_steps = LOOP_STEPS.get(self.name, OTHER_LOOP_STEPS)
        return bounds.longest_low_path(self.graph_def, loop_steps)


Rewrite = Callable[..., Rewritten]


def rewriter(get_model: Callable[[str], models.TestModel], scratch: Path) -> Rewrite:
    """Returns the function that gives (name, dtype, device) rewritten into `scratch`, each once."""

    @functools.cache
    def once(name: str, dtype: str, device: str) -> Rewritten:
        original = get_model(name)
        path = scratch / f"{name}-{dtype}-{device}"
        rewritten, report = rewrite_model(original, path, dtype, device)
        return Rewritten(name, original, rewritten, report)

    return lambda name, dtype, device="any": once(name, dtype, device)


def rewrite_model(
    original: models.TestModel, path: Path, dtype: str, device: str = "any"
) -> tuple[models.TestModel, tf_amp_rewriter.Report]:
    """Rewrites a model of either kind into `path`."""
    if original.kind == "saved_model":
        options = tf_amp_rewriter.Options(dtype=dtype, device=device)
        report = tf_amp_rewriter.rewrite_saved_model(original.path, path, options)
    else:
        options = tf_amp_rewriter.Options(dtype=dtype, device=device, outputs=original.outputs)
        report = tf_amp_rewriter.rewrite_graph_def(graph_of(original), options)
        assert report.graph_def is not None
        path.write_bytes(report.graph_def.SerializeToString(deterministic=True))
    return dataclasses.replace(original, path=path), report


def run(tested: models.TestModel, loader: loaders.Loader) -> Mapping[str, Outputs]:
    """Returns the answers to all calls of a model, by signature."""
    if tested.kind == "graph_def":
        return {"": loaders.run_graph_def(graph_of(tested), tested.inputs, tested.outputs)}
    return {
        signature: loader(tested.path, signature, inputs, tested.tags)
        for signature, inputs in tested.calls
    }


def meta_graphs_of(path: Path) -> Sequence[meta_graph_pb2.MetaGraphDef]:
    content = (path / "saved_model.pb").read_bytes()
    return saved_model_pb2.SavedModel.FromString(content).meta_graphs


def graph_of(tested: models.TestModel) -> graph_pb2.GraphDef:
    """Returns the GraphDef that a model's tags name."""
    if tested.kind == "graph_def":
        return loaders.read_graph_def(tested.path)
    graphs = meta_graphs_of(tested.path)
    return next(g.graph_def for g in graphs if set(g.meta_info_def.tags) == set(tested.tags))


def outputs_of(tested: models.TestModel) -> list[str]:
    """Returns the tensors of the main graph that a model's callers fetch."""
    if tested.kind == "graph_def":
        return list(tested.outputs)
    return [
        output.name
        for meta_graph in meta_graphs_of(tested.path)
        if set(meta_graph.meta_info_def.tags) == set(tested.tags)
        for name, signature in meta_graph.signature_def.items()
        if not name.startswith("__")
        for output in signature.outputs.values()
    ]


def files_of(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
