"""Whole models for the tests: the list of all of them, and what every one of them is.

Each builder writes one model into an empty directory and says how to call it. Builders are seeded:
the same model each time. Nothing in a model may make its outputs alike, or a test that compares
them would pass for a model that computes nothing; `test_models.py` holds them to that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from numpy.typing import NDArray

Inputs = Mapping[str, NDArray[Any]]


@dataclasses.dataclass(frozen=True)
class TestModel:
    """A model on disk, and how to call it.

    Attributes:
        path: the SavedModel's directory, or the file of a binary GraphDef.
        kind: what `path` is.
        inputs: arrays by input name of the signature; by tensor name (`node:port`) for a GraphDef.
        signature: the signature that `inputs` are for; empty for a GraphDef.
        outputs: tensor names to fetch from a GraphDef; empty for a SavedModel: all of a signature.
        tags: the tags of the meta graph to load.
        others: inputs of further signatures, by signature.
        resavable: whether TensorFlow itself can load it and save it again.
    """

    __test__: ClassVar[bool] = False  # pytest: not a test class, in spite of its name

    path: Path
    kind: Literal["saved_model", "graph_def"]
    inputs: Inputs
    signature: str = ""
    outputs: tuple[str, ...] = ()
    tags: tuple[str, ...] = ("serve",)
    others: Mapping[str, Inputs] = dataclasses.field(default_factory=dict)
    resavable: bool = True

    @property
    def calls(self) -> Iterator[tuple[str, Inputs]]:
        """Every signature to call, with its inputs."""
        yield self.signature, self.inputs
        yield from self.others.items()


Builder = Callable[[Path], TestModel]


def builders() -> Mapping[str, Builder]:
    """Returns all builders by model name; TensorFlow is imported only when one of them runs."""
    from tests import (
        models_detector,
        models_frozen,
        models_images,
        models_keras,
        models_loops,
        models_modules,
        models_recurrent,
        models_tf1,
        models_tf1_loops,
    )

    modules = (
        models_images,
        models_keras,
        models_modules,
        models_tf1,
        models_frozen,
        models_recurrent,
        models_loops,
        models_detector,
        models_tf1_loops,
    )
    return {name: build for module in modules for name, build in module.BUILDERS.items()}
