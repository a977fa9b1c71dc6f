"""The whole flow on one page: read, view, decide, rewrite, check, write, publish, report."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from google.protobuf import text_format
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import saved_model_pb2

from tf_amp_rewriter import decide, dtypes, errors, gather
from tf_amp_rewriter.ir import build, check, described, outsiders, variables
from tf_amp_rewriter.ir import flow as flows
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.options import Options
from tf_amp_rewriter.reasons import Decisions
from tf_amp_rewriter.report import build as reports
from tf_amp_rewriter.report import user_wishes
from tf_amp_rewriter.report.model import Report
from tf_amp_rewriter.report.trace import Trace
from tf_amp_rewriter.rewrite import apply
from tf_amp_rewriter.rules import assign
from tf_amp_rewriter.saved_model import checkpoint as checkpoints
from tf_amp_rewriter.saved_model import object_graph, publish, reader, writer

PathLike = str | os.PathLike[str]
_DEFAULTS = Options()


def rewrite_saved_model(
    source: PathLike, destination: PathLike, options: Options = _DEFAULTS
) -> Report:
    """Rewrites a SavedModel directory.

    Args:
        source: the SavedModel directory.
        destination: the directory to make; it exists only when complete.
        options: what to do.

    Raises:
        errors.InputError: the input can't be read or is not valid.
        errors.OutputError: the output can't be written.
        errors.InternalError: our own fault; nothing is published.
    """
    start = time.perf_counter()
    source, destination = Path(source), Path(destination)
    options = gather.gathered(options)
    model = reader.read_saved_model(source, options.tags)
    publish.check_destination(source, destination, options.overwrite)
    with _collector_paused(), errors.at_path(str(source)):
        edited, report = _rewrite_model(model, source, options)
        proto = _edited_proto(model, edited, options)
        with publish.staging_beside(destination) as staging:
            writer.write(
                source, staging, proto, model.checkpoint, edited.conversions, edited.clamped
            )
            publish.publish(staging, destination, options.overwrite)
    elapsed_s = time.perf_counter() - start
    return reports.with_places(report, str(source), str(destination), elapsed_s)


def decide_saved_model(source: PathLike, options: Options = _DEFAULTS) -> Report:
    """Decides what `rewrite_saved_model` would do with a SavedModel, and writes nothing.

    Args:
        source: the SavedModel directory.
        options: what to do.

    Raises:
        errors.InputError: the input can't be read or is not valid.
        errors.InternalError: our own fault.
    """
    start = time.perf_counter()
    source = Path(source)
    options = gather.gathered(options)
    model = reader.read_saved_model(source, options.tags)
    with _collector_paused(), errors.at_path(str(source)):
        _, report = _rewrite_model(model, source, options)
    return reports.with_places(report, str(source), "", time.perf_counter() - start)


def rewrite_graph_def(graph_def: graph_pb2.GraphDef, options: Options = _DEFAULTS) -> Report:
    """Rewrites a frozen GraphDef in memory; `Report.graph_def` is the result.

    Args:
        graph_def: the graph; it is not changed.
        options: what to do; `outputs` names what is fetched. Without it every tensor that nothing
            reads counts as fetched.

    Raises:
        errors.InputError: the graph is not valid, or lacks a node that `options` name.
        errors.InternalError: our own fault.
    """
    start = time.perf_counter()
    options = gather.gathered(options)
    graphs = [described.with_descriptions(_frozen(graph_def, options), options.registered)]
    with _collector_paused():
        program = build.program(graphs)
        _expect_tensors(program.main_scope(0), options)
        rewritten = _rewrite(program, variables.Links(), options, None)
        report = _checked(rewritten, options, None)
    report = dataclasses.replace(report, graph_def=rewritten.edited.graph_defs[0])
    return reports.with_places(report, "", "", time.perf_counter() - start)


def rewrite_frozen_graph(
    source: PathLike, destination: PathLike, options: Options = _DEFAULTS
) -> Report:
    """Rewrites a file with a frozen GraphDef, binary or (`.pbtxt`) text, to another.

    Args:
        source: the file.
        destination: the file to make; text if its name ends in `.pbtxt`.
        options: what to do; see `rewrite_graph_def`.

    Raises:
        errors.InputError: the input can't be read or is not valid.
        errors.OutputError: the output can't be written.
        errors.InternalError: our own fault; nothing is written.
    """
    start = time.perf_counter()
    source, destination = Path(source), Path(destination)
    if destination.exists() and not options.overwrite:
        raise errors.OutputError(
            "exists already", "give another path, or `--overwrite` to replace it", str(destination)
        )
    report = decide_frozen_graph(source, options)
    assert report.graph_def is not None
    if destination.suffix == ".pbtxt":
        data = text_format.MessageToString(report.graph_def).encode()
    else:
        data = report.graph_def.SerializeToString(deterministic=True)
    publish.write_file_atomically(destination, data, options.overwrite)
    elapsed_s = time.perf_counter() - start
    return reports.with_places(report, str(source), str(destination), elapsed_s)


def decide_frozen_graph(source: PathLike, options: Options = _DEFAULTS) -> Report:
    """Decides what `rewrite_frozen_graph` would do with a file, and writes nothing.

    Args:
        source: the file with a frozen GraphDef.
        options: what to do; see `rewrite_graph_def`.

    Raises:
        errors.InputError: the input can't be read or is not valid.
        errors.InternalError: our own fault.
    """
    source = Path(source)
    options = gather.gathered(options)
    graph_def = reader.read_graph_def(source)
    with errors.at_path(str(source)):
        report = rewrite_graph_def(graph_def, options)
    return reports.with_places(report, str(source), "", report.elapsed_s)


@dataclasses.dataclass(frozen=True)
class _Rewritten:
    """What was decided, and the new protos."""

    decided: decide.Decided
    edited: apply.Edited


def _rewrite_model(
    model: reader.Source, source: Path, options: Options
) -> tuple[apply.Edited, Report]:
    graphs = [
        described.with_descriptions(object_graph.graph_source(m, str(source)), options.registered)
        for m in model.meta_graphs
    ]
    links = object_graph.links(model)
    rewritten = _rewrite(build.program(graphs), links, options, model.checkpoint)
    return rewritten.edited, _checked(rewritten, options, model.checkpoint)


def _rewrite(
    program: ir.Program,
    links: variables.Links,
    options: Options,
    checkpoint: checkpoints.Checkpoint | None,
) -> _Rewritten:
    decided = decide.decide(program, links, options, _fit_finder(checkpoint, options))
    edited = apply.apply(decided.flow, decided.decisions, options.low, options.device)
    return _Rewritten(decided, edited)


def _checked(
    rewritten: _Rewritten,
    options: Options,
    checkpoint: checkpoints.Checkpoint | None,
) -> Report:
    """Returns the report on graphs that were found to be valid."""
    decided, edited = rewritten.decided, rewritten.edited
    flow = decided.flow
    for graph, graph_def in zip(flow.program.graphs, edited.graph_defs, strict=True):
        violations = check.check(dataclasses.replace(graph, graph_def=graph_def))
        if violations:
            _expect_valid(graph)
            raise errors.InternalError(
                f"the rewritten graph is not valid: {violations[0]}",
                "this is a bug of tf_amp_rewriter; please report it with this message",
            )
    trace = Trace(flow, decided.rules, decided.decisions, options)
    warnings = [
        *user_wishes.warnings(trace),
        *_training_warnings(flow, edited, options),
        *_cast_warnings(flow, decided.decisions),
        *_clamp_warnings(flow, decided.decisions),
    ]
    return reports.build(trace, edited, checkpoint, warnings)


def _expect_valid(graph: ir.GraphSource) -> None:
    violations = check.check(graph)
    if violations:
        raise errors.InputError(
            f"the graph is not valid: {violations[0]}",
            "the model is damaged, or was made by another version of TensorFlow: export it again",
        )


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """Keeps Python's cycle collector from looking through the views again and again.

    They hold no cycles and live until the end; measured on 40,000 nodes, pausing saves a third.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _training_warnings(flow: flows.Flow, edited: apply.Edited, options: Options) -> Sequence[str]:
    slots = {key for v in flow.variables for key in v.slot_keys if key in edited.conversions}
    if not slots:
        return ()
    state = f"{len(slots)} optimizer slots are {options.dtype} now, as their variables are"
    return (f"{state}: train on with the original model",)


