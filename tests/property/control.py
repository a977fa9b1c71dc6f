"""Statements that run other statements: calls, conditionals and loops, of both control flows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.property.bodies import (
    FACE,
    FLOAT,
    STATEMENTS,
    TRIPS,
    Body,
    Face,
    Float,
    List,
    Program,
    product,
)

DEEPEST = 4
MOST_STATEMENTS = 60
MOST_COST = 1500
CALLS = ("PartitionedCall", "StatefulPartitionedCall")
IFS = ("If", "StatelessIf")
CASES = ("Case", "StatelessCase")
WHILES = ("While", "StatelessWhile")


def fill(body: Body, most: int, least: int = 1) -> None:
    """Writes some statements into `body`."""
    for _ in range(body.program.number(most, least)):
        _statement(body)


def _statement(body: Body) -> None:
    program = body.program
    program.statements += 1
    body.cost += 1
    nested: list[Callable[[Body], None]] = []
    if body.depth < DEEPEST and program.statements < MOST_STATEMENTS:
        nested = [call, call, call_again, conditional, conditional, loop, loop, loop]
        if body.is_main:
            nested += [frame, frame, branches]
    choices = [*STATEMENTS, *nested]
    choices[program.number(len(choices) - 1)](body)


# ------------------------------------------------------------------------- functions


def _function(
    program: Program,
    depth: int,
    floats: int,
    lists: int,
    gives: tuple[int, int],
) -> Face:
    """Writes a function: (int, floats, lists) -> (floats, lists)."""
    name = program.name("f")
    body = Body(program, [], depth)
    body.ints = ["k"]
    body.floats = [Float(f"x{i}") for i in range(floats)]
    body.lists = [List(f"l{i}") for i in range(lists)]
    head = ["k: i32[]", *(f"{x.ref}: {FLOAT}" for x in body.floats)]
    head += [f"{handle.ref}: var" for handle in body.lists]
    if not body.floats:
        body.floats = [Float(body.const("0.5", FLOAT), 0.5)]
    fill(body, 3, 0)
    results = [f"y{i}={body.clipped(body.pick())}" for i in range(gives[0])]
    results += [f"m{i}={body.pick_list().ref}" for i in range(gives[1])]
    _finish(program, f"@{name}({', '.join(head)}) -> ({', '.join(results)})", body)
    return Face(name, floats, lists, *gives, body.cost)


def _finish(program: Program, head: str, body: Body) -> None:
    program.functions.append("\n".join([head, *("  " + line for line in body.lines)]))


def _arguments(body: Body, face: Face) -> str:
    arguments = [body.pick_int()]
    arguments += [body.clipped(body.pick()) for _ in range(face.floats)]
    arguments += [body.pick_list().ref for _ in range(face.lists)]
    return f"[{', '.join(arguments)}]"


def _take(body: Body, node: str, floats: int, lists: int, first: int = 0) -> None:
    """Lets later statements read what a call gives from output `first` on."""
    for port in range(first, first + floats):
        body.floats.append(Float(f"{node}:{port}"))
    for port in range(first + floats, first + floats + lists):
        body.lists.append(List(f"{node}:{port}"))


def _types(floats: int, lists: int) -> str:
    return ", ".join(["f32"] * floats + ["var"] * lists)


def call(body: Body) -> None:
    """A function, a new one or one that others call too, once or several times in a row."""
    program = body.program
    fits = [
        face
        for face in program.faces
        if face.lists <= len(body.lists) and body.cost + face.cost * 2 < MOST_COST
    ]
    which = program.number(len(fits))
    if which < len(fits):
        face = fits[which]
    else:
        lists = body.pick_lists()
        gives = (1 + program.number(1), lists)
        face = _function(program, body.depth + 1, 1 + program.number(1), lists, gives)
        program.faces.append(face)
    _call(body, face)


def call_again(body: Body) -> None:
    """A function whose results go into the same function once more."""
    program = body.program
    if not program.faces:
        call(body)
        return
    face = program.faces[program.number(len(program.faces) - 1)]
    for _ in range(2):
        if face.lists <= len(body.lists) and body.cost + face.cost < MOST_COST:
            _call(body, face)


def _call(body: Body, face: Face) -> None:
    op = CALLS[body.program.number(1)]
    types = _types(face.gives_floats, face.gives_lists)
    text = f"{op}({_arguments(body, face)}, f=@{face.name}, Tout=[{types}])"
    _take(body, body.emit("r", text, types), face.gives_floats, face.gives_lists)
    body.cost += face.cost


def conditional(body: Body) -> None:
    """An If, or a Case of two or three branches."""
    program = body.program
    floats, lists = 1 + program.number(1), body.pick_lists()
    gives = (1 + program.number(1), lists)
    is_case = program.number(2) == 2
    faces = [
        _function(program, body.depth + 1, floats, lists, gives)
        for _ in range(2 + (is_case and program.number(1)))
    ]
    arguments, types = _arguments(body, faces[0]), _types(*gives)
    if is_case:
        op = CASES[program.number(1)]
        names = ", ".join(f"@{face.name}" for face in faces)
        head = f"{op}({body.pick_int()}, {arguments}, branches=[{names}]"
    else:
        op = IFS[program.number(1)]
        then, other = (face.name for face in faces)
        head = f"{op}({body.predicate()}, {arguments}, then_branch=@{then}, else_branch=@{other}"
    lowered = ", _lower_using_switch_merge=True" if program.number(1) else ""
    _take(body, body.emit("r", f"{head}, Tout=[{types}]{lowered})", types), *gives)
    body.cost += max(face.cost for face in faces)


def loop(body: Body) -> None:
    """A While: a counter, its limit, carried floats, floats that stay as they are, lists."""
    program = body.program
    carried, kept = 1 + program.number(1), program.number(1)
    lists = body.pick_lists()
    inner = Body(program, [], body.depth + 1)
    inner.ints = ["i"]
    inner.floats = [Float(f"x{i}") for i in range(carried + kept)]
    inner.lists = [List(f"l{i}") for i in range(lists)]
    head = ["i: i32[]", "n: i32[]", *(f"{x.ref}: {FLOAT}" for x in inner.floats)]
    head += [f"{handle.ref}: var" for handle in inner.lists]
    invariants = [x.ref for x in inner.floats[carried:]]
    fill(inner, 3)
    if body.cost + inner.cost * TRIPS > MOST_COST:
        return
    one = inner.const("1")
    results = [f"j={inner.emit('i', f'AddV2(i, {one})')}", "m=n"]
    results += [f"y{i}={inner.clipped(inner.pick())}" for i in range(carried)]
    results += [f"z{i}={ref}" for i, ref in enumerate(invariants)]
    results += [f"o{i}={inner.pick_list().ref}" for i in range(lists)]
    name = program.name("body")
    _finish(program, f"@{name}({', '.join(head)}) -> ({', '.join(results)})", inner)
    arguments = [body.const("0"), body.pick_int()]
    arguments += [body.clipped(body.pick()) for _ in range(carried + kept)]
    arguments += [body.pick_list().ref for _ in range(lists)]
    types = "i32, i32, " + _types(carried + kept, lists)
    text = f"{WHILES[program.number(1)]}([{', '.join(arguments)}], cond=@{_cond(program, head)}"
    lowered = ", _lower_using_switch_merge=True" if program.number(1) else ""
    node = body.emit("w", f"{text}, body=@{name}{lowered})", types)
    _take(body, node, carried + kept, lists, 2)
    body.ints.append(node)
    body.cost += inner.cost * TRIPS


def _cond(program: Program, head: Sequence[str]) -> str:
    """Writes what decides whether a loop goes on; rarely, a carried float does too."""
    name = program.name("cond")
    body = Body(program, [])
    goes_on = body.emit("p", "Less(i, n)")
    if program.number(5) == 5:
        largest = body.emit("p", f"Max(x0, {body.const('[0, 1]')})")
        below = body.emit("p", f"Less({largest}, {body.const('0.9')})")
        goes_on = body.emit("p", f"LogicalAnd({goes_on}, {below})")
    _finish(program, f"@{name}({', '.join(head)}) -> (go={goes_on})", body)
    return name


# ------------------------------------------------------------------------- control flow v1


def frame(body: Body) -> None:
    """A loop of Enter, Merge, Switch, NextIteration and Exit, perhaps over TensorArrays."""
    program = body.program
    name = program.name("frame")
    carried, kept = 1 + program.number(1), program.number(1)
    lists = body.pick_lists()
    arrays = program.number(2)
    values = [body.clipped(body.pick()) for _ in range(carried + kept)]
    handles = [body.pick_list().ref for _ in range(lists)]
    limit = body.pick_int()
    opened = [_open_array(body, is_filled=index == 0) for index in range(arrays)]
    begins = [body.const("0"), *values[:carried], *handles, *(flow for _, flow in opened)]
    kinds = ["i32"] + ["f32"] * carried + ["var"] * lists + ["f32"] * arrays

    def enter_once(ref: str) -> str:
        return body.emit("e", f"Enter({ref}, frame_name='{name}', is_constant=True)")

    limit, *invariants = [enter_once(ref) for ref in [limit, *values[carried:]]]
    arrays_inside = [enter_once(handle) for handle, _ in opened]
    switches, nexts = _ring(body, name, limit, begins, kinds)
    inner = Body(program, body.lines, body.depth + 1, is_main=True)
    inner.pivot = body.emit("i", f"Identity({switches[0]}:1)")
    inner.ints = [inner.pivot]
    inner.floats = [Float(ref) for ref in invariants]
    inner.floats += [Float(f"{ref}:1") for ref in switches[1 : 1 + carried]]
    inner.lists = [List(f"{ref}:1") for ref in switches[1 + carried : 1 + carried + lists]]
    flows = [f"{ref}:1" for ref in switches[1 + carried + lists :]]
    ends = _step(inner, carried, lists, list(zip(arrays_inside, flows, strict=True)))
    for back, end in zip(nexts, ends, strict=True):
        body.lines.append(f"{back} = NextIteration({end})")
    exits = [body.emit("x", f"Exit({ref})") for ref in switches]
    body.floats += [Float(ref) for ref in exits[1 : 1 + carried]]
    body.lists += [List(ref) for ref in exits[1 + carried : 1 + carried + lists]]
    for (handle, _), flow in zip(opened[1:], exits[2 + carried + lists :], strict=True):
        _read_all(body, handle, flow, exits[0])
    body.cost += inner.cost * TRIPS


def _ring(
    body: Body, name: str, limit: str, begins: Sequence[str], kinds: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Adds what carries values around; returns the Switches, and the names of what comes back."""
    entered = [body.emit("e", f"Enter({ref}, frame_name='{name}')") for ref in begins]
    nexts = [body.program.name("next") for _ in begins]
    merges = [
        body.emit("m", f"Merge([{ref}, {back}])", f"{kind}, i32")
        for ref, back, kind in zip(entered, nexts, kinds, strict=True)
    ]
    going = body.emit("p", f"LoopCond({body.emit('p', f'Less({merges[0]}, {limit})')})")
    switches = [
        body.emit("s", f"Switch({merge}, {going})", f"{kind}, {kind}")
        for merge, kind in zip(merges, kinds, strict=True)
    ]
    return switches, nexts


