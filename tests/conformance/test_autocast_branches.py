"""AutoCast's cases on branches (AC-*), and some of XLA and coremltools (XT-*), in our words.

ONNX branches see the values around them; TensorFlow's get them as arguments.
"""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from tests.checks import check_precision, check_rewrite, check_unchanged

BRANCHES = [True, False]


def feeds(p: object) -> dict[str, np.ndarray]:
    return {"p": np.array(p)}


@pytest.mark.parametrize("p", BRANCHES)
def test_ac_60_and_71_constants_of_low_branches_are_low(p: bool) -> None:
    check_precision(
        """
        x: f32[4,8] = Placeholder
        p: bool[] = Placeholder
        y: f32 = If(p, [x], then_branch=@t, else_branch=@e, Tout=[f32])   # Tin[0] low; Tout[0] low
        out = Identity(y)                      # f32 PINNED

        @t(x: f32) -> (y=b)
          w: f32[8,8] = Const(seed=1)          # low
          c: f32[8] = Const(seed=2)            # low
          m = MatMul(x, w)                     # low ALLOW
          b = BiasAdd(m, c)                    # low INFER

        @e(x: f32) -> (y=b)
          w: f32[8,8] = Const(seed=3)          # low
          c: f32[8] = Const(seed=4)            # low
          m = MatMul(x, w)                     # low ALLOW
          b = BiasAdd(m, c)                    # low INFER
        """,
        feeds=feeds(p),
        steps=1,
        casts=2,
    )


@pytest.mark.parametrize("p", BRANCHES)
def test_ac_60_constants_of_float32_branches_stay(p: bool) -> None:
    check_unchanged(
        """
        x: f32[4,8] = Placeholder
        p: bool[] = Placeholder
        y: f32 = If(p, [x], then_branch=@t, else_branch=@e, Tout=[f32])   # Tin[0] f32; Tout[0] f32
        out = Identity(y)                      # f32 PINNED

        @t(x: f32) -> (y=b)
          c: f32[8] = Const(seed=2)            # f32
          m = Exp(x)                           # f32 DENY
          b = BiasAdd(m, c)                    # f32 INFER tainted by t/m

        @e(x: f32) -> (y=b)
          c: f32[8] = Const(seed=4)            # f32
          b = BiasAdd(x, c)                    # f32 NOTHING_LOW
        """,
        feeds=feeds(p),
        steps=1,
        exact=("out",),
    )


@pytest.mark.parametrize("p", BRANCHES)
@pytest.mark.parametrize("dtype", ["half", "bfloat16"])
def test_ac_61_half_constants_of_branches_follow_the_target(dtype: str, p: bool) -> None:
    check_precision(
        """
        x: f32[4,8] = Placeholder
        p: bool[] = Placeholder
        y: f32 = If(p, [x], then_branch=@t, else_branch=@e, Tout=[f32])
        out = Identity(y)                      # f32 PINNED

        @t(x: f32) -> (y=m)
          c: f16[8,8] = Const(seed=1)
          w: f32 = Cast(c, DstT=f32)           # low
          m = MatMul(x, w)                     # low ALLOW

        @e(x: f32) -> (y=m)
          c: f16[8,8] = Const(seed=2)
          w: f32 = Cast(c, DstT=f32)           # low
          m = MatMul(x, w)                     # low ALLOW
        """,
        dtypes=(dtype,),
        feeds=feeds(p),
        steps=1,
    )


@pytest.mark.parametrize("p", BRANCHES)
def test_ac_62_a_float32_op_behind_a_low_if_gets_one_cast(p: bool) -> None:
    check_precision(
        """
        x: f32[4,8] = Placeholder
        p: bool[] = Placeholder
        y: f32 = If(p, [x], then_branch=@t, else_branch=@e, Tout=[f32])   # Tin[0] low; Tout[0] low
        e = Exp(y)                             # f32 DENY
        s = AddV2(e, y)                        # f32 INFER tainted by e
        out = Identity(s)                      # f32 PINNED

        @t(x: f32) -> (y=m)
          w: f32[8,8] = Const(seed=1)          # low
          m = MatMul(x, w)                     # low ALLOW

        @e(x: f32) -> (y=m)
          w: f32[8,8] = Const(seed=3)          # low
          m = MatMul(x, w)                     # low ALLOW
        """,
        feeds=feeds(p),
        ranges={"x": (-0.2, 0.2)},
        steps=1,
        casts=2,
    )


