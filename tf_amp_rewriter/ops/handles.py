"""Ops on variables: what makes, reads, writes and saves them; and ops that only pass a value on.

Source of all rows: the op definitions of TensorFlow 2.21 (resource_variable_ops.cc, state_ops.cc,
io_ops.cc).
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Final


class Access(enum.Enum):
    """What an op does with a variable.

    READ: gives its value, or rows of it.
    ASSIGN: replaces its value; harmless in initializers and restore functions.
    LOOK: asks for its state, not for its value.
    """

    READ = "READ"
    ASSIGN = "ASSIGN"
    LOOK = "LOOK"


@dataclasses.dataclass(frozen=True, slots=True)
class AccessRow:
    """One op that accesses a variable through its first input.

    Attributes:
        op: the op type.
        access: what it does.
        dtype: attribute that repeats the variable's dtype; empty if there is none.
    """

    op: str
    access: Access
    dtype: str


_RESOURCE_ROWS: Final = (
    AccessRow("AssignVariableOp", Access.ASSIGN, "dtype"),
    AccessRow("DestroyResourceOp", Access.LOOK, ""),
    AccessRow("DisableCopyOnRead", Access.LOOK, ""),
    AccessRow("ReadVariableOp", Access.READ, "dtype"),
    AccessRow("ResourceGather", Access.READ, "dtype"),
    AccessRow("ResourceGatherNd", Access.READ, "dtype"),
    AccessRow("VarIsInitializedOp", Access.LOOK, ""),
    AccessRow("VariableShape", Access.LOOK, ""),
)
_REF_ROWS: Final = (
    AccessRow("Assign", Access.ASSIGN, "T"),
    AccessRow("IsVariableInitialized", Access.LOOK, "dtype"),
)
RESOURCE_ACCESS: Final[Mapping[str, AccessRow]] = {row.op: row for row in _RESOURCE_ROWS}
REF_ACCESS: Final[Mapping[str, AccessRow]] = {row.op: row for row in _REF_ROWS}

RESOURCE_VARIABLE: Final = "VarHandleOp"
REF_VARIABLES: Final = frozenset({"Variable", "VariableV2"})
# Weights leave the model and come back through these.
SAVE: Final = "SaveV2"
RESTORE: Final = "RestoreV2"
RESTORE_NAMES_INPUT: Final = 1
RESTORE_SLICES_INPUT: Final = 2

CONSTANT: Final = "Const"
CAST: Final = "Cast"
IDENTITY: Final = "Identity"
# Output i is input i, whatever the type: also the way of a handle through a graph.
FORWARDERS: Final = frozenset({"Enter", "Exit", "Identity", "IdentityN", "NextIteration"})
# Every output is the first input; every input may become the first output.
SWITCHES: Final = frozenset({"RefSwitch", "Switch"})
MERGES: Final = frozenset({"Merge", "RefMerge"})
# Loops of control flow v1 are entered here, go back to their Merge here, and are left here.
ENTER: Final = "Enter"
BACK_EDGES: Final = frozenset({"NextIteration", "RefNextIteration"})
LOOP_CONDITION: Final = "LoopCond"
EXITS: Final = frozenset({"Exit", "RefExit"})
# What gives the values of a hash table, and what fills it: index of the input with the values.
TABLE_LOOKUPS: Final = frozenset({"LookupTableFind", "LookupTableFindV2"})
TABLE_FILLERS: Final[Mapping[str, int]] = {
    "InitializeTable": 2,
    "InitializeTableV2": 2,
    "LookupTableImport": 2,
    "LookupTableImportV2": 2,
}
# Fed or fetched by name: their dtypes are part of the contract with the outside.
PLACEHOLDERS: Final = frozenset({"Placeholder", "PlaceholderV2", "PlaceholderWithDefault"})
# They read the shape of a float tensor, not its values.
SHAPE_READERS: Final = frozenset({"Rank", "Shape", "ShapeN", "Size"})
# Rows of a table, or sums of rows: the table is a weight, the result is an activation.
TABLE_READERS: Final = frozenset(
    {
        "Gather",
        "GatherNd",
        "GatherV2",
        "ResourceGather",
        "ResourceGatherNd",
        "SparseSegmentMean",
        "SparseSegmentMeanWithNumSegments",
        "SparseSegmentSqrtN",
        "SparseSegmentSqrtNWithNumSegments",
        "SparseSegmentSum",
        "SparseSegmentSumWithNumSegments",
    }
)
