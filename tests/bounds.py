"""How far a rewritten model's answers may be from the original's, derived and not tuned.

Let u be the largest relative error of one rounding (2**-11 in half, 2**-8 in bfloat16), and n the
number of roundings along the longest chain of low-precision steps of the rewritten model.

1. Each step rounds its result (and a contraction its weight, once, at rewrite time): a relative
   error of at most u, of a sign that does not depend on the other steps'. Contractions accumulate
   in float32, so their sums add nothing; a kernel that accumulates in the low precision breaks
   this and is what the bound is there to find.
2. Errors are measured against the spread of the tensor that they are in. Networks that can be
   trained keep that ratio: a layer of random or trained weights, and a normalization, scale signal
   and error alike; saturating activations and averages shrink the error. A residual sum adds errors
   of its two sides as it adds their signals. So the gain of a step is at most 1, and after n
   steps independent errors have added up to a standard deviation of at most u * sqrt(n) spreads.
   The shift of a mean between steps is no amplification either: spread, here, is the range
   max - min of the whole output, over examples and classes, which is at least two standard
   deviations of it.
3. The largest of N errors that are normally distributed with deviation s is below
   s * sqrt(2 ln(2 N)) on average, and stays below s * (sqrt(2 ln(2 N)) + 3) but for about one case
   in a thousand.
4. The output itself, where it was computed low, has one more rounding relative to its own size,
   which is what remains where all values of an output lie close together: u * |y|.

   bound = u * (sqrt(n) * (sqrt(2 ln(2 N)) + 3) * spread + |y|)

Loops count as often as they run. Whatever is not a number, or infinite, must be so in both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from tensorflow.core.framework import graph_pb2, node_def_pb2, types_pb2

from tf_amp_rewriter import dtypes

Array = NDArray[Any]

_LOW_TYPES: Final = frozenset({types_pb2.DT_HALF, types_pb2.DT_BFLOAT16})

# Ops that hand values on as they are: no rounding.
_MOVES: Final = frozenset(
    """BatchToSpaceND BroadcastTo ConcatV2 Concat DepthToSpace Enter Exit ExpandDims Fill Gather
    GatherNd GatherV2 Identity IdentityN LoopCond MaxPool MaxPoolV2 Maximum Max Merge Min Minimum
    MirrorPad Neg NextIteration OnesLike Pack Pad PadV2 ReadVariableOp Relu Relu6 Reshape
    ResourceGather Reverse ReverseV2 Select SelectV2 Shape Size Slice SpaceToBatchND SpaceToDepth
    Split SplitV Squeeze StopGradient StridedSlice Switch Tile Transpose Unpack VarHandleOp Const
    EmptyTensorList Placeholder PlaceholderWithDefault StackPopV2 StackPushV2 StackV2
    TensorArrayConcatV3 TensorArrayGatherV3 TensorArrayReadV3 TensorArrayScatterV3
    TensorArraySplitV3 TensorArrayV3 TensorArrayWriteV3 TensorListConcatLists TensorListConcatV2
    TensorListFromTensor TensorListGather TensorListGetItem TensorListPopBack TensorListPushBack
    TensorListReserve TensorListScatterIntoExistingList TensorListScatterV2 TensorListSetItem
    TensorListSplit TensorListStack TopKV2 VariableV2 ZerosLike Abs Sign Rank""".split()
)
# Ops with a weight, whose rounding counts too.
_CONTRACTIONS: Final = frozenset(
    """BatchMatMul BatchMatMulV2 BatchMatMulV3 Conv1D Conv2D Conv2DBackpropInput Conv3D
    Conv3DBackpropInputV2 DepthwiseConv2dNative Einsum MatMul""".split()
)
_LOOPS: Final = frozenset({"While", "StatelessWhile"})


def assert_close_to_original(
    expected: Mapping[str, Array],
    actual: Mapping[str, Array],
    low: dtypes.LowPrecision,
    rounded_steps: int,
) -> None:
    """Asserts that `actual` is `expected`, within the bound of this module, for every output.

    Args:
        expected: the original's outputs by name.
        actual: the rewritten model's.
        low: the low precision of the rewrite.
        rounded_steps: n of the bound, see `longest_low_path`; at least 1 is assumed.
    """
    assert sorted(expected) == sorted(actual)
    for name in sorted(expected):
        wanted, got = expected[name], actual[name]
        assert wanted.shape == got.shape, f"`{name}`: shape {got.shape}, expected {wanted.shape}"
        assert wanted.dtype == got.dtype, f"`{name}`: dtype {got.dtype}, expected {wanted.dtype}"
        if wanted.dtype.kind in "OSUbiu":
            np.testing.assert_array_equal(got, wanted, err_msg=name)
        elif wanted.size:
            _assert_close(
                name, wanted.astype(np.float64), got.astype(np.float64), low, rounded_steps
            )


def _assert_close(
    name: str,
    wanted: NDArray[np.float64],
    got: NDArray[np.float64],
    low: dtypes.LowPrecision,
    rounded_steps: int,
) -> None:
    _assert_same_specials(name, wanted, got)
    finite = np.isfinite(wanted)
    if not finite.any():
        return
    wanted, got = np.where(finite, wanted, 0.0), np.where(finite, got, 0.0)
    bound = error_bound(wanted, low, rounded_steps)
    share = np.abs(got - wanted) / np.maximum(bound, np.finfo(np.float64).tiny)
    worst = np.unravel_index(int(np.argmax(share)), share.shape)
    assert share[worst] <= 1, (
        f"`{name}`{[int(i) for i in worst]}: {got[worst]:.6g}, expected {wanted[worst]:.6g}: off"
        f" by {share[worst]:.3g} bounds (one is {bound[worst]:.3g}: {low.name}, {rounded_steps}"
        f" rounded steps, outputs in {wanted.min():.6g}..{wanted.max():.6g},"
        f" {np.sum(share > 1)} of"
        f" {share.size} values beyond it)"
    )


def error_bound(
    wanted: NDArray[np.float64], low: dtypes.LowPrecision, rounded_steps: int
) -> NDArray[np.float64]:
    """Returns the largest error allowed at each value of one output, in the output's unit."""
    spread = float(wanted.max() - wanted.min())
    of_many = math.sqrt(2 * math.log(2 * wanted.size)) + 3
    shared = math.sqrt(max(rounded_steps, 1)) * of_many * spread
    return np.asarray(low.epsilon * (shared + np.abs(wanted)))


