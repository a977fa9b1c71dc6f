"""The tables of `tf_amp_rewriter/ops` against the op definitions of the installed TensorFlow."""

from __future__ import annotations

import re
from collections import Counter

import pytest
import tensorflow as tf
from tensorflow.core.framework import op_def_pb2
from tensorflow.python.framework import kernels as registry
from tensorflow.python.framework import op_def_registry

from tf_amp_rewriter import dtypes
from tf_amp_rewriter.ops import calls, categories, conditions, custom, keep, kernels, meanings
from tf_amp_rewriter.ops.rows import Category, OpRow
from tools import new_ops

LOWERING = (Category.ALLOW, Category.INFER, Category.CLEAR)
# On grappler's lists, but removed from TensorFlow before 2.21 (or never in its open part).
GONE = {
    "FastUnsortedSegmentMax",
    "FusedConv2DBiasActivation",
    "FusedSparseConvGpuV2",
    "Mha",
    "MhaV2",
    "Pmlp",
    "Tmlp",
    "TmlpV2",
    "TmlpV3",
    "VoxelMax",
}
# Their float port is no number: it says in which order an array is written and read.
FLOWS = {"TensorArraySize", "TensorArraySizeV2", "TensorArraySizeV3"}
# Float32 alone and no part of a model that is served with floats: ranges of quantised values, logs,
# gradients and optimizers.
NOT_SERVED = re.compile(
    r"^(_?(Mkl)?Quantize\w+|(Write)?AudioSummary(V2)?)$"
    r"|^(FakeQuantWithMinMax\w+Gradient|NegTrain|Sdca\w+|TensorArrayGrad\w*)$"
)
# Ops of kernels that only builds for x86 have.
OF_X86 = ("_Mkl", "__Mkl")


def definition(op: str) -> op_def_pb2.OpDef | None:
    return op_def_registry.get(op)


def float_attrs(op: str) -> dict[str, set[int]]:
    """The type attributes of `op` that may be float32, with the dtypes allowed (empty: all)."""
    found = definition(op)
    assert found is not None, op
    attrs = {
        attr.name: set(attr.allowed_values.list.type)
        for attr in found.attr
        if attr.type in ("type", "list(type)")
    }
    return {name: allowed for name, allowed in attrs.items() if not allowed or 1 in allowed}


def all_ops() -> list[str]:
    """Every op of the installed TensorFlow with a type attribute that may be float32."""
    return [op.name for op in new_ops.definitions() if new_ops.float_attributes(op)]


def test_no_fact_stands_twice():
    keys = Counter((row.op, row.dtype, row.device) for row in categories.ROWS)
    assert [key for key, count in keys.items() if count > 1] == []


def test_no_two_rows_are_equally_specific():
    for row in categories.ROWS:
        for low in dtypes.LOW_PRECISIONS.values():
            for device in ("any", "gpu", "cpu"):
                holding = [
                    other
                    for other in categories.ROWS
                    if other.op == row.op
                    and other.dtype in ("", low.name)
                    and other.device in ("", device)
                ]
                ranks = Counter(categories.specificity(other) for other in holding)
                assert not holding or ranks[max(ranks)] == 1, row.op


def test_rows_have_valid_fields():
    for row in categories.ROWS:
        assert row.dtype in ("", *dtypes.LOW_PRECISIONS), row
        assert row.device in ("", "any", "gpu", "cpu"), row
        assert row.source, row
        assert row.condition in ("", *conditions.CONDITIONS), row
        assert row.note or row.category in LOWERING, row
        assert row.category is Category.CLEAR or not row.discrete, row
        assert row.category is Category.KEEP or not row.positions, row


def test_every_condition_is_used():
    assert {row.condition for row in categories.ROWS} - {""} == set(conditions.CONDITIONS)


def test_every_op_exists_or_is_known_to_be_gone():
    of_others = {row.op for row in custom.ROWS}
    missing = {
        row.op
        for row in categories.ROWS
        if definition(row.op) is None and not row.op.startswith(OF_X86)
    } - of_others
    assert missing == GONE
    assert {row.category for row in keep.ROWS if row.op in GONE} == {Category.KEEP}


@pytest.mark.parametrize(
    "row", [row for row in categories.ROWS if row.category in LOWERING], ids=lambda row: row.op
)
def test_attributes_that_become_low_may_be_low(row: OpRow):
    attrs = float_attrs(row.op)
    lowered = row.attrs or tuple(attrs)
    assert set(lowered) <= set(attrs)
    assert len(attrs) == 1 or row.attrs, "several type attributes: the row must name those meant"
    possible = [
        low.name
        for low in dtypes.LOW_PRECISIONS.values()
        if row.dtype in ("", low.name)
        and all(not attrs[attr] or low.proto in attrs[attr] for attr in lowered)
        and any(
            all(kernels.has_kernel(row.op, attr, low, device) for attr in lowered)
            for device in ("any", "gpu", "cpu")
            if row.device in ("", device)
        )
    ]
    assert possible, "no low precision can ever be used: the row should be KEEP"


