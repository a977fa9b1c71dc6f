"""Weights that do not fit the low precision: what reads them stays float32, or they are clamped."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from tf_amp_rewriter import dtypes
from tf_amp_rewriter.dtypes import LowPrecision
from tf_amp_rewriter.ops.rows import OpRow
from tf_amp_rewriter.options import Options
from tf_amp_rewriter.reasons import Kind
from tf_amp_rewriter.rules.rule import Rule


def max_loss(row: OpRow | None) -> float:
    """Returns the share of a weight that rounding may cost."""
    return dtypes.MAX_LOSS if row is None or row.max_loss is None else row.max_loss


def fit_of_constant(
    values: NDArray[np.float32], low: LowPrecision, row: OpRow | None
) -> dtypes.Fit:
    """Returns whether a constant may be rounded to `low`.

    A mask that is added to attention scores must leave room for them: two of -65504 in half are
    minus infinity, and a row of these alone is no row of equal values any more.
    """
    fit = dtypes.fit(values, low, max_loss(row))
    if not fit.problem and row is not None and row.in_place and row.limit and low == dtypes.HALF:
        largest = float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
        if largest > row.limit:
            reason = "what it is added to may bring it beyond the range of half"
            return dtypes.Fit(f"holds {largest:.6g}: {reason}", clamps=True)
    return fit


def fitted(rule: Rule, fit: dtypes.Fit, row: OpRow | None, options: Options) -> Rule:
    """Returns the rule of a weight, `rule` if it fits.

    Args:
        rule: what holds if it fits.
        fit: whether it does.
        row: what is known about the weight for itself.
        options: the user's wishes; they hold where `row` does not say otherwise.
    """
    if not fit.problem:
        return rule
    wish = row.saturate if row is not None else None
    # a sentinel may be clamped however much of a constant it fills
    is_mask = row is not None and row.limit > 0
    if not (options.saturate if wish is None else wish) or not (fit.clamps or is_mask):
        return dataclasses.replace(rule, eligible=False, kind=Kind.RANGE, detail=fit.problem)
    if row is not None and row.limit:
        limit, in_place, note = row.limit, row.in_place, row.note
    else:
        limit, in_place, note = options.low.max, False, ""
    return dataclasses.replace(
        rule,
        limit=limit,
        in_place=in_place,
        unclamped=fit.problem,
        asked=not (row is not None and row.saturate and row.pattern),
        detail=f"what it {fit.problem.partition(',')[0]} is clamped to {limit:.6g}"
        + (f": {note}" if note else ""),
    )
