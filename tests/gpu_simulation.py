"""A low graph as the GPU would compute it, run by the CPU's kernels.

Two things differ there: a few ops accumulate in float32 that here accumulate in their own type, and
a few have a low kernel that the CPU lacks. Both are computed here in float32 between Casts: what
goes in and what comes out is rounded as on the GPU, up to the order of the sums.

Which ops those are stands in `tools/flat_graphs.py` and in the package's table of kernels. An op
that sums in low precision on the GPU but not here can't be shown this way, and is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from tensorflow.core.framework import graph_pb2, node_def_pb2, op_def_pb2, types_pb2
from tensorflow.python.framework import op_def_registry

from tf_amp_rewriter import dtypes
from tf_amp_rewriter.ops import accumulation, kernels
from tools import flat_graphs

_LOW: Final = {low.proto: low for low in dtypes.LOW_PRECISIONS.values()}
# GPU kernels that sum in the type of their input, of which the CPU's sum in float32 in one of the
# low precisions, and in another order in the other.
LOW_SUMS_ON_GPU: Final = frozenset(
    row.op
    for row in accumulation.ROWS
    for low in dtypes.LOW_PRECISIONS.values()
    if accumulation.compute(row.op, low, "gpu") == accumulation.LOW
    and accumulation.compute(row.op, low, "cpu") == accumulation.FLOAT32
)


def as_on_gpu(graph: graph_pb2.GraphDef) -> graph_pb2.GraphDef:
    """Returns `graph` such that the CPU computes what a GPU would; names stay.

    A low tensor keeps its name but for its type: it is the float32 one, and what read it reads a
    Cast of it.

    Raises:
        ValueError: an op that sums in low precision on the GPU and not on the CPU.
    """
    result = graph_pb2.GraphDef()
    result.CopyFrom(graph)
    _replace(result.node, in_function=False)
    for function in result.library.function:
        renamed = _replace(function.node_def, in_function=True)
        for key, ref in function.ret.items():
            function.ret[key] = renamed.get(ref, ref)
    return result


def _replace(nodes: object, in_function: bool) -> Mapping[str, str]:
    """Widens the nodes that need it, in place; returns the new references of their results."""
    casts: list[node_def_pb2.NodeDef] = []
    downs: dict[str, node_def_pb2.NodeDef] = {}
    for node in nodes:  # type: ignore[attr-defined]
        low = _low_of(node)
        if low is not None and _differs(node, low):
            ups, after = _widen(node, low, in_function)
            casts += ups
            downs |= after
    renamed = {ref: f"{cast.name}:y:0" if in_function else cast.name for ref, cast in downs.items()}
    for node in [*nodes, *casts]:  # type: ignore[misc]
        for index, ref in enumerate(node.input):
            node.input[index] = renamed.get(ref.removesuffix(":0"), renamed.get(ref, ref))
    for ref, cast in downs.items():
        cast.input[0] = ref
    nodes.extend([*casts, *downs.values()])  # type: ignore[attr-defined]
    return renamed


def _low_of(node: node_def_pb2.NodeDef) -> dtypes.LowPrecision | None:
    return next((_LOW[a.type] for a in node.attr.values() if a.type in _LOW), None)


def _differs(node: node_def_pb2.NodeDef, low: dtypes.LowPrecision) -> bool:
    if low.proto in flat_graphs.FLOAT32_SUMS_ON_GPU.get(node.op, ()):
        return True
    if node.op in LOW_SUMS_ON_GPU:
        raise ValueError(f"`{node.name}`: a GPU's `{node.op}` sums in {low.name}, a CPU's does not")
    return any(
        attr.type == low.proto and _lacks_cpu_kernel(node.op, name, low)
        for name, attr in node.attr.items()
    )


def _lacks_cpu_kernel(op: str, attr: str, low: dtypes.LowPrecision) -> bool:
    """Says whether GPU has a kernel that the CPU lacks; an op that the table lacks takes all."""
    return kernels.has_kernel(op, attr, low, "gpu") and not kernels.has_kernel(op, attr, low, "cpu")


def _widen(
    node: node_def_pb2.NodeDef, low: dtypes.LowPrecision, in_function: bool
) -> tuple[list[node_def_pb2.NodeDef], dict[str, node_def_pb2.NodeDef]]:
    """Makes a node float32; returns the Casts before it, and those behind it by what they read."""
    definition = _definition(node)
    attrs = {name for name, attr in node.attr.items() if attr.type == low.proto}
    ups = []
    for index, arg in enumerate(_arguments(node, definition.input_arg)):
        if arg.type_attr in attrs:
            name = f"{node.name}/as_on_gpu_up_{index}"
            ups.append(_cast(name, node.input[index], low.proto, types_pb2.DT_FLOAT))
            node.input[index] = f"{name}:y:0" if in_function else name
    downs = {}
    seen: dict[str, int] = {}
    for index, arg in enumerate(_arguments(node, definition.output_arg)):
        place = seen[arg.name] = seen.get(arg.name, -1) + 1
        if arg.type_attr in attrs:
            ref = f"{node.name}:{arg.name}:{place}" if in_function else f"{node.name}:{index}"
            ref = ref if in_function or index else node.name
            name = f"{node.name}/as_on_gpu_{index}"
            downs[ref] = _cast(name, "", types_pb2.DT_FLOAT, low.proto)
            downs[ref].input.append(ref)
    for name in attrs:
        node.attr[name].type = types_pb2.DT_FLOAT
    return ups, downs


def _arguments(
    node: node_def_pb2.NodeDef, args: Iterable[op_def_pb2.OpDef.ArgDef]
) -> Iterator[op_def_pb2.OpDef.ArgDef]:
    """Yields the argument of each tensor."""
    for arg in args:
        types = len(node.attr[arg.type_list_attr].list.type) if arg.type_list_attr else 1
        yield from [arg] * (node.attr[arg.number_attr].i if arg.number_attr else types)


def _definition(node: node_def_pb2.NodeDef) -> op_def_pb2.OpDef:
    definition = op_def_registry.get(node.op)
    assert definition is not None, node.op
    return definition


def _cast(name: str, read: str, source: int, target: int) -> node_def_pb2.NodeDef:
    node = node_def_pb2.NodeDef(name=name, op="Cast", input=[read] if read else [])
    node.attr["SrcT"].type, node.attr["DstT"].type = source, target
    return node
