"""Grappler's environment variables for its op lists, read from a mapping into data.

Source: tensorflow/core/grappler/optimizers/auto_mixed_precision_lists.h, TensorFlow 2.21.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final

PREFIX: Final = "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_"
# Grappler reads the present spelling first, then the old one.
_LISTS: Final = {
    "ALLOWLIST": "allow",
    "WHITELIST": "allow",
    "INFERLIST": "infer",
    "GRAYLIST": "infer",
    "DENYLIST": "deny",
    "BLACKLIST": "deny",
    "CLEARLIST": "clear",
}
# These say where it writes its log, on what machine it runs and how it emulates one: nothing of the
# precision of an op.
_WITHOUT_MEANING_HERE: Final = ("LOG_PATH", "IGNORE_PERFORMANCE", "SIMULATE_GPU", "EMULATE_FP16")


@dataclasses.dataclass(frozen=True)
class ListEdit:
    """What one variable does to one list.

    Attributes:
        variable: its name.
        category: `allow`, `infer`, `clear` or `deny`.
        adds: whether it adds to the list; else it removes from it.
        ops: the op types.
    """

    variable: str
    category: str
    adds: bool
    ops: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class GrapplerLists:
    """What the variables say.

    Attributes:
        edits: the changes, in grappler's order.
        ignored: variable -> value of those that are set but mean nothing to this program, though
            they would change what grappler does, or are misspelt.
    """

    edits: tuple[ListEdit, ...] = ()
    ignored: tuple[tuple[str, str], ...] = ()


def grappler_lists(environ: Mapping[str, str]) -> GrapplerLists:
    """Returns what grappler's variables in `environ` (such as `os.environ`) say."""
    edits = []
    known = {PREFIX + name for name in _WITHOUT_MEANING_HERE}
    for name, category in _LISTS.items():
        for suffix in ("ADD", "REMOVE"):
            variable = f"{PREFIX}{name}_{suffix}"
            known.add(variable)
            words = (word.strip() for word in environ.get(variable, "").split(","))
            ops = tuple(word for word in words if word)
            if ops:
                edits.append(ListEdit(variable, category, suffix == "ADD", ops))
    ignored = sorted(
        (variable, value)
        for variable, value in environ.items()
        if variable.startswith(PREFIX) and variable not in known and value
    )
    return GrapplerLists(tuple(edits), tuple(ignored))
