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
    """

    CALL = "CALL"
    LOOP = "LOOP"


@dataclasses.dataclass(frozen=True, slots=True)
class CallRow:
    """One op that calls functions.

    Attributes:
        op: the op type.
        functions: attributes that name one function each.
        function_list: attribute that names a list of functions; may be empty.
        first_input: index of the first data input that becomes an argument.
        input_types: attribute with the types of the arguments.
        output_types: attribute with the types of the results.
        tie: see `Tie`.
        predicates: those of `functions` that give only a predicate, not the node's results.
    """

    op: str
    functions: tuple[str, ...]
    function_list: str
    first_input: int
    input_types: str
    output_types: str
    tie: Tie
    predicates: tuple[str, ...] = ()


_ROWS: Final = (
    CallRow("Case", (), "branches", 1, "Tin", "Tout", Tie.CALL),
    CallRow("If", ("then_branch", "else_branch"), "", 1, "Tin", "Tout", Tie.CALL),
    CallRow("PartitionedCall", ("f",), "", 0, "Tin", "Tout", Tie.CALL),
    CallRow("StatefulPartitionedCall", ("f",), "", 0, "Tin", "Tout", Tie.CALL),
    CallRow("StatelessCase", (), "branches", 1, "Tin", "Tout", Tie.CALL),
    CallRow("StatelessIf", ("then_branch", "else_branch"), "", 1, "Tin", "Tout", Tie.CALL),
    CallRow("StatelessWhile", ("cond", "body"), "", 0, "T", "T", Tie.LOOP, ("cond",)),
    CallRow("While", ("cond", "body"), "", 0, "T", "T", Tie.LOOP, ("cond",)),
)
CALLS: Final[Mapping[str, CallRow]] = {row.op: row for row in _ROWS}

# What a call that we make is: one of a function without effects, and one of any function.
CALL: Final = "PartitionedCall"
STATEFUL_CALL: Final = "StatefulPartitionedCall"
# Attributes that say how any call of the same function runs. The others, such as `_output_shapes`,
# `_class` and `_gradient_op_type`, are facts about one place where it is called.
CALL_SETTINGS: Final = (
    "_XlaMustCompile",
    "_collective_manager_ids",
    "_disable_call_shape_inference",
    "_read_only_resource_inputs",
    "config",
    "config_proto",
    "executor_type",
)
