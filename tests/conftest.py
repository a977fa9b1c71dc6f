"""Session fixtures: whole models, built on first use; the corpus; their rewritten forms."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import numpy as np
import pytest

from tests import models

if TYPE_CHECKING:
    from tests.rewritten import Outputs, Rewrite

REPOSITORY = Path(__file__).resolve().parent.parent
CORPUS = REPOSITORY / ".corpus"
CORPUS_TIMEOUT_S = 600

GetModel = Callable[[str], models.TestModel]


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yields a directory for the models; pytest itself would keep it for two sessions more."""
    directory = tmp_path_factory.mktemp("models")
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="session")
def model(scratch: Path) -> GetModel:
    """Returns the function that gives a whole model of `tests/models.py` by name."""

    @functools.cache
    def get(name: str) -> models.TestModel:
        directory = scratch / name
        directory.mkdir()
        with warnings.catch_warnings():  # what Keras and TF1's builders say is not ours to heed
            warnings.simplefilter("ignore")
            return models.builders()[name](directory)

    return get


@pytest.fixture(scope="session")
def corpus_model() -> GetModel:
    """Returns the function that gives a model of the corpus, or skips the test saying why."""

    @functools.cache
    def fetch(name: str) -> models.TestModel | str:
        command = [sys.executable, str(REPOSITORY / "tools" / "corpus"), "--only", name]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=CORPUS_TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            return f"{name}: not fetched in {CORPUS_TIMEOUT_S} s"
        if done.returncode:
            return (done.stdout.strip() or done.stderr.strip()).splitlines()[-1]
        return _read_corpus_model(CORPUS / "models", name)

    def get(name: str) -> models.TestModel:
        found = fetch(name)
        if isinstance(found, str):
            pytest.skip(found)
        return found

    return get


@pytest.fixture(scope="session")
def any_model(model: GetModel, corpus_model: GetModel) -> GetModel:
    """Returns the function that gives a whole model or one of the corpus."""
    return lambda name: model(name) if name in models.builders() else corpus_model(name)


@pytest.fixture(scope="session")
def rewrite(any_model: GetModel, scratch: Path) -> Rewrite:
    """Returns the function that gives (name, dtype, device) rewritten; each once a session."""
    from tests import rewritten  # imports TensorFlow

    return rewritten.rewriter(any_model, scratch)


@pytest.fixture(scope="session")
def answers(any_model: GetModel) -> Callable[[str], Mapping[str, Outputs]]:
    """Returns the function that gives a model's own answers, by signature."""
    from tests import loaders, rewritten  # imports TensorFlow

    return functools.cache(lambda name: rewritten.run(any_model(name), loaders.run_tf2))


def _read_corpus_model(directory: Path, name: str) -> models.TestModel:
    description = json.loads((directory / f"{name}.json").read_text())
    with np.load(directory / f"{name}.npz") as arrays:
        inputs = {k: a.astype(object) if a.dtype.kind == "S" else a for k, a in arrays.items()}
    return models.TestModel(
        directory / description["path"],
        description["kind"],
        inputs,
        description["signature"],
        tuple(description["outputs"]),
    )
