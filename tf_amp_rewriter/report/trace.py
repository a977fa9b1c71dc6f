"""What was decided and what for, kept by reference: what reports and explanations are made from."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ir.flow import Flow
from tf_amp_rewriter.options import Options
from tf_amp_rewriter.reasons import NO_CAUSE, Decision, Decisions, Kind
from tf_amp_rewriter.report import words
from tf_amp_rewriter.rules.rule import Rule


@dataclasses.dataclass(frozen=True)
class Trace:
    """The program that was decided on; classes are numbers, as in `Flow`.

    Attributes:
        flow: the program graph.
        rules: the rule of each class.
        decisions: the decision of each class.
        options: what was asked for.
    """

    flow: Flow
    rules: Sequence[Rule]
    decisions: Decisions
    options: Options

    def precision(self, number: int) -> str:
        """Returns `float32`, `half` or `bfloat16`."""
        return self.options.dtype if self.decisions[number].low else "float32"

    def sentence(self, decision: Decision, *, named: bool = True) -> str:
        """Returns the reason for a decision in words; with the node that caused it if `named`."""
        cause = decision.cause
        is_users = cause != NO_CAUSE and self.decisions[cause].kind is Kind.USER
        detail = words.OF_A_DENIED_OP if is_users else decision.detail
        return words.sentence(decision.kind, detail, self.cause(decision) if named else "")

    def cause(self, decision: Decision) -> str:
        """Returns the name of the node that caused a decision; empty if none did."""
        if decision.cause == NO_CAUSE:
            return ""
        return self.path(self.flow.members[decision.cause][0])

    def path(self, var: int) -> str:
        """Returns the name of a type variable's node, behind that of its function."""
        program = self.flow.program
        scope, node = program.scopes[program.type_vars[var].scope].name, program.node_of(var).name
        return f"{scope}/{node}" if scope else node


def attribute(place: ir.TypeVar) -> str:
    """Returns the name of a type attribute, with `[i]` for an entry of a list."""
    return place.attr if place.index < 0 else f"{place.attr}[{place.index}]"