@pytest.mark.parametrize("p", BRANCHES)
def test_ac_72_a_resize_in_a_branch_keeps_its_sizes(p: bool) -> None:
    check_precision(
        """
        x: f32[1,4,4,2] = Placeholder
        p: bool[] = Placeholder
        y: f32 = If(p, [x], then_branch=@t, else_branch=@e, Tout=[f32])
        out = Identity(y)                      # f32 PINNED

        @t(x: f32) -> (y=r)
          w: f32[3,3,2,2] = Const(seed=1)      # low
          size = Const([8, 8])
          c = Conv2D(x, w, strides=[1,1,1,1], padding='SAME')   # low ALLOW
          r = ResizeNearestNeighbor(c, size)   # low CLEAR

        @e(x: f32) -> (y=r)
          w: f32[3,3,2,2] = Const(seed=2)      # low
          size = Const([8, 8])
          c = Conv2D(x, w, strides=[1,1,1,1], padding='SAME')   # low ALLOW
          r = ResizeBilinear(c, size)
        """,
        feeds=feeds(p),
        steps=1,
    )


CHAIN = """
    x: f32[4,8] = Placeholder
    p: bool[] = Placeholder
    y: f32 = If(p, [x], then_branch=@t, else_branch=@e, Tout=[f32])   # Tin[0] low; Tout[0] low
    z: f32 = If(p, [y, x], then_branch=@t2, else_branch=@e2, Tout=[f32])   # Tin[0] low; Tout[0] low
    out = Identity(z)                      # f32 PINNED

    @t(x: f32) -> (y=m)
      w: f32[8,8] = Const(seed=1)          # low
      m = MatMul(x, w)                     # low ALLOW

    @e(x: f32) -> (y=m)
      w: f32[8,8] = Const(seed=3)          # low
      m = MatMul(x, w)                     # low ALLOW

    @t2(y: f32, x: f32) -> (y=r)
      r = Relu(y)                          # low CLEAR

    @e2(y: f32, x: f32) -> (y=m)
      w: f32[8,8] = Const(seed=4)          # low
      m = MatMul(x, w)                     # low ALLOW
"""


@pytest.mark.parametrize("p", BRANCHES)
def test_ac_73_an_if_that_captures_the_result_of_an_if(p: bool) -> None:
    check_precision(CHAIN, feeds=feeds(p), steps=1, casts=2)


@pytest.mark.parametrize("p", BRANCHES)
def test_ac_74_an_inner_float32_if_casts_what_it_captures_inside(p: bool) -> None:
    check_precision(
        """
        x: f32[4,8] = Placeholder
        p: bool[] = Placeholder
        y: f32 = If(p, [x, p], then_branch=@t, else_branch=@e, Tout=[f32])
        out = Identity(y)                      # f32 PINNED

        @t(x: f32, p: bool) -> (y=y)
          w: f32[8,8] = Const(0.1)             # low
          m = MatMul(x, w)                     # low ALLOW
          y: f32 = If(p, [m], then_branch=@it, else_branch=@ie, Tout=[f32])   # Tin[0] low

        @e(x: f32, p: bool) -> (y=m)
          w: f32[8,8] = Const(seed=3)          # low
          m = MatMul(x, w)                     # low ALLOW

        @it(m: f32) -> (y=e)
          e = Exp(m)                           # f32 DENY

        @ie(m: f32) -> (y=r)
          r = Relu(m)                          # low CLEAR
        """,
        feeds=feeds(p),
        steps=1,
    )


