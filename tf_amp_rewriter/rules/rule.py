"""`Rule`: what one class of type variables may become on its own account."""

from __future__ import annotations

import dataclasses
import enum
from typing import Final

from tf_amp_rewriter.ops.rows import Category
from tf_amp_rewriter.reasons import Kind


class Role(enum.Enum):
    """What a class is in the pass.

    NODE: computes something.
    CONSTANT, VARIABLE: weights.
    CAPTURED: a constant that functions read through an argument, as the object graph binds it, so
        that it exists once.
    TABLE: rows of a weight.
    SHAPE: reads a shape, not values.
    CAST_DOWN: input of a user's Cast to the low precision.
    CAST_UP: output of a user's Cast from something else to float32.
    CAST_BACK: output of a user's Cast from the low precision to float32, which loses nothing low.
    """

    NODE = "NODE"
    CONSTANT = "CONSTANT"
    CAPTURED = "CAPTURED"
    VARIABLE = "VARIABLE"
    TABLE = "TABLE"
    SHAPE = "SHAPE"
    CAST_DOWN = "CAST_DOWN"
    CAST_UP = "CAST_UP"
    CAST_BACK = "CAST_BACK"


CASTS_UP: Final = (Role.CAST_UP, Role.CAST_BACK)
WEIGHTS: Final = (Role.CONSTANT, Role.CAPTURED, Role.VARIABLE)


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """What one class may become.

    Attributes:
        category: what the pass may do with it.
        role: what it is.
        kind: why it can't be low if `eligible` is False, else its category as a kind.
        detail: the fact behind `kind`, in words.
        eligible: whether it may become low at all.
        taints: it computes unsafe values.
        taints_from_weights: it does so even if it computes them from weights alone.
        bounded: its results are never tainted.
        discrete: it never makes anything be rounded.
        only_if_wanted: low only if all consumers want that.
        only_inside: float32 where its result only leaves the model.
        positions: what it reads decides a size, an index or an integer.
        by_user: the user's lists say that it may become low, wherever it stands.
        source: where the row that it comes from is from; empty for what has no row.
        limit: a weight becomes low with its finite values clamped to this magnitude; 0 if it fits.
        in_place: they are clamped for what reads them in float32, too.
        unclamped: why the values would not fit without that.
        asked: the user asked to clamp them.
    """

    category: Category
    role: Role
    kind: Kind
    detail: str = ""
    eligible: bool = False
    taints: bool = False
    taints_from_weights: bool = False
    bounded: bool = False
    discrete: bool = False
    only_if_wanted: bool = False
    only_inside: bool = False
    positions: bool = False
    by_user: bool = False
    source: str = ""
    limit: float = 0.0
    in_place: bool = False
    unclamped: str = ""
    asked: bool = False


def kept(rule: Rule, kind: Kind, detail: str = "") -> Rule:
    """Returns `rule` for a class that stays float32 for this reason, unless the user wants it low.

    A rule that has a reason already keeps that.
    """
    if not rule.eligible or rule.by_user:
        return rule
    return dataclasses.replace(rule, eligible=False, kind=kind, detail=detail)
