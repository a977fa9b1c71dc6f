"""The command line: flags -> `Options` -> pipeline -> exit status.

This module alone prints, decides the exit status and touches the environment. It imports no
TensorFlow before the flags are known to be right: help and flag errors answer at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import os
import pathlib
import platform
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from absl import flags

from tf_amp_rewriter import environment, errors, flag_table, options, quiet
from tf_amp_rewriter.report import json_file, rule_table, terminal
from tf_amp_rewriter.version import VERSION

if TYPE_CHECKING:
    from tf_amp_rewriter.report import model

INTERRUPTED: Final = 130  # what a shell reports for a program that SIGINT ended
STDOUT: Final = "-"
_LOG_LEVEL: Final = "TF_CPP_MIN_LOG_LEVEL"
_SEE_HELP: Final = f"`{flag_table.PROGRAM} --help` lists the flags"
# Per kind of input: the flags that it needs, the output first, and those that do not go with it.
_COMPANIONS: Final = {
    "saved_model_dir": (("output_dir",), ("output_graph_def", "inputs", "outputs")),
    "graph_def": (("output_graph_def", "outputs"), ("output_dir", "tags")),
}


@dataclasses.dataclass(frozen=True)
class Given:
    """The parsed flags.

    Attributes:
        values: the value of every flag, given or default; lists as tuples.
        present: names of the flags that the command line has.
        words: what is no flag and no value of one: the ops of `--list_rules`.
    """

    values: Mapping[str, Any]
    present: frozenset[str]
    words: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Request:
    """What the flags ask for.

    Attributes:
        source: the SavedModel's directory or the GraphDef's file.
        destination: where the result goes; empty only to explain, and to write nothing.
        is_graph_def: whether it is a frozen GraphDef.
        report_json: where the JSON report goes, `-` for standard output; may be empty.
        explain: names or patterns of nodes to explain.
        options: the rest.
    """

    source: str
    destination: str
    is_graph_def: bool
    report_json: str
    explain: tuple[str, ...]
    options: options.Options


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        argv: the program's name and its arguments; `sys.argv` if None.

    Returns:
        The exit status.
    """
    argv = sys.argv if argv is None else argv
    try:
        with _terminated_as_interrupted():
            return _run(argv)
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return INTERRUPTED
    except errors.InternalError as error:
        return _own_fault(error, argv)
    except errors.RewriteError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    except Exception as error:
        return _own_fault(error, argv)


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Lets SIGTERM (`docker stop`, a CI timeout) unwind as Ctrl-C does: staging is removed."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not in the main thread, where signals don't arrive
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(argv: Sequence[str]) -> int:
    given = _parse(argv)
    if given.values["help"]:
        print(flag_table.help_text(), end="")
        return 0
    if given.values["version"]:
        print(f"{flag_table.PROGRAM} {VERSION}")
        return 0
    if given.values["list_rules"]:
        print(rule_table.text(given.words), end="")
        return 0
    request = _request(given)
    _expect_writable(request.report_json)
    report = _rewrite(request)
    _tell(report, request)
    _explain(report, request)
    return 0


def _parse(argv: Sequence[str]) -> Given:
    """Returns the flags; absl's set of them is made anew, so that nothing outlives the call.

    Raises:
        errors.FlagError: a flag is unknown or has no proper value, or a word is no flag.
    """
    parsed = flags.FlagValues()  # type: ignore[no-untyped-call] # absl gives it no result type
    parsed.set_gnu_getopt(True)
    for row in flag_table.FLAGS:
        _DEFINE[row.kind](row, parsed)
    try:
        left_over = parsed([word for argument in argv for word in _words(argument)])[1:]
    except flags.UnrecognizedFlagError as error:
        raise errors.FlagError(
            f"unknown flag `--{error.flagname}`", _suggestion(error.flagname)
        ) from error
    except (flags.Error, ValueError) as error:
        raise errors.FlagError(str(error), _SEE_HELP) from error
    if left_over and not parsed["list_rules"].value:
        shown = ", ".join(f"`{word}`" for word in left_over)
        raise errors.FlagError(f"found {shown}, expected flags only", _SEE_HELP)
    values = {row.name: parsed[row.name].value for row in flag_table.FLAGS}
    return Given(
        {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in values.items()
        },
        frozenset(name for name in values if parsed[name].present),
        tuple(left_over),
    )


