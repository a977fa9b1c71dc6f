"""Op definitions that TensorFlow itself has registered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from tensorflow.core.framework import op_def_pb2
from tensorflow.python.framework import op_def_registry

from tf_amp_rewriter.dtypes import LowPrecision

_found: Final[dict[str, op_def_pb2.OpDef]] = {}


def registered(op: str) -> op_def_pb2.OpDef | None:
    """Returns the definition of `op`, or None if TensorFlow does not know it."""
    if op in _found:
        return _found[op]
    op_def = op_def_registry.get(op)  # type: ignore[no-untyped-call]
    if op_def is not None:  # else it may be loaded later
        _found[op] = op_def
    return cast("op_def_pb2.OpDef | None", op_def)


def forbids(op: str, attr: str, low: LowPrecision, own: Mapping[str, op_def_pb2.OpDef]) -> str:
    """Returns why the definition of `op` does not let a type attribute be `low`, or "".

    Args:
        op: the op type.
        attr: name of a type attribute or list(type) attribute.
        low: the low precision.
        own: definitions that the model carries, for ops that TensorFlow does not know.
    """
    op_def = registered(op) or own.get(op)
    if op_def is None:
        return f"nobody knows op `{op}`"
    allowed = next((a.allowed_values.list.type for a in op_def.attr if a.name == attr), ())
    if not allowed or low.proto in allowed:
        return ""
    return f"the definition of op `{op}` does not allow {low.name} for attribute `{attr}`"
