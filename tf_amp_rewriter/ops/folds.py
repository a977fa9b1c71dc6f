"""What small constant computations give, so that their range is known.

Source of all entries: the definition of each op; values are float32, as in the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float32]

FOLDS: Final[Mapping[str, Callable[..., Values]]] = {
    "Abs": np.abs,
    "Add": np.add,
    "AddV2": np.add,
    "Div": np.divide,
    "Exp": np.exp,
    "Identity": np.asarray,
    "Inv": np.reciprocal,
    "Log": np.log,
    "Maximum": np.maximum,
    "Minimum": np.minimum,
    "Mul": np.multiply,
    "Neg": np.negative,
    "Pow": np.power,
    "RealDiv": np.divide,
    "Reciprocal": np.reciprocal,
    "Rsqrt": lambda x: 1 / np.sqrt(x),
    "Sqrt": np.sqrt,
    "Square": np.square,
    "Sub": np.subtract,
}
