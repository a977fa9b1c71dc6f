"""The version of this package; `setup.py` repeats it, and a test compares the two."""

from typing import Final

VERSION: Final = "0.1.0"
