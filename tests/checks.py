"""The helpers that graph tests use: question and answer in one text.

    check_precision(text, ...)        each line says the precision that its node must get, and why
    check_rewrite(before, after, ...) two texts: the graph, and what it must become

Both always do the following too, for half and for bfloat16; nothing turns it off:

*   the input graph is not changed, and the same input gives the same bytes again;
*   TensorFlow's importer takes the result;
*   a second run, on the result, changes nothing;
*   original and rewritten run on the same seeded random inputs, the one that is for a GPU as
    `tests/gpu_simulation.py` has it. NaN and Inf must stand in the same places, and every output is
    within the bound that `tests/rounding.py` derives.

A test that can't run the graph says why: `not_run="reason"`.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import re
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import config_pb2

import tf_amp_rewriter
from tests import bounds, gpu_simulation, graph_text, rounding
from tf_amp_rewriter import dtypes as amp_dtypes
from tf_amp_rewriter.ir import text as ir_text
from tf_amp_rewriter.report.model import Report, TypeVariableReport

BOTH = ("half", "bfloat16")
CLAIM = re.compile(
    r"(?:(?P<attribute>\w+(?:\[\d+\])?) )?(?P<precision>low|f32)(?: (?P<kind>[A-Z_]+))?"
    r"(?: (?P<tainted>tainted )?by (?P<cause>\S+))?"
)
Feeds = Mapping[str, NDArray[np.generic]]


@dataclasses.dataclass(frozen=True)
class Claim:
    """What a comment says about one type variable.

    Attributes:
        scope: name of the function; empty for the main graph.
        node: name of the node.
        attribute: the type attribute; empty for a node's only one, or its `T`.
        precision: `low` or `f32`.
        kind: the kind of reason; empty if the comment does not say.
        cause: the node that caused it; empty if the comment does not say.
    """

    scope: str
    node: str
    attribute: str
    precision: str
    kind: str
    cause: str


def check_precision(
    text: str,
    *,
    dtypes: Sequence[str] = BOTH,
    casts: int | None = None,
    feeds: Feeds | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    not_run: str = "",
    steps: int = 0,
    exact: Sequence[str] = (),
    **options: object,
) -> None:
    """Rewrites the graph of `text` and compares the precisions with its comments.

    A comment is `low`, `low KIND`, `f32 KIND`, `f32 KIND by NODE` or `f32 INFER tainted by NODE`
    (the kind TAINTED); with the attribute in front for a node that has several: `T low INFER; U f32
    KEEP`. What stands behind `--` is for people.

    Args:
        text: the graph. Nodes without consumers are the outputs, unless `outputs` says otherwise.
        dtypes: the low precisions to try; a test that leaves one out says why.
        casts: the number of Casts that must be inserted; None does not count them.
        feeds: values of placeholders; the others are random, from -1 to 1 or as `ranges` says.
        ranges: lowest and highest random value, by placeholder.
        not_run: why the graphs can't be run; empty runs them.
        steps: how often the loops of the graph run, 1 if it has calls or lists only. With it the
            bound is the one of `tests/bounds.py`: `tests/rounding.py` has none for these.
        exact: outputs that must have the same bits.
        **options: fields of `Options`.
    """
    for dtype in dtypes:
        graph = graph_text.parse(text, dtype)
        report = checked_rewrite(graph, dtype, feeds, ranges, not_run, options, steps, exact)
        assert_claims(text, report, dtype)
        if casts is not None:
            assert casts == report.casts, _text_of(report)


def check_rewrite(
    before: str,
    after: str,
    *,
    dtypes: Sequence[str] = BOTH,
    feeds: Feeds | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    not_run: str = "",
    steps: int = 0,
    exact: Sequence[str] = (),
    **options: object,
) -> None:
    """Rewrites the graph of `before` and compares it with the graph of `after`, whatever the order.

    Both texts may say `low` for the low precision. The arguments are those of `check_precision`.
    """
    for dtype in dtypes:
        graph = graph_text.parse(before, dtype)
        expected = ir_text.graph_text(graph_text.parse(after, dtype))
        report = checked_rewrite(graph, dtype, feeds, ranges, not_run, options, steps, exact)
        assert_same_text(expected, _text_of(report))


def loop(text: str, trips: int, arguments: str) -> str:
    """Returns `text` with the function `c`: run while `i < trips`; it takes `i` and `arguments`."""
    condition = f"@c(i: i32, {arguments}) -> (go=go)\n  n = Const({trips})\n  go = Less(i, n)\n"
    return inspect.cleandoc("\n" + text) + "\n" + condition


def assert_same_text(expected: str, actual: str) -> None:
    """Asserts that two texts are of the same graph, whatever the order of the nodes."""
    assert _sorted(expected) == _sorted(actual), _difference(expected, actual)


def check_unchanged(text: str, **arguments: object) -> None:
    """Checks that the graph of `text` comes out as it is, with every precision that it claims."""
    check_rewrite(text, text, **arguments)  # type: ignore[arg-type]
    check_precision(text, casts=0, **arguments)  # type: ignore[arg-type]


def claims(text: str) -> list[Claim]:
    """Returns what the comments of `text` say.

    Raises:
        ValueError: a comment behind a node that says nothing.
    """
    found = []
    for section in graph_text.sections(text):
        for line in section.lines:
            comment = " ".join(line.comment.split("--")[0].split())
            for claim in filter(None, (part.strip() for part in comment.split(";"))):
                match = CLAIM.fullmatch(claim)
                if match is None:
                    raise ValueError(f"`{claim}` is not `low KIND` or `f32 KIND [by NODE]`")
                kind = "TAINTED" if match["tainted"] else match["kind"] or ""
                fields = (match["attribute"] or "", match["precision"], kind, match["cause"] or "")
                found.append(Claim(section.name, line.name, *fields))
    return found


def assert_claims(text: str, report: Report, where: str) -> None:
    """Asserts what the comments of `text` say of the precisions; `where` is for the message."""
    wrong = [line for claim in claims(text) for line in _mismatch(report, claim)]
    assert not wrong, "\n".join([f"{where}:", *wrong, "", _text_of(report)])


def checked_rewrite(
    graph: graph_pb2.GraphDef,
    dtype: str,
    feeds: Feeds | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    not_run: str = "",
    options: Mapping[str, object] | None = None,
    steps: int = 0,
    exact: Sequence[str] = (),
) -> Report:
    """Rewrites `graph`, makes the checks that always hold, and returns the report."""
    options = {"outputs": sinks(graph), **(options or {}), "dtype": dtype}
    report = _rewrite_twice(graph, options)
    assert report.graph_def is not None
    imported(report.graph_def)
    again = tf_amp_rewriter.rewrite_graph_def(report.graph_def, tf_amp_rewriter.Options(**options))
    assert _text_of(report) == _text_of(again), "a second run changed the result"
    assert _bytes(report) == _bytes(again), "a second run changed the bytes"
    if not_run:
        return report
    low = amp_dtypes.LOW_PRECISIONS[dtype]
    feeds = {**_random_feeds(imported(graph), ranges or {}), **(feeds or {})}
    outputs = list(options["outputs"])
    rewritten = runnable(report.graph_def, options)
    if steps:
        _compare_programs(graph, rewritten, outputs, low, feeds, steps)
    else:
        _compare_answers(graph, imported(rewritten), outputs, low, feeds)
    if exact:
        _expect_same_bits(graph, imported(rewritten), exact, feeds)
    return report


def runnable(graph_def: graph_pb2.GraphDef, options: Mapping[str, object]) -> graph_pb2.GraphDef:
    """Returns what the CPU runs in place of a rewritten graph: one for the GPU is simulated."""
    return gpu_simulation.as_on_gpu(graph_def) if options.get("device") == "gpu" else graph_def


def sinks(graph: graph_pb2.GraphDef) -> tuple[str, ...]:
    """Returns the names of the tensors, all ports, of the nodes that have no consumers."""
    used = {ref.lstrip("^").split(":")[0] for node in graph.node for ref in node.input}
    return tuple(
        tensor.name.removesuffix(":0")
        for op in imported(graph).get_operations()
        if op.name not in used
        for tensor in op.outputs
    )


def run_graph(
    graph: tf.Graph, fetches: Sequence[str], feeds: Feeds, *, optimize: bool = False
) -> dict[str, NDArray[np.generic]]:
    """Returns the values of the tensors `fetches`, by name; TensorFlow optimizes nothing.

    With `optimize` it does all that it does by default.
    """
    config = tf.compat.v1.ConfigProto()
    if not optimize:
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        config.graph_options.optimizer_options.opt_level = config_pb2.OptimizerOptions.L0
    with tf.compat.v1.Session(graph=graph, config=config) as session:
        values = session.run(list(fetches), {f"{name}:0": value for name, value in feeds.items()})
    return dict(zip(fetches, map(np.asarray, values), strict=True))


def _rewrite_twice(graph: graph_pb2.GraphDef, options: Mapping[str, object]) -> Report:
    """Rewrites the same input twice: same bytes, and the input stays as it is."""
    before = graph.SerializeToString(deterministic=True)
    first, second = (
        tf_amp_rewriter.rewrite_graph_def(graph, tf_amp_rewriter.Options(**options))
        for _ in range(2)
    )
    assert before == graph.SerializeToString(deterministic=True), "the input was changed"
    assert _bytes(first) == _bytes(second), "the same input gave other bytes"
    return first


def _bytes(report: Report) -> bytes:
    assert report.graph_def is not None
    return report.graph_def.SerializeToString(deterministic=True)


def _text_of(report: Report) -> str:
    assert report.graph_def is not None
    return ir_text.graph_text(report.graph_def)


def imported(graph_def: graph_pb2.GraphDef) -> tf.Graph:
    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(graph_def, name="")
        for function in graph_def.library.function:  # one body may call another
            graph_text.function_graph(function)
    return graph


def _compare_answers(
    original_def: graph_pb2.GraphDef,
    rewritten: tf.Graph,
    outputs: Sequence[str],
    low: amp_dtypes.LowPrecision,
    feeds: Feeds,
) -> None:
    """Runs both graphs and compares each output under its bound."""
    original = imported(original_def)
    tensors = [t for op in original.get_operations() for t in op.outputs]
    values = run_graph(original, [t.name for t in tensors if t.dtype != tf.resource], feeds)
    limits = rounding.error_bounds(rewritten, values, low)
    fetches = [name if ":" in name else f"{name}:0" for name in outputs]
    for name, actual in run_graph(rewritten, fetches, feeds).items():
        compare(name, values[name], actual, limits[name])


def _compare_programs(
    original: graph_pb2.GraphDef,
    rewritten: graph_pb2.GraphDef,
    outputs: Sequence[str],
    low: amp_dtypes.LowPrecision,
    feeds: Feeds,
    steps: int,
) -> None:
    """Runs graphs with loops, calls or lists; the bound grows with the length of the chain."""
    fetches = [name if ":" in name else f"{name}:0" for name in outputs]
    expected, actual = (
        run_graph(imported(graph), fetches, feeds) for graph in (original, rewritten)
    )
    roundings = bounds.longest_low_path(rewritten, steps)
    bounds.assert_close_to_original(expected, actual, low, roundings)


def _expect_same_bits(
    original: graph_pb2.GraphDef, rewritten: tf.Graph, outputs: Sequence[str], feeds: Feeds
) -> None:
    fetches = [name if ":" in name else f"{name}:0" for name in outputs]
    expected = run_graph(imported(original), fetches, feeds)
    for name, actual in run_graph(rewritten, fetches, feeds).items():
        assert expected[name].dtype == actual.dtype, name
        np.testing.assert_array_equal(expected[name], actual, err_msg=name)


def compare(
    name: str, expected: NDArray[np.generic], actual: NDArray[np.generic], bound: float
) -> None:
    """Compares two values of one output: dtype, shape, NaN and Inf, and |difference| <= bound."""
    assert expected.dtype == actual.dtype, f"{name}: {expected.dtype} became {actual.dtype}"
    assert expected.shape == actual.shape, f"{name}: {expected.shape} became {actual.shape}"
    if expected.dtype.kind != "f":
        assert bound > 0 or np.array_equal(expected, actual), f"{name} changed"
        return
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(
        np.where(finite, 0, expected), np.where(np.isfinite(actual), 0, actual), err_msg=name
    )
    error = np.abs(expected[finite].astype(np.float64) - actual[finite])
    worst = float(error.max(initial=0.0))
    assert worst <= bound, f"{name}: off by {worst:.3g}, the bound is {bound:.3g}"


def _random_feeds(
    graph: tf.Graph, ranges: Mapping[str, tuple[float, float]]
) -> dict[str, NDArray[np.generic]]:
    """Returns seeded values for each placeholder; unknown dimensions are 2.

    A scalar counts as of unknown rank: that is how TensorFlow reads a placeholder of shape [].
    """
    random = np.random.default_rng(2024)
    feeds: dict[str, NDArray[np.generic]] = {}
    for op in graph.get_operations():
        if op.type != "Placeholder":
            continue
        tensor = op.outputs[0]
        sizes = tensor.shape.as_list() if tensor.shape.rank is not None else []
        shape = [2 if size is None else size for size in sizes]
        lowest, highest = ranges.get(op.name, (-1, 1) if tensor.dtype.is_floating else (0, 2))
        values = random.uniform(lowest, highest, shape)
        feeds[op.name] = values.astype(tensor.dtype.as_numpy_dtype)
    return feeds


def _mismatch(report: Report, claim: Claim) -> list[str]:
    """Returns nothing, or what is wrong with one claim."""
    place = f"{claim.scope}/{claim.node}" if claim.scope else claim.node
    variable = _type_variable(report, claim)
    if variable is None:
        return [f"{place}: the report has no such type variable"]
    precision = "f32" if variable.precision == "float32" else "low"
    expected = f"{claim.precision} {claim.kind}" + (f" by {claim.cause}" if claim.cause else "")
    actual = f"{precision} {variable.kind if claim.kind else ''}"
    if claim.cause:
        actual += f" by {variable.cause}"
    return [] if expected == actual else [f"{place}: {expected} != {actual} ({variable.reason})"]


def _type_variable(report: Report, claim: Claim) -> TypeVariableReport | None:
    """Returns what the report says: the attribute in the claim, or the only one, or `T`."""
    found = {
        variable.attribute: variable
        for variable in report.type_variables
        if variable.scope == claim.scope and variable.node == claim.node
    }
    if not claim.attribute and len(found) == 1:
        return next(iter(found.values()))
    return found.get(claim.attribute or "T")


def _difference(expected: str, actual: str) -> str:
    texts = (_sorted(text).splitlines() for text in (expected, actual))
    return "\n".join(difflib.unified_diff(*texts, "expected", "actual", lineterm="", n=99))


def _sorted(text: str) -> str:
    """Returns `text` with the lines of each graph in the order of their names."""
    blocks = [block.splitlines() for block in text.split("\n\n")]
    return "\n\n".join("\n".join(sorted(block)) for block in blocks)
