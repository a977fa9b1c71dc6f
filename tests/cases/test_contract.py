"""C33: the contract with who serves the model, kept in a process that has not seen it before."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import tf_amp_rewriter
from tests import models

SERVE = """
import json, sys
import numpy as np
import tensorflow as tf
path, signature, inputs = sys.argv[1], sys.argv[2], np.load(sys.argv[3])
served = tf.saved_model.load(path).signatures[signature]
types = {k: v.dtype for k, v in served.structured_input_signature[1].items()}
feeds = {k: tf.cast(inputs[k], t) if t != tf.string else tf.constant(inputs[k].tolist())
         for k, t in types.items()}
print(json.dumps({k: v.numpy().tolist() for k, v in served(**feeds).items()}, default=str))
"""


def served(path: Path, signature: str, inputs: Path) -> dict[str, np.ndarray]:
    command = [sys.executable, "-c", SERVE, str(path), signature, str(inputs)]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    answers = json.loads(result.stdout.splitlines()[-1])
    return {name: np.array(value) for name, value in answers.items()}


def test_c33_a_fresh_process_serves_the_rewritten_model(
    model: Callable[[str], models.TestModel], tmp_path: Path
) -> None:
    original = model("string_table")
    plain = {k: v.astype("S") if v.dtype == object else v for k, v in original.inputs.items()}
    np.savez(tmp_path / "inputs.npz", **plain)
    tf_amp_rewriter.rewrite_saved_model(original.path, tmp_path / "out")

    expected = served(original.path, original.signature, tmp_path / "inputs.npz")
    actual = served(tmp_path / "out", original.signature, tmp_path / "inputs.npz")

    assert expected.keys() == actual.keys()
    for name, wanted in expected.items():
        if wanted.dtype.kind != "f":
            np.testing.assert_array_equal(actual[name], wanted)
            continue
        # two products and a mean of rows: a few roundings of half, over the spread
        np.testing.assert_allclose(actual[name], wanted, atol=8 * 2.0**-11 * np.ptp(wanted))


def test_c28_the_bundle_halves(model: Callable[[str], models.TestModel], tmp_path: Path) -> None:
    original = model("two_signatures")
    report = tf_amp_rewriter.rewrite_saved_model(original.path, tmp_path / "out")

    before, after = (
        sum(path.stat().st_size for path in (root / "variables").glob("*.data-*"))
        for root in (original.path, tmp_path / "out")
    )

    saved = report.weight_bytes_before - report.weight_bytes_after
    low = [weight for weight in report.weights if weight.precision == "half"]
    assert before - after == saved
    assert [weight.bytes_before for weight in low] == [2 * weight.bytes_after for weight in low]
    assert saved == sum(weight.bytes_after for weight in low) > 0
