"""A rules file (TOML) -> the rules in it.

A file is a list of `[[rule]]` tables; every key of one is a row of `_KEYS`.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import sys
from collections.abc import Mapping
from typing import Any, Final

from tf_amp_rewriter import dtypes, errors
from tf_amp_rewriter.user_rules import UserRule, problem_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_DEVICES: Final = ("any", "gpu", "cpu")
_TEXT, _TEXTS, _PATTERN, _SWITCH = "a string", "a string or a list of strings", "a pattern", "true"
_EITHER, _SHARE = "`true` or `false`", "a number from 0 to 1"
_KEYS: Final[Mapping[str, str]] = {
    "op": _TEXTS,
    "node": _PATTERN,
    "function": _PATTERN,
    "dtype": _TEXT,
    "device": _TEXT,
    "category": _TEXT,
    "force_low": _SWITCH,
    "attrs": _TEXTS,
    "output": _TEXT,
    "compute": _TEXT,
    "saturate": _EITHER,
    "max_loss": _SHARE,
    "reason": _TEXT,
}
_HEADER: Final = re.compile(r"^[ \t]*\[\[[ \t]*rule[ \t]*\]\]", re.MULTILINE)


def read(path: str | os.PathLike[str]) -> tuple[UserRule, ...]:
    """Returns the rules of a file, in its order: of those that match a node the last one wins.

    Raises:
        errors.FlagError: the file can't be read, is no TOML, or has a rule that is wrong.
    """
    name = os.fspath(path)
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is no text in UTF-8"
        raise errors.FlagError(f"the rules file can't be read: {reason}", path=name) from error
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise errors.FlagError(f"the rules file is no TOML: {error}", path=name) from error
    tables = content.pop("rule", [])
    if content:
        raise errors.FlagError(
            f"key `{next(iter(content))}` stands outside of a rule, expected `[[rule]]` only",
            path=name,
        )
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise errors.FlagError("`rule` is no list of tables, expected `[[rule]]`", path=name)
    lines = [text.count("\n", 0, found.start()) + 1 for found in _HEADER.finditer(text)]
    if len(lines) != len(tables):  # a header stands in a string, or rules are written inline
        lines = []
    return tuple(
        _Reader(name, number, lines[number - 1] if lines else 0, table).rule()
        for number, table in enumerate(tables, 1)
    )


@dataclasses.dataclass(frozen=True)
class _Reader:
    """Reads one table.

    Attributes:
        path: the file.
        number: the rule's number, from 1.
        line: the line where it begins; 0 if that is not known.
        table: its keys.
    """

    path: str
    number: int
    line: int
    table: Mapping[str, Any]

    def rule(self) -> UserRule:
        for key, value in self.table.items():
            self.expect_valid(key, value)
        self.expect_complete()
        return UserRule(
            source=f"rules file {self.path} rule {self.number}",
            category=self.table.get("category", ""),
            force_low=self.table.get("force_low", False),
            ops=_texts(self.table.get("op", ())),
            node=self.table.get("node", ""),
            function=self.table.get("function", ""),
            dtype=self.table.get("dtype", ""),
            device=self.table.get("device", ""),
            attrs=_texts(self.table.get("attrs", ())),
            compute=self.table.get("compute", ""),
            output=self.table.get("output", ""),
            reason=self.table.get("reason", ""),
            saturate=self.table.get("saturate"),
            max_loss=self.table.get("max_loss"),
        )

    def expect_valid(self, key: str, value: object) -> None:
        kind = _KEYS.get(key)
        if kind is None:
            known = ", ".join(f"`{name}`" for name in _KEYS)
            raise self.error(f"unknown key `{key}`, expected one of {known}")
        if kind == _SWITCH:
            if value is not True:
                raise self.error(f"`{key}` is `{value}`, expected `true` (or leave it out)")
            return
        if kind in (_EITHER, _SHARE):
            is_right = isinstance(value, bool) if kind == _EITHER else _is_share(value)
            if not is_right:
                raise self.error(f"`{key}` is `{value}`, expected {kind}")
            return
        listed = value if kind == _TEXTS and isinstance(value, list) else [value]
        if not listed or not all(isinstance(text, str) and text for text in listed):
            expected = _TEXT if kind == _PATTERN else kind
            raise self.error(f"`{key}` is `{value}`, expected {expected} that is not empty")
        if kind == _PATTERN:
            try:
                re.compile(str(value))
            except re.error as error:
                raise self.error(
                    f"`{key}` is `{value}`, which is no regular expression: {error}"
                ) from error

    def expect_complete(self) -> None:
        table = self.table
        for key, allowed in (("dtype", tuple(dtypes.LOW_PRECISIONS)), ("device", _DEVICES)):
            if key in table and table[key] not in allowed:
                listed = ", ".join(f"`{word}`" for word in allowed)
                raise self.error(f"`{key}` is `{table[key]}`, expected one of {listed}")
        is_of_weights = "saturate" in table or "max_loss" in table
        if "category" in table and "force_low" in table:
            raise self.error("has both of `category` and `force_low`, expected one")
        if not {"category", "force_low"} & table.keys() and not is_of_weights:
            raise self.error(
                "has neither of `category` and `force_low`, expected one (or, for weights, "
                "`saturate` or `max_loss`)"
            )
        if not {"op", "node", "function"} & table.keys():
            raise self.error("names no `op`, `node` or `function`, so it would hold for all nodes")
        if "force_low" in table:
            extra = next((key for key in ("compute", "output") if key in table), "")
            problem = f"`{extra}` does not go with `force_low`" if extra else ""
        elif "category" not in table:
            extra = next((key for key in ("attrs", "compute", "output") if key in table), "")
            problem = f"`{extra}` needs a `category`" if extra else ""
        else:
            problem = problem_of(
                table["category"], table.get("compute", ""), table.get("output", "")
            )
        if problem:
            raise self.error(problem)

    def error(self, message: str) -> errors.FlagError:
        line = f" (line {self.line})" if self.line else ""
        return errors.FlagError(f"rule {self.number}{line}: {message}", path=self.path)


def _is_share(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return 0 <= value <= 1  # no NaN


def _texts(value: str | list[str] | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)
