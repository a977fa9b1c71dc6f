"""One model of the benchmark: builds it, rewrites it, runs grappler on it, and takes all figures.

A process of its own for each model, started by `tools/benchmark.py` with the environment that
grappler reads once in a process; a crash takes one model only. Prints one JSON object: `Measured`.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import pathlib
import re
import statistics
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

import tf_amp_rewriter
from tests import models
from tools import census, flat_graphs
from tools.flat_graphs import Arrays, Flat

CORPUS: Final = pathlib.Path(__file__).parent.parent / ".corpus" / "models"
MAX_CAUSES: Final = 12
_NAMED: Final = re.compile(r"\s*\(?`[^`]*`\)?")  # names of nodes in a reason


@dataclasses.dataclass(frozen=True)
class Row:
    """One graph of one model.

    Attributes:
        graph: `float32`, `grappler`, or `ours <device>`.
        census: its figures; None if `failure` came first.
        error: its output error against float32: the median over the input sets; None if not run.
        errors: the error for each input set.
        elapsed_s: time of the rewrite.
        failure: why a figure is missing; empty if none is.
        float32_contractions: those that are not low, by op and reason, with one as an example.
        weight_casts: each Cast on a weight: node, weight, types.
        causes: largest traffic in float32, Casts too, as `MB op: reason (times)`; first what
            grappler has low, with `grappler: low`.
    """

    graph: str
    census: census.Census | None = None
    error: float | None = None
    errors: tuple[float, ...] = ()
    elapsed_s: float = 0.0
    failure: str = ""
    float32_contractions: tuple[str, ...] = ()
    weight_casts: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Reference:
    """What ours is compared with.

    Attributes:
        expected: float32's outputs for each input set; None if it could not be run.
        low_in_grappler: names of the nodes that read or write a low type in grappler's graph.
    """

    expected: Sequence[Arrays] | None
    low_in_grappler: frozenset[str]


@dataclasses.dataclass(frozen=True)
class Measured:
    """All graphs of a model; no rows and a failure if it could not be had."""

    model: str
    rows: tuple[Row, ...] = ()
    failure: str = ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures a model and prints the result; returns 0 whenever there is one to print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--dtype", required=True)
    parser.add_argument("--device", nargs="+", required=True)
    flags = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="tf_amp_rewriter_benchmark_") as folder:
        measured = measure(flags.model, flags.dtype, flags.device, pathlib.Path(folder))
    print(json.dumps(dataclasses.asdict(measured)))
    return 0


def measure(name: str, dtype: str, devices: Sequence[str], directory: pathlib.Path) -> Measured:
    """Builds a model in `directory` and measures it; failures become part of the result."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = model_named(name, directory)
            original = flat_graphs.flatten(model)
    except Exception as error:  # reported in the table
        return Measured(name, failure=_sentence(error))
    rows, expected = [], None
    row = Row("float32", census=_census(original))
    try:
        expected = flat_graphs.run(original)
    except Exception as error:  # its figures stand all the same
        row = dataclasses.replace(row, failure=f"not run: {_sentence(error)}")
    rows.append(row)
    row, low = _measure_grappler(original, expected)
    rows.append(row)
    reference = Reference(expected, low)
    for device in devices:
        options = tf_amp_rewriter.Options(dtype=dtype, device=device, outputs=model.outputs)
        rows.append(_measure_ours(model, options, directory / f"rewritten_{device}", reference))
    return Measured(name, tuple(rows))


def model_named(name: str, directory: pathlib.Path) -> models.TestModel:
    """Builds a model of `tests/models.py`, or gives one of the corpus.

    Raises:
        FileNotFoundError: it is in neither; `tools/corpus` may fetch it.
    """
    if name in models.builders():
        return models.builders()[name](directory)
    description = json.loads((CORPUS / f"{name}.json").read_text(encoding="utf-8"))
    with np.load(CORPUS / f"{name}.npz") as arrays:
        inputs = {k: a.astype(object) if a.dtype.kind == "S" else a for k, a in arrays.items()}
    return models.TestModel(
        CORPUS / description["path"],
        description["kind"],
        inputs,
        description["signature"],
        tuple(description["outputs"]),
    )


# ---------------------------------------------------------------- rows


def _measure_grappler(
    original: Flat, expected: Sequence[Arrays] | None
) -> tuple[Row, frozenset[str]]:
    """Returns grappler's row, and the names of the nodes that it made low."""
    start = time.perf_counter()
    try:
        flat = dataclasses.replace(original, graph_def=flat_graphs.grappler(original))
        elapsed_s = time.perf_counter() - start
        graph = census.static_graph(flat.graph_def, flat.feed_shapes)
    except Exception as error:  # reported in the table
        return Row("grappler", failure=_sentence(error)), frozenset()
    low = frozenset(op.name for op in graph.get_operations() if _dtypes(op) & census.LOW)
    row = Row("grappler", census.census(graph), elapsed_s=elapsed_s)
    return _with_error(row, flat_graphs.as_on_gpu(flat), expected), low


