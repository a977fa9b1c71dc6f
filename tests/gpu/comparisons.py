"""The comparisons of this folder, for any device: one op against its rule, one model as a whole.

An op is compared for a low precision and a device where the tables lower it there: its row does,
the device has the low kernel, and the row's condition accepts the very node that the case makes.
Inputs are rounded to the low precision first, so what is measured is the kernel alone. The
reference is the same op on the same rounded inputs in float64 on the CPU; where it has no float64
kernel there, in float32 on the same device. `error_bounds` says how far the two may be apart.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.core.framework import graph_pb2, node_def_pb2
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.eager import context
from tensorflow.python.framework import kernels as registry
from tensorflow.python.framework import op_def_registry

import tf_amp_rewriter
from tests import bounds, loaders, models
from tests.gpu import error_bounds
from tf_amp_rewriter import dtypes
from tf_amp_rewriter.ops import categories, conditions, kernels
from tf_amp_rewriter.ops.rows import Category, OpRow

LOWERING: Final = (Category.ALLOW, Category.INFER, Category.CLEAR)
NO_GPU: Final = "no GPU that TensorFlow can use"
# How often the longest loop of a model runs with the inputs of the tests.
LOOP_STEPS: Final = {"lstm": 20, "gru": 20}
OTHER_LOOP_STEPS: Final = 7
# Also as grappler and oneDNN rename them: _FusedConv2D, _MklMatMul.
CONTRACTION: Final = re.compile("MatMul|Conv2D|Conv2dNative|Einsum")

Array = NDArray[Any]
Make = Callable[[np.random.Generator], Array]


@dataclasses.dataclass(frozen=True)
class Case:
    """One call of one op.

    Attributes:
        op: the op type.
        call: calls it with the tensors that may be low.
        inputs: what makes those, float64, from a seeded generator.
        bound: how far the result may be from the reference.
        variant: what tells it from other cases of the same op.
        compared: how many of the outputs, from the first on, are compared.
    """

    op: str
    call: Callable[..., Any]
    inputs: tuple[Make, ...]
    bound: error_bounds.Bound
    variant: str = ""
    compared: int = 99

    def __str__(self) -> str:
        return f"{self.op}-{self.variant}" if self.variant else self.op


def case(
    op: str,
    arguments: str | Callable[..., Any],
    *inputs: Make,
    bound: error_bounds.Bound = error_bounds.exactly,
    variant: str = "",
    compared: int = 99,
    **others: Any,
) -> Case:
    """Returns a case of the raw op `op`.

    Args:
        op: the op type.
        arguments: names of the arguments that take `inputs`, in order; a last name with `*` behind
            it takes all that are left as a list. Or a function of the tensors.
        inputs: see `Case`.
        bound: see `Case`.
        variant: see `Case`.
        compared: see `Case`.
        others: the other arguments.
    """
    call = functools.partial(_call_raw, op, arguments, others)
    return Case(op, arguments if callable(arguments) else call, inputs, bound, variant, compared)


def _call_raw(op: str, arguments: str, others: Mapping[str, Any], *tensors: tf.Tensor) -> Any:
    names = arguments.split()
    given: dict[str, Any] = dict(zip(names, tensors, strict=False))
    if names[-1].endswith("*"):
        given[names[-1][:-1]] = list(tensors[len(names) - 1 :])
        del given[names[-1]]
    return getattr(tf.raw_ops, op)(**given, **others)


# ---------------------------------------------------------------- where a rule lowers a case


def why_not(tested: Case, low: dtypes.LowPrecision, device: str) -> str:
    """Returns why the rules for `device` keep a case in float32 there; empty where it is low."""
    row = categories.row_for(tested.op, low, device)
    if row is None or row.category not in LOWERING:
        return "its row keeps it float32"
    if not has_low_kernel(row, low, device):
        return f"there is no {low.name} kernel for {device}"
    if row.condition:
        return conditions.CONDITIONS[row.condition](_facts(tested, low, device))
    return ""


def has_low_kernel(row: OpRow, low: dtypes.LowPrecision, device: str) -> bool:
    """Says whether the op has a low kernel on `device` itself, and not only beside it."""
    of_attrs = kernels._table()[1].get(row.op, {})
    letters = [of_attrs.get(attr, " ").split(" ")[device == "gpu"] for attr in row.attrs]
    letters = letters or [both.split(" ")[device == "gpu"] for both in of_attrs.values()]
    return bool(letters) and all({"half": "h", "bfloat16": "b"}[low.name] in x for x in letters)


def node_of(tested: Case) -> tuple[node_def_pb2.NodeDef, tuple[tuple[int | None, ...] | None, ...]]:
    """Returns the float32 node that a case makes in a graph, and the shapes of its inputs."""
    with tf.Graph().as_default() as graph:
        arrays = made_inputs(tested)
        tested.call(*[tf.compat.v1.placeholder(tf.float32, array.shape) for array in arrays])
        (op,) = (op for op in graph.get_operations() if op.type == tested.op)
    shapes = [x.shape for x in op.inputs]
    return op.node_def, tuple(tuple(s.as_list()) if s.rank is not None else None for s in shapes)


def _facts(tested: Case, low: dtypes.LowPrecision, device: str) -> conditions.NodeFacts:
    node, shapes = node_of(tested)
    return conditions.NodeFacts(node, low, device, shapes)


def made_inputs(tested: Case) -> list[NDArray[np.float64]]:
    """Returns the inputs of a case before they are rounded, the same each time."""
    return [make(np.random.default_rng(seed)) for seed, make in enumerate(tested.inputs)]


# ---------------------------------------------------------------- one op


def as_made(array: NDArray[np.float64], _: dtypes.LowPrecision) -> NDArray[np.float64]:
    """Returns the inputs of a case as they are."""
    return array


def scaled(factor: float) -> Callable[..., NDArray[np.float64]]:
    """Returns a change of inputs that multiplies them."""
    return lambda array, _: factor * array


def _lost_near_0(low: dtypes.LowPrecision) -> float:
    """How much of a result is lost where it, or what it is made of, is close to 0.

    Half rounds to subnormals; bfloat16 shares them with float32, of which kernels make 0: once in
    an intermediate value, once in the result.
    """
    return low.tiny if low == dtypes.HALF else 2 * smallest(low)


def smallest(low: dtypes.LowPrecision) -> float:
    """The smallest positive value that TensorFlow's kernels keep: subnormal float32 become 0."""
    return max(low.tiny, float(np.finfo(np.float32).tiny))


