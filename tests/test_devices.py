"""Nodes that the model pins to a CPU are judged by the CPU's table, rows and conditions."""

from __future__ import annotations

import pytest

from tests import graph_text
from tests.checks import BOTH, check_precision, checked_rewrite
from tf_amp_rewriter.ops import devices


@pytest.mark.parametrize(
    "pinned",
    [
        "/device:CPU:0",
        "/device:cpu:1",
        "/cpu:0",
        "/CPU:0",
        "/job:localhost/replica:0/task:0/device:CPU:0",
        "/job:localhost/replica:0/task:0/cpu:0",
        "/device:CPU:*",
        "/device:CPU",
        "CPU:0",
    ],
)
def test_a_pin_to_a_cpu_counts_whatever_was_asked_for(pinned: str) -> None:
    assert [devices.effective_device(d, pinned) for d in ("any", "gpu", "cpu")] == ["cpu"] * 3


@pytest.mark.parametrize(
    "pinned",
    [
        "",
        "/device:GPU:0",
        "/gpu:0",
        "/job:localhost",
        "/job:cpu/task:0",
        "/job:cpu/task:0/device:GPU:0",
        "/device:XLA_CPU:0",
        "/device:TPU_SYSTEM:0",
    ],
)
def test_other_pins_change_nothing(pinned: str) -> None:
    asked = ["any", "gpu", "cpu"]

    assert [devices.effective_device(device, pinned) for device in asked] == asked


def test_the_kernel_must_be_the_cpus() -> None:
    # AvgPool3D in half has a GPU kernel only.
    check_precision(
        """
        x: f32[1,2,4,4,3] = Placeholder
        w: f32[1,1,1,3,3] = Const(seed=1)
        c = Conv3D(x, w, strides=[1,1,1,1,1], padding=SAME)     # low ALLOW
        free = AvgPool3D(c, POOL)                               # low INFER
        here = AvgPool3D(c, POOL, device='/device:CPU:0')       # f32 NO_KERNEL
        there = AvgPool3D(c, POOL, device='/gpu:0')             # low INFER
        a = Identity(free)                                      # f32 PINNED
        b = Identity(here)                                      # f32 PINNED
        d = Identity(there)                                     # f32 PINNED
        """.replace("POOL", "ksize=[1,2,2,2,1], strides=[1,2,2,2,1], padding=VALID"),
        dtypes=("half",),  # bfloat16 has both kernels
        device="gpu",
        not_run="half has no CPU kernel",
    )


def test_the_row_must_be_the_cpus() -> None:
    # A mean in half is INFER on a GPU, whose kernel sums in float32, and DENY on a CPU.
    check_precision(
        """
        x: f32[4,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        axis: i32[1] = Const([1])
        m = MatMul(x, w)                                                         # low ALLOW
        free = Mean(m, axis, keep_dims=True)                                     # low INFER
        here = Mean(m, axis, keep_dims=True, device='/job:localhost/task:0/cpu:0')  # f32 DENY
        v: f32[1,8] = Const(seed=2)
        p = MatMul(free, v)                                                      # low ALLOW
        q = MatMul(here, v)                                                      # low ALLOW
        a = Identity(p)                                                          # f32 PINNED
        b = Identity(q)                                                          # f32 PINNED
        """,
        dtypes=("half",),  # in bfloat16 the GPU's row is DENY
        device="gpu",
    )


def test_the_kernel_of_a_pinned_op_is_enough_under_any() -> None:
    # Softplus in bfloat16 has a CPU kernel only.
    check_precision(
        """
        x: f32[4,8] = Placeholder
        w: f32[8,8] = Const(seed=1)
        m = MatMul(x, w)                                # low ALLOW
        free = Softplus(m)                              # f32 NO_KERNEL
        here = Softplus(m, device='/device:CPU:0')      # low INFER
        p = MatMul(free, w)                             # low ALLOW
        q = MatMul(here, w)                             # low ALLOW
        a = Identity(p)                                 # f32 PINNED
        b = Identity(q)                                 # f32 PINNED
        """,
        dtypes=("bfloat16",),  # half has both kernels
    )


def test_a_long_sum_of_a_pinned_einsum_is_written_out() -> None:
    # The CPU kernel of Einsum sums in the low type, that of BatchMatMulV2 in float32.
    graph = graph_text.parse(
        """
        x: f32[2,1024] = Placeholder
        w: f32[1024,4] = Const(seed=1, scale=0.03)
        here = Einsum([x, w], equation='ab,bc->ac', device='/device:CPU:0')
        free = Einsum([x, w], equation='ab,bc->ac')
        a = Identity(here)
        b = Identity(free)
        """
    )
    for dtype in BOTH:
        report = checked_rewrite(
            graph,
            dtype,
            options={"device": "gpu"},
            not_run="a long sum of an Einsum in low precision is the GPU's",
        )
        assert report.graph_def is not None
        ops = {node.name: (node.op, node.device) for node in report.graph_def.node}
        assert ops["here"] == ("BatchMatMulV2", "/device:CPU:0")
        assert ops["free"] == ("Einsum", "")


def test_the_condition_must_be_the_cpus() -> None:
    check_precision(
        """
        x: f32[1,16,16,2] = Placeholder
        w: f32[13,13,2,1] = Const(0.01)
        here = DepthwiseConv2dNative(x, w, HOW, device='/CPU:0')    # f32 CONDITION
        free = DepthwiseConv2dNative(x, w, HOW)                     # low ALLOW
        b = Identity(here)                                          # f32 PINNED
        c = Identity(free)                                          # f32 PINNED
        """.replace("HOW", "strides=[1,1,1,1], padding='VALID'"),
        device="gpu",
        not_run="a wide window summed in low precision is the GPU's",
    )
