"""Ops that always gain from low precision: contractions, and where they must not be low."""

from __future__ import annotations

from typing import Final

from tf_amp_rewriter.ops.rows import Category, OpRow

ALLOW: Final = Category.ALLOW
KEEP: Final = Category.KEEP
_CELL: Final = "a recurrent state is rounded at each step; low for `--device gpu` only"
_TRUNCATES: Final = "the CPU kernel truncates its results to bfloat16 instead of rounding them"
_GRADIENT: Final = "a gradient sums over a whole batch; low for `--device gpu` only"

ROWS: Final[tuple[OpRow, ...]] = (
    # Contractions whose kernels accumulate in float32 on CPU and GPU.
    OpRow("BatchMatMul", ALLOW, "grappler allow"),
    OpRow("BatchMatMulV2", ALLOW, "grappler allow"),
    OpRow("BatchMatMulV3", ALLOW, "TF op def", attrs=("Ta", "Tb", "Tout")),
    OpRow(
        "BatchMatMulV3",
        KEEP,
        "measured on CPU",
        dtype="bfloat16",
        device="any",
        note=_TRUNCATES,
    ),
    OpRow(
        "BatchMatMulV3",
        KEEP,
        "measured on CPU",
        dtype="bfloat16",
        device="cpu",
        note=_TRUNCATES,
    ),
    OpRow("Conv2D", ALLOW, "grappler allow"),
    OpRow("MatMul", ALLOW, "grappler allow"),
    # Contractions that accumulate in the low type on CPU: a condition bounds the number of terms.
    OpRow("Conv", ALLOW, "measured on CPU", condition="conv_rank"),
    OpRow("DepthwiseConv2dNative", ALLOW, "grappler allow", condition="depthwise_window"),
    OpRow(
        "DepthwiseConv2dNativeBackpropInput", ALLOW, "grappler allow", condition="depthwise_window"
    ),
    OpRow("Einsum", ALLOW, "grappler allow", condition="einsum_depth"),
    # Contractions that accumulate in the low type on CPU: half keeps its error below one rounding
    # of bfloat16, bfloat16 loses 1 to 2 % and is for GPU only.
    OpRow("Conv2DBackpropInput", ALLOW, "grappler allow", condition="sums_in_bfloat16"),
    OpRow("Conv3D", ALLOW, "grappler allow", condition="sums_in_bfloat16"),
    OpRow("Conv3DBackpropInput", ALLOW, "grappler allow", condition="sums_in_bfloat16"),
    OpRow("Conv3DBackpropInputV2", ALLOW, "grappler allow", condition="sums_in_bfloat16"),
    # Convolution with its padding: has a CPU kernel alone; half loses as much as in Conv3D.
    OpRow("FusedPadConv2D", ALLOW, "grappler bf16 allow"),
    # Recurrent cells: their state is rounded at each step, so only where GPU is asked for.
    OpRow("BlockLSTM", KEEP, "grappler allow", note=_CELL),
    OpRow("BlockLSTM", ALLOW, "grappler allow", device="gpu"),
    OpRow("BlockLSTMV2", KEEP, "grappler allow", note=_CELL),
    OpRow("BlockLSTMV2", ALLOW, "grappler allow", device="gpu"),
    OpRow("CudnnRNN", KEEP, "grappler allow", note=_CELL),
    OpRow("CudnnRNN", ALLOW, "grappler allow", device="gpu"),
    OpRow("CudnnRNNV2", KEEP, "grappler allow", note=_CELL),
    OpRow("CudnnRNNV2", ALLOW, "grappler allow", device="gpu"),
    OpRow("CudnnRNNV3", KEEP, "grappler allow", note=_CELL),
    OpRow("CudnnRNNV3", ALLOW, "grappler allow", device="gpu"),
    OpRow("LSTMBlockCell", KEEP, "grappler allow", note=_CELL),
    OpRow("LSTMBlockCell", ALLOW, "grappler allow", device="gpu"),
    # Gradients, which sum over all positions of a batch: only where GPU is asked for.
    OpRow("BlockLSTMGrad", KEEP, "grappler allow", note=_GRADIENT),
    OpRow("BlockLSTMGrad", ALLOW, "grappler allow", device="gpu"),
    OpRow("BlockLSTMGradV2", KEEP, "grappler allow", note=_GRADIENT),
    OpRow("BlockLSTMGradV2", ALLOW, "grappler allow", device="gpu"),
    OpRow("Conv2DBackpropFilter", KEEP, "grappler allow", note=_GRADIENT),
    OpRow("Conv2DBackpropFilter", ALLOW, "grappler allow", device="gpu"),
    OpRow("Conv3DBackpropFilter", KEEP, "grappler allow", note=_GRADIENT),
    OpRow("Conv3DBackpropFilter", ALLOW, "grappler allow", device="gpu"),
    OpRow("Conv3DBackpropFilterV2", KEEP, "grappler allow", note=_GRADIENT),
    OpRow("Conv3DBackpropFilterV2", ALLOW, "grappler allow", device="gpu"),
    OpRow("CudnnRNNBackprop", KEEP, "grappler allow", note=_GRADIENT),
    OpRow("CudnnRNNBackprop", ALLOW, "grappler allow", device="gpu"),
    OpRow("CudnnRNNBackpropV2", KEEP, "grappler allow", note=_GRADIENT),
    OpRow("CudnnRNNBackpropV2", ALLOW, "grappler allow", device="gpu"),
    OpRow("CudnnRNNBackpropV3", KEEP, "grappler allow", note=_GRADIENT),
    OpRow("CudnnRNNBackpropV3", ALLOW, "grappler allow", device="gpu"),
    OpRow("DepthwiseConv2dNativeBackpropFilter", KEEP, "grappler allow", note=_GRADIENT),
    OpRow("DepthwiseConv2dNativeBackpropFilter", ALLOW, "grappler allow", device="gpu"),
    OpRow("LSTMBlockCellGrad", KEEP, "grappler allow", note=_GRADIENT),
    OpRow("LSTMBlockCellGrad", ALLOW, "grappler allow", device="gpu"),
)
