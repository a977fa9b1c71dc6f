"""`Report`: what a run did, as data that the terminal, the JSON file and Python users read."""

from __future__ import annotations

import collections
import dataclasses
from typing import TYPE_CHECKING

from tf_amp_rewriter.reasons import Kind

if TYPE_CHECKING:
    from tensorflow.core.framework import graph_pb2

    from tf_amp_rewriter.report.trace import Trace


@dataclasses.dataclass(frozen=True, slots=True)
class TypeVariableReport:
    """The precision of one type variable, and why.

    Attributes:
        scope: name of the function; empty for the main graph.
        node: name of the node.
        op: its op type.
        attribute: name of the type attribute, with `[i]` for an entry of a list.
        precision: `float32`, `half` or `bfloat16`.
        kind: the kind of reason, one of `reasons.Kind`'s names.
        reason: the reason, in words.
        cause: the node that caused it (taint, for example); may be empty.
        source: where the rule of the op is from: a fact's source, the user's rules file, a flag;
            empty where no rule is about it.
    """

    scope: str
    node: str
    op: str
    attribute: str
    precision: str
    kind: str
    reason: str
    cause: str = ""
    source: str = ""


@dataclasses.dataclass(frozen=True)
class WeightReport:
    """What became of one variable or constant.

    Attributes:
        name: checkpoint key of a variable, or name of a Const node.
        scope: name of the function that a constant is in; empty for the main graph.
        precision: its precision now.
        bytes_before: its size in the input, bytes.
        bytes_after: its size now, bytes.
        reason: why it has this precision, in words.
    """

    name: str
    scope: str
    precision: str
    bytes_before: int
    bytes_after: int
    reason: str


@dataclasses.dataclass(frozen=True)
class Report:
    """What a run did.

    Attributes:
        source: the input directory or file; empty for a GraphDef in memory.
        destination: the output directory or file; empty for a GraphDef in memory.
        dtype: `half` or `bfloat16`.
        device: `any`, `gpu` or `cpu`.
        type_variables_low: number of float32 type variables that became low.
        type_variables_float32: number of those that stayed float32.
        contractions: number of nodes that gain the most (MatMul, Conv2D, Einsum ..) in float32.
        contractions_low: number of those that became low.
        casts: number of Casts inserted.
        weight_bytes_before: bytes of all float weights (variables and constants) in the input.
        weight_bytes_after: bytes of the same weights in the output.
        type_variables: every type variable with its precision and the reason.
        weights: every float32 variable, and every float32 constant of more than one value.
        warnings: sentences that the user should read.
        elapsed_s: wall time of the rewrite in seconds, without TensorFlow's import.
        graph_def: the rewritten graph, where a GraphDef was rewritten.
        trace: what `explain` looks at: the view of the model that was decided on, by reference.
    """

    source: str
    destination: str
    dtype: str
    device: str
    type_variables_low: int
    type_variables_float32: int
    contractions: int
    contractions_low: int
    casts: int
    weight_bytes_before: int
    weight_bytes_after: int
    type_variables: tuple[TypeVariableReport, ...]
    weights: tuple[WeightReport, ...]
    warnings: tuple[str, ...] = ()
    elapsed_s: float = 0.0
    graph_def: graph_pb2.GraphDef | None = None
    trace: Trace | None = dataclasses.field(default=None, repr=False, compare=False)

    @property
    def lowered_nothing(self) -> bool:
        """Whether no type variable became low."""
        return self.type_variables_low == 0

    @property
    def ops_without_kernel(self) -> dict[str, int]:
        """Number of nodes by op type that stayed float32 for lack of a kernel, most first."""
        nodes = {
            (entry.scope, entry.node): entry.op
            for entry in self.type_variables
            if entry.kind == Kind.NO_KERNEL.name
        }
        counted = sorted(collections.Counter(nodes.values()).items())
        return dict(sorted(counted, key=lambda item: -item[1]))
