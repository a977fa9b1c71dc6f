"""Ops without a row: what the pass does with them follows from what they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_CAST: Final = "only Casts that lose nothing are merged; others of the model's stay"
_CONSTANT: Final = "a weight: low where low precision ops read it, if its values fit"
_FED: Final = "fed from outside, which keeps its dtype"
_FILES: Final = "follows the variables that it saves or restores"
_VARIABLE: Final = "follows its variable, which is low where low precision ops read it"

# Ops that call functions (`calls.CALLS`) have no row either: values flow through them.
BY_MEANING: Final[Mapping[str, str]] = {
    "Cast": _CAST,
    "Const": _CONSTANT,
    "IsVariableInitialized": _VARIABLE,
    "Placeholder": _FED,
    "PlaceholderV2": _FED,
    "ReadVariableOp": _VARIABLE,
    "RemoteCall": "calls a function on another device: what it takes and gives stays float32",
    "Restore": _FILES,
    "RestoreSlice": _FILES,
    "RestoreV2": _FILES,
    "Save": _FILES,
    "SaveSlices": _FILES,
    "SaveV2": _FILES,
    "VarHandleOp": _VARIABLE,
    "Variable": _VARIABLE,
    "VariableV2": _VARIABLE,
    "_Arg": "an argument of a function: as what flows through it",
    "_Retval": "a result of a function: as what flows through it",
}