def _words(argument: str) -> Sequence[str]:
    """Returns `argument`; in two where it gives the switch `--list_rules` an op."""
    flag, equals, op = argument.partition("=")
    return (flag, op) if equals and flag.lstrip("-") == "list_rules" else (argument,)


def _suggestion(name: str) -> str:
    near = difflib.get_close_matches(name, [row.name for row in flag_table.FLAGS], n=3)
    return f"did you mean {' or '.join(f'`--{flag}`' for flag in near)}?" if near else _SEE_HELP


def _define_text(row: flag_table.FlagRow, values: flags.FlagValues) -> None:
    flags.DEFINE_string(row.name, str(flag_table.default(row)), row.text, flag_values=values)


def _define_switch(row: flag_table.FlagRow, values: flags.FlagValues) -> None:
    short_name = "h" if row.name == "help" else None
    flags.DEFINE_bool(
        row.name, bool(flag_table.default(row)), row.text, flag_values=values, short_name=short_name
    )


def _define_list(row: flag_table.FlagRow, values: flags.FlagValues) -> None:
    default = flag_table.default(row)
    given = list(default) if isinstance(default, tuple) else []
    flags.DEFINE_list(row.name, given, row.text, flag_values=values)


def _define_repeated(row: flag_table.FlagRow, values: flags.FlagValues) -> None:
    flags.DEFINE_multi_string(row.name, [], row.text, flag_values=values)


_DEFINE: Final[dict[str, Callable[[flag_table.FlagRow, flags.FlagValues], None]]] = {
    flag_table.TEXT: _define_text,
    flag_table.SWITCH: _define_switch,
    flag_table.LIST: _define_list,
    flag_table.REPEATED: _define_repeated,
}


def _request(given: Given) -> Request:
    """Returns what the flags ask for.

    Raises:
        errors.FlagError: a flag is missing, is wrong, or belongs to the other kind of input.
    """
    sources = [name for name in ("saved_model_dir", "graph_def") if given.values[name]]
    if len(sources) != 1:
        found = "both" if sources else "neither"
        raise errors.FlagError(
            f"found {found} of `--saved_model_dir` and `--graph_def`, expected one", _SEE_HELP
        )
    source = sources[0]
    needed, foreign = _COMPANIONS[source]
    explain = given.values["explain"]
    for name in needed:
        is_needed = name != needed[0] or not explain
        if is_needed and not given.values[name]:
            raise errors.FlagError(f"`--{source}` needs `--{name}`", _SEE_HELP)
    for name in foreign:
        if name in given.present:
            raise errors.FlagError(f"`--{name}` does not go with `--{source}`", _SEE_HELP)
    if explain and given.values["report_json"] == STDOUT:
        raise errors.FlagError(
            "`--explain` and `--report_json -` both go to standard output",
            "give a file for the report",
        )
    for pattern in explain:
        options.expect_pattern("explain", pattern)
    return Request(
        source=given.values[source],
        destination=given.values[needed[0]],
        is_graph_def=source == "graph_def",
        report_json=given.values["report_json"],
        explain=explain,
        options=options.Options(
            **{row.name: given.values[row.name] for row in flag_table.FLAGS if row.is_option},
            grappler_lists=environment.grappler_lists(os.environ),
        ),
    )


def _rewrite(request: Request) -> model.Report:
    if os.environ.get(_LOG_LEVEL, "3") < "3":  # the user wants to see TensorFlow's log
        from tf_amp_rewriter import pipeline
    else:
        # Level 3 leaves fatal errors; all others reach us as Python exceptions as well.
        os.environ[_LOG_LEVEL] = "3"
        with quiet.quiet_stderr():
            from tf_amp_rewriter import pipeline
    if not request.destination:
        decide = (
            pipeline.decide_frozen_graph if request.is_graph_def else pipeline.decide_saved_model
        )
        return decide(request.source, request.options)
    rewrite = (
        pipeline.rewrite_frozen_graph if request.is_graph_def else pipeline.rewrite_saved_model
    )
    return rewrite(request.source, request.destination, request.options)


