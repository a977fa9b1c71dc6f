"""The text of one graph or function body, written statement by statement.

All floats are [4, 4] and `size` bounds their magnitude, so that nothing overflows in half: what
would grow beyond `MOST` is squashed, and what enters or leaves a function or a loop is clipped to
`FACE`. Weights of a product have rows of sum 1 at most: they do not amplify an error.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

from hypothesis import strategies as st

FACE = 4.0
MOST = 64.0
TRIPS = 4
FLOAT = "f32[4,4]"
Draw = Callable[[st.SearchStrategy[int]], int]


@dataclasses.dataclass(frozen=True)
class Float:
    """A [4, 4] tensor: its reference and a bound of its magnitude."""

    ref: str
    size: float = FACE


@dataclasses.dataclass(frozen=True)
class List:
    """A TensorList of [4, 4] elements: its handle, and how many elements it has at least."""

    ref: str
    length: int = 2


@dataclasses.dataclass(frozen=True)
class Face:
    """A function that was written: its name and what it takes and gives.

    It takes an int (0 to 4), then floats, then lists; it gives floats, then lists. `cost` counts
    the statements that one call runs.
    """

    name: str
    floats: int
    lists: int
    gives_floats: int
    gives_lists: int
    cost: int


@dataclasses.dataclass
class Program:
    """What all bodies of one program share."""

    draw: Draw
    functions: list[str] = dataclasses.field(default_factory=list)
    faces: list[Face] = dataclasses.field(default_factory=list)
    names: int = 0
    statements: int = 0

    def name(self, letter: str) -> str:
        self.names += 1
        return f"{letter}{self.names}"

    def number(self, most: int, least: int = 0) -> int:
        return self.draw(st.integers(least, most))


@dataclasses.dataclass
class Body:
    """One graph, function body, or frame or branch of control flow v1, while it is written.

    Attributes:
        program: what it is part of.
        lines: its text; frames and branches share that of the graph they are in.
        depth: how many functions, loops and branches it is inside of.
        ints: references of ints from 0 to 4.
        floats: what its statements may read.
        lists: likewise.
        weights: constants of it.
        pivot: the node that constants of a frame or branch wait for.
        is_main: whether it is in the main graph, where control flow v1 may stand.
        cost: how many statements one run of it runs.
    """

    program: Program
    lines: list[str]
    depth: int = 0
    ints: list[str] = dataclasses.field(default_factory=list)
    floats: list[Float] = dataclasses.field(default_factory=list)
    lists: list[List] = dataclasses.field(default_factory=list)
    weights: list[str] = dataclasses.field(default_factory=list)
    pivot: str = ""
    is_main: bool = False
    cost: int = 0

    def emit(self, letter: str, text: str, types: str = "") -> str:
        """Adds a node and returns its name."""
        name = self.program.name(letter)
        self.lines.append(f"{name}: {types} = {text}" if types else f"{name} = {text}")
        return name

    def add(self, text: str, size: float, types: str = "") -> Float:
        """Adds a node whose value later statements may read."""
        value = Float(self.emit("v", text, types), size)
        self.floats.append(value)
        return value

    def const(self, literal: str, types: str = "") -> str:
        waits = f", ^{self.pivot}" if self.pivot else ""
        return self.emit("c", f"Const({literal}{waits})", types)

    def weight(self) -> str:
        """Returns a weight of a product: one that is there already, or a new one."""
        which = self.program.number(len(self.weights))
        if which == len(self.weights):
            self.weights.append(self.const(f"seed={self.program.names}, scale=0.25", FLOAT))
        return self.weights[which]

    def pick(self) -> Float:
        """Returns a float to read, more often one of the last."""
        most = min(len(self.floats), 6) - 1
        return self.floats[-1 - min(self.program.number(most), self.program.number(most))]

    def pick_list(self) -> List:
        return self.lists[len(self.lists) - 1 - self.program.number(len(self.lists) - 1)]

    def pick_lists(self) -> int:
        """Returns how many lists to hand to a call or loop; there are as many, made if need be."""
        number = (0, 1, 1, 2)[self.program.number(3)]
        if number and not self.lists:
            new_list(self)
        return number

    def pick_int(self) -> str:
        """Returns an int from 0 to 4: one of the body's, or a constant."""
        which = self.program.number(len(self.ints))
        if which < len(self.ints):
            return self.ints[which]
        return self.const(str(self.program.number(TRIPS)))

    def clipped(self, value: Float) -> str:
        """Returns the reference of `value`, or of what it becomes between -4 and 4."""
        if value.size <= FACE:
            return value.ref
        most = self.emit("v", f"Minimum({value.ref}, {self.const(str(FACE))})")
        return self.emit("v", f"Maximum({most}, {self.const(str(-FACE))})")

    def predicate(self) -> str:
        """Returns a scalar bool: of an int, or rarely of a computed float."""
        if self.program.number(5) == 5 and self.floats:
            largest = self.emit("p", f"Max({self.pick().ref}, {self.const('[0, 1]')})")
            return self.emit("p", f"Less({largest}, {self.const('0.3')})")
        return self.emit("p", f"Less({self.pick_int()}, {self.const('2')})")


