"""Edits one scope: dtype attributes, Casts, constants; Einsums that the CPU can't do well.

Before (MatMul and its weight low, x and the output not):

    x: f32[8,8] = Placeholder
    w: f32[8,8] = Const(0.5)
    m           = MatMul(x, w)
    out         = Identity(m)

After:

    x: f32[8,8] = Placeholder
    x/Cast_half = Cast(x, DstT=f16)
    w: f16[8,8] = Const(0.5)
    m           = MatMul(x/Cast_half, w)
    m/Cast_float32 = Cast(m, DstT=f32)
    out         = Identity(m/Cast_float32)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from tensorflow.core.framework import graph_pb2, node_def_pb2

from tf_amp_rewriter.dtypes import DT_FLOAT, LowPrecision
from tf_amp_rewriter.ir import constants, shapes
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ops import conditions, devices, handles
from tf_amp_rewriter.ops import einsum as equations
from tf_amp_rewriter.ops.attrs import attr_of
from tf_amp_rewriter.reasons import Decision
from tf_amp_rewriter.rewrite import einsum, names

IsLow = Callable[[int], bool]  # by type variable
DecisionOf = Callable[[int], Decision]


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """What the edit of one scope did.

    Attributes:
        casts: number of Casts inserted.
        converted: indexes of constants that are now low.
        copied: indexes of constants that now exist in both precisions.
    """

    casts: int
    converted: tuple[int, ...]
    copied: tuple[int, ...]


def edit(
    scope: ir.Scope,
    graph: graph_pb2.GraphDef,
    is_low: IsLow,
    is_pinned: IsLow,
    is_shared: IsLow,
    decision: DecisionOf,
    low: LowPrecision,
    device: str,
) -> Result:
    """Edits the protos of `scope` in `graph`, in place.

    Args:
        scope: the view of the scope before the edit.
        graph: a copy of the graph that the view was made from.
        is_low: whether a type variable becomes low.
        is_pinned: whether outsiders read a constant's type variable as float32.
        is_shared: whether a constant's type variable must equal others, so that it exists once.
        decision: what was decided for a type variable.
        low: the low precision.
        device: where it will run: `any`, `gpu` or `cpu`.
    """
    editor = _ScopeEditor(scope, graph, is_low, is_pinned, is_shared, decision, low, device)
    editor.set_dtypes()
    editor.place_constants()
    editor.connect()
    editor.write_einsums_out()
    return Result(len(editor.casts), tuple(sorted(editor.converted)), tuple(editor.copies))


class _ScopeEditor:
    """The state of one edit; lives only as long as `edit`."""

    def __init__(
        self,
        scope: ir.Scope,
        graph: graph_pb2.GraphDef,
        is_low: IsLow,
        is_pinned: IsLow,
        is_shared: IsLow,
        decision: DecisionOf,
        low: LowPrecision,
        device: str,
    ) -> None:
        self.scope = scope
        self.function = scope.function_in(graph) if scope.function >= 0 else None
        self.protos = scope.protos_in(graph)
        self.is_low = is_low
        self.is_pinned = is_pinned
        self.is_shared = is_shared
        self.decision = decision
        self.low = low
        self.device = device
        self.taken = {node.name for node in scope.nodes}
        self.texts = {
            place: ref
            for node in scope.nodes
            for place, ref in zip(node.inputs, node.refs, strict=True)
        }
        self.casts: dict[tuple[int, int, bool], str] = {}
        self.enters: dict[int, str] = {}  # loop invariant -> reference to its second Enter
        self.converted: set[int] = set()
        self.copies: dict[int, str] = {}  # constant -> reference to its low copy
        # Nodes of another op now -> what functions call its output: user's Casts that became
        # Identity, Einsums that are written out.
        self.output_args: dict[int, str] = {}
        self.expansions: dict[int, tuple[equations.Plan, Mapping[str, int]]] = {}

    def proto(self, index: int) -> node_def_pb2.NodeDef:
        return self.protos[index - self.scope.num_args]

    def set_dtypes(self) -> None:
        for index, node in enumerate(self.scope.nodes):
            if node.op == handles.CONSTANT:
                continue
            if node.proto is None:
                self.set_signature(index, node)
                continue
            for attr, position in self.low_attrs(node):
                value = self.proto(index).attr[attr]
                if position < 0:
                    value.type = self.low.proto
                else:
                    value.list.type[position] = self.low.proto
            if node.op == handles.CAST:
                self.drop_if_idle(index)
            if node.op == equations.EINSUM and self.low_attrs(node):
                self.plan_einsum(index, node)

    def low_attrs(self, node: ir.Node) -> list[tuple[str, int]]:
        return [(a, i) for a, i, var in node.attr_vars if a != ir.FIXED and self.is_low(var)]

    def set_signature(self, index: int, node: ir.Node) -> None:
        assert self.function is not None
        var = (node.out_vars or node.in_vars)[0]
        if var == ir.NO_VAR or not self.is_low(var):
            return
        signature = self.function.signature
        if node.op == ir.ARG:
            signature.input_arg[index].type = self.low.proto
        else:
            signature.output_arg[index - self.scope.results.start].type = self.low.proto

    def drop_if_idle(self, index: int) -> None:
        """Turns a user's Cast that no longer changes the dtype into an Identity."""
        proto = self.proto(index)
        before = self.scope.nodes[index].proto
        assert before is not None
        was_idle = attr_of(before, "SrcT").type == attr_of(before, "DstT").type
        if proto.attr["SrcT"].type == proto.attr["DstT"].type and not was_idle:
            proto.op = handles.IDENTITY
            proto.attr["T"].type = proto.attr["DstT"].type
            for attr in ("SrcT", "DstT", "Truncate"):
                if attr in proto.attr:
                    del proto.attr[attr]
            self.output_args[index] = "output"

    def plan_einsum(self, index: int, node: ir.Node) -> None:
        """Notes an Einsum that must be written out; its readers must know before they connect."""
        assert node.proto is not None
        device = devices.effective_device(self.device, node.proto.device)
        facts = conditions.NodeFacts(
            node.proto, self.low, device, shapes.input_shapes(self.scope, node)
        )
        equation = attr_of(node.proto, "equation").s.decode()
        plan = equations.plan(equation)
        if plan is not None and conditions.needs_expansion(facts):
            sizes = equations.known_sizes(equation, facts.input_shapes)
            self.expansions[index] = (plan, sizes)
            self.output_args[index] = equations.OUTPUT_ARGS[plan.last_op]

    def write_einsums_out(self) -> None:
        if not self.expansions:
            return
        has_loops = any(node.op == handles.ENTER for node in self.scope.nodes)
        for index, (plan, sizes) in self.expansions.items():
            source = self.scope.nodes[self.scope.nodes[index].inputs[0][0]]
            place = einsum.Place(
                self.protos,
                self.taken,
                self.function is not None,
                source.name if has_loops and source.op != ir.ARG else "",
            )
            einsum.expand(self.proto(index), plan, sizes, self.low, place)

    def place_constants(self) -> None:
        """Converts constants where only low is needed, copies them where both are."""
        needs: dict[int, set[bool]] = {}
        for node in self.scope.nodes:
            for (producer, _), var in zip(node.inputs, node.in_vars, strict=True):
                if var != ir.NO_VAR and self.scope.nodes[producer].op == handles.CONSTANT:
                    needs.setdefault(producer, set()).add(self.is_low(var))
        for index, wanted in sorted(needs.items()):
            var = self.scope.nodes[index].out_vars[0]
            if self.decision(var).in_place:
                tensor = self.proto(index).attr["value"].tensor
                constants.clamp(tensor, self.decision(var).limit)
            if True not in wanted or not self.is_low(var):
                continue
            if not self.is_shared(var) and (False in wanted or self.is_pinned(var)):
                self.copy_constant(index)
            else:
                self.convert_constant(self.proto(index), var)
                self.converted.add(index)

    def convert_constant(self, proto: node_def_pb2.NodeDef, var: int) -> None:
        limit = self.decision(var).limit
        tensor = constants.converted(proto.attr["value"].tensor, self.low, limit)
        proto.attr["value"].tensor.CopyFrom(tensor)
        proto.attr["dtype"].type = self.low.proto

    def copy_constant(self, index: int) -> None:
        name = names.unique(f"{self.scope.nodes[index].name}/{self.low.name}", self.taken)
        copy = self.protos.add()
        copy.CopyFrom(self.proto(index))
        copy.name = name
        self.convert_constant(copy, self.scope.nodes[index].out_vars[0])
        self.copies[index] = name if self.function is None else f"{name}:output:0"

    def connect(self) -> None:
        """Points every input at its tensor in the right precision."""
        for index, node in enumerate(self.scope.nodes):
            for position, (producer, port) in enumerate(node.inputs):
                ref = self.reference(node.in_vars[position], producer, port)
                if ref:
                    self.set_input(index, node, position, ref)

    def set_input(self, index: int, node: ir.Node, position: int, ref: str) -> None:
        if node.op == ir.RETVAL:
            assert self.function is not None
            self.function.ret[node.name] = ref
        else:
            self.proto(index).input[position] = ref

    def reference(self, reader: int, producer: int, port: int) -> str:
        """Returns the new text of an input; empty if it stays as it is."""
        if reader == ir.NO_VAR:
            return self.renamed_output(producer)
        return self.tensor(producer, port, self.is_low(reader))

    def tensor(self, producer: int, port: int, wants_low: bool) -> str:
        """Returns a reference to a float tensor in a precision; empty if its text stays."""
        source = self.scope.nodes[producer]
        port_var = source.out_vars[port if source.known else 0]
        if producer in self.copies:
            return self.copies[producer] if wants_low else ""
        gives_low = port_var != ir.NO_VAR and self.is_low(port_var)
        if source.op == handles.CONSTANT:
            gives_low = producer in self.converted
        if wants_low == gives_low:
            return self.renamed_output(producer)
        if _is_invariant(source):
            return self.enter(producer, wants_low)
        return self.cast(producer, port, wants_low)

    def enter(self, index: int, to_low: bool) -> str:
        """Returns a reference to a second Enter of a loop invariant, in the other precision.

        So a value that the loop reads in both is cast once, before the loop.
        """
        if index not in self.enters:
            before, port = self.scope.nodes[index].inputs[0]
            is_constant = self.scope.nodes[before].op == handles.CONSTANT
            if to_low and is_constant and before not in self.converted | self.copies.keys():
                self.copy_constant(before)
            value = self.tensor(before, port, to_low) or self.source_reference(before, port)
            proto = self.protos.add()
            proto.CopyFrom(self.proto(index))
            dtype = self.low.name if to_low else "float32"
            proto.name = names.unique(f"{proto.name}/{dtype}", self.taken)
            proto.input[0] = value
            proto.attr["T"].type = self.low.proto if to_low else DT_FLOAT
            self.enters[index] = proto.name if self.function is None else f"{proto.name}:output:0"
        return self.enters[index]

    def cast(self, producer: int, port: int, to_low: bool) -> str:
        """Returns a reference to the one Cast of this tensor to this precision."""
        key = (producer, port, to_low)
        source = self.scope.nodes[producer]
        if key not in self.casts:
            dtype = self.low.name if to_low else "float32"
            name = names.unique(names.of_cast(source.name, port, dtype), self.taken)
            proto = self.protos.add(name=name, op=handles.CAST)
            proto.input.append(self.source_reference(producer, port))
            proto.attr["SrcT"].type = DT_FLOAT if to_low else self.low.proto
            proto.attr["DstT"].type = self.low.proto if to_low else DT_FLOAT
            proto.attr["Truncate"].b = False
            if source.proto is not None:
                proto.device = source.proto.device
            self.casts[key] = name if self.function is None else f"{name}:y:0"
        return self.casts[key]

    def source_reference(self, producer: int, port: int) -> str:
        """Returns the text that names an output of an existing node."""
        return self.renamed_output(producer) or self.texts[producer, port]

    def renamed_output(self, producer: int) -> str:
        """Returns how a function names the output of a node whose op has changed; else empty."""
        if producer not in self.output_args or self.function is None:
            return ""
        return f"{self.scope.nodes[producer].name}:{self.output_args[producer]}:0"


def _is_invariant(node: ir.Node) -> bool:
    return (
        node.proto is not None and node.op == handles.ENTER and attr_of(node.proto, "is_constant").b
    )
