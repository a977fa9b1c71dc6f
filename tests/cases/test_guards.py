"""Relatives of C19: functions that are written out, and guards against a zero or a logarithm of it.

`small` rows are zeros; what is compared is the value of a float64 computation of the same formula.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.case_answers import check_answer

START = """
    x: f32[?,4] = Placeholder
    eye: f32[4,4] = Const([[1,0,0,0],[0,1,0,0],[0,0,1,0],[0,0,0,1]])
    last = Const([-1])
    one = Const(1.0)
    m = MatMul(x, eye)            # low ALLOW
"""
END = """
    fetch = Identity(out)
"""
BEHIND = """
    m2 = MatMul(out, eye)         # low ALLOW
    fetch = Identity(m2)          # f32 PINNED
"""
ROWS = np.array([[12.0, 50.0, -12.0, 0.0], [0.5, -0.5, 1.0, -20.0]])


def check_formula(lines: str, expected: object, x: object = ROWS, **options: object) -> None:
    """Checks a formula at the end of a model, and in front of another product."""
    for end in (END, BEHIND):
        check_answer(START + lines + end, expected, x=x, **options)  # type: ignore[arg-type]


SOFTPLUS = {
    "log1p of exp": """
        e = Exp(m)
        out = Log1p(e)
    """,
    "one in front": """
        e = Exp(m)
        e1 = AddV2(one, e)
        out = Log(e1)
    """,
    "maximum and rest": """
        zero = Const(0.0)
        top = Maximum(m, zero)
        size = Abs(m)
        minus = Neg(size)
        e = Exp(minus)
        rest = Log1p(e)
        out = AddV2(top, rest)
    """,
    "the op": "out = Softplus(m)",
}


@pytest.mark.parametrize("lines", SOFTPLUS.values(), ids=SOFTPLUS)
def test_a_softplus(lines: str) -> None:
    check_formula("    " + lines, np.logaddexp(0, ROWS))


def test_a_mish() -> None:
    lines = """
        e = Exp(m)
        l = Log1p(e)
        t = Tanh(l)
        out = Mul(m, t)
    """
    check_formula(lines, ROWS * np.tanh(np.logaddexp(0, ROWS)))


@pytest.mark.parametrize("division", ["RealDiv(m, e1)", "DivNoNan(m, e1)"])
def test_a_swish_written_out(division: str) -> None:
    lines = f"""
    minus = Neg(m)
    e = Exp(minus)
    e1 = AddV2(e, one)
    out = {division}
    """
    check_formula(lines, ROWS / (1 + np.exp(-ROWS)))


GELU_TANH = {
    "power": """
        three = Const(3.0)
        cube = Pow(m, three)
    """,
    "products": """
        square = Mul(m, m)
        cube = Mul(square, m)
    """,
    "square op": """
        square = Square(m)
        cube = Mul(m, square)
    """,
}


@pytest.mark.parametrize("cube", GELU_TANH.values(), ids=GELU_TANH)
def test_a_gelu_by_tanh_of_large_values(cube: str) -> None:
    # the cube of 50 is beyond half: half of the result would be no number or zero
    lines = f"""
    {cube}
    a = Const(0.044715)
    b = Const(0.7978845608)
    half = Const(0.5)
    term = Mul(cube, a)
    sum = AddV2(m, term)
    scaled = Mul(sum, b)
    t = Tanh(scaled)
    t1 = AddV2(t, one)
    g = Mul(m, t1)
    out = Mul(g, half)
    """
    inner = 0.7978845608 * (ROWS + 0.044715 * ROWS**3)
    check_formula(lines, 0.5 * ROWS * (1 + np.tanh(inner)))


def test_a_gelu_by_erf() -> None:
    from math import erf

    lines = """
    root = Const(0.70710678)
    half = Const(0.5)
    scaled = Mul(m, root)
    e = Erf(scaled)
    e1 = AddV2(e, one)
    g = Mul(m, e1)
    out = Mul(g, half)
    """
    check_formula(lines, 0.5 * ROWS * (1 + np.vectorize(erf)(ROWS / np.sqrt(2))))


LOG_SUM_EXP = {
    "plain": """
        e = Exp(m)
        total = Sum(e, last)
        out = Log(total)
    """,
    "less the maximum": """
        top = Max(m, last, keep_dims=True)
        d = Sub(m, top)
        e = Exp(d)
        total = Sum(e, last)
        l = Log(total)
        flat = Squeeze(top, squeeze_dims=[-1])
        out = AddV2(l, flat)
    """,
    "with a finite maximum": """
        top = Max(m, last, keep_dims=True)
        finite = IsFinite(top)
        zeros = ZerosLike(top)
        safe = SelectV2(finite, top, zeros)
        d = Sub(m, safe)
        e = Exp(d)
        total = Sum(e, last)
        l = Log(total)
        flat = Squeeze(safe, squeeze_dims=[-1])
        out = AddV2(l, flat)
    """,
}


@pytest.mark.parametrize("lines", LOG_SUM_EXP.values(), ids=LOG_SUM_EXP)
def test_a_log_sum_exp(lines: str) -> None:
    rows = np.array([[12.0, 20.0, -12.0, 0.0], [11.0, 11.0, 11.0, 11.0]])
    check_answer(START + "    " + lines + END, np.log(np.exp(rows).sum(axis=-1)), steps=1, x=rows)


GUARDS = {
    "log of a maximum": (
        """
        p = Maximum(m, eps)
        out = Log(p)
    """,
        np.log(1e-8),
    ),
    "log of a clip": (
        """
        p = ClipByValue(m, eps, one)
        out = Log(p)
    """,
        np.log(1e-8),
    ),
    "log of a sum, eps in front": (
        """
        p = AddV2(eps, m)
        out = Log(p)
    """,
        np.log(1e-8),
    ),
    "division by a maximum": (
        """
        p = Maximum(m, eps)
        out = RealDiv(m, p)
    """,
        0.0,
    ),
    "reciprocal": (
        """
        p = AddV2(m, eps)
        r = Reciprocal(p)
        out = Mul(r, m)
    """,
        0.0,
    ),
    "reciprocal root": (
        """
        p = AddV2(m, eps)
        r = Rsqrt(p)
        out = Mul(r, m)
    """,
        0.0,
    ),
    "power": (
        """
        h = Const(-0.5)
        p = AddV2(m, eps)
        r = Pow(p, h)
        out = Mul(r, m)
    """,
        0.0,
    ),
    "root": (
        """
        p = AddV2(m, eps)
        out = Sqrt(p)
    """,
        1e-4,
    ),
    "one over a root": (
        """
        p = AddV2(m, eps)
        r = Sqrt(p)
        out = RealDiv(one, r)
    """,
        1e4,
    ),
    "a vector of guards": (
        """
        v: f32[4] = Const(1e-8)
        p = AddV2(m, v)
        out = RealDiv(m, p)
    """,
        0.0,
    ),
    "behind an identity": (
        """
        i = Identity(eps)
        p = AddV2(m, i)
        out = Log(p)
    """,
        np.log(1e-8),
    ),
}


@pytest.mark.parametrize(("lines", "expected"), GUARDS.values(), ids=GUARDS)
def test_a_guard_against_zero(lines: str, expected: float) -> None:
    check_formula(f"    eps = Const(1e-8)\n    {lines}", expected, x=np.zeros((1, 4)))


def test_a_guard_that_is_an_argument_of_a_function() -> None:
    text = f"""{START}
    eps = Const(1e-8)
    y: f32 = PartitionedCall([m, eps], Tout=[f32], f=@safe)
    fetch = Identity(y)           # f32 PINNED

    @safe(x: f32, eps: f32) -> (y=l)
      s = AddV2(x, eps)
      l = Log(s)
    """
    check_answer(text, np.log(1e-8), steps=1, x=np.zeros((1, 4)))


PROBABILITIES = {
    "softmax": "p = Softmax(m)",
    "exp over sum": """
        e = Exp(m)
        total = Sum(e, last, keep_dims=True)
        p = RealDiv(e, total)
    """,
}


@pytest.mark.parametrize("lines", PROBABILITIES.values(), ids=PROBABILITIES)
def test_the_logarithm_of_small_probabilities(lines: str) -> None:
    # e**-20 is 2e-9: zero in half
    rows = np.array([[0.0, -20.0, -15.0, -10.0]])
    expected = rows - np.log(np.exp(rows).sum())
    check_answer(f"{START}    {lines}\n    out = Log(p){END}", expected, steps=1, x=rows)


SIGMOIDS = {
    "op": "p = Sigmoid(m)",
    "written out": """
        minus = Neg(m)
        e = Exp(minus)
        e1 = AddV2(e, one)
        p = RealDiv(one, e1)
    """,
}


@pytest.mark.parametrize("lines", SIGMOIDS.values(), ids=SIGMOIDS)
def test_the_logarithm_of_a_sigmoid(lines: str) -> None:
    rows = np.array([[-20.0, -9.0, 0.0, 2.0]])
    expected = -np.logaddexp(0, -rows)
    check_answer(f"{START}    {lines}\n    out = Log(p){END}", expected, x=rows)


@pytest.mark.parametrize("lines", SIGMOIDS.values(), ids=SIGMOIDS)
def test_the_logarithm_of_what_a_sigmoid_leaves(lines: str) -> None:
    rows = np.array([[9.0, 8.0, 0.0, -2.0]])
    text = f"{START}    {lines}\n    q = Sub(one, p)\n    out = Log(q){END}"
    check_answer(text, -np.logaddexp(0, rows), x=rows)


def test_a_logit_of_a_probability() -> None:
    lines = """
    p = Sigmoid(m)
    q = Sub(one, p)
    odds = RealDiv(p, q)
    out = Log(odds)
    """
    rows = np.array([[-9.0, -1.0, 3.0, 9.0]])
    check_answer(START + lines + END, rows, x=rows)


def test_a_cross_entropy_of_a_clipped_probability() -> None:
    lines = """
    labels: f32[1,4] = Placeholder
    eps = Const(1e-7)
    top = Const(0.9999999)
    p = Softmax(m)
    safe = ClipByValue(p, eps, top)
    l = Log(safe)
    product = Mul(labels, l)
    total = Sum(product, last)
    out = Neg(total)
    """
    # the probability of the label is 2e-9, clipped to 1e-7
    check_answer(
        START + lines + END, -np.log(1e-7), steps=1,
        x=[[0.0, -20.0, -20.0, -20.0]], labels=[[0.0, 1.0, 0.0, 0.0]],
    )  # fmt: skip


@pytest.mark.parametrize("temperature", ["1e-8", "100000.0"])
def test_a_temperature_beyond_half(temperature: str) -> None:
    rows = np.array([[1.0, 2.0, 3.0, 4.0]]) * float(temperature)
    lines = f"    t = Const({temperature})\n    d = RealDiv(y, t)\n    out = Mul(d, one)"
    text = START.replace("m = MatMul(x, eye)            # low ALLOW", "y = MulNoNan(x, one)")
    check_answer(text + lines + END, [[1, 2, 3, 4]], steps=1, x=rows)