def _expect_writable(report_json: str) -> None:
    """Refuses a report that could not be written, before the work and not after it."""
    if report_json in ("", STDOUT):
        return
    path = pathlib.Path(report_json)
    if path.is_dir():
        raise errors.OutputError("is a directory, expected a file for the report", path=report_json)
    if not os.access(path.parent, os.W_OK):
        raise errors.OutputError(
            f"can't be written: `{path.parent}` is not a directory that can be written to",
            "make it, or give another `--report_json`",
            path=report_json,
        )


class _ReportError(errors.InternalError):
    """The model is complete, but its report can't be made."""


def _tell(report: model.Report, request: Request) -> None:
    """Prints the summary on stderr, and writes the JSON report where it is asked for."""
    try:
        summary = terminal.summary(report)
        text = json_file.to_json(report) if request.report_json else ""
    except Exception as error:
        raise _ReportError(f"the report can't be made: {_named(error)}") from error
    if request.destination:  # else nothing was done that could be summed up
        print(summary, end="", file=sys.stderr)
    if text:
        _write_json(text, request)


def _explain(report: model.Report, request: Request) -> None:
    """Prints what `--explain` asks for on stdout."""
    if not request.explain:
        return
    from tf_amp_rewriter.report import explain

    try:
        text = explain.explain(report, *request.explain)
    except errors.FlagError as error:
        if request.destination:
            complete = f"the model itself is complete: `{request.destination}`"
            error.hint = "\n".join(filter(None, (error.hint, complete)))
        raise
    except Exception as error:
        raise _ReportError(f"the explanation can't be made: {_named(error)}") from error
    print(text, end="", flush=True)


def _write_json(text: str, request: Request) -> None:
    try:
        if request.report_json == STDOUT:
            print(text, end="", flush=True)
        else:
            pathlib.Path(request.report_json).write_text(text, encoding="utf-8")
    except OSError as error:
        raise errors.OutputError(
            f"the report can't be written: {error.strerror}",
            f"the model itself is complete: `{request.destination}`" if request.destination else "",
            path=request.report_json,
        ) from error


def _own_fault(error: Exception, argv: Sequence[str]) -> int:
    """Says that the fault is ours, where the traceback is, and how to report it."""
    message = _named(error)
    if isinstance(error, errors.RewriteError):
        message = str(dataclasses.replace(error, hint=""))  # our hint below says what to do
    outcome = (
        "the output is complete" if isinstance(error, _ReportError) else "nothing was published"
    )
    print(f"error: internal error: {message}", file=sys.stderr)
    print(
        f"hint: this is a bug of {flag_table.PROGRAM} {VERSION}, not of your model; {outcome}. "
        "Please open an issue with this message, the traceback and, if possible, the model's "
        "saved_model.pb (the graph without its weights).",
        file=sys.stderr,
    )
    details = _details(error, argv)
    try:
        handle, path = tempfile.mkstemp(prefix=f"{flag_table.PROGRAM}_", suffix=".txt", text=True)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(details)
    except OSError:
        print(details, end="", file=sys.stderr)
    else:
        print(f"hint: the traceback is in {path}", file=sys.stderr)
    return errors.InternalError.exit_status


def _named(error: Exception) -> str:
    return traceback.format_exception_only(error)[-1].strip()


def _details(error: Exception, argv: Sequence[str]) -> str:
    tensorflow = getattr(sys.modules.get("tensorflow"), "__version__", "not imported")
    return (
        f"{flag_table.PROGRAM} {VERSION}, Python {platform.python_version()}, "
        f"TensorFlow {tensorflow}, {platform.platform()}\n"
        f"arguments: {list(argv[1:])}\n\n{''.join(traceback.format_exception(error))}"
    )
