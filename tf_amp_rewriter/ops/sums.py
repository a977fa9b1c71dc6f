"""Ops of which running sums, counters and moving averages are made.

Source of all sets: the definition of each op.
"""

from __future__ import annotations

from typing import Final

ADDITIONS: Final = frozenset({"Add", "AddN", "AddV2", "BiasAdd", "BiasAddV1", "Sub"})
# Between two steps of one value: by how much it moved.
DIFFERENCES: Final = frozenset({"SquaredDifference", "Sub"})
# A product or quotient with a weight keeps a sum a sum; with an activation it is a gate.
SCALINGS: Final = frozenset({"Div", "DivNoNan", "Mul", "RealDiv"})