def test_ac_75_nodes_of_one_name_in_several_scopes_are_several() -> None:
    # TensorFlow's nodes have names; those of different functions may be alike.
    check_precision(
        """
        x: f32[4,8] = Placeholder
        p: bool[] = Placeholder
        w: f32[8,8] = Const(seed=1)            # low
        m = MatMul(x, w)                       # low ALLOW
        y = Exp(m)                             # f32 DENY
        a: f32 = If(p, [m], then_branch=@t, else_branch=@e, Tout=[f32])
        out = Identity(a)                      # f32 PINNED
        out2 = Identity(y)                     # f32 PINNED

        @t(x: f32) -> (y=y)
          w: f32[8,8] = Const(seed=2)          # low
          m = MatMul(x, w)                     # low ALLOW
          y = Tanh(m)                          # low INFER

        @e(x: f32) -> (y=y)
          w: f32[4,8] = Const(seed=3)          # f32
          m = Exp(w)                           # f32 DENY
          y = Mul(m, x)
        """,
        feeds=feeds(True),
        ranges={"x": (-0.2, 0.2)},
        steps=1,
    )


def test_ac_76_a_constant_beside_a_low_operand_of_a_comparison_stays_float32() -> None:
    check_precision(
        """
        x: f32[1,4] = Placeholder
        w: f32[4,4] = Const([[0.5,0,0,0],[0,0.5,0,0],[0,0,0.5,0],[0,0,0,0.5]])   # low
        limit = Const(0.1)                     # f32
        y: bool = PartitionedCall([x, w, limit], Tout=[bool], f=@f)
        out = Identity(y)

        @f(x: f32, w: f32, limit: f32) -> (y=g)
          m = MatMul(x, w)                     # low ALLOW
          g = Greater(m, limit)                # f32 KEEP
        """,
        feeds={"x": np.float32([[0.5, 0.25, 0.125, 0]])},
        steps=1,
        exact=("out",),
    )


@pytest.mark.xfail(strict=True, reason="a Cast to the low precision does not want its input low")
def test_xt_22_a_users_casts_inside_a_branch_that_repeat_the_outer_one_vanish() -> None:
    check_rewrite(
        """
        x: f32[4,8] = Placeholder
        p: bool[] = Placeholder
        down: low = Cast(x, DstT=low)
        up: f32 = Cast(down, DstT=f32)
        y: f32 = If(p, [up], then_branch=@t, else_branch=@e, Tout=[f32])
        out = Identity(y)

        @t(x: f32) -> (y=m)
          w: f32[8,8] = Const(0.1)
          down: low = Cast(x, DstT=low)
          up: f32 = Cast(down, DstT=f32)
          m = MatMul(up, w)

        @e(x: f32) -> (y=m)
          w: f32[8,8] = Const(0.2)
          m = MatMul(x, w)
        """,
        """
        x: f32[4,8] = Placeholder
        p: bool[] = Placeholder
        down: low = Cast(x, DstT=low)
        up: low = Identity(down)
        y: low = If(p, [up], then_branch=@t, else_branch=@e, Tout=[low])
        y/Cast_float32: f32 = Cast(y, DstT=f32)
        out = Identity(y/Cast_float32)

        @t(x: low) -> (y=m)
          w: low[8,8] = Const(0.1)
          down: low = Identity(x)
          up: low = Identity(down)
          m: low = MatMul(up, w)

        @e(x: low) -> (y=m)
          w: low[8,8] = Const(0.2)
          m: low = MatMul(x, w)
        """,
        feeds=feeds(True),
        steps=1,
    )


def test_xt_37_a_range_that_a_function_makes_a_slice_of_stays_float32() -> None:
    # 2049 is no half: the slice would be one too short.
    check_precision(
        """
        x: f32[1,4096] = Placeholder
        w: f32[4096,8] = Const(seed=1)         # low
        start = Const(0.0)
        limit = Const(4096.0)
        delta = Const(1.0)
        all = Range(start, limit, delta)       # f32
        size: i32 = PartitionedCall([all], Tout=[i32], f=@size)   # Tin[0] f32
        zero = Const([0, 0])
        one = Const(1)
        both = Pack([one, size])
        part = Slice(x, zero, both)
        rest = Slice(w, zero, turned)
        eight = Const(8)
        turned = Pack([size, eight])
        m = MatMul(part, rest)                 # low ALLOW
        out = Identity(m)                      # f32 PINNED
        n = Identity(size)

        @size(all: f32) -> (n=n)
          axis = Const(0)
          at = Const(2049)
          one = GatherV2(all, at, axis)        # Tparams f32
          n = Cast(one, DstT=i32)
        """,
        steps=1,
        exact=("n",),
    )