def _step(inner: Body, carried: int, lists: int, arrays: Sequence[tuple[str, str]]) -> list[str]:
    """Writes one step of a frame: reads the first array, writes the others; returns its ends."""
    for handle, flow in arrays[:1]:
        inner.add(f"TensorArrayReadV3({handle}, {inner.pivot}, {flow}, dtype=f32)", FACE)
        if inner.program.number(1):
            product(inner)
    fill(inner, 3)
    ends = [inner.emit("i", f"AddV2({inner.pivot}, {inner.const('1')})")]
    results = [inner.clipped(inner.pick()) for _ in range(carried)]
    results += [inner.pick_list().ref for _ in range(lists)]
    # What is made of invariants alone never dies: it would start one iteration after the other.
    ends += [inner.emit("v", f"Identity({ref}, ^{inner.pivot})") for ref in results]
    ends += [flow for _, flow in arrays[:1]]
    for handle, flow in arrays[1:]:
        written = inner.clipped(inner.pick())
        text = f"TensorArrayWriteV3({handle}, {inner.pivot}, {written}, {flow})"
        ends.append(inner.emit("t", text))
    return ends


def _open_array(body: Body, *, is_filled: bool) -> tuple[str, str]:
    """Adds a TensorArray of four; returns its handle and its flow."""
    text = f"TensorArrayV3({body.const('4')}, dtype=f32, clear_after_read=False"
    node = body.emit("t", f"{text}, element_shape=[4, 4])", "res, f32")
    if not is_filled:
        return node, f"{node}:1"
    values = ", ".join(body.clipped(body.pick()) for _ in range(4))
    stacked = body.emit("v", f"Pack([{values}])")
    indices = body.const("[0, 1, 2, 3]")
    return node, body.emit("t", f"TensorArrayScatterV3({node}, {indices}, {stacked}, {node}:1)")


