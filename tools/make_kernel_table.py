"""Writes `tf_amp_rewriter/ops/kernels.json`: which kernels TensorFlow has for which dtypes.

Run it in an environment that holds the GPU build of TensorFlow: that registers its GPU kernels even
on a machine without a GPU, the CPU build does not.

    python tools/make_kernel_table.py [FILE]

The table has one entry for each op with a type attribute (or list(type) attribute) that may be
DT_FLOAT, and in it one string for each such attribute: the dtypes that the op's definition and some
kernel accept there, first on CPU, then on GPU, as letters: `f` float32, `h` half, `b` bfloat16.
`"fhb fh"` says: all three on CPU, no bfloat16 on GPU. Ops without any float32 kernel are left out.
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import tensorflow as tf
from tensorflow.core.framework import kernel_def_pb2, op_def_pb2
from tensorflow.python.framework import kernels, op_def_registry

LETTERS: Final = {"f": 1, "h": 19, "b": 14}  # letter -> number of the dtype
DEVICES: Final = ("CPU", "GPU")
EVERY_DEVICE: Final = "DEFAULT"  # a kernel registered for it runs on any device
DEFAULT_PATH: Final = (
    pathlib.Path(__file__).parent.parent / "tf_amp_rewriter" / "ops" / "kernels.json"
)


def main(arguments: Sequence[str]) -> int:
    """Writes the table to the first argument, or to where the package reads it."""
    path = pathlib.Path(arguments[0]) if arguments else DEFAULT_PATH
    if not has_gpu_kernels():
        print("this TensorFlow has no GPU kernels: install its GPU build", file=sys.stderr)
        return 1
    path.write_text(table_text(), encoding="utf-8")
    print(f"wrote {path}")
    return 0


def table_text() -> str:
    """Returns the table as JSON, sorted, one op a line."""
    ops = [
        f"  {json.dumps(op)}: {json.dumps(attrs, sort_keys=True)}"
        for op, attrs in sorted(table().items())
    ]
    joined = ",\n".join(ops)
    return f'{{\n"tensorflow": {json.dumps(tf.__version__)},\n"ops": {{\n{joined}\n}}\n}}\n'


def table() -> dict[str, dict[str, str]]:
    """Returns `{op: {attribute: letters on CPU + " " + letters on GPU}}` of this TensorFlow."""
    rows = {}
    for op, registered in _registered().items():
        definition = op_def_registry.get(op)  # type: ignore[no-untyped-call]
        attrs = _attributes(definition, registered) if definition is not None else {}
        if attrs:
            rows[op] = attrs
    return rows


def _attributes(
    definition: op_def_pb2.OpDef, registered: Sequence[kernel_def_pb2.KernelDef]
) -> dict[str, str]:
    attrs = {}
    for attr in definition.attr:
        if attr.type not in ("type", "list(type)"):
            continue
        allowed = set(attr.allowed_values.list.type)
        letters = [
            "".join(
                letter
                for letter, dtype in LETTERS.items()
                if (not allowed or dtype in allowed)
                and any(_accepts(kernel, attr.name, device, dtype) for kernel in registered)
            )
            for device in DEVICES
        ]
        if any("f" in letter for letter in letters):
            attrs[attr.name] = " ".join(letters)
    return attrs


def _accepts(kernel: kernel_def_pb2.KernelDef, attr: str, device: str, dtype: int) -> bool:
    if kernel.device_type not in (device, EVERY_DEVICE):
        return False
    return all(
        dtype in constraint.allowed_values.list.type
        for constraint in kernel.constraint
        if constraint.name == attr
    )


def _registered() -> Mapping[str, Sequence[kernel_def_pb2.KernelDef]]:
    """Returns the kernels of each op; a kernel with a label runs only where a node asks for it."""
    registered = defaultdict(list)
    for kernel in kernels.get_all_registered_kernels().kernel:  # type: ignore[no-untyped-call]
        if not kernel.label:
            registered[kernel.op].append(kernel)
    return registered


def has_gpu_kernels() -> bool:
    """Returns whether this is the GPU build, which knows its GPU kernels on any machine."""
    return any(kernel.device_type == "GPU" for kernel in _registered().get("MatMul", ()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
