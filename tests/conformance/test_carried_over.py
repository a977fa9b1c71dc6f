"""Every case of the other rewriters has a test or a reason."""

from __future__ import annotations

import ast
import functools
import pathlib

import pytest

from tests.conformance import carried_over

TESTS = pathlib.Path(__file__).parent.parent
# The ids that there are: TX-11 is two.
IDS = {
    *(f"TR-{number:02}" for number in range(1, 19)),
    *(f"TX-{number:02}" for number in range(1, 15) if number != 11),
    *("TX-11a", "TX-11b"),
    *(f"AC-{number:02}" for number in range(1, 89)),
    *(f"XT-{number:02}" for number in range(1, 45)),
}


@functools.cache
def functions(path: str) -> tuple[str, ...]:
    tree = ast.parse((TESTS / path).read_text(encoding="utf-8"))
    return tuple(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def test_every_case_has_a_test_or_a_reason() -> None:
    assert set(carried_over.PLACES) | set(carried_over.NOT_CARRIED_OVER) == IDS
    assert not set(carried_over.PLACES) & set(carried_over.NOT_CARRIED_OVER)


@pytest.mark.parametrize("case", carried_over.PLACES)
def test_its_test_is_there(case: str) -> None:
    path, start = carried_over.PLACES[case]

    assert any(name.startswith(start) for name in functions(path))
