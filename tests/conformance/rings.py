"""Loops of control flow v1 from letters, as grappler's Python cases and its oracle have them.

Letters are ops: w a MatMul with a constant, g the addition of a constant, c a Relu, b the root of a
square by Pow; a capital is expected low. `before/body/after` is one loop of four steps that carries
one value.
"""

from __future__ import annotations

import inspect

EYE = "[[0.9,0.1,0,0],[0,0.9,0.1,0],[0,0,0.9,0.1],[0.1,0,0,0.9]]"


def chain(letters: str, place: str, source: str, control: str) -> tuple[str, str]:
    """Returns the lines of the ops of `letters`, and what they give.

    Args:
        letters: the ops, capital if low.
        place: start of all names.
        source: what the first op reads.
        control: the node in whose frame the constants are.
    """
    lines = []
    for index, letter in enumerate(letters):
        name = f"{place}{index}"
        claim = "low" if letter.isupper() else "f32"
        match letter.lower():
            case "w":
                lines.append(f"{name}c: f32[4,4] = Const({EYE}{control})")
                lines.append(f"{name} = MatMul({source}, {name}c)   # {claim} ALLOW")
            case "g":
                lines.append(f"{name}c: f32[4] = Const([0.5,-0.25,0.125,0.5]{control})")
                lines.append(f"{name} = AddV2({source}, {name}c)   # {claim}")
            case "c":
                lines.append(f"{name} = Relu({source})   # {claim}")
            case "b":
                lines.append(f"{name}c = Const(2.0{control})")
                lines.append(f"{name}p = Pow({source}, {name}c)   # {claim} DENY")
                lines.append(f"{name} = Sqrt({name}p)   # {claim} INFER tainted by {name}p")
        source = name
    return "\n".join(lines), source


def ring(before: str, body: str, after: str, carried: str) -> str:
    """Returns the text of a loop in control flow v1; `carried` is the precision of its ring."""
    head, entered = chain(before, "before", "x", "")
    inside, computed = chain(body, "body", "into", ", ^into")
    tail, left = chain(after, "after", "exit", "")
    frame = f"""
        x: f32[4,4] = Placeholder
        zero = Const(0)
        four = Const(4)
        count0 = Enter(zero, frame_name='loop')
        limit = Enter(four, frame_name='loop', is_constant=True)
        count = Merge([count0, count3])
        less = Less(count, limit)
        go = LoopCond(less)
        count1 = Switch(count, go)
        count2 = Identity(count1:1)
        one = Const(1, ^count2)
        add = AddV2(count2, one)
        count3 = NextIteration(add)
        enter = Enter({entered}, frame_name='loop')   # {carried}
        merge = Merge([enter, next])                  # {carried}
        switch = Switch(merge, go)                    # {carried}
        into = Identity(switch:1)
        next = NextIteration({computed})              # {carried}
        exit = Exit(switch)                           # {carried}
        fetch = Identity({left})                      # f32 PINNED
    """
    return "\n".join([inspect.cleandoc(frame), head, inside, tail])