def test_xt_41_a_function_called_from_two_places_is_rewritten_once_for_both() -> None:
    # Ours on purpose: XLA leaves such a computation as it is. All callers agree on low.
    check_precision(
        """
        x: f32[4,8] = Placeholder
        y: f32[4,8] = Placeholder
        w: f32[8,8] = Const(seed=1)            # low
        a: f32 = PartitionedCall([x, w], Tout=[f32], f=@f)   # Tin[0] low; Tin[1] low; Tout[0] low
        b: f32 = PartitionedCall([y, w], Tout=[f32], f=@f)   # Tin[0] low; Tin[1] low; Tout[0] low
        c = MatMul(a, b, transpose_b=True)     # low ALLOW
        out = Identity(c)                      # f32 PINNED

        @f(x: f32, w: f32) -> (y=t)
          m = MatMul(x, w)                     # low ALLOW
          t = Tanh(m)                          # low INFER
        """,
        steps=1,
        casts=3,
    )


def test_xt_42_the_states_of_a_loop_change_only_where_all_aliases_agree() -> None:
    check_precision(
        inspect.cleandoc(
            """
            x: f32[4,8] = Placeholder
            w: f32[8,8] = Const(0.1)               # low
            zero = Const(0)
            m = MatMul(x, w)                       # low ALLOW
            loop: i32, f32, f32, f32 = While([zero, m, m, w], cond=@c, body=@b) # T[1] low; T[2] f32
            s = Identity(loop:1)                   # low CLEAR
            n = MatMul(s, w)                       # low ALLOW
            out1 = Identity(n)                     # f32 PINNED
            out2 = Identity(loop:2)                # f32 PINNED

            @c(i: i32, a: f32, b: f32, w: f32) -> (go=go)
              n = Const(3)
              go = Less(i, n)

            @b(i: i32, a: f32, b: f32, w: f32) -> (i1=i1, a1=t, b1=e, w1=w)
              one = Const(1)
              i1 = AddV2(i, one)
              m = MatMul(a, w)                     # low ALLOW
              t = Tanh(m)                          # low INFER
              e = Exp(t)                           # f32 DENY
            """
        ),
        steps=3,
    )


def test_xt_43_a_constant_of_a_function_is_converted_and_a_cast_on_it_is_none() -> None:
    check_rewrite(
        """
        x: low[4,8] = Placeholder
        y: low = PartitionedCall([x], Tout=[low], f=@f)
        out = Identity(y)

        @f(x: low) -> (y=m)
          w: f32[8,8] = Const(0.1)
          down: low = Cast(w, DstT=low)
          m: low = MatMul(x, down)
        """,
        """
        x: low[4,8] = Placeholder
        y: low = PartitionedCall([x], Tout=[low], f=@f)
        out = Identity(y)

        @f(x: low) -> (y=m)
          w: low[8,8] = Const(0.1)
          down: low = Identity(w)
          m: low = MatMul(x, down)
        """,
        not_run="no low placeholder is fed",
    )


def test_tr_18_a_loop_on_a_growing_integer_state_stays_as_it_is() -> None:
    check_unchanged(
        """
        s: i32[1] = Placeholder
        zero = Const(0)
        loop: i32, i32 = While([zero, s], cond=@c, body=@b, output_shapes=[[],[?]])
        out = Identity(loop:1)

        @c(i: i32, s: i32) -> (go=go)
          n = Const(5)
          go = Less(i, n)

        @b(i: i32, s: i32) -> (i1=i1, s1=both)
          one = Const(1)
          axis = Const(0)
          i1 = AddV2(i, one)
          more = ExpandDims(i, axis)
          both = ConcatV2([s, more], axis)
        """,
        steps=5,
        exact=("out",),
    )
