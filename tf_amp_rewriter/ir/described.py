"""Op definitions that users describe, for ops that neither TensorFlow nor the model defines."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Final

from google.protobuf.internal import containers
from tensorflow.core.framework import op_def_pb2, types_pb2

from tf_amp_rewriter import errors
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.user_rules import Registered

# Python's names of dtypes, where protos have others.
_FLOATS: Final = {"float16": "half", "float32": "float", "float64": "double"}
_DTYPES: Final = {
    name.removeprefix("DT_").lower(): number
    for name, number in types_pb2.DataType.items()
    if number and not name.endswith("_REF")
}

_Args = containers.RepeatedCompositeFieldContainer[op_def_pb2.OpDef.ArgDef]


def with_descriptions(graph: ir.GraphSource, rules: Iterable[Registered]) -> ir.GraphSource:
    """Returns `graph` with a definition for each op that a rule describes, but for its own.

    Raises:
        errors.FlagError: a description is damaged.
    """
    described = {rule.op: _op_def(rule) for rule in rules if rule.inputs is not None}
    if not described:
        return graph
    return dataclasses.replace(graph, op_defs={**described, **graph.op_defs})


def _op_def(rule: Registered) -> op_def_pb2.OpDef:
    result = op_def_pb2.OpDef(name=rule.op)
    attrs = [
        *_add(result.input_arg, "input", rule.inputs or (), rule.op),
        *_add(result.output_arg, "output", rule.outputs or (), rule.op),
    ]
    for attr in dict.fromkeys(attrs):
        result.attr.add(name=attr, type="type")
    return result


def _add(args: _Args, kind: str, ports: Sequence[str], op: str) -> list[str]:
    """Adds an argument per port; returns the type attributes that they name."""
    attrs = []
    for number, text in enumerate(ports):
        name, _, stated = text.rpartition(":")
        stated = stated.strip()
        arg = args.add(name=name.strip() or (kind if len(ports) == 1 else f"{kind}_{number}"))
        dtype = _DTYPES.get(_FLOATS.get(stated, stated))
        if dtype is not None:
            arg.type = dtype
        elif stated.isidentifier():
            arg.type_attr = stated
            attrs.append(stated)
        else:
            raise errors.FlagError(
                f"the registered rule of op `{op}` describes {kind} {number} as `{text}`, expected "
                "a type attribute or a dtype"
            )
    return attrs
