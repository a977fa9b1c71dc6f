"""Op definitions that TensorFlow itself has registered."""

from __future__ import annotations

from typing import cast

from tensorflow.core.framework import op_def_pb2
from tensorflow.python.framework import op_def_registry


def registered(op: str) -> op_def_pb2.OpDef | None:
    """Returns the definition of `op`, or None if TensorFlow does not know it."""
    return cast("op_def_pb2.OpDef | None", op_def_registry.get(op))  # type: ignore[no-untyped-call]
