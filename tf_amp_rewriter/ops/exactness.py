"""Ops that need the exact float32 values of what they read, and where values come from.

Source of all sets: the definition of each op.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# A comparison, a step, an angle or a text: rounding what it reads can change all of its result.
EXACT_READERS: Final = frozenset(
    {
        "ApproximateEqual",
        "AsString",
        "Bucketize",
        "Ceil",
        "Cos",
        "Equal",
        "Floor",
        "FloorDiv",
        "FloorMod",
        "Greater",
        "GreaterEqual",
        "InTopK",
        "InTopKV2",
        "Less",
        "LessEqual",
        "Mod",
        "NotEqual",
        "Rint",
        "Round",
        "SearchSorted",
        "Sign",
        "Sin",
        "Tan",
    }
)
# They magnify the rounding of what is near 0, as a probability and one minus it often are.
SINGULAR: Final = frozenset({"Inv", "Log", "Log1p", "Reciprocal", "Xlog1py", "Xlogy"})
DIVISIONS: Final = frozenset({"Div", "DivNoNan", "RealDiv"})
ROOTS: Final = frozenset({"Rsqrt"})
# What may stand between a divisor and the constant that keeps it from being 0.
GUARDS: Final = frozenset(
    {"Add", "AddV2", "BroadcastTo", "ExpandDims", "Identity", "Maximum", "Reshape", "Sqrt"}
)
# It takes the maximum off what it reads, so masks end here.
SOFTMAX: Final = "Softmax"
PROBABILITIES: Final = frozenset({"Erf", "Erfc", "Sigmoid", "Softmax", "Softsign", "Tanh"})
# Integers that come from these are sizes or positions, and may be beyond the range of half.
COUNTS: Final = frozenset(
    {"Cumsum", "LookupTableSizeV2", "Range", "Shape", "ShapeN", "Size", "VariableShape"}
)
# An op that reads one tensor twice and then is another one.
OF_ONE_TENSOR: Final[Mapping[str, str]] = {"Einsum": "L2Loss", "Mul": "Square"}
# Give on what they read as it is.
HAND_ON: Final = frozenset({"Identity", "PreventGradient", "Snapshot", "StopGradient"})
# Written twice on the same values, they are the same value.
REPEATABLE: Final = frozenset(
    {
        "Abs",
        "Add",
        "AddV2",
        "BiasAdd",
        "Cast",
        "Const",
        "Div",
        "Exp",
        "ExpandDims",
        "Mean",
        "Mul",
        "Neg",
        "ReadVariableOp",
        "RealDiv",
        "Relu",
        "Reshape",
        "Sigmoid",
        "Sqrt",
        "Squeeze",
        "Sub",
        "Tanh",
    }
)
ANGLES: Final = frozenset({"Cos", "Sin", "Tan"})
# Their results are beyond the range of half for arguments above 255; a Mul or an Einsum, where it
# is of one tensor.
OVERFLOWING: Final = frozenset({"Einsum", "Mul", "Pow", "Square", "SquaredDifference"})
