"""On which device a node runs, as far as the model itself says so."""

from __future__ import annotations

import re
from typing import Final

CPU: Final = "cpu"
# One part of a device's name, in full (`/device:CPU:0`) or in the old short form (`/cpu:0`).
_CPU_PART: Final = re.compile(r"(?:^|/)(?:device:)?cpu(?::(?:\d+|\*)?)?(?=/|$)", re.IGNORECASE)


def effective_device(requested: str, pinned: str) -> str:
    """Returns the device whose rows, kernels and conditions hold for a node.

    A node that the model pins to a CPU runs there wherever the rest does, so it is judged by the
    CPU's facts. Any other pin changes nothing: whether there is a GPU at all is for `--device` to
    say. The node's own field alone counts: a pin of the node that calls a function is not handed
    on to the nodes of that function, which other nodes may call elsewhere.

    Args:
        requested: the `--device` asked for: `any`, `gpu` or `cpu`.
        pinned: the `device` field of the node; may be empty.
    """
    return CPU if pinned and _CPU_PART.search(pinned) else requested
