"""Ops that call functions: which attributes name them, which inputs and types belong to them.

Source of all rows: the op definitions of TensorFlow 2.21.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Final


class Tie(enum.Enum):
    """How a call ties the types of its functions to its own.

    CALL: arguments and results agree with the node's inputs and outputs; likewise for all branches.
    LOOP: value i has one type as input, argument and result of both functions, and output.
    FOREIGN: as CALL, but the op works on the values itself (it cuts or joins batches), so all but
        captured inputs keep their type.
    """

    CALL = "CALL"
    LOOP = "LOOP"
    FOREIGN = "FOREIGN"


@dataclasses.dataclass(frozen=True, slots=True)
class CallRow:
    """One op that calls functions.

    Attributes:
        op: the op type.
        functions: attributes that name one function each.
        function_list: attribute that names a list of functions; may be empty.
        first_input: index of the first data input that becomes an argument.
        input_types: attributes with the types of the arguments, one after the other.
        output_types: attribute with the types of the results.
        tie: see `Tie`.
        predicates: those of `functions` that give only a predicate, not the node's results.
        captured: those of `input_types` that a FOREIGN call only hands on.
    """

    op: str
    functions: tuple[str, ...]
    function_list: str
    first_input: int
    input_types: tuple[str, ...]
    output_types: str
    tie: Tie
    predicates: tuple[str, ...] = ()
    captured: tuple[str, ...] = ()


_ROWS: Final = (
    CallRow(
        "BatchFunction",
        ("f",),
        "",
        0,
        ("Tin", "Tcaptured"),
        "Tout",
        Tie.FOREIGN,
        captured=("Tcaptured",),
    ),
    CallRow("Case", (), "branches", 1, ("Tin",), "Tout", Tie.CALL),
    CallRow("If", ("then_branch", "else_branch"), "", 1, ("Tin",), "Tout", Tie.CALL),
    CallRow(
        "MapDefun",
        ("f",),
        "",
        0,
        ("Targuments", "Tcaptured"),
        "output_types",
        Tie.FOREIGN,
        captured=("Tcaptured",),
    ),
    CallRow("PartitionedCall", ("f",), "", 0, ("Tin",), "Tout", Tie.CALL),
    CallRow("StatefulPartitionedCall", ("f",), "", 0, ("Tin",), "Tout", Tie.CALL),
    CallRow("StatelessCase", (), "branches", 1, ("Tin",), "Tout", Tie.CALL),
    CallRow("StatelessIf", ("then_branch", "else_branch"), "", 1, ("Tin",), "Tout", Tie.CALL),
    CallRow("StatelessWhile", ("cond", "body"), "", 0, ("T",), "T", Tie.LOOP, ("cond",)),
    CallRow("While", ("cond", "body"), "", 0, ("T",), "T", Tie.LOOP, ("cond",)),
)
CALLS: Final[Mapping[str, CallRow]] = {row.op: row for row in _ROWS}