def _cast_warnings(flow: flows.Flow, decisions: Decisions) -> Iterator[str]:
    """Yields a sentence for every float32 variable that low precision ops cast at each run."""
    for number, index in flow.variable_of.items():
        reads_low = any(decisions[reader].low for reader in flow.readers[number])
        variable = flow.variables[index]
        if reads_low and not decisions[number].low and variable.keys:
            reason = decisions[number].detail or "its class stays float32"
            yield f"weight `{variable.keys[0]}` stays float32 and is cast at each run: {reason}"


def _clamp_warnings(flow: flows.Flow, decisions: Decisions) -> Sequence[str]:
    """Returns a sentence that names all weights that were clamped because the user asked for it."""
    names = []
    for number, decision in enumerate(decisions):
        if decision.limit and decision.asked:
            variable = flow.variable_of.get(number)
            keys = flow.variables[variable].keys if variable is not None else ()
            name = keys[0] if keys else flow.program.node_of(flow.members[number][0]).name
            names.append(f"`{name}` to {decision.limit:.6g}")
    if not names:
        return ()
    count = f"{len(names)} weight was" if len(names) == 1 else f"{len(names)} weights were"
    return (f"{count} clamped, as `saturate` asks: {', '.join(names)}",)


def _fit_finder(checkpoint: checkpoints.Checkpoint | None, options: Options) -> assign.VariableFit:
    @functools.cache  # the classes of a second run ask again
    def fit_of(key: str, max_loss: float) -> dtypes.Fit:
        assert checkpoint is not None
        return checkpoints.fit_of(checkpoint, key, options.low, max_loss)

    def fit(keys: Sequence[str], max_loss: float) -> dtypes.Fit:
        assert checkpoint is not None
        # An export may hold copies of a variable under several keys: each content is read once.
        entries = {checkpoint.entries[key].crc32c: key for key in keys}
        found = [fit_of(key, max_loss) for key in entries.values()]
        bad = [one for one in found if one.problem]
        return min(bad, key=lambda one: one.clamps, default=dtypes.Fit())

    return fit