# ------------------------------------------------------------------------- arithmetic


def product(body: Body) -> None:
    x = body.pick()
    body.add(f"MatMul({x.ref}, {body.weight()})", x.size)


def product_of_two(body: Body) -> None:
    x, y = body.pick(), body.pick()
    size = 4 * x.size * y.size
    if size > MOST:
        x = y = Float(body.emit("v", f"Tanh({x.ref})"), 1.0)
        size = 4.0
    body.add(f"MatMul({x.ref}, {y.ref})", size)


def squash(body: Body) -> None:
    op = ("Tanh", "Sigmoid", "Softsign")[body.program.number(2)]
    body.add(f"{op}({body.pick().ref})", 1.0)


def binary(body: Body) -> None:
    x, y = body.pick(), body.pick()
    op = ("AddV2", "Sub", "Mul", "Mul")[body.program.number(3)]
    size = x.size * y.size if op == "Mul" else x.size + y.size
    if size > MOST:
        op, size = "Maximum", max(x.size, y.size)
    body.add(f"{op}({x.ref}, {y.ref})", size)


def scaled(body: Body) -> None:
    x = body.pick()
    op, factor = (("Mul", "0.5"), ("AddV2", "0.25"), ("Maximum", "-0.5"))[body.program.number(2)]
    size = x.size + 1
    if size > MOST:
        op = "Maximum"
    body.add(f"{op}({x.ref}, {body.const(factor)})", size)


def with_weight(body: Body) -> None:
    """A weight read by something else than a product."""
    x, w = body.pick(), body.weight()
    op = ("AddV2", "Mul", "Maximum", "Minimum")[body.program.number(3)]
    size = x.size + 1 if op == "AddV2" else max(x.size, 1.0)
    if size > MOST:
        op, size = "Mul", x.size
    body.add(f"{op}({x.ref}, {w})", size)


def move(body: Body) -> None:
    """One op that moves or selects values, or a pair that comes back to [4, 4]."""
    x = body.pick()
    match body.program.number(8):
        case 0:
            body.add(f"Identity({x.ref})", x.size)
        case 1:
            body.add(f"Relu({x.ref})", x.size)
        case 2:
            body.add(f"Transpose({x.ref}, {body.const('[1, 0]')})", x.size)
        case 3:
            flat = body.emit("v", f"Reshape({x.ref}, {body.const('[16]')})")
            body.add(f"Reshape({flat}, {body.const('[4, 4]')})", x.size)
        case 4:
            y = body.pick()
            joined = body.emit("v", f"ConcatV2([{x.ref}, {y.ref}], {body.const('0')})")
            begin, size = body.const("[2, 0]"), body.const("[4, 4]")
            body.add(f"Slice({joined}, {begin}, {size})", max(x.size, y.size))
        case 5:
            y = body.pick()
            body.add(f"Maximum({x.ref}, {y.ref})", max(x.size, y.size))
        case 6:
            rows = body.emit("v", f"Split({body.const('1')}, {x.ref}, num_split=2)", "f32, f32")
            body.add(f"ConcatV2([{rows}:1, {rows}], {body.const('1')})", x.size)
        case 7:
            body.add(f"Neg({x.ref})", x.size)
        case _:
            top = body.emit("v", f"Max({x.ref}, {body.const('[0]')}, keep_dims=True)")
            body.add(f"BroadcastTo({top}, {body.const('[4, 4]')})", x.size)


