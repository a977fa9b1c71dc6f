"""The closed list of errors; each class is one exit status of the command line.

Every error says what was found and where; `hint` says what to do about it. Errors are raised where
the fact is known and caught once, in `cli.main`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator


@dataclasses.dataclass
class RewriteError(Exception):
    """An error with the place where it was found and a hint.

    Attributes:
        message: what was found and what was expected; one fact.
        hint: what the user can do about it; may be empty.
        path: the file or directory at fault; may be empty.
        scope: name of the function the fault is in; empty for the main graph.
        node: name of the node at fault; may be empty.
    """

    message: str
    hint: str = ""
    path: str = ""
    scope: str = ""
    node: str = ""

    exit_status = 5

    def __str__(self) -> str:
        """Returns `<path>: <scope>/<node>: <message>` with the hint on its own line."""
        place = "/".join(part for part in (self.scope, self.node) if part)
        text = ": ".join(part for part in (self.path, place, self.message) if part)
        return f"{text}\nhint: {self.hint}" if self.hint else text


class FlagError(RewriteError):
    """The options contradict each other or name something that does not exist."""

    exit_status = 1


class InputError(RewriteError):
    """The input can't be read or is not a valid model."""

    exit_status = 2


class OutputError(RewriteError):
    """The output can't be written."""

    exit_status = 4


class InternalError(RewriteError):
    """An invariant of ours was broken: our own bug; nothing is published."""

    exit_status = 5


@contextlib.contextmanager
def at_path(path: str) -> Iterator[None]:
    """Adds `path` to an error that does not say which file or directory it is about."""
    try:
        yield
    except RewriteError as error:
        error.path = error.path or path
        raise