def _edited_proto(
    model: reader.Source, edited: apply.Edited, options: Options
) -> saved_model_pb2.SavedModel:
    """Returns a copy of the SavedModel's proto with the rewritten graphs and variable dtypes."""
    result = saved_model_pb2.SavedModel()
    result.CopyFrom(model.saved_model)
    for graph, index in enumerate(model.selected):
        result.meta_graphs[index].graph_def.CopyFrom(edited.graph_defs[graph])
    for graph, node_id in sorted(edited.objects):
        meta_graph = result.meta_graphs[model.selected[graph]]
        meta_graph.object_graph_def.nodes[node_id].variable.dtype = options.low.proto
    return result


def _frozen(graph_def: graph_pb2.GraphDef, options: Options) -> ir.GraphSource:
    fetches = options.outputs or _unread(graph_def)
    return ir.GraphSource(
        graph_def,
        feeds=frozenset(options.inputs),
        fetches=frozenset(fetches),
        visible=frozenset(outsiders.of_training(graph_def.library)),
    )


def _expect_tensors(main: ir.Scope, options: Options) -> None:
    """Refuses tensors in the options that the graph does not have."""
    node_of = {node.name: node for node in main.nodes}
    for flag, names in (("inputs", options.inputs), ("outputs", options.outputs)):
        for tensor in names:
            name, colon, digits = tensor.partition(":")
            node = node_of.get(name)
            if node is None:
                raise errors.InputError(
                    f"`{flag}` names `{tensor}`, but no node has that name",
                    f"the last nodes are {_last_names(main)}",
                )
            port = build.port_number(digits if colon else "0")
            if port is None or (node.known and port >= len(node.out_types)):
                count = len(node.out_types) if node.known else "an unknown number of"
                raise errors.InputError(
                    f"`{flag}` names `{tensor}`, but node `{name}` has {count} outputs",
                    f"name one of them as `{name}:0`",
                )


def _unread(graph_def: graph_pb2.GraphDef) -> list[str]:
    read = {ref.removeprefix("^").partition(":")[0] for n in graph_def.node for ref in n.input}
    return [node.name for node in graph_def.node if node.name not in read]


def _last_names(main: ir.Scope) -> str:
    named = [node.name for node in main.nodes if node.out_types or not node.known]
    return ", ".join(f"`{name}`" for name in named[-3:])
