"""FusedBatchNorm becomes FusedBatchNormV3 where that makes its data low, and nowhere else."""

from __future__ import annotations

import pytest

from tests.checks import check_precision, check_rewrite, check_unchanged

START = """
    x: f32[2,8,8,4] = Placeholder
    w: f32[3,3,4,4] = Const(seed=1)
    scale: f32[4] = Const(3)
    offset: f32[4] = Const(4)
    mean: f32[4] = Const(0.25)
    var: f32[4] = Const(2)
"""
NORM = "bn: f32, f32, f32, f32, f32 = FusedBatchNorm(conv, scale, offset, mean, var, {attrs})"
INFERENCE = NORM.format(attrs="is_training=False, epsilon=0.01")


def test_c09_an_old_batch_norm_between_low_ops() -> None:
    check_rewrite(
        START
        + f"""
        conv = Conv2D(x, w, strides=[1,1,1,1], padding='SAME')
        {INFERENCE}
        relu = Relu(bn)
        fetch = Identity(relu)
        """,
        """
        x: f32[2,8,8,4] = Placeholder
        w: low[3,3,4,4] = Const(seed=1)
        scale: f32[4] = Const(3)
        offset: f32[4] = Const(4)
        mean: f32[4] = Const(0.25)
        var: f32[4] = Const(2)
        x/Cast_low = Cast(x, DstT=low)
        conv: low = Conv2D(x/Cast_low, w, strides=[1,1,1,1], padding='SAME')
        bn: low, f32, f32, f32, f32, f32 = FusedBatchNormV3(
            conv, scale, offset, mean, var, is_training=False, epsilon=0.01)
        relu: low = Relu(bn)
        relu/Cast_float32 = Cast(relu, DstT=f32)
        fetch = Identity(relu/Cast_float32)
        """.replace("FusedBatchNormV3(\n            conv", "FusedBatchNormV3(conv"),
    )


def test_one_makes_the_data_of_the_next_low() -> None:
    second = INFERENCE.replace("bn:", "bn2:").replace("(conv,", "(relu,")
    check_precision(
        START
        + f"""
        conv = Conv2D(x, w, strides=[1,1,1,1], padding='SAME')     # low ALLOW
        {INFERENCE}   # T low INFER; U f32 KEEP
        relu = Relu(bn)                                            # low CLEAR
        {second}   # T low INFER; U f32 KEEP
        fetch = Identity(bn2)                                      # f32 PINNED
        """,
        casts=2,
    )


def test_it_stays_in_a_float32_graph() -> None:
    check_unchanged(START + INFERENCE.replace("(conv,", "(x,") + "\n    fetch = Identity(bn)")


@pytest.mark.parametrize(
    "wish",
    [
        {"deny_ops": ("FusedBatchNorm",)},
        {"deny_ops": ("FusedBatchNormV3",)},
        {"keep_float32": ("bn",)},
    ],
)
def test_it_stays_where_the_user_keeps_it(wish: dict[str, tuple[str, ...]]) -> None:
    check_precision(
        START
        + f"""
        conv = Conv2D(x, w, strides=[1,1,1,1], padding='SAME')     # low ALLOW
        {INFERENCE}   # f32
        fetch = Identity(bn)                                       # f32 PINNED
        """,
        casts=2,
        **wish,
    )


def test_in_training_its_statistics_may_be_read_but_not_what_it_reserves() -> None:
    training = NORM.format(attrs="is_training=True").replace("mean, var", "empty, empty")
    text = START.replace("mean:", "unused_mean:").replace("var:", "unused_var:") + (
        f"""
        empty: f32[0] = Const([])
        conv = Conv2D(x, w, strides=[1,1,1,1], padding='SAME')     # low ALLOW
        {training}   # PRECISION
        fetch = Identity(bn)                                       # f32 PINNED
        moment = Identity(bn:1)                                    # f32 PINNED
        """
    )
    low = text.replace("PRECISION", "T low INFER; U f32 KEEP")
    check_precision(low, not_run="no bound for a batch norm in training")
    kept = text.replace("PRECISION", "f32 KEEP") + "    reserved = Identity(bn:4)\n"
    check_precision(kept, not_run="no bound for a batch norm in training")


def test_in_a_function() -> None:
    check_precision(
        """
        x: f32[2,8,8,4] = Placeholder
        y: f32 = PartitionedCall([x], Tout=[f32], f=@block)
        out = Identity(y)

        @block(x: f32) -> (y=relu)
          w: f32[3,3,4,4] = Const(seed=1)
          c: f32[4] = Const(0.5)
          conv = Conv2D(x, w, strides=[1,1,1,1], padding='SAME')   # low ALLOW
          bn: f32, f32, f32, f32, f32 = FusedBatchNorm(conv, c, c, c, c, is_training=False)
          relu = Relu(bn)                                          # low CLEAR
        """,
        steps=1,
    )