def deny(body: Body) -> None:
    x = body.pick()
    op = ("Exp", "Square", "Sum", "Mean")[body.program.number(3)]
    if op == "Exp":
        if math.exp(x.size) > MOST:
            x = Float(body.clipped(x), FACE)
        body.add(f"Exp({x.ref})", math.exp(x.size))
    elif op == "Square" and x.size**2 <= MOST:
        body.add(f"Square({x.ref})", x.size**2)
    else:
        op, size = ("Sum", 4 * x.size) if 4 * x.size <= MOST else ("Mean", x.size)
        folded = body.emit("v", f"{op}({x.ref}, {body.const('[1]')}, keep_dims=True)")
        body.add(f"BroadcastTo({folded}, {body.const('[4, 4]')})", size)


def select(body: Body) -> None:
    x, y = body.pick(), body.pick()
    op = ("Less", "Greater")[body.program.number(1)]
    chosen = body.emit("p", f"{op}({body.pick().ref}, {body.pick().ref})")
    body.add(f"SelectV2({chosen}, {x.ref}, {y.ref})", max(x.size, y.size))


# ------------------------------------------------------------------------- lists


def _shape(body: Body) -> str:
    return body.const("[4, 4]")


def _index(body: Body) -> str:
    """Returns 0 or 1: every list has at least two elements."""
    return body.emit("i", f"FloorMod({body.pick_int()}, {body.const('2')})")


def new_list(body: Body) -> None:
    values = [body.pick().ref for _ in range(3)]
    match body.program.number(4):
        case 0:
            stacked = body.emit("v", f"Pack([{', '.join(values)}])")
            text, length = f"TensorListFromTensor({stacked}, {_shape(body)})", 3
        case 1:
            count = body.const("3")
            text, length = f"TensorListReserve({_shape(body)}, {count}, element_dtype=f32)", 3
        case 2:
            rows = body.emit("v", f"ConcatV2([{values[0]}, {values[1]}], {body.const('0')})")
            lengths = body.const("[4, 4]", "i64[2]")
            text, length = f"TensorListSplit({rows}, {_shape(body)}, {lengths})", 2
        case 3:
            stacked = body.emit("v", f"Pack([{', '.join(values)}])")
            indices, count = body.const("[2, 0, 1]"), body.const("4")
            text = f"TensorListScatterV2({stacked}, {indices}, {_shape(body)}, {count})"
            length = 4
        case _:
            most = body.const("9")
            text, length = f"EmptyTensorList({_shape(body)}, {most}, element_dtype=f32)", 2
            for value in values[:2]:
                text = f"TensorListPushBack({body.emit('l', text, 'var')}, {value})"
    body.lists.append(List(body.emit("l", text, "var"), length))


def write_list(body: Body) -> None:
    if not body.lists:
        new_list(body)
    old, value = body.pick_list(), body.pick().ref
    if body.program.number(2):
        text, length = f"TensorListSetItem({old.ref}, {_index(body)}, {value})", old.length
    else:
        text, length = f"TensorListPushBack({old.ref}, {value})", old.length + 1
    body.lists.append(List(body.emit("l", text, "var"), length))


def read_list(body: Body) -> None:
    if not body.lists:
        new_list(body)
    old = body.pick_list()
    kind = body.program.number(4)
    shape, types = _shape(body), "element_dtype=f32"
    match kind:
        case 1:
            whole = body.emit("v", f"TensorListStack({old.ref}, {shape}, {types})")
        case 2:
            indices = body.const("[1, 0]")
            whole = body.emit("v", f"TensorListGather({old.ref}, {indices}, {shape}, {types})")
        case 3 if old.length > 2:
            pop = body.emit("l", f"TensorListPopBack({old.ref}, {shape}, {types})", "var, f32")
            body.lists.append(List(pop, old.length - 1))
            body.floats.append(Float(f"{pop}:1", MOST))
            return
        case 4:
            text = f"TensorListConcatV2({old.ref}, {shape}, {body.const('[]', 'i64[0]')}, {types})"
            rows = body.emit("v", text, "f32, i64")
            begin, size = body.const("[3, 0]"), body.const("[4, 4]")
            body.add(f"Slice({rows}, {begin}, {size})", MOST)
            return
        case _:
            item = f"TensorListGetItem({old.ref}, {_index(body)}, {shape}, {types})"
            body.add(item, MOST)
            return
    body.add(f"Max({whole}, {body.const('[0]')})", MOST)


# As often as they stand here.
STATEMENTS: Sequence[Callable[[Body], None]] = (
    *[product] * 5,
    *[move] * 3,
    *[squash] * 2,
    *[binary] * 2,
    *[read_list] * 2,
    *[write_list] * 2,
    new_list,
    product_of_two,
    scaled,
    with_weight,
    select,
    deny,
)
