"""A hypothesis strategy that makes random programs, in the text of `tests/graph_text.py`.

A program is a main graph with functions: calls nested in calls, a function called from several
places and several times in a row, While, If and Case, loops and conditionals of control flow v1
with TensorArrays, and TensorLists that pass through all of these. A failing example prints as the
text that a test can be made of.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.property import bodies, control
from tests.property.bodies import FLOAT, TRIPS, Body, Float, Program


@dataclasses.dataclass(frozen=True)
class Example:
    """A program and what to run it on.

    Attributes:
        text: the graph.
        seed: of the values of the placeholders `x` and `y`.
        number: the value of the placeholder `n`, from 0 to 4.
        outputs: names of the tensors to compare.
    """

    text: str
    seed: int
    number: int
    outputs: tuple[str, ...]

    def __repr__(self) -> str:
        text = "\n".join("    " + line for line in self.text.splitlines())
        return f'Example(\n    """\n{text}\n    """, {self.seed}, {self.number}, {self.outputs})'

    def feeds(self) -> dict[str, NDArray[np.generic]]:
        """Returns the values of the placeholders: floats from -1 to 1 and an int."""
        random = np.random.default_rng(self.seed)
        floats = {name: random.uniform(-1, 1, (4, 4)).astype(np.float32) for name in "xy"}
        return floats | {"n": np.array(self.number, np.int32)}


@st.composite
def examples(draw: st.DrawFn, most: int = 8) -> Example:
    """Draws a program whose main graph has at most `most` statements."""
    program = Program(draw)
    lines = [f"x: {FLOAT} = Placeholder", f"y: {FLOAT} = Placeholder", "n: i32[] = Placeholder"]
    main = Body(program, lines, ints=["n"], floats=[Float("x", 1.0), Float("y", 1.0)])
    main.is_main = True
    if program.number(3):
        bodies.product(main)
    control.fill(main, most, 2)
    results = {main.floats[-1].ref} | {main.pick().ref for _ in range(program.number(2))}
    outputs = [main.emit("out", f"Identity({ref})") for ref in sorted(results)]
    text = "\n\n".join(["\n".join(lines), *program.functions]) + "\n"
    return Example(text, program.number(3), program.number(TRIPS), tuple(outputs))
