"""C27: ops that are low for some arguments, on some devices or not at all, beside contractions.

What may be low is what the definition allows and the device's kernels have, argument by argument.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.case_answers import DEVICES, check_answer
from tests.checks import BOTH, check_precision

EYE = "[[1,0,0,0],[0,1,0,0],[0,0,1,0],[0,0,0,1]]"
CONV = "strides=[1,1,1,1], padding='SAME'"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("op", ["ResizeBilinear", "ResizeBicubic", "ResizeArea"])
def test_c27_a_resize_between_convolutions_with_a_skip(op: str, device: str) -> None:
    # Its result is float32 whatever it reads; the skip stays low, and one Concat takes both.
    check_precision(
        f"""
        x: f32[1,8,8,3] = Placeholder
        w1: f32[3,3,3,4] = Const(seed=1)
        w2: f32[3,3,4,4] = Const(seed=2)
        w3: f32[3,3,8,4] = Const(seed=3)
        size = Const([8, 8])
        axis = Const(3)
        skip = Conv2D(x, w1, {CONV})                                          # low ALLOW
        deep = Conv2D(skip, w2, strides=[1,2,2,1], padding='SAME')            # low ALLOW
        large = {op}(deep, size)                                              # f32 KEEP
        both = ConcatV2([large, skip], axis)                                  # low CLEAR
        out = Conv2D(both, w3, {CONV})                                        # low ALLOW
        fetch = Identity(out)                                                 # f32 PINNED
        """,
        device=device,
        steps=1,
        casts=4,  # x down, deep up, large down, out up
    )


@pytest.mark.parametrize("device", DEVICES)
def test_c27_a_resize_to_the_nearest_runs_on_in_low_precision(device: str) -> None:
    check_precision(
        f"""
        x: f32[1,8,8,3] = Placeholder
        w1: f32[3,3,3,4] = Const(seed=1)
        w2: f32[3,3,4,4] = Const(seed=2)
        w3: f32[3,3,8,4] = Const(seed=3)
        size = Const([8, 8])
        axis = Const(3)
        skip = Conv2D(x, w1, {CONV})                                          # low ALLOW
        deep = Conv2D(skip, w2, strides=[1,2,2,1], padding='SAME')            # low ALLOW
        large = ResizeNearestNeighbor(deep, size)                             # low CLEAR
        both = ConcatV2([large, skip], axis)                                  # low CLEAR
        out = Conv2D(both, w3, {CONV})                                        # low ALLOW
        fetch = Identity(out)                                                 # f32 PINNED
        """,
        device=device,
        casts=2,
    )


def test_c27_crop_and_resize_reads_its_boxes_in_float32() -> None:
    # A box from 0 to 1 takes all of the image, corner on corner: it comes out as it was.
    text = f"""
    x: f32[1,4,4,4] = Placeholder
    boxes: f32[2,4] = Placeholder
    w: f32[1,1,4,4] = Const({EYE})
    of: i32[2] = Const(0)
    size = Const([2, 2])
    conv = Conv2D(x, w, {CONV})                   # low ALLOW
    crops = CropAndResize(conv, boxes, of, size)  # f32 KEEP
    conv2 = Conv2D(crops, w, {CONV})              # low ALLOW
    fetch = Identity(conv2)                       # f32 PINNED
    """
    x = np.arange(64.0).reshape(1, 4, 4, 4)
    corners = x[0, ::3, ::3]
    # a third of the image is one place: 0.3333 in half would be beside it
    inner = x[0, 1:3, 1:3]
    boxes = [[0, 0, 1, 1], [1 / 3, 1 / 3, 2 / 3, 2 / 3]]
    check_answer(text, np.stack([corners, inner]), steps=1, x=x, boxes=boxes)


def test_c27_coordinates_in_pixels_stay_what_they_are() -> None:
    # Behind a product, but read as sizes: 4095 / 4096 is 1 in bfloat16.
    text = f"""
    x: f32[1,4096,2,4] = Placeholder
    y1: f32[1,1] = Placeholder
    w: f32[1,1,4,4] = Const({EYE})
    of: i32[1] = Const(0)
    size = Const([1, 1])
    axis = Const(1)
    height = Const(4095.0)
    zero: f32[1,1] = Const(0)
    top = RealDiv(y1, height)
    boxes = ConcatV2([top, zero, top, zero], axis)
    conv = Conv2D(x, w, {CONV})                   # low ALLOW
    crops = CropAndResize(conv, boxes, of, size)  # f32 KEEP
    rows = Const([1, 4])
    fetch = Reshape(crops, rows)
    """
    x = np.zeros((1, 4096, 2, 4))
    x[0, 4094] = 1.0
    check_answer(text, 1.0, steps=1, x=x, y1=[[4094.0]])


def test_c27_a_suppression_reads_boxes_scores_and_thresholds_in_float32() -> None:
    text = f"""
    x: f32[3,4] = Placeholder
    scores: f32[3] = Placeholder
    eye: f32[4,4] = Const({EYE})
    most = Const(3)
    overlap = Const(0.33334)
    least = Const(0.70002)
    axis = Const(0)
    boxes = Identity(x)
    m = MatMul(boxes, eye)                       # low ALLOW
    out = Identity(m)
    picked = NonMaxSuppressionV3(boxes, scores, most, overlap, least)
    fetch = GatherV2(scores, picked, axis)
    """
    # boxes 0 and 1 share 1000 of 3000 units, less than the threshold; in half both are one third
    boxes = [[0.0, 0, 1, 2000], [0, 1000, 1, 3000], [0, 5000, 1, 5001]]
    check_answer(
        text,
        np.float32([0.9, 0.8]),
        exact=True,
        steps=1,
        x=boxes,
        scores=[0.9, 0.8, 0.70001],
    )


# Ops without half at all, or without a kernel: a line, and what follows it up to a product's input.
FLOAT32_ONLY = {
    "LRN": "op = LRN(conv)",
    "FakeQuantWithMinMaxArgs": "op = FakeQuantWithMinMaxArgs(conv)",
    "FakeQuantWithMinMaxVars": """
        lowest = Const(-6.0)
        highest = Const(6.0)
        op = FakeQuantWithMinMaxVars(conv, lowest, highest)
    """,
    "FakeQuantWithMinMaxVarsPerChannel": """
        lowest: f32[4] = Const(-6)
        highest: f32[4] = Const(6)
        op = FakeQuantWithMinMaxVarsPerChannel(conv, lowest, highest)
    """,
    "QuantizeV2": """
        lowest = Const(-6.0)
        highest = Const(6.0)
        q: qint8, f32, f32 = QuantizeV2(conv, lowest, highest, T=qint8)
        op = Dequantize(q, q:1, q:2)
    """,
    "RFFT": """
        points = Const([4])
        c: c64 = RFFT(conv, points)
        op = IRFFT(c, points)
    """,
    "Bucketize": """
        b = Bucketize(conv, boundaries=[-0.5,0,0.5])
        op = Cast(b, DstT=f32)
    """,
    "RGBToHSV": """
        begin = Const([0, 0, 0, 0])
        size = Const([1, 8, 8, 3])
        pads = Const([[0, 0], [0, 0], [0, 0], [0, 1]])
        positive = Sigmoid(conv)
        three = Slice(positive, begin, size)
        hsv = RGBToHSV(three)
        op = Pad(hsv, pads)
    """,
}


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("lines", FLOAT32_ONLY.values(), ids=FLOAT32_ONLY)
def test_c27_an_op_of_float32_alone_between_convolutions(
    lines: str, device: str, dtype: str
) -> None:
    check_precision(
        f"""
        x: f32[1,8,8,4] = Placeholder
        w: f32[1,1,4,4] = Const({EYE})
        conv = Conv2D(x, w, {CONV})      # low ALLOW
        {lines}
        conv2 = Conv2D(op, w, {CONV})    # low ALLOW
        fetch = Identity(conv2)          # f32 PINNED
        """,
        dtypes=(dtype,),
        device=device,
        # exact steps of the quantisation: its input is what half and bfloat16 hold
        feeds={"x": np.float32(np.random.default_rng(3).integers(-8, 9, (1, 8, 8, 4)) / 16)},
        steps=1,
    )


def test_c27_a_combined_suppression_behind_a_product() -> None:
    text = f"""
    x: f32[1,4] = Placeholder
    boxes: f32[1,4,1,4] = Placeholder
    eye: f32[4,4] = Const({EYE})
    shape = Const([1, 4, 1])
    most = Const(2)
    overlap = Const(0.5)
    least = Const(0.1)
    m = MatMul(x, eye)                           # low ALLOW
    scores = Reshape(m, shape)
    picked: f32, f32, f32, i32 = CombinedNonMaxSuppression(boxes,scores,most,most,overlap,least)
    fetch = Identity(picked)
    score = Identity(picked:1)
    """
    boxes = np.array([[0, 0, 0.1, 0.1], [0.2, 0, 0.3, 0.1], [0.4, 0, 0.5, 0.1], [0.6, 0, 0.7, 0.1]])
    # the boxes themselves never were low
    check_answer(
        text,
        np.float32([[boxes[3], boxes[1]]]),
        exact=True,
        steps=1,
        x=[[0.25, 0.5, 0.125, 1.0]],
        boxes=boxes.reshape(1, 4, 1, 4),
    )


def test_c27_a_ctc_loss_behind_a_product() -> None:
    text = f"""
    x: f32[3,4] = Placeholder
    eye: f32[4,4] = Const({EYE})
    shape = Const([3, 1, 4])
    at: i64[1,2] = Const(0)
    labels: i32[1] = Const(1)
    steps: i32[1] = Const(3)
    m = MatMul(x, eye)                           # low ALLOW
    logits = Reshape(m, shape)
    loss: f32, f32 = CTCLoss(logits, at, labels, steps)
    fetch = Identity(loss)
    gradient = Identity(loss:1)
    """
    # even logits: each of the 4 ** 3 paths is as likely, and 6 of them read as label 1 alone:
    # 1bb, b1b, bb1, 11b, b11, 111
    check_answer(text, np.log(64 / 6), steps=1, x=np.zeros((3, 4)))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", BOTH)
def test_c27_a_normalisation_keeps_its_statistics_on_every_device(dtype: str, device: str) -> None:
    # The definition of V3 allows U to be bfloat16; no kernel takes it.
    check_precision(
        f"""
        x: f32[1,8,8,4] = Placeholder
        w: f32[3,3,4,4] = Const(seed=1)
        ones: f32[4] = Const(1)
        zeros: f32[4] = Const(0)
        conv = Conv2D(x, w, {CONV})                                           # low ALLOW
        bn = FusedBatchNormV3(conv,ones,zeros,zeros,ones,is_training=False)   # T low; U f32 KEEP
        conv2 = Conv2D(bn, w, {CONV})                                         # low ALLOW
        fetch = Identity(conv2)                                               # f32 PINNED
        """,
        dtypes=(dtype,),
        device=device,
        casts=2,
    )


# op between two products: on which of (any, cpu, gpu) it is low, in half and in bfloat16
BY_DEVICE = {
    "Softplus(m)": {"half": (True, True, True), "bfloat16": (False, True, False)},
    "Softsign(m)": {"half": (True, True, True), "bfloat16": (False, True, False)},
    "Erfinv(m)": {"half": (False, False, False), "bfloat16": (False, False, False)},
}


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("call", BY_DEVICE)
def test_c27_low_is_what_the_kernels_of_the_device_have(call: str, dtype: str) -> None:
    for device, low in zip(DEVICES, BY_DEVICE[call][dtype], strict=True):
        check_precision(
            f"""
            x: f32[1,4] = Placeholder
            eye: f32[4,4] = Const({EYE})
            m = MatMul(x, eye)      # low ALLOW
            op = {call}             # {"low" if low else "f32"}
            m2 = MatMul(op, eye)    # low ALLOW
            fetch = Identity(m2)    # f32 PINNED
            """,
            dtypes=(dtype,),
            device=device,
            ranges={"x": (-0.5, 0.5)},
            steps=1,
            casts=2 if low else 4,
        )