def extremes(array: NDArray[np.float64], low: dtypes.LowPrecision) -> NDArray[np.float64]:
    """Returns the ends of a low precision in the shape of `array`: largest, smallest, infinite."""
    least = smallest(low)
    ends = [low.max, -low.max, least, -least, np.inf, -np.inf, 0.0, 1.0]
    return np.resize(np.array(ends), array.shape)


def all_values(least: float, most: float) -> Callable[..., NDArray[np.float64]]:
    """Returns a change of inputs to every value of the low precision from `least` to `most`."""

    def change(_: NDArray[np.float64], low: dtypes.LowPrecision) -> NDArray[np.float64]:
        with np.errstate(invalid="ignore"):  # a NaN is cast, too
            values = np.arange(1 << 16, dtype=np.uint16).view(low.numpy).astype(np.float64)
        kept = (values >= least) & (values <= most) & np.isfinite(values)
        kept &= (np.abs(values) >= smallest(low)) | (values == 0)
        return values[kept]

    return change


def check_op(
    tested: Case,
    low: dtypes.LowPrecision,
    device: str,
    change: Callable[[NDArray[np.float64], dtypes.LowPrecision], NDArray[np.float64]] = as_made,
) -> float:
    """Compares a case on `device` (`cpu` or `gpu`); returns the largest error, in bounds.

    Args:
        tested: the case.
        low: the low precision.
        device: `cpu` or `gpu`.
        change: makes other inputs of those of the case, such as larger ones.
    """
    place = f"/{device.upper()}:0"
    rounded = [change(array, low).astype(low.numpy) for array in made_inputs(tested)]
    got = _run(tested, rounded, place)
    assert {tensor.device.rpartition("device:")[2] for tensor in got} == {place[1:]}
    assert got[0].dtype == low.proto or not got[0].dtype.is_floating

    dtype, reference_place = (
        (np.float64, "/CPU:0") if _has_float64_kernel(tested.op, low) else (np.float32, place)
    )

    def reference(arrays: Sequence[Array]) -> list[Array]:
        given = [array.astype(dtype) for array in arrays]
        return [tensor.numpy() for tensor in _run(tested, given, reference_place)]

    worst = 0.0
    for index, exact in enumerate(reference(rounded)):
        actual = got[index].numpy()
        where = f"{tested}, output {index}, {low.name} on {device}"
        if exact.dtype.kind != "f":
            np.testing.assert_array_equal(actual, exact, err_msg=where)
            continue
        if tested.bound is error_bounds.exactly:
            np.testing.assert_array_equal(actual.astype(np.float64), exact, err_msg=where)
            continue
        assert np.isfinite(exact).all(), f"{where}: the reference is not finite"
        measured = error_bounds.Measured(
            low, device, tuple(array.astype(np.float64) for array in rounded),
            exact.astype(np.float64), index, reference,
        )  # fmt: skip
        worst = max(worst, _largest_share(where, tested.bound, measured, actual.astype(np.float64)))
    return worst


def _run(tested: Case, arrays: Iterable[Array], place: str) -> list[tf.Tensor]:
    with tf.device(place):
        result = tested.call(*[tf.constant(array) for array in arrays])
    results = list(result) if isinstance(result, list | tuple) else [result]
    return tf.nest.flatten(results)[: tested.compared]


