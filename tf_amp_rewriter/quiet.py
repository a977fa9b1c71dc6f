"""Keeps TensorFlow's log lines off the terminal while it is imported."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Final

_STDERR: Final = 2


@contextlib.contextmanager
def quiet_stderr() -> Iterator[None]:
    """Hides what is written to the process's stderr inside the block; shows it if that fails.

    TensorFlow 2.21 logs CPU features and missing CUDA drivers when imported, before its logging
    obeys TF_CPP_MIN_LOG_LEVEL (tried with 0 to 3), so only the file descriptor is left to act on.
    """
    try:
        saved = os.dup(_STDERR)
    except OSError:  # closed, as in some daemons: nothing is shown anyway
        yield
        return
    with tempfile.TemporaryFile() as hidden:
        sys.stderr.flush()
        os.dup2(hidden.fileno(), _STDERR)
        try:
            yield
        except BaseException:
            hidden.seek(0)
            os.write(saved, hidden.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(saved, _STDERR)
            os.close(saved)