def _measure_ours(
    model: models.TestModel,
    options: tf_amp_rewriter.Options,
    path: pathlib.Path,
    reference: Reference,
) -> Row:
    row = Row(f"ours {options.device}")
    try:
        if model.kind == "graph_def":
            graph_def = graph_pb2.GraphDef.FromString(model.path.read_bytes())
            report = tf_amp_rewriter.rewrite_graph_def(graph_def, options)
            assert report.graph_def is not None
            flat = flat_graphs.flat_graph_def(report.graph_def, model)
        else:
            report = tf_amp_rewriter.rewrite_saved_model(model.path, path, options)
            flat = flat_graphs.flatten(dataclasses.replace(model, path=path))
        graph = census.static_graph(flat.graph_def, flat.feed_shapes)
    except Exception as error:  # reported in the table
        return dataclasses.replace(row, failure=_sentence(error))
    reasons = Reasons(report)
    row = dataclasses.replace(
        row,
        census=census.census(graph),
        elapsed_s=report.elapsed_s,
        float32_contractions=tuple(_float32_contractions(graph, reasons)),
        weight_casts=tuple(
            f"{cast.name}: {cast.inputs[0].name}, {cast.inputs[0].dtype.name} to "
            f"{cast.outputs[0].dtype.name}, {cast.outputs[0].shape}"
            for cast in census.weight_casts(graph)
        ),
        causes=tuple(_causes(graph, reasons, reference.low_in_grappler)),
    )
    if options.device == "gpu":
        flat = flat_graphs.as_on_gpu(flat)
    return _with_error(row, flat, reference.expected)


def _census(flat: Flat) -> census.Census:
    return census.census(census.static_graph(flat.graph_def, flat.feed_shapes))


def _with_error(row: Row, flat: Flat, expected: Sequence[Arrays] | None) -> Row:
    if expected is None:
        return row
    try:
        pairs = zip(expected, flat_graphs.run(flat), strict=True)
        errors = tuple(census.output_error(wanted, found) for wanted, found in pairs)
    except Exception as error:  # such as an op without a kernel in half on the CPU
        return dataclasses.replace(row, failure=f"not run: {_sentence(error)}")
    return dataclasses.replace(row, error=statistics.median(errors), errors=errors)


def _sentence(error: Exception) -> str:
    """Returns an error in one line, and where in our code it came from."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no message"]
    # TensorFlow's begins with a stack; what is wrong stands behind the name of the node.
    nodes = [index for index, line in enumerate(lines[:-1]) if line.startswith("Node: ")]
    text = f"{lines[nodes[-1]]}: {lines[nodes[-1] + 1]}" if nodes else lines[0]
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {text} ({pathlib.Path(place.filename).name}:{place.lineno})"


class Reasons:
    """Why nodes of a flat graph stayed float32, from the report of the rewrite.

    A node that was inlined is named `<path of the calls>/<its name in the function>`.
    """

    def __init__(self, report: tf_amp_rewriter.Report) -> None:
        """Indexes the float32 type variables of `report` by node name."""
        self._reasons: dict[str, str] = {}
        for entry in report.type_variables:
            if entry.precision == "float32":
                self._reasons.setdefault(entry.node, f"{entry.kind}: {entry.reason}")

    def of(self, op: tf.Operation) -> str:
        """Returns the reason for the longest ending of the op's name that the report knows."""
        parts = op.name.split("/")
        endings = ("/".join(parts[start:]) for start in range(len(parts)))
        return next((self._reasons[e] for e in endings if e in self._reasons), "no reason found")


def _float32_contractions(graph: tf.Graph, reasons: Reasons) -> Iterator[str]:
    groups: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for op, is_low in census.contractions(graph):
        if not is_low:
            groups[op.type, _NAMED.sub("", reasons.of(op))].append(op.name)
    for (op_type, reason), names in groups.items():
        yield f"{len(names)} {op_type}, such as {names[0]}: {reason}"


def _causes(graph: tf.Graph, reasons: Reasons, low_in_grappler: frozenset[str]) -> Iterator[str]:
    """Gives what moves most bytes in float32 by op and reason; first what grappler has low."""
    groups: dict[tuple[bool, str, str], list[int]] = collections.defaultdict(list)
    for op in graph.get_operations():
        wanted = census.FLOATS if op.type == "Cast" else {tf.float32}
        moved = census.traffic_bytes(op, wanted)
        if moved and tf.float32 in _dtypes(op):
            reason = "between precisions" if op.type == "Cast" else reasons.of(op)
            groups[op.name in low_in_grappler, op.type, _NAMED.sub("", reason)].append(moved)
    largest = sorted(groups.items(), key=lambda item: (not item[0][0], -sum(item[1])))
    for (is_low, op_type, reason), sizes in largest[:MAX_CAUSES]:
        mark = "; grappler: low" if is_low and op_type != "Cast" else ""
        yield f"{sum(sizes) / census.MEGA:.3f} MB {op_type}: {reason} ({len(sizes)} x){mark}"


def _dtypes(op: tf.Operation) -> frozenset[tf.DType]:
    tensors: Iterable[tf.Tensor] = (*op.inputs, *op.outputs)
    return frozenset(tensor.dtype for tensor in tensors)


if __name__ == "__main__":
    sys.exit(main())
