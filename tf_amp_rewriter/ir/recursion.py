"""Refuses functions that call themselves: no part of TensorFlow that we write for can run them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tf_amp_rewriter import errors
from tf_amp_rewriter.ir import calls
from tf_amp_rewriter.ir import program as ir

_MAX_NAMES: Final = 6  # of a cycle, in the message
_NEW, _OPEN, _DONE = range(3)


def expect_none(program: ir.Program) -> None:
    """Refuses a function that calls itself, directly or through others. Linear in the nodes.

    Whatever names a function counts as a call, also an op that nobody knows: those who follow calls
    would never come back.

    Raises:
        errors.InputError: with the names of the functions in the cycle.
    """
    named = [calls.functions_named_in(program, scope) for scope in program.scopes]
    cycle = _cycle(named)
    if cycle:
        names = [program.scopes[index].name for index in cycle]
        raise errors.InputError(
            f"calls itself: {_text(names)}; expected functions without recursion",
            "write the recursion as a loop (`tf.while_loop`), or as copies of the function down to "
            "the depth that the model needs",
            scope=names[0],
        )


def _cycle(named: Sequence[Sequence[int]]) -> list[int]:
    """Returns a cycle of the graph with these edges, its first node once; empty if none exists."""
    state = bytearray(len(named))
    for root in range(len(named)):
        if state[root] != _NEW:
            continue
        path, waiting = [root], [iter(named[root])]
        state[root] = _OPEN
        while path:
            following = next(waiting[-1], None)
            if following is None:
                state[path.pop()] = _DONE
                waiting.pop()
            elif state[following] == _OPEN:
                return path[path.index(following) :]
            elif state[following] == _NEW:
                state[following] = _OPEN
                path.append(following)
                waiting.append(iter(named[following]))
    return []


def _text(cycle: Sequence[str]) -> str:
    shown = [f"`{name}`" for name in (*cycle, cycle[0])]
    if len(shown) > _MAX_NAMES:
        left_out = len(shown) - _MAX_NAMES
        shown[_MAX_NAMES // 2 : -_MAX_NAMES // 2] = [f"({left_out} more)"]
    return " -> ".join(shown)
