"""Prints what the installed TensorFlow has that the tables do not know, and the reverse.

    tools/new_ops, or python -m tools.new_ops in an environment with another TensorFlow

Three lists: ops with a type attribute that may be float32 and that no table decides; rows whose op
this TensorFlow does not have; and where its kernels differ from `ops/kernels.json`, as far as its
registry tells: those for GPUs only in the GPU build. The exit code is 1 if a list is not empty.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import tensorflow as tf
from tensorflow.core.framework import op_def_pb2
from tensorflow.python.client import pywrap_tf_session

from tf_amp_rewriter.ops import calls, categories, custom, keep, kernels, meanings
from tf_amp_rewriter.ops.rows import Category, OpRow
from tools import make_kernel_table

_FLOAT32: Final = 1
_LOWERING: Final = (Category.ALLOW, Category.INFER, Category.CLEAR)
Table = Mapping[str, Mapping[str, str]]  # op -> attribute -> letters on CPU, " ", letters on GPU


def main() -> int:
    """Prints the lists."""
    ops = definitions()
    own = {*meanings.BY_MEANING, *calls.CALLS}
    has_gpu = make_kernel_table.has_gpu_kernels()
    stored = kernels.table()
    of_tensorflow = [row for row in categories.ROWS if row not in custom.ROWS]
    parts = {
        "ops and type attributes that no table decides": undecided(ops, categories.ROWS, own),
        "rows whose op this TensorFlow does not have": gone(ops, of_tensorflow),
        "kernels that differ from ops/kernels.json": kernel_changes(
            make_kernel_table.table(), stored, has_gpu
        ),
    }
    print(f"TensorFlow {tf.__version__}; the tables are of {kernels.tensorflow_version()}")
    if not has_gpu:
        print("this build has no GPU kernels: only those for the CPU are compared")
    for heading, lines in parts.items():
        found = list(lines)
        print(f"\n{heading}: {len(found) or 'none'}")
        for line in found:
            print(f"  {line}")
        parts[heading] = found
    return int(any(parts.values()))


def definitions() -> Sequence[op_def_pb2.OpDef]:
    """Returns the definitions of all ops that this TensorFlow has registered, by name."""
    found = op_def_pb2.OpList()
    buffer = pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList())
    found.ParseFromString(buffer)
    return sorted(found.op, key=lambda op: op.name)


def float_attributes(op: op_def_pb2.OpDef) -> list[str]:
    """Returns the names of the type (or list(type)) attributes of `op` that may be float32."""
    return [
        attr.name
        for attr in op.attr
        if attr.type in ("type", "list(type)")
        and (not attr.allowed_values.list.type or _FLOAT32 in attr.allowed_values.list.type)
    ]


def undecided(
    ops: Iterable[op_def_pb2.OpDef], rows: Iterable[OpRow], own: Collection[str]
) -> Iterator[str]:
    """Yields what no row decides.

    Args:
        ops: the definitions.
        rows: the rows of the tables.
        own: the ops that need no row.
    """
    by_op: dict[str, list[OpRow]] = {}
    for row in rows:
        by_op.setdefault(row.op, []).append(row)
    for op in ops:
        attributes = float_attributes(op)
        found = by_op.get(op.name, [])
        if attributes and not found and op.name not in own:
            yield f"{op.name}: {', '.join(attributes)}"
        # a row that makes an op low must say which of several attributes it means
        vague = any(row.category in _LOWERING and not row.attrs for row in found)
        if vague and len(attributes) > 1:
            yield f"{op.name}: which of {', '.join(attributes)} may be low"


def gone(ops: Iterable[op_def_pb2.OpDef], rows: Iterable[OpRow]) -> Iterator[str]:
    """Yields the ops of rows that are not registered, but for those that their rows say so of."""
    names = {op.name for op in ops}
    known = {row.op for row in rows if row.note != keep._GONE}
    yield from sorted(known - names)


def kernel_changes(live: Table, stored: Table, has_gpu: bool) -> Iterator[str]:
    """Yields where the kernels of this TensorFlow differ from the stored table.

    Args:
        live: the table of this TensorFlow.
        stored: the one of the package.
        has_gpu: whether `live` knows the kernels for GPUs.
    """
    for op in sorted({*live, *stored}):
        before, after = stored.get(op, {}), live.get(op, {})
        for attr in sorted({*before, *after}):
            if attr not in after and not has_gpu and "f" not in before[attr].partition(" ")[0]:
                continue  # float32 has a GPU kernel alone
            then, now = before.get(attr, " ").partition(" "), after.get(attr, " ").partition(" ")
            devices = {"CPU": 0, "GPU": 2} if has_gpu else {"CPU": 0}
            for device, part in devices.items():
                if then[part] != now[part]:
                    changed = f"{then[part] or 'none'} -> {now[part] or 'none'}"
                    yield f"{op}, {attr}, on {device}: {changed}"


if __name__ == "__main__":
    sys.exit(main())