def _read_all(body: Body, handle: str, flow: str, count: str) -> None:
    """Reads the first `count` elements, perhaps none, and selects the largest."""
    indices = body.emit("i", f"Range({body.const('0')}, {count}, {body.const('1')})")
    text = f"TensorArrayGatherV3({handle}, {indices}, {flow}, dtype=f32, element_shape=[4, 4])"
    other = body.emit("v", f"Pack([{body.clipped(body.pick())}])")
    both = body.emit("v", f"ConcatV2([{other}, {body.emit('v', text)}], {body.const('0')})")
    body.add(f"Max({both}, {body.const('[0]')})", FACE)


def branches(body: Body) -> None:
    """A conditional of Switch and Merge."""
    program = body.program
    floats, lists = 1 + program.number(1), body.pick_lists()
    predicate = body.predicate()
    values = [body.clipped(body.pick()) for _ in range(floats)]
    values += [body.pick_list().ref for _ in range(lists)]
    number = body.pick_int()
    kinds = ["f32"] * floats + ["var"] * lists
    switches = [
        body.emit("s", f"Switch({ref}, {predicate})", f"{kind}, {kind}")
        for ref, kind in zip([number, *values], ["i32", *kinds], strict=True)
    ]
    gives: list[list[str]] = []
    costs = []
    for port in (0, 1):
        inner = Body(program, body.lines, body.depth + 1, is_main=True)
        inner.pivot = body.emit("i", f"Identity({switches[0]}:{port})")
        inner.ints = [inner.pivot]
        inner.floats = [Float(f"{ref}:{port}") for ref in switches[1 : 1 + floats]]
        inner.lists = [List(f"{ref}:{port}") for ref in switches[1 + floats :]]
        fill(inner, 2, 0)
        gives.append([inner.clipped(inner.pick()) for _ in range(floats)])
        gives[-1] += [inner.pick_list().ref for _ in range(lists)]
        costs.append(inner.cost)
    for index, (left, right) in enumerate(zip(*gives, strict=True)):
        node = body.emit("m", f"Merge([{left}, {right}])", f"{kinds[index]}, i32")
        if index < floats:
            body.floats.append(Float(node))
        else:
            body.lists.append(List(node))
    body.cost += max(costs)
