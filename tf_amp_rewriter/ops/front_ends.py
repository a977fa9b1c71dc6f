"""Ops of which linear signal front-ends (filter banks, Fourier and constant-Q transforms) are made.

Source of all sets: the definition of each op; what is linear up to a shift, a lower bound or a
choice of values counts as linear.
"""

from __future__ import annotations

from typing import Final

LOGARITHMS: Final = frozenset({"Log", "Log1p"})
MAGNITUDES: Final = frozenset({"Abs", "ComplexAbs", "Pow", "Sqrt", "Square"})
LINEAR: Final = frozenset(
    {
        "Add",
        "AddN",
        "AddV2",
        "AvgPool",
        "BatchToSpaceND",
        "BiasAdd",
        "ClipByValue",
        "Concat",
        "ConcatV2",
        "ExpandDims",
        "GatherV2",
        "Identity",
        "IdentityN",
        "Maximum",
        "Mean",
        "MirrorPad",
        "Mul",
        "Neg",
        "Pack",
        "Pad",
        "PadV2",
        "PartitionedCall",
        "RealDiv",
        "Reshape",
        "Reverse",
        "ReverseV2",
        "Slice",
        "SpaceToBatchND",
        "Split",
        "SplitV",
        "Squeeze",
        "StatefulPartitionedCall",
        "StopGradient",
        "StridedSlice",
        "Sub",
        "Sum",
        "Transpose",
        "Unpack",
        "_Arg",
        "_Retval",
    }
)
