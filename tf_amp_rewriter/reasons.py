"""Reasons as data: why a type variable has its precision; `report/words.py` has the sentences."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence

NO_CAUSE = -1


class Kind(enum.Enum):
    """The kind of reason.

    ALLOW, INFER, CLEAR: low by the op's category. FREE: a weight, low as its consumers are.
    The others are why it stayed float32. DENY, KEEP: by the op's category. TAINTED: what flows in
    was computed by a DENY op. NOTHING_LOW: nothing low flows in. CONSUMERS: a weight whose
    consumers are float32. PINNED: outsiders see it. RANGE: a constant or weight does not fit.
    NO_KERNEL: no kernel, or the definition forbids it. CONDITION: the node's shapes or attributes
    make the low kernel inaccurate. POSITION: it decides a size, an index or an integer. CONTROL: a
    loop or branch hangs on it. SUM: a loop adds to it, or scales it, at each step.
    UNKNOWN_OP: nobody knows the op. USER: the user's lists or patterns. ISLAND: low saved nothing.
    """

    ALLOW = "ALLOW"
    INFER = "INFER"
    CLEAR = "CLEAR"
    FREE = "FREE"
    DENY = "DENY"
    KEEP = "KEEP"
    TAINTED = "TAINTED"
    NOTHING_LOW = "NOTHING_LOW"
    CONSUMERS = "CONSUMERS"
    PINNED = "PINNED"
    RANGE = "RANGE"
    NO_KERNEL = "NO_KERNEL"
    CONDITION = "CONDITION"
    POSITION = "POSITION"
    CONTROL = "CONTROL"
    SUM = "SUM"
    UNKNOWN_OP = "UNKNOWN_OP"
    USER = "USER"
    ISLAND = "ISLAND"


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """The precision of one class of type variables.

    Attributes:
        low: whether it becomes low.
        kind: the kind of reason.
        detail: the fact behind it, in words; may be empty.
        cause: the class that caused it (the origin of a taint); `NO_CAUSE` if none did.
        limit: finite values of a weight are clamped to this magnitude; 0 clamps nothing.
        in_place: they are clamped for what reads them in float32, too.
        asked: the user asked to clamp them: answers may change.
    """

    low: bool
    kind: Kind
    detail: str = ""
    cause: int = NO_CAUSE
    limit: float = 0.0
    in_place: bool = False
    asked: bool = False


Decisions = Sequence[Decision]  # by class
