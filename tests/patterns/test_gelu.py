"""GELU and its relatives: wholly low, and right from one end of the range of half to the other."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from tests import checks, graph_text
from tests.checks import check_precision

START = """
    x: f32[?,1] = Placeholder
    w: f32[1,1] = Const([[1.0]])
    a = Const(0.044715)
    b = Const(0.7978845608)
    half = Const(0.5)
    one = Const(1.0)
    two = Const(2.0)
    three = Const(3.0)
    m = MatMul(x, w)           # low ALLOW
"""
END = """
    t = Tanh(arg)              # low INFER
    t1 = AddV2(one, t)         # low INFER
    h = Mul(half, m)           # low INFER
    y = Mul(h, t1)             # low INFER
    fetch = Identity(y)        # f32 PINNED
"""
SPELLINGS = {
    "Pow(x, 3)": """
    cube = Pow(m, three)       # low INFER
    ac = Mul(a, cube)          # low INFER
    inner = AddV2(m, ac)       # low INFER
    arg = Mul(b, inner)        # low INFER
    """,
    "x * x * x": """
    square = Mul(m, m)         # low INFER
    cube = Mul(square, m)      # low INFER
    ac = Mul(cube, a)          # low INFER
    inner = AddV2(ac, m)       # low INFER
    arg = Mul(inner, b)        # low INFER
    """,
    "Square(x) * x": """
    square = Square(m)         # low INFER
    as = Mul(square, a)        # low INFER
    same = Identity(m)
    ac = Mul(same, as)         # low INFER
    inner = Add(m, ac)         # low INFER
    arg = Mul(b, inner)        # low INFER
    """,
    "x * (1 + a * x^2)": """
    square = Pow(m, two)       # low INFER
    as = Mul(a, square)        # low INFER
    sum = AddV2(one, as)       # low INFER
    bx = Mul(b, m)             # low INFER
    arg = Mul(bx, sum)         # low INFER
    """,
}


def gelu(x: NDArray[np.float64]) -> NDArray[np.float64]:
    cubic = x + 0.044715 * x * x * x
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * cubic))


def points() -> NDArray[np.float32]:
    ends = np.float32([40.25, 40.5, 255, 256, 1e3, 3e4, 6e4])
    values = np.concatenate([-ends, np.linspace(-12, 12, 1001), [-0.0, 1e-7], ends])
    return values.astype(np.float16).astype(np.float32)[:, None]


def low_answer(text: str, dtype: str, x: NDArray[np.float32]) -> NDArray[np.float64]:
    report = checks.checked_rewrite(
        graph_text.parse(text, dtype), dtype, not_run="compared with float64 here"
    )
    assert report.graph_def is not None
    graph = checks.imported(report.graph_def)
    return checks.run_graph(graph, ["fetch:0"], {"x": x})["fetch:0"].astype(np.float64)


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("dtype", checks.BOTH)
def test_the_tanh_form_is_low_and_right(spelling: str, dtype: str) -> None:
    text = START + SPELLINGS[spelling] + END
    check_precision(text, dtypes=(dtype,), casts=2, not_run="compared with float64 below")
    x = points()
    if dtype == "bfloat16":  # what the Cast of x gives
        x = (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)

    actual, expected = low_answer(text, dtype, x), gelu(x.astype(np.float64))

    unit = {"half": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    # 1 + tanh is a multiple of the spacing below 1, so far left of 0 only its share of x is known
    allowed = 8 * unit * np.abs(expected) + 2 * unit * np.minimum(np.abs(x), 8)
    assert not np.isnan(actual).any()
    assert (np.abs(actual - expected) <= allowed).all(), np.abs(actual - expected).max()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Const(0.044715)", "Const(-0.044715)"),  # inf - inf
        ("Const(0.7978845608)", "Const(0.5)"),  # another function
        ("fetch =", "seen = Identity(cube)\n    fetch ="),  # outsiders see the cube
        ("fetch =", "n = Neg(cube)\n    seen = Identity(n)\n    fetch ="),
    ],
)
def test_a_cube_of_something_else_stays_float32(old: str, new: str) -> None:
    text = (START + SPELLINGS["Pow(x, 3)"] + END).replace(old, new).replace("# low INFER", "")
    text = text.replace("Pow(m, three)", "Pow(m, three)    # f32 DENY")
    check_precision(text, not_run="no bound for Pow")


@pytest.mark.parametrize("dtype", checks.BOTH)
def test_the_erf_form_is_low_and_right(dtype: str) -> None:
    text = (
        START
        + """
    root = Const(0.70710678)
    s = Mul(m, root)           # low INFER
    t = Erf(s)                 # low INFER
    t1 = AddV2(one, t)         # low INFER
    h = Mul(half, m)           # low INFER
    y = Mul(h, t1)             # low INFER
    fetch = Identity(y)        # f32 PINNED
    """
    )
    check_precision(text, dtypes=(dtype,), casts=2)
    actual = low_answer(text, dtype, points())
    assert np.isfinite(actual).all()
    assert (actual[-1], actual[0]) == (low_answer(text, dtype, points()[-1:]), 0)


RELATIVES = {
    "swish": (
        """
    s = Sigmoid(m)             # low INFER
    y = Mul(m, s)              # low INFER
    """,
        lambda x: x / (1 + np.exp(-x)),
    ),
    "quick GELU": (
        """
    q = Const(1.702)
    qx = Mul(m, q)             # low INFER
    s = Sigmoid(qx)            # low INFER
    y = Mul(m, s)              # low INFER
    """,
        lambda x: x / (1 + np.exp(-1.702 * x)),
    ),
    "hard swish": (
        """
    sixth = Const(0.16666667)
    m3 = AddV2(m, three)       # low INFER
    r = Relu6(m3)              # low CLEAR
    s = Mul(r, sixth)          # low INFER
    y = Mul(m, s)              # low INFER
    """,
        lambda x: x * np.clip(x + 3, 0, 6) / 6,
    ),
    "mish": (
        """
    p = Softplus(m)            # low INFER
    s = Tanh(p)                # low INFER
    y = Mul(m, s)              # low INFER
    """,
        lambda x: x * np.tanh(np.logaddexp(0, x)),
    ),
    "mish, written out": (
        """
    e = Exp(m)                 # f32 DENY
    e1 = AddV2(e, one)         # f32 INFER tainted by e
    p = Log(e1)                # f32 DENY
    s = Tanh(p)
    y = Mul(m, s)              # low INFER
    """,
        lambda x: x * np.tanh(np.logaddexp(0, x)),
    ),
    "swish, written out": (
        """
    n = Neg(m)                 # low CLEAR
    e = Exp(n)                 # f32 DENY
    e1 = AddV2(one, e)         # f32 INFER tainted by e
    s = RealDiv(one, e1)       # f32 DENY
    y = Mul(m, s)              # low INFER
    """,
        lambda x: x / (1 + np.exp(-x)),
    ),
}


@pytest.mark.parametrize("name", RELATIVES)
@pytest.mark.parametrize("dtype", checks.BOTH)
def test_relatives_are_low_and_right(name: str, dtype: str) -> None:
    body, function = RELATIVES[name]
    text = START + body + "    fetch = Identity(y)        # f32 PINNED\n"
    if (name, dtype) == ("mish", "bfloat16"):  # no kernel on the GPU
        text = text.replace(
            "p = Softplus(m)            # low INFER", "p = Softplus(m)   # f32 NO_KERNEL"
        )
        text = text.replace("s = Tanh(p)                # low INFER", "s = Tanh(p)")
    check_precision(text, dtypes=(dtype,), not_run="compared with float64 below")
    x = points()
    if name == "mish, written out":
        x = x[np.abs(x[:, 0]) < 80]  # beyond 88 float32 itself gives inf
    if dtype == "bfloat16":
        x = (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    with np.errstate(over="ignore"):
        expected = function(x.astype(np.float64))

    actual = low_answer(text, dtype, x)

    unit = {"half": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    allowed = 8 * unit * np.abs(expected) + 4 * unit
    if name == "quick GELU":  # the slope of the sigmoid meets the rounding of 1.702 x
        allowed = allowed + unit * np.minimum(np.abs(x), 12)
    assert (np.abs(actual - expected) <= allowed).all(), np.abs(actual - expected).max()