def _largest_share(
    where: str, bound: error_bounds.Bound, measured: error_bounds.Measured, actual: Array
) -> float:
    """Asserts that all errors are within the bound; returns the largest one, in bounds."""
    assert actual.shape == measured.exact.shape, where
    if not actual.size:
        return 0.0
    allowed = bound(measured) + _lost_near_0(measured.low)
    error = np.abs(actual - measured.exact)
    share = error / np.maximum(allowed, np.finfo(np.float64).tiny)
    place = np.unravel_index(int(np.argmax(share)), error.shape)
    unit = measured.unit * abs(measured.exact[place])
    assert (error <= allowed).all(), (
        f"{where}, {[int(i) for i in place]}: {actual[place]:.6g}, expected"
        f" {measured.exact[place]:.6g}: off by {error[place]:.3g}"
        f" ({error[place] / unit if unit else np.inf:.2f} roundings), allowed {allowed[place]:.3g}"
    )
    return float(share[place])


@functools.cache
def _has_float64_kernel(op: str, low: dtypes.LowPrecision) -> bool:
    """Says whether the installed TensorFlow has a float64 CPU kernel for what `low` would be."""
    definition = op_def_registry.get(op)
    assert definition is not None, op
    row = categories.row_for(op, low, "gpu")
    attrs = (row.attrs if row is not None else ()) or tuple(kernels._table()[1][op])
    double = tf.float64.as_datatype_enum
    limits = {a.name: list(a.allowed_values.list.type) for a in definition.attr}
    if not all(double in limits[attr] or not limits[attr] for attr in attrs):
        return False
    for kernel in registry.get_registered_kernels_for_op(op).kernel:
        types = {c.name: list(c.allowed_values.list.type) for c in kernel.constraint}
        if kernel.device_type == "CPU" and all(double in types.get(a, [double]) for a in attrs):
            return True
    return False


# ---------------------------------------------------------------- a whole model


def check_model(original: models.TestModel, name: str, dtype: str, device: str, to: Path) -> None:
    """Compares a model with its rewritten form, both on `device` (`cpu` or `gpu`).

    Args:
        original: the model.
        name: its name in `tests/models.py`.
        dtype: name of the low precision.
        device: where both run; the rewrite is for it.
        to: a path for the rewritten model that does not exist yet.
    """
    rewritten = _rewritten(original, dtype, device, to)
    graph = _graph_of(rewritten)
    steps = bounds.longest_low_path(graph, LOOP_STEPS.get(name, OTHER_LOOP_STEPS))
    # GPU is where TensorFlow puts what it can if nobody says otherwise
    with tf.device("/CPU:0") if device == "cpu" else nullcontext():
        expected = _answers(original)
        with contractions_run_on(device, some=original.kind == "saved_model"):
            actual = _answers(rewritten)
    assert sorted(expected) == sorted(actual)
    for signature, outputs in expected.items():
        low = dtypes.LOW_PRECISIONS[dtype]
        bounds.assert_close_to_original(outputs, actual[signature], low, steps)


@contextmanager
def contractions_run_on(device: str, some: bool) -> Iterator[None]:
    """Asserts afterwards that TensorFlow placed every contraction that ran on `device`.

    Args:
        device: `cpu` or `gpu`.
        some: whether there must have been one; none is seen where a session runs a graph.
    """
    context.enable_graph_collection()
    try:
        yield
        ran = context.export_run_metadata()
    finally:
        context.disable_graph_collection()
    partitions = [graph for f in ran.function_graphs for graph in f.partition_graphs]
    places = {
        f"{node.op} `{node.name}`": node.device.rpartition("device:")[2]
        for graph in [*partitions, *ran.partition_graphs]
        for node in graph.node
        if CONTRACTION.search(node.op)
    }
    wanted = f"{device.upper()}:0"
    assert places or not some
    assert {node: place for node, place in places.items() if place != wanted} == {}


def _rewritten(original: models.TestModel, dtype: str, device: str, to: Path) -> models.TestModel:
    options = tf_amp_rewriter.Options(
        dtype=dtype, device=device, tags=original.tags, outputs=original.outputs
    )
    if original.kind == "saved_model":
        report = tf_amp_rewriter.rewrite_saved_model(original.path, to, options)
    else:
        report = tf_amp_rewriter.rewrite_graph_def(_graph_of(original), options)
        assert report.graph_def is not None
        to.write_bytes(report.graph_def.SerializeToString(deterministic=True))
    assert not report.lowered_nothing
    return dataclasses.replace(original, path=to)


def _graph_of(tested: models.TestModel) -> graph_pb2.GraphDef:
    if tested.kind == "graph_def":
        return loaders.read_graph_def(tested.path)
    content = (tested.path / "saved_model.pb").read_bytes()
    graphs = saved_model_pb2.SavedModel.FromString(content).meta_graphs
    return next(g.graph_def for g in graphs if set(g.meta_info_def.tags) == set(tested.tags))


def _answers(tested: models.TestModel) -> Mapping[str, loaders.Arrays]:
    """Returns the answers to all calls of a model, by signature."""
    if tested.kind == "graph_def":
        return {"": loaders.run_graph_def(_graph_of(tested), tested.inputs, tested.outputs)}
    return {
        signature: loaders.run_tf2(tested.path, signature, inputs, tested.tags)
        for signature, inputs in tested.calls
    }
