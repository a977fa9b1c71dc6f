"""TensorFlow's own rewriter, to compare with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import oracle


@pytest.fixture(scope="module")
def grappler() -> Iterator[oracle.Oracle]:
    """Yields grappler in a process of its own, or skips the test saying why."""
    with oracle.Oracle() as process:
        if process.unusable:
            pytest.skip(process.unusable)
        yield process
