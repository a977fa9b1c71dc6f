"""The kernel table: known facts, its rule, and the live registry of the installed TensorFlow."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import subprocess
import sys
import types

import pytest
import tensorflow as tf

from tf_amp_rewriter import dtypes
from tf_amp_rewriter.ops import kernels

HALF, BFLOAT16 = dtypes.HALF, dtypes.BFLOAT16
ROOT = pathlib.Path(kernels.__file__).parents[2]


@pytest.fixture(scope="module")
def tool() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(
        "make_kernel_table", ROOT / "tools" / "make_kernel_table.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("op", "attr", "low", "devices"),
    [
        ("MatMul", "T", HALF, "any gpu cpu"),
        ("MatMul", "T", BFLOAT16, "any gpu cpu"),
        ("Where", "T", HALF, "cpu"),
        ("LRN", "T", HALF, "cpu"),
        ("AvgPool3D", "T", HALF, "gpu"),
        ("AvgPool3D", "T", BFLOAT16, "any gpu cpu"),
        ("BatchMatMulV3", "Ta", HALF, "gpu"),
        ("Erfinv", "T", HALF, ""),
        ("Ndtri", "T", BFLOAT16, ""),
        ("Softplus", "T", HALF, "any gpu cpu"),
        ("Softplus", "T", BFLOAT16, "cpu"),
        ("BlockLSTM", "T", BFLOAT16, ""),  # the definition forbids it
        ("FusedBatchNormV3", "T", HALF, "any gpu cpu"),
        ("FusedBatchNormV3", "U", BFLOAT16, ""),  # the definition allows it, no kernel does
        ("CropAndResize", "T", BFLOAT16, ""),  # a kernel exists, the definition forbids it
        ("CudnnRNNV3", "T", HALF, "any gpu"),  # float32 has no CPU kernel to lose
        ("FusedPadConv2D", "T", HALF, "any gpu cpu"),  # float32 has no GPU kernel to lose
        ("AsString", "T", HALF, "any gpu cpu"),
        ("VarHandleOp", "dtype", HALF, "any gpu cpu"),
        ("ReadVariableOp", "dtype", BFLOAT16, "any gpu cpu"),
        ("ResourceGather", "dtype", HALF, "any gpu cpu"),
        ("StatefulPartitionedCall", "Tin", HALF, "any gpu cpu"),
        ("IdentityN", "T", BFLOAT16, "any gpu cpu"),
        ("TensorListStack", "element_dtype", HALF, "any gpu cpu"),
        ("MatMul", "no_such_attribute", HALF, ""),
        ("NoSuchOp", "T", HALF, ""),
    ],
)
def test_known_facts(op: str, attr: str, low: dtypes.LowPrecision, devices: str):
    found = [d for d in ("any", "gpu", "cpu") if kernels.has_kernel(op, attr, low, d)]
    assert found == devices.split()


def test_the_table_is_that_of_the_installed_tensorflow(tool: types.ModuleType):
    if tf.__version__ != kernels.tensorflow_version():
        pytest.skip(f"the table is of TensorFlow {kernels.tensorflow_version()}")
    made = tool.table()
    stored = json.loads((ROOT / "tf_amp_rewriter" / "ops" / "kernels.json").read_text())["ops"]
    if tool.has_gpu_kernels():
        assert made == stored
        return
    for op, attrs in made.items():
        for attr, letters in attrs.items():
            assert stored[op][attr].partition(" ")[0] == letters.partition(" ")[0], (op, attr)


def test_the_table_has_one_op_a_line_sorted():
    lines = (ROOT / "tf_amp_rewriter" / "ops" / "kernels.json").read_text().splitlines()
    ops = [line.split('"')[1] for line in lines if line.startswith("  ")]
    assert ops == sorted(ops)
    assert len(ops) == len(set(ops)) > 800


def test_it_needs_no_tensorflow():
    folder = str(ROOT / "tf_amp_rewriter")
    code = (
        "import sys, types\n"
        "sys.modules['tensorflow'] = None\n"  # an import of it raises
        "package = types.ModuleType('tf_amp_rewriter')\n"  # the real one imports everything
        f"package.__path__ = [{folder!r}]\n"
        "sys.modules['tf_amp_rewriter'] = package\n"
        "from tf_amp_rewriter import dtypes\n"
        "from tf_amp_rewriter.ops import categories, conditions, kernels\n"
        "assert kernels.has_kernel('MatMul', 'T', dtypes.HALF, 'any')\n"
        "assert categories.row_for('MatMul', dtypes.HALF, 'any')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
