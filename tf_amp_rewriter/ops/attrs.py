"""Attributes of nodes, read without changing them.

Asking a proto's map for an attribute that it lacks adds an empty one, and so would change the model
that is only to be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensorflow.core.framework import attr_value_pb2, node_def_pb2


def attr_of(node: node_def_pb2.NodeDef, name: str) -> attr_value_pb2.AttrValue:
    """Returns an attribute of `node`; an empty value if it has none of that name."""
    if name in node.attr:
        return node.attr[name]
    from tensorflow.core.framework import attr_value_pb2

    return attr_value_pb2.AttrValue()
