"""The flags of the command line as one table, and the help text made from it."""

from __future__ import annotations

import dataclasses
from typing import Final, cast

from tf_amp_rewriter import options

PROGRAM: Final = "tf_amp_rewriter"
# Each value becomes one of absl's flag types.
TEXT, SWITCH, LIST, REPEATED = "text", "switch", "list", "repeated"


@dataclasses.dataclass(frozen=True)
class FlagRow:
    """One flag.

    Attributes:
        group: the heading it stands under in the help text.
        name: its name, without dashes; also the field of `Options` where `is_option`.
        kind: `text`, `switch`, `list` (split at commas) or `repeated` (given once per value).
        value: stands for the value in the help text.
        text: what it does, one sentence.
        is_option: whether it is a field of `Options`, and has that field's default.
    """

    group: str
    name: str
    kind: str
    value: str
    text: str
    is_option: bool = True


_WHAT, _HOW, _OPS, _TOLD = "What to rewrite", "How", "Which ops", "What is told"

FLAGS: Final = (
    FlagRow(_WHAT, "saved_model_dir", TEXT, "DIR", "SavedModel to rewrite.", False),
    FlagRow(_WHAT, "output_dir", TEXT, "DIR", "Where the rewritten SavedModel goes.", False),
    FlagRow(_WHAT, "graph_def", TEXT, "FILE", "Frozen GraphDef to rewrite, .pb or .pbtxt.", False),
    FlagRow(_WHAT, "output_graph_def", TEXT, "FILE", "Where the rewritten GraphDef goes.", False),
    FlagRow(_WHAT, "inputs", LIST, "A,B", "GraphDef: tensors that are fed, besides placeholders."),
    FlagRow(
        _WHAT, "outputs", LIST, "A,B", "GraphDef: tensors that are fetched; they keep their dtypes."
    ),
    FlagRow(_WHAT, "tags", LIST, "A,B", "SavedModel: rewrite the meta graphs with all these tags."),
    FlagRow(_HOW, "dtype", TEXT, "DTYPE", "The low precision: half or bfloat16."),
    FlagRow(
        _HOW,
        "device",
        TEXT,
        "DEVICE",
        "Where it will run: gpu, cpu or any (only what is right on both).",
    ),
    FlagRow(
        _HOW,
        "saturate",
        SWITCH,
        "",
        "Clamp constants and weights that overflow, such as masks of -1e9.",
    ),
    FlagRow(_HOW, "overwrite", SWITCH, "", "Replace an output that exists."),
    FlagRow(_OPS, "allow_ops", LIST, "OP,OP", "Op types that always gain from low precision."),
    FlagRow(
        _OPS, "infer_ops", LIST, "OP,OP", "Op types that are safe unless what flows in is not."
    ),
    FlagRow(_OPS, "clear_ops", LIST, "OP,OP", "Op types that only move or select values."),
    FlagRow(_OPS, "deny_ops", LIST, "OP,OP", "Op types that must stay float32; * is all of them."),
    FlagRow(
        _OPS,
        "keep_float32",
        REPEATED,
        "REGEX",
        "Nodes whose name it matches (re.search) stay float32; repeatable.",
    ),
    FlagRow(
        _OPS,
        "force_low",
        REPEATED,
        "REGEX",
        "Nodes whose name it matches become low where they can; repeatable.",
    ),
    FlagRow(_OPS, "rules", TEXT, "FILE", "Rules of your own, .toml; the flags above are stronger."),
    FlagRow(
        _OPS,
        "missing_op",
        TEXT,
        "WHAT",
        "What an op that no rule knows is: error, warn or ignore.",
    ),
    FlagRow(
        _TOLD,
        "report_json",
        TEXT,
        "FILE",
        "Where every decision goes, with its reason; - is standard output.",
        False,
    ),
    FlagRow(
        _TOLD,
        "explain",
        REPEATED,
        "NODE",
        "Tell why these nodes (name or regex) are as they are; repeatable.",
        False,
    ),
    FlagRow(
        _TOLD,
        "list_rules",
        SWITCH,
        "[OP]",
        "Print what is known about all ops, or about those named, and exit.",
        False,
    ),
    FlagRow(_TOLD, "version", SWITCH, "", "Print the version and exit.", False),
    FlagRow(_TOLD, "help", SWITCH, "", "Print this text and exit.", False),
)

_USAGE: Final = """\
Stores a TensorFlow model in mixed precision: what gains from half or bfloat16 is lowered, with
its weights; what needs float32 keeps it; inputs and outputs stay as they are.

    tf_amp_rewriter --saved_model_dir IN --output_dir OUT [flags]
    tf_amp_rewriter --graph_def IN.pb --outputs A,B --output_graph_def OUT.pb [flags]
    tf_amp_rewriter --saved_model_dir IN --explain NODE      (writes nothing)
"""
_EXIT_CODES: Final = """\
Exit codes:
  0  done (the summary says so if there was nothing to lower)
  1  wrong flags
  2  the input can't be read or is not a valid model
  4  the output can't be written
  5  a bug of tf_amp_rewriter: nothing was published
"""


def help_text() -> str:
    """Returns what `--help` prints."""
    lines = [_USAGE]
    for group in dict.fromkeys(row.group for row in FLAGS):
        lines.append(f"{group}:")
        lines += [_help_line(row) for row in FLAGS if row.group == group]
        lines.append("")
    return "\n".join([*lines, _EXIT_CODES])


def _help_line(row: FlagRow) -> str:
    flag = f"--{row.name} {row.value}".rstrip()
    value = default(row)
    shown = ",".join(value) if isinstance(value, tuple) else value
    suffix = f" [{shown}]" if shown else ""
    return f"  {flag:24}  {row.text}{suffix}"


def default(row: FlagRow) -> str | bool | tuple[str, ...]:
    """Returns the default that `Options` has, or the empty value of the kind."""
    if row.is_option:
        field = next(f for f in dataclasses.fields(options.Options) if f.name == row.name)
        return cast("str | bool | tuple[str, ...]", field.default)
    return False if row.kind == SWITCH else ""
