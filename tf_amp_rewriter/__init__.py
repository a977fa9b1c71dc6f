"""Offline mixed-precision rewriter for TensorFlow SavedModels and frozen graphs.

Importing this package imports no TensorFlow: the two functions that need it are loaded when they
are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tf_amp_rewriter import version
from tf_amp_rewriter.environment import grappler_lists
from tf_amp_rewriter.errors import (
    FlagError,
    InputError,
    InternalError,
    OutputError,
    RewriteError,
)
from tf_amp_rewriter.options import Options
from tf_amp_rewriter.registry import register_rule, unregister_rule
from tf_amp_rewriter.report.model import Report
from tf_amp_rewriter.user_rules import OpRule

if TYPE_CHECKING:
    from tf_amp_rewriter.pipeline import rewrite_graph_def, rewrite_saved_model

__all__ = [
    "FlagError",
    "InputError",
    "InternalError",
    "OpRule",
    "Options",
    "OutputError",
    "Report",
    "RewriteError",
    "__version__",
    "grappler_lists",
    "register_rule",
    "rewrite_graph_def",
    "rewrite_saved_model",
    "unregister_rule",
]

__version__ = version.VERSION

_FROM_PIPELINE = ("rewrite_graph_def", "rewrite_saved_model")

if not TYPE_CHECKING:  # hidden from type checkers: they would take any name for one of ours

    def __getattr__(name: str) -> object:
        """Returns a function of `pipeline`, which imports TensorFlow, when first asked for it."""
        if name not in _FROM_PIPELINE:
            raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
        from tf_amp_rewriter import pipeline

        return getattr(pipeline, name)


def __dir__() -> list[str]:
    """Returns the public names, those not yet loaded too."""
    return sorted({*globals(), *__all__})
