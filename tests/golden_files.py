"""Golden texts: help and reports only, never graphs and never numbers that a computation gives.

`UPDATE_GOLDEN=1 tools/test` writes them anew; read the diff before you commit it.
"""

from __future__ import annotations

import os
import pathlib

FOLDER = pathlib.Path(__file__).with_name("golden")


def expect_golden(name: str, text: str) -> None:
    """Asserts that `text` is what `tests/golden/<name>` holds; a missing file fails."""
    path = FOLDER / name
    if os.environ.get("UPDATE_GOLDEN") == "1":
        path.write_text(text, encoding="utf-8")
    if not path.exists():
        raise AssertionError(f"{path} is missing; UPDATE_GOLDEN=1 writes it")

    assert path.read_text(encoding="utf-8") == text