def test_ops_of_other_libraries_stay_float32_and_are_none_of_tensorflow():
    assert {row.category for row in custom.ROWS} == {Category.KEEP}
    assert [row.op for row in custom.ROWS if definition(row.op) is not None] == []
    assert all(row.note for row in custom.ROWS)


def test_rows_are_sorted_within_their_blocks():
    source = re.compile(r'OpRow\(\s*"(\w+)"')
    for module in ("allow", "infer", "clear", "deny", "keep"):
        text = tf.io.gfile.GFile(getattr(categories, module).__file__).read()
        for block in re.split(r"(?m)(?:^    #.*\n)+", text.partition("ROWS: Final")[2]):
            ops = source.findall(block)
            assert ops == sorted(ops), (module, ops[:1])


def test_every_op_with_a_float_type_attribute_is_decided():
    rows = {row.op for row in categories.ROWS}
    known = rows | set(meanings.BY_MEANING) | set(calls.CALLS)
    assert [op for op in all_ops() if op not in known] == []
    assert len(all_ops()) > 1300


def test_the_registry_has_every_op_of_the_kernel_table():
    assert set(kernels._table()[1]) <= set(all_ops())


def test_what_goes_by_its_meaning_has_no_row_and_a_reason():
    assert not {row.op for row in categories.ROWS} & {*meanings.BY_MEANING, *calls.CALLS}
    assert all(meanings.BY_MEANING.values())


def test_every_row_has_a_source_and_what_stays_float32_a_reason():
    kept = [row for row in categories.ROWS if row.category in (Category.DENY, Category.KEEP)]
    assert [row.op for row in categories.ROWS if not row.source] == []
    assert [row.op for row in kept if not row.note] == []


def test_every_op_with_a_port_that_is_float32_alone_is_decided():
    known = {row.op for row in categories.ROWS} | set(meanings.BY_MEANING) | set(calls.CALLS)
    ports = {
        op: [*found.input_arg, *found.output_arg]
        for op in {kernel.op for kernel in registry.get_all_registered_kernels().kernel}
        if (found := definition(op)) is not None
    }
    fixed = {op for op, found in ports.items() if any(port.type == 1 for port in found)}
    assert sorted(op for op in fixed - known - FLOWS if not NOT_SERVED.search(op)) == []


def test_more_specific_rows_win():
    half, bfloat16 = dtypes.HALF, dtypes.BFLOAT16

    def found(op: str, low: dtypes.LowPrecision, device: str) -> str:
        row = categories.row_for(op, low, device)
        return row.category.value if row is not None else "none"

    assert found("Mean", half, "any") == "DENY"
    assert found("Mean", half, "gpu") == "INFER"
    assert found("Mean", half, "cpu") == "DENY"
    assert found("Mean", bfloat16, "gpu") == "DENY"
    assert found("Mean", bfloat16, "cpu") == "INFER"
    assert found("Sum", bfloat16, "any") == "DENY"
    assert found("CudnnRNNV3", half, "any") == "KEEP"
    assert found("CudnnRNNV3", half, "gpu") == "ALLOW"
    assert found("SparseTensorDenseMatMul", half, "any") == "INFER"
    assert found("SparseTensorDenseMatMul", bfloat16, "gpu") == "KEEP"
    assert found("MatMul", half, "any") == "ALLOW"
    assert found("Const", half, "any") == "none"
    assert found("NoSuchOp", half, "any") == "none"


def test_what_differs_from_grappler_on_purpose():
    expected = {
        "Equal": Category.KEEP,
        "FloorDiv": Category.KEEP,
        "Greater": Category.KEEP,
        "Prod": Category.DENY,
        "ResizeBilinear": Category.KEEP,
        "Rsqrt": Category.DENY,
        "ScatterNd": Category.KEEP,
        "Square": Category.DENY,
        "Where": Category.KEEP,
    }
    for low in dtypes.LOW_PRECISIONS.values():
        for op, category in expected.items():
            row = categories.row_for(op, low, "any")
            assert row is not None
            assert row.category is category, op


@pytest.mark.parametrize("op", ["FusedBatchNormV2", "FusedBatchNormV3"])
def test_statistics_are_never_low(op: str):
    row = categories.row_for(op, dtypes.HALF, "any")
    assert row is not None
    assert row.attrs == ("T",)
