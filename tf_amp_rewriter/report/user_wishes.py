"""What a run tells users of the rules that they gave, and of ops that need one."""

from __future__ import annotations

from collections.abc import Iterator

from tf_amp_rewriter import errors
from tf_amp_rewriter.report.trace import Trace
from tf_amp_rewriter.rules import wishes


def warnings(trace: Trace) -> Iterator[str]:
    """Yields a sentence for all that users should know of their rules.

    Raises:
        errors.FlagError: `keep_float32` and `force_low` mean the same node.
        errors.InputError: no rule knows an op, and `missing_op` is `error`.
    """
    yield from _missing_ops(trace)
    advice = wishes.advice(trace.flow, trace.decisions, trace.options)
    yield from advice.warnings
    if advice.forced:
        reasons = (
            f"`{trace.path(var)}` ({trace.sentence(trace.decisions[trace.flow.class_of[var]])})"
            for var in advice.forced
        )
        yield f"`force_low` leaves float32: {', '.join(reasons)}"


def _missing_ops(trace: Trace) -> Iterator[str]:
    action = trace.options.missing_op
    missing = {} if action == "ignore" else wishes.missing_ops(trace.flow, trace.options)
    if missing:
        shown = ", ".join(f"`{op}` ({count})" for op, count in missing.items())
        sentence = f"no rule knows these ops, so they stay float32: {shown}"
        if action == "error":
            raise errors.InputError(
                sentence, "give them rules (`--rules`), or `--missing_op warn` or `ignore`"
            )
        yield sentence
