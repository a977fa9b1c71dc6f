"""Reasons -> sentences."""

from __future__ import annotations

from tf_amp_rewriter.reasons import Kind

_SENTENCES = {
    Kind.ALLOW: "it gains the most in low precision",
    Kind.INFER: "safe in low precision, and a low value flows in",
    Kind.CLEAR: "it changes no values, and what it reads or what reads it is low",
    Kind.FREE: "a weight that low precision ops read",
    Kind.DENY: "the op is numerically unsafe in low precision",
    Kind.KEEP: "the op keeps float32",
    Kind.TAINTED: "it reads what a numerically unsafe op computed",
    Kind.NOTHING_LOW: "no low value flows in",
    Kind.CONSUMERS: "only float32 ops read it",
    Kind.PINNED: "seen from outside",
    Kind.RANGE: "a value that it reads does not fit",
    Kind.NO_KERNEL: "there is no kernel",
    Kind.CONDITION: "the low kernel would be inaccurate here",
    Kind.POSITION: "it decides a size, an index or an integer",
    Kind.CONTROL: "a loop or a branch hangs on it",
    Kind.SUM: "a loop adds to it or scales it at each step, and a low sum stalls",
    Kind.UNKNOWN_OP: "nobody knows the op",
    Kind.USER: "the user's lists or patterns keep it",
    Kind.ISLAND: "lowering it alone would cost more than it saves",
}

OF_A_DENIED_OP = "it reads what an op computed that the user denied"
# Of these the detail, where there is one, says it all.
_TOLD_BY_DETAIL = frozenset(
    {
        Kind.CONDITION,
        Kind.CONSUMERS,
        Kind.DENY,
        Kind.KEEP,
        Kind.NOTHING_LOW,
        Kind.NO_KERNEL,
        Kind.PINNED,
        Kind.TAINTED,
    }
)


def sentence(kind: Kind, detail: str, cause: str) -> str:
    """Returns why a type variable has its precision.

    Args:
        kind: the kind of reason.
        detail: the fact behind it; may be empty.
        cause: name of the node that caused it; may be empty.
    """
    text = _SENTENCES[kind]
    if kind in _TOLD_BY_DETAIL and detail:
        text = detail
    elif detail:
        text = f"{text}: {detail}"
    return f"{text} (`{cause}`)" if cause else text
