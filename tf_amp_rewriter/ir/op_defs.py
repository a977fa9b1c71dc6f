"""Op definitions that TensorFlow itself has registered."""

from __future__ import annotations

from typing import Final, cast

from tensorflow.core.framework import op_def_pb2
from tensorflow.python.framework import op_def_registry

_found: Final[dict[str, op_def_pb2.OpDef]] = {}


def registered(op: str) -> op_def_pb2.OpDef | None:
    """Returns the definition of `op`, or None if TensorFlow does not know it."""
    if op in _found:
        return _found[op]
    op_def = op_def_registry.get(op)  # type: ignore[no-untyped-call]
    if op_def is not None:  # else it may be loaded later
        _found[op] = op_def
    return cast("op_def_pb2.OpDef | None", op_def)
