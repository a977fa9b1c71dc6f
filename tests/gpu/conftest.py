"""Settings of TensorFlow that all comparisons of this folder need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import tensorflow as tf


@pytest.fixture(autouse=True)
def exact_float32() -> Iterator[None]:
    """Keeps TensorFloat-32 out of the references in float32: it rounds inputs as half does."""
    before = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    yield
    tf.config.experimental.enable_tensor_float_32_execution(before)
