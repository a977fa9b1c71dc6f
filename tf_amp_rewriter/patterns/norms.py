"""Norms: layer, group, instance and RMS norm, and division by a Euclidean norm.

    y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) * scale + offset

The moments and the inverse are computed in float32: squares overflow half above 255, and a mean of
many terms stalls. The result lies between -sqrt(n) and sqrt(n) for n values, so it is no more
dangerous than any other low value: it taints nothing. (As any sum in half, `x - mean` may be beyond
the range if x is beyond half of it.) Two spellings are known:

    direct:    y = (x - mean) * inverse * scale + offset
    spread:    y = x * (inverse * scale) + (offset - mean * (inverse * scale))

In the direct one all from `x - mean` on may be low. In the spread one `x * inverse` overflows half
where a row hardly varies (its difference to `mean * inverse` would be 0), so it stays float32; if x
is low, `rewrite/norms.py` writes it as the direct one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Final

from tf_amp_rewriter.dtypes import HALF, LowPrecision
from tf_amp_rewriter.ops.rows import Category, OpRow, Output
from tf_amp_rewriter.patterns.moments import (
    ADDS,
    DIVIDES,
    MIN_EPSILON,
    SMALL,
    Moments,
    centred_of,
    of_root,
)
from tf_amp_rewriter.patterns.view import View

ROOTS: Final = frozenset({"Rsqrt", "Sqrt"})
_SOURCE: Final = "numerics of norms"
# A divisor below 2^-14 is subnormal in half and loses digits.
MIN_DIVISOR: Final = 2.0**-14

Input = tuple[int, int]  # (node, position): what this input of the node reads


@dataclasses.dataclass(frozen=True)
class Norm:
    """One norm.

    Attributes:
        scope: index of its scope.
        name: what it is called.
        moments: the squares, what they are of where that is x - mean, and their mean.
        mean_node: the node that computes the mean; None in an RMS norm.
        roots: the root, and the divisor made of it.
        x: what is normalised, as an input of one of the nodes.
        mean: its mean, likewise; None in an RMS norm.
        factor: the root or divisor, likewise.
        scale, offset: what it is multiplied by, and what is added, likewise; None if nothing is, or
            if that stands behind `end` and needs no attention.
        divides: whether x is divided by `factor`.
        core: the nodes between x, mean, factor and end.
        inner: those of them that nothing else reads.
        end: the last node.
        is_direct: whether it is spelled directly, and x - mean is read by nothing else.
        epsilon: see `Moments`; of a divisor its square.
        is_sum: see `Moments`.
    """

    scope: int
    name: str
    moments: tuple[int, ...]
    mean_node: int | None
    roots: tuple[int, ...]
    x: Input
    mean: Input | None
    factor: Input
    scale: Input | None
    offset: Input | None
    divides: bool
    core: tuple[int, ...]
    inner: tuple[int, ...]
    end: int
    is_direct: bool
    epsilon: float
    is_sum: bool

    def fits(self, low: LowPrecision) -> bool:
        """Returns whether mean and inverse fit the low precision, whatever x is."""
        if low != HALF:
            return True
        least = MIN_DIVISOR**2 if self.divides else MIN_EPSILON
        return not self.is_sum and self.epsilon >= least


def rows(view: View, low: LowPrecision) -> Iterator[tuple[int, OpRow]]:
    """Yields (node, row) for the nodes of all norms of a scope."""
    for norm in find(view):
        note = f"the moments of a {norm.name} are computed in float32"
        for node in norm.moments:
            yield node, _row(view, norm, node, Category.DENY, note)
        if norm.mean_node is not None:
            yield norm.mean_node, _row(view, norm, norm.mean_node, Category.DENY, note, Output.LOW)
        for node in norm.roots:
            row = _row(view, norm, node, Category.DENY, note, Output.LOW)
            yield node, dataclasses.replace(row, bounded=True)
        if norm.is_direct and norm.fits(low):
            row = _row(view, norm, norm.end, Category.INFER)
            yield norm.end, dataclasses.replace(row, bounded=True)
        else:
            note = f"a {norm.name} in this spelling is computed in float32 to its end"
            for node in (*norm.core, norm.end):
                row = _row(view, norm, node, Category.KEEP, note)
                yield node, dataclasses.replace(row, bounded=True)


def _row(
    view: View,
    norm: Norm,
    node: int,
    category: Category,
    note: str = "",
    output: Output = Output.FLOAT32,
) -> OpRow:
    return OpRow(view.op(node), category, _SOURCE, output=output, pattern=norm.name, note=note)


def find(view: View) -> Iterator[Norm]:
    """Yields the norms of a scope; linear in its nodes."""
    if not view.scope.ops & ROOTS:
        return
    for index, node in enumerate(view.scope.nodes):
        if node.op in ROOTS and node.known:
            moments = of_root(view, index)
            if moments is not None:
                yield from _of_root(view, index, moments)


# ---------------------------------------------------------------- what the root is for


def _of_root(view: View, root: int, moments: Moments) -> Iterator[Norm]:
    """Yields the norms that a root is the last moment of; none if it is of use elsewhere too."""
    divides = view.op(root) == "Sqrt"
    epsilon, factor = moments.epsilon, root
    if divides:
        guarded = _guarded(view, root)
        if guarded is not None:
            factor, least = guarded
            epsilon = max(epsilon, least * least)
    base = dataclasses.replace(moments, roots=tuple({root, factor}), epsilon=epsilon)
    uses = view.uses(factor)
    applied = [_applied(view, user, position, base, divides) for user, position in uses]
    if all(applied) and (factor == root or len(view.uses(root)) == 1):
        yield from filter(None, applied)
    elif not divides:
        spread = _spread(view, factor, base)
        if spread is not None:
            yield spread


def _guarded(view: View, root: int) -> tuple[int, float] | None:
    """Returns the divisor sqrt(variance) + epsilon, and epsilon."""
    for user, position in view.uses(root):
        if view.op(user) in ADDS | {"Maximum"}:
            value = view.constant(user, 1 - position)
            if value is not None and value > 0:
                return user, value
    return None


def _applied(view: View, user: int, position: int, moments: Moments, divides: bool) -> Norm | None:
    """Returns the norm that ends, but for scale and offset, with this use of the inverse."""
    op = view.op(user)
    if not (op in DIVIDES and position == 1 if divides else op == "Mul"):
        return None
    data = view.operand(user, 1 - position)
    if moments.mean is None:
        if data != moments.x:
            return None
        return _norm(view, moments, divides, user, (user, 1 - position), (user, position))
    node = data[0]
    if centred_of(view, node) != (moments.x, moments.mean):
        return None
    is_shared = {reader for reader, _ in view.uses(node)} != {user}
    norm = _norm(view, moments, divides, user, (node, 0), (user, position))
    inner = () if is_shared else (node,)
    return dataclasses.replace(
        norm, mean=(node, 1), core=(node,), inner=inner, is_direct=not is_shared
    )


def _norm(
    view: View,
    moments: Moments,
    divides: bool,
    end: int,
    x: Input,
    inverse: Input,
) -> Norm:
    if moments.mean is not None:
        name = "layer, group or instance norm"
    else:
        name = "Euclidean norm" if moments.is_sum else "RMS norm"
    return Norm(
        view.index,
        name,
        tuple(dict.fromkeys(moments.nodes)),
        moments.mean[0] if moments.mean is not None else None,
        moments.roots,
        x,
        None,
        inverse,
        None,
        None,
        divides,
        (),
        (),
        end,
        True,
        moments.epsilon,
        moments.is_sum,
    )


def _spread(view: View, inverse: int, moments: Moments) -> Norm | None:
    """Returns the norm that multiplies x and its mean by the inverse, each on its own."""
    uses = view.uses(inverse)
    if moments.mean is None:
        return _scaled_root(view, moments, uses)
    scale: Input | None = None
    factor, inner = inverse, []
    if len(uses) == 1 and view.op(uses[0][0]) == "Mul":
        scaled, position = uses[0]
        scale, factor = (scaled, 1 - position), scaled
        inner, uses = [scaled], view.uses(scaled)
    found = _end_of_spread(view, uses, moments) if len(uses) == 2 else None
    if found is None:
        return _scaled_centred(view, factor, scale, moments, uses)
    x, mean, offset, nodes, end = found
    first = (factor, 1 - scale[1]) if scale is not None else (x[0], 1 - x[1])
    norm = _norm(view, moments, False, end, x, first)
    return dataclasses.replace(
        norm,
        mean=mean,
        scale=scale,
        offset=offset,
        core=tuple(inner + nodes),
        inner=tuple(inner + nodes),
        is_direct=False,
    )


def _end_of_spread(
    view: View, uses: list[tuple[int, int]], moments: Moments
) -> tuple[Input, Input, Input | None, list[int], int] | None:
    """Returns x, mean, offset, the nodes between and the end of x * f + (offset - mean * f)."""
    products = {user: position for user, position in uses if view.op(user) == "Mul"}
    if len(products) != 2:
        return None
    data = shift = None
    negated, nodes = False, []
    for user, position in products.items():
        other = view.operand(user, 1 - position)
        if other == moments.x:
            data = (user, 1 - position)
        elif view.operand(user, 1 - position, SMALL) == moments.mean:
            shift = (user, 1 - position)
        elif view.op(other[0]) == "Neg" and view.operand(other[0], 0, SMALL) == moments.mean:
            shift, negated = (other[0], 0), True
            nodes.append(other[0])
    if data is None or shift is None:
        return None
    product = next(user for user in products if user != data[0])
    return _joined(view, data, shift, product, negated, nodes)


def _joined(
    view: View, data: Input, shift: Input, product: int, negated: bool, nodes: list[int]
) -> tuple[Input, Input, Input | None, list[int], int] | None:
    """Follows mean * f to where it meets x * f."""
    offset: Input | None = None
    current = product
    for _ in range(3):
        users = view.uses(current)
        if len(users) != 1:
            return None
        user, position = users[0]
        op = view.op(user)
        if op == "Neg" and not negated:
            nodes, current, negated = [*nodes, current], user, True
            continue
        if op not in ADDS | {"Sub"}:
            return None
        if op == "Sub" and (negated or position != 1):
            return None
        if op in ADDS and not negated:
            return None
        if view.operand(user, 1 - position)[0] == data[0]:
            if [reader for reader, _ in view.uses(data[0])] != [user]:
                return None
            return data, shift, offset, [*nodes, current, data[0]], user
        if offset is not None:
            return None
        offset, negated = (user, 1 - position), True
        nodes, current = [*nodes, current], user
    return None


def _scaled_root(view: View, moments: Moments, uses: list[tuple[int, int]]) -> Norm | None:
    """Returns the RMS norm x * (inverse * scale)."""
    if len(uses) != 1 or view.op(uses[0][0]) != "Mul":
        return None
    scaled, position = uses[0]
    readers = view.uses(scaled)
    if len(readers) != 1 or view.op(readers[0][0]) != "Mul":
        return None
    end, at = readers[0]
    if view.operand(end, 1 - at) != moments.x:
        return None
    norm = _norm(view, moments, False, end, (end, 1 - at), (scaled, position))
    scale = (scaled, 1 - position)
    return dataclasses.replace(norm, scale=scale, core=(scaled,), inner=(scaled,), is_direct=False)


def _scaled_centred(
    view: View,
    factor: int,
    scale: Input | None,
    moments: Moments,
    uses: list[tuple[int, int]],
) -> Norm | None:
    """Returns the norm (x - mean) * (inverse * scale)."""
    if scale is None or len(uses) != 1 or view.op(uses[0][0]) != "Mul":
        return None
    end, at = uses[0]
    node = view.operand(end, 1 - at)[0]
    if moments.mean is None or centred_of(view, node) != (moments.x, moments.mean):
        return None
    norm = _norm(view, moments, False, end, (node, 0), (factor, 1 - scale[1]))
    is_shared = {reader for reader, _ in view.uses(node)} != {end}
    inner = (factor,) if is_shared else (factor, node)
    return dataclasses.replace(
        norm, mean=(node, 1), scale=scale, core=(factor, node), inner=inner, is_direct=False
    )