def _assert_same_specials(name: str, wanted: NDArray[np.float64], got: NDArray[np.float64]) -> None:
    for label, found in (
        ("NaN", (np.isnan(wanted), np.isnan(got))),
        ("inf", (np.isposinf(wanted), np.isposinf(got))),
        ("-inf", (np.isneginf(wanted), np.isneginf(got))),
    ):
        differ = np.argwhere(found[0] != found[1])
        if len(differ):
            place = tuple(int(i) for i in differ[0])
            raise AssertionError(
                f"`{name}`{[*place]}: {got[place]:.6g}, expected {wanted[place]:.6g}: {label} at"
                f" {int(found[1].sum())} places, expected {int(found[0].sum())}"
            )


# ---------------------------------------------------------------- the number of roundings


def longest_low_path(graph_def: graph_pb2.GraphDef, loop_steps: int = 1) -> int:
    """Returns the number of roundings along the longest path through the graph.

    A node counts if it computes in a low precision and does more than move or select values: one
    for its result, two if it is a contraction (its weight is rounded as well), one for a Cast to a
    low precision. A call counts as the longest path of the function that it calls.

    Args:
        graph_def: a graph with its function library.
        loop_steps: how often loops run; both those of functions and those of Switch and Merge.
    """
    return _Paths(graph_def.library, loop_steps).longest(graph_def.node)


class _Paths:
    """Longest paths, function by function, each computed once."""

    def __init__(self, library: Any, loop_steps: int) -> None:
        self._bodies = {function.signature.name: function.node_def for function in library.function}
        self._loop_steps = loop_steps
        self._lengths: dict[str, int] = {}

    def longest(self, nodes: Iterable[node_def_pb2.NodeDef]) -> int:
        by_name = {node.name: node for node in nodes}
        in_loops = _nodes_in_loops(by_name)
        lengths: dict[str, int] = {}
        stack = list(by_name)
        entered: set[str] = set()
        while stack:
            name = stack[-1]
            sources = _data_sources(by_name, name)
            pending = [s for s in sources if s not in lengths and s not in entered]
            entered.add(name)
            if pending:
                stack.extend(pending)
                continue
            stack.pop()
            if name not in lengths:
                repeats = self._loop_steps if name in in_loops else 1
                own = repeats * self._roundings(by_name[name])
                lengths[name] = own + max((lengths.get(s, 0) for s in sources), default=0)
        return max(lengths.values(), default=0)

    def _roundings(self, node: node_def_pb2.NodeDef) -> int:
        called = [a.func.name for a in node.attr.values() if a.HasField("func")]
        called += [f.name for a in node.attr.values() for f in a.list.func]
        inside = [self._function(name) for name in called if name in self._bodies]
        if node.op in self._bodies:
            inside.append(self._function(node.op))
        if inside:
            return max(inside) * (self._loop_steps if node.op in _LOOPS else 1)
        if node.op == "Cast":
            return int(node.attr["DstT"].type in _LOW_TYPES)
        if node.op in _MOVES or not any(a.type in _LOW_TYPES for a in node.attr.values()):
            return 0
        return 2 if node.op in _CONTRACTIONS else 1

    def _function(self, name: str) -> int:
        if name not in self._lengths:
            self._lengths[name] = 0  # what a recursive call adds
            self._lengths[name] = self.longest(self._bodies[name])
        return self._lengths[name]


def _data_sources(nodes: Mapping[str, node_def_pb2.NodeDef], name: str) -> list[str]:
    """Returns the nodes whose outputs a node takes, without the back edges of loops."""
    found = (i.split(":")[0] for i in nodes[name].input if not i.startswith("^"))
    return [source for source in found if source in nodes and nodes[source].op != "NextIteration"]


def _nodes_in_loops(nodes: Mapping[str, node_def_pb2.NodeDef]) -> set[str]:
    """Returns the nodes after the Merge and before the Exit of a loop of control flow v1."""
    consumers: dict[str, list[str]] = {}
    for name in nodes:
        for source in _data_sources(nodes, name):
            consumers.setdefault(source, []).append(name)
    forward = {
        name
        for name, node in nodes.items()
        if node.op == "Merge" and any(_is_back_edge(nodes, i) for i in node.input)
    }
    stack = list(forward)
    while stack:
        for consumer in consumers.get(stack.pop(), ()):
            if consumer not in forward and nodes[consumer].op != "Exit":
                forward.add(consumer)
                stack.append(consumer)
    return forward


def _is_back_edge(nodes: Mapping[str, node_def_pb2.NodeDef], reference: str) -> bool:
    source = nodes.get(reference.split(":")[0])
    return source is not None and source.op == "NextIteration"
