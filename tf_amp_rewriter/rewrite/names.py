"""Names of generated nodes: after the tensor that they stand for, and never one that is taken."""

from __future__ import annotations

from collections.abc import Iterable

from tensorflow.core.framework import node_def_pb2


def unique(wish: str, taken: set[str]) -> str:
    """Returns `wish`, or `wish_1`, `wish_2`, ... if it is taken; adds the result to `taken`."""
    name, number = wish, 0
    while name in taken:
        number += 1
        name = f"{wish}_{number}"
    taken.add(name)
    return name


def of_cast(node: str, port: int, dtype: str) -> str:
    """Returns the name to wish for for a Cast of output `port` of `node`."""
    return f"{node}/Cast_{dtype}" if port == 0 else f"{node}/Cast_{port}_{dtype}"


def wait_for_all(node: node_def_pb2.NodeDef, removed: Iterable[node_def_pb2.NodeDef]) -> None:
    """Lets `node` wait for what nodes waited for that it takes the place of."""
    waited = {ref: None for proto in removed for ref in proto.input if ref.startswith("^")}
    node.input.extend(ref for ref in waited if ref not in node.input)
