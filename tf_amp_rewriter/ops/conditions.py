"""Why one node must stay float32 although its op may be low: the named conditions of the tables.

Each is about what TensorFlow's CPU kernels do, so it holds for `--device any` and `cpu`. Under
`gpu` those of contractions and Softmax pass, as they accumulate in float32 there; AddN adds in the
low precision there too, and cuDNN does not say what its average pooling does, so theirs hold. The
limits were measured with the plain CPU kernels of TensorFlow 2.21 (`TF_ENABLE_ONEDNN_OPTS=0`) on
random data of four kinds (normal, its absolute value, uniform, log-normal) against float64. An
error below is the RMS of the relative error; rounding the exact result once costs 2.1e-4 in half
and 1.7e-3 in bfloat16. The limits let half lose about as much as one maximal rounding of bfloat16
(4e-3), and bfloat16 two of them (8e-3).
`tests/ops/test_conditions.py` measures them again.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from tf_amp_rewriter import dtypes
from tf_amp_rewriter.ops import einsum
from tf_amp_rewriter.ops.attrs import attr_of

if TYPE_CHECKING:
    from tensorflow.core.framework import node_def_pb2

# half: 3.4e-3 at 512 (log-normal data: 5.6e-3), 6.2e-3 at 768; bfloat16: 3.9e-3 at 8, 7.2e-3 at 16,
# 7.4e-2 at 512.
EINSUM_DEPTHS: Final = {dtypes.HALF.name: 512, dtypes.BFLOAT16.name: 8}
# half: 4.7e-4 at 3x3, 1.0e-3 at 7x7, 1.2e-3 at 8x8; bfloat16: 3.6e-3 at 3x3 (2.1 times that of one
# rounding), 6.1e-3 at 5x5 (3.6 times), 8.6e-3 at 7x7 (5 times).
DEPTHWISE_AREAS: Final = {dtypes.HALF.name: 64, dtypes.BFLOAT16.name: 25}
# half: 3.1e-3 at 24x24, 4.9e-3 at 28x28, 3.6e-2 at 45x45, and from 2049 on even counting stalls;
# bfloat16: 8.5e-3 at 8x8, 1.4e-2 at 12x12, 4.1e-2 at 16x16, and from 257 on counting stalls.
POOL_AREAS: Final = {dtypes.HALF.name: 576, dtypes.BFLOAT16.name: 64}
# half: 5.2e-4 at 16 inputs, bfloat16: 4.0e-3; 30 % more at 64.
ADD_N_INPUTS: Final = 16
# The sum of exponentials overflows half: 65536 equal logits give probabilities of 0.
SOFTMAX_WIDTHS: Final = {dtypes.HALF.name: 65504}


@dataclasses.dataclass(frozen=True)
class NodeFacts:
    """What a condition may look at.

    Attributes:
        node: the node, with its attributes.
        low: the low precision asked for.
        device: the device asked for: `any`, `gpu` or `cpu`.
        input_shapes: the static shape of each data input, with None for a dimension that is not
            known, or None where not even the rank is.
    """

    node: node_def_pb2.NodeDef
    low: dtypes.LowPrecision
    device: str
    input_shapes: tuple[tuple[int | None, ...] | None, ...]


def add_n_inputs(facts: NodeFacts) -> str:
    """AddN sums in the low precision, so it must have few inputs."""
    inputs = attr_of(facts.node, "N").i
    if inputs <= ADD_N_INPUTS:
        return ""
    return f"adds {inputs} tensors in {facts.low.name}, more than {ADD_N_INPUTS}"


def conv_rank(facts: NodeFacts) -> str:
    """Conv accumulates in bfloat16 where its filter has three spatial dimensions."""
    if _runs_on_gpu_only(facts) or facts.low != dtypes.BFLOAT16:
        return ""
    shape = _shape(facts, 1)
    if shape is None:
        return "its filter has an unknown rank, and with 5 dimensions it sums in bfloat16 on CPU"
    return sums_in_bfloat16(facts) if len(shape) == 5 else ""


def depthwise_window(facts: NodeFacts) -> str:
    """Depthwise convolutions sum over their window in the low precision: it must be small."""
    if _runs_on_gpu_only(facts):
        return ""
    shape = _shape(facts, 1)
    area = _product(shape[:2]) if shape is not None else None
    return _too_many("sums a window of", area, DEPTHWISE_AREAS[facts.low.name], facts.low)


def einsum_depth(facts: NodeFacts) -> str:
    """Einsum sums in the low precision: few known terms, or it is written out as a product.

    One of a single operand is a plain sum, whose result may be beyond the range on any device.
    """
    inputs, _, output = _equation(facts).replace(" ", "").partition("->")
    if "," not in inputs and set(inputs) - set(output):
        return "it is a sum of one operand"
    return "" if needs_expansion(facts) else _einsum_loss(facts)


def needs_expansion(facts: NodeFacts) -> bool:
    """Says whether an Einsum may be low only as the product of matrices that computes it too.

    BatchMatMulV2 sums in float32: its error is that of one rounding, in bfloat16 of up to two.
    """
    return bool(_einsum_loss(facts)) and einsum.plan(_equation(facts)) is not None


def pool_window(facts: NodeFacts) -> str:
    """Average pooling sums and counts in the low precision: its window must be small."""
    area = math.prod(attr_of(facts.node, "ksize").list.i)
    return _too_many("averages a window of", area, POOL_AREAS[facts.low.name], facts.low)


def softmax_width(facts: NodeFacts) -> str:
    """Softmax over very many classes overflows the sum in half; an unknown width passes."""
    limit = SOFTMAX_WIDTHS.get(facts.low.name)
    shape = _shape(facts, 0)
    if _runs_on_gpu_only(facts) or limit is None or not shape or shape[-1] is None:
        return ""
    return _too_many("sums", shape[-1], limit, facts.low) if shape[-1] > limit else ""


def sums_in_bfloat16(facts: NodeFacts) -> str:
    """Contractions whose CPU kernel sums all terms in bfloat16 and so loses 1 to 2 %.

    Measured: Conv3D of 3x3x3x8 terms and more 1.6e-2 to 2.0e-2, Conv2DBackpropInput with a 3x3
    filter at stride 2 and 32, 128, 256 channels 7e-3, 1.3e-2, 1.9e-2. Half loses 2.5e-3 at most.
    """
    if _runs_on_gpu_only(facts) or facts.low != dtypes.BFLOAT16:
        return ""
    return "sums all its terms in bfloat16 on CPU, which loses 1 to 2 %"


CONDITIONS: Final[Mapping[str, Callable[[NodeFacts], str]]] = {
    condition.__name__: condition
    for condition in (
        add_n_inputs,
        conv_rank,
        depthwise_window,
        einsum_depth,
        pool_window,
        softmax_width,
        sums_in_bfloat16,
    )
}


def _runs_on_gpu_only(facts: NodeFacts) -> bool:
    return facts.device == "gpu"


def _too_many(what: str, terms: int | None, limit: int, low: dtypes.LowPrecision) -> str:
    if terms is None:
        return f"{what} an unknown number of terms in {low.name} on CPU, at most {limit} may be"
    if terms > limit:
        return f"{what} {terms} terms in {low.name} on CPU, more than {limit}"
    return ""


def _shape(facts: NodeFacts, index: int) -> tuple[int | None, ...] | None:
    return facts.input_shapes[index] if index < len(facts.input_shapes) else None


def _product(dims: tuple[int | None, ...]) -> int | None:
    product = 1
    for dim in dims:
        if dim is None:
            return None
        product *= dim
    return product


def _equation(facts: NodeFacts) -> str:
    return attr_of(facts.node, "equation").s.decode()


def _einsum_loss(facts: NodeFacts) -> str:
    if _runs_on_gpu_only(facts):
        return ""
    depth = _einsum_terms(_equation(facts), facts)
    return _too_many("sums", depth, EINSUM_DEPTHS[facts.low.name], facts.low)


def _einsum_terms(equation: str, facts: NodeFacts) -> int | None:
    """Returns how many terms each result sums; None if that is not known statically."""
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    if not arrow or ("..." in inputs and "..." not in output):
        return None
    summed = set(inputs) - set(output) - set(".,")
    sizes = einsum.known_sizes(equation, facts.input_shapes)
    return _product(tuple(sizes.get(label) for label in summed))
