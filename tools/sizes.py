"""Prints how long modules and functions are, and fails where one is above the budget.

python tools/sizes.py [FOLDER ...]; the folders are `tf_amp_rewriter` and `tools` by default.
"""

from __future__ import annotations

import ast
import dataclasses
import math
import pathlib
import sys
from collections.abc import Iterable, Iterator, Sequence

ROOT = pathlib.Path(__file__).parent.parent
MAX_MODULE, MAX_FUNCTION = 400, 60
# What may be longer, and why: `path` or `path:function`. An entry that is no longer needed fails.
ALLOWED: dict[str, str] = {
    "tf_amp_rewriter/ops/keep.py": "rows of a table, one op a line",
}


@dataclasses.dataclass(frozen=True)
class Piece:
    """A module or function: its place, as in `ALLOWED`, and its length in lines."""

    place: str
    lines: int


def main(arguments: Sequence[str]) -> int:
    """Prints the table; returns 1 if something is above the budget without a reason."""
    folders = arguments or ("tf_amp_rewriter", "tools")
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}
    modules = [Piece(name, len(text.splitlines())) for name, text in texts.items()]
    functions = [piece for name, text in texts.items() for piece in _functions(name, text)]
    tests = sum(len(path.read_text().splitlines()) for path in (ROOT / "tests").rglob("*.py"))
    for module in modules:
        print(f"{module.lines:6}  {module.place}")
    print(f"\n{len(modules)} modules, lines: {_spread(modules)} (at most {MAX_MODULE})")
    print(f"{len(functions)} functions, lines: {_spread(functions)} (at most {MAX_FUNCTION})")
    total = sum(module.lines for module in modules)
    print(f"{total} lines; {tests / max(total, 1):.2f} lines of tests per line")
    above = [piece for piece in modules if piece.lines > MAX_MODULE]
    above += [piece for piece in functions if piece.lines > MAX_FUNCTION]
    return _judge(above, texts)


def _functions(name: str, text: str) -> Iterator[Piece]:
    """Gives the functions of a module; what a docstring takes does not count."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if ast.get_docstring(node) is not None:
                first = node.body[0]
                lines -= (first.end_lineno or first.lineno) - first.lineno + 1
            yield Piece(f"{name}:{node.name}", lines)


def _spread(pieces: Iterable[Piece]) -> str:
    """Returns `median / 90 % / max` of the lengths."""
    lengths = sorted(piece.lines for piece in pieces) or [0]
    ninety = lengths[math.ceil(0.9 * len(lengths)) - 1]
    return f"median {lengths[len(lengths) // 2]}, 90 % {ninety}, max {lengths[-1]}"


def _judge(above: Iterable[Piece], texts: Iterable[str]) -> int:
    places = {piece.place: piece.lines for piece in above}
    for place, reason in ALLOWED.items():
        if place in places:
            print(f"allowed: {place} has {places[place]} lines: {reason}")
    failures = [
        f"{place} has {lines} lines" for place, lines in places.items() if place not in ALLOWED
    ]
    read = set(texts)
    failures += [
        f"{place} needs no entry in ALLOWED"
        for place in ALLOWED
        if place not in places and place.split(":")[0] in read
    ]
    for failure in failures:
        print(f"error: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
