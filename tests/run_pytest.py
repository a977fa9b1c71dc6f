"""`main` of every py_test in BUILD: a test file alone would pass without running a test."""

import sys

import pytest

if __name__ == "__main__":
    sys.exit(pytest.main(sys.argv[1:]))
