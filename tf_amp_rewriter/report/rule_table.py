"""The rules as a text to read: `--list_rules`."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

from tf_amp_rewriter import dtypes, errors
from tf_amp_rewriter.ops import accumulation, calls, categories, meanings
from tf_amp_rewriter.ops.rows import Category, OpRow

WIDTH: Final = 120
_HEADINGS: Final = ("op", "category", "compute", "output", "dtype", "device", "condition", "source")
_NOTHING: Final = "-"
_NOTE: Final = "note"
_MIN_NOTE: Final = 40  # a narrower column of notes goes below its row instead
_MAX_OP: Final = 38
_GAP: Final = "  "
_INDENT: Final = "    "
_CALL: Final = "a call: as what flows into its function, or out of it"


def text(ops: Sequence[str] = ()) -> str:
    """Returns the rows of these ops, or of all, as lines of at most `WIDTH` characters.

    A row that names a dtype or a device holds for that one and beats one that does not. `compute`
    is the type in which the low kernel adds up (the worst of what the row holds for), `-` where it
    adds nothing up or there is none.

    Raises:
        errors.FlagError: an op has no row.
    """
    known = {row.op for row in categories.ROWS} | set(meanings.BY_MEANING) | set(calls.CALLS)
    for op in ops:
        if op not in known:
            raise _unknown(op, known)
    rows = sorted(
        (row for row in categories.ROWS if not ops or row.op in ops),
        key=lambda row: (row.op, categories.specificity(row), row.dtype, row.device),
    )
    lines = list(_table(rows)) if rows else []
    others = dict.fromkeys(calls.CALLS, _CALL) | dict(meanings.BY_MEANING)
    own = [f"{op}: {others[op]}" for op in sorted(others) if not ops or op in ops]
    if own and lines:
        lines += ["", "Ops without a row, and what they follow:"]
    return "\n".join([*lines, *own]) + "\n"


def _unknown(op: str, known: set[str]) -> errors.FlagError:
    public = sorted(name for name in known if not name.startswith("_"))
    near = difflib.get_close_matches(op, public, n=3)
    meant = f"did you mean {' or '.join(f'`{name}`' for name in near)}?" if near else ""
    return errors.FlagError(f"`list_rules` names op `{op}`, which no rule knows", meant)


def _table(rows: Sequence[OpRow]) -> Iterator[str]:
    """Yields a line for each row, with its note beside it or, where there is no room, below."""
    cells = [_HEADINGS, *(_cells(row) for row in rows)]
    columns = [c for c in range(len(_HEADINGS)) if any(line[c] for line in cells[1:])]
    widths = {c: max(len(line[c]) for line in cells) for c in columns}
    widths[0] = min(widths[0], _MAX_OP)  # the few longer names push the rest to the right
    start = sum(widths.values()) + len(_GAP) * len(columns)
    is_beside = WIDTH - start >= _MIN_NOTE
    for line, note in zip(cells, [_NOTE if is_beside else "", *map(_note, rows)], strict=True):
        padded = _GAP.join(line[c].ljust(widths[c]) for c in columns)
        if is_beside:
            notes = textwrap.wrap(note, WIDTH - start)
            yield f"{padded}{_GAP}{notes[0] if notes else ''}".rstrip()
            yield from (" " * start + more for more in notes[1:])
        else:
            source = start - widths[columns[-1]] - len(_GAP)  # the last column
            yield from textwrap.wrap(padded, WIDTH, subsequent_indent=" " * source)
            yield from (_INDENT + more for more in textwrap.wrap(note, WIDTH - len(_INDENT)))


def _cells(row: OpRow) -> tuple[str, ...]:
    output = row.output.value if row.category is Category.DENY else ""
    target = row.dtype or "both", row.device or "all"
    return (row.op, row.category.value, _compute(row), output, *target, row.condition, row.source)


def _compute(row: OpRow) -> str:
    lows = [dtypes.LOW_PRECISIONS[row.dtype]] if row.dtype else dtypes.LOW_PRECISIONS.values()
    found = {accumulation.compute(row.op, low, row.device or "any") for low in lows} - {""}
    if accumulation.LOW in found:
        return accumulation.LOW
    return accumulation.FLOAT32 if found else _NOTHING


def _note(row: OpRow) -> str:
    only = f"{', '.join(row.attrs)} only" if row.attrs else ""
    flags = (
        ("bounded", "its results are bounded, so never tainted"),
        ("discrete", "it makes nothing be rounded"),
        ("only_if_wanted", "low only if all that reads it wants low"),
        ("only_inside", "float32 where its result only leaves the model"),
        ("positions", "what it reads is positions or sizes"),
        ("safe_on_weights", "does not taint what it computes from weights"),
    )
    told = [row.note, only, *(words for field, words in flags if getattr(row, field))]
    return "; ".join(filter(None, told))
