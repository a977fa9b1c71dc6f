"""Which low-precision kernels TensorFlow has: a table, so that any machine decides alike.

The table `kernels.json` is written by `tools/make_kernel_table.py` from the GPU build of
TensorFlow; reading it needs no TensorFlow.
"""

from __future__ import annotations

import functools
import json
import pathlib
from collections.abc import Mapping
from typing import Final

from tf_amp_rewriter import dtypes

_PATH: Final = pathlib.Path(__file__).with_name("kernels.json")
_LETTERS: Final = {dtypes.HALF.name: "h", dtypes.BFLOAT16.name: "b"}
_FLOAT32: Final = "f"


def has_kernel(op: str, attr: str, low: dtypes.LowPrecision, device: str) -> bool:
    """Says whether `op` loses no kernel when its type attribute `attr` goes from float32 to `low`.

    1. `any`: there is a low kernel on each of CPU and GPU on which there is a float32 kernel, and
       there is one at all. An op that runs on CPU only needs no GPU kernel.
    2. `gpu`: there is a low kernel on GPU, or, where float32 has none there either, on CPU.
    3. `cpu`: there is a low kernel on CPU.

    Each attribute is looked up alone. Where an op has several (`BatchMatMulV3`: Ta, Tb, Tout) its
    kernels may exist for certain combinations only.

    Args:
        op: the op type; one that the table does not know has no kernel.
        attr: name of a type attribute or list(type) attribute of `op`.
        low: the low precision.
        device: `any`, `gpu` or `cpu`.
    """
    letters = _table()[1].get(op, {}).get(attr)
    if letters is None:
        return False
    letter = _LETTERS[low.name]
    cpu, _, gpu = letters.partition(" ")
    match device:
        # 1
        case "any":
            used = [here for here in (cpu, gpu) if _FLOAT32 in here]
            return bool(used) and all(letter in here for here in used)
        # 2
        case "gpu":
            return letter in (gpu if _FLOAT32 in gpu else cpu)
        # 3
        case _:
            return letter in cpu


def is_known(op: str) -> bool:
    """Says whether the table has `op`: it has a type attribute that some float32 kernel accepts."""
    return op in _table()[1]


def table() -> Mapping[str, Mapping[str, str]]:
    """Returns op -> type attribute -> letters; see `tools/make_kernel_table.py` for these."""
    return _table()[1]


def tensorflow_version() -> str:
    """Returns the version of TensorFlow that the table was made from."""
    return _table()[0]


@functools.cache
def _table() -> tuple[str, Mapping[str, Mapping[str, str]]]:
    content = json.loads(_PATH.read_text(encoding="utf-8"))
    return content["tensorflow"], content["ops"]
