"""Offline mixed-precision rewriter for TensorFlow SavedModels and frozen graphs.

Importing this package imports no TensorFlow: the functions that need it are loaded when they
are first used.
"""

from __future__ import annotations

import importlib
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
    from tf_amp_rewriter.ops.conditions import NodeFacts
    from tf_amp_rewriter.pipeline import (
        decide_saved_model,
        rewrite_graph_def,
        rewrite_saved_model,
    )
    from tf_amp_rewriter.report.explain import explain

__all__ = [
    "FlagError",
    "InputError",
    "InternalError",
    "NodeFacts",
    "OpRule",
    "Options",
    "OutputError",
    "Report",
    "RewriteError",
    "__version__",
    "decide_saved_model",
    "explain",
    "grappler_lists",
    "register_rule",
    "rewrite_graph_def",
    "rewrite_saved_model",
    "unregister_rule",
]

__version__ = version.VERSION

_MODULES = {  # of what is loaded when it is first asked for
    "NodeFacts": "tf_amp_rewriter.ops.conditions",
    "decide_saved_model": "tf_amp_rewriter.pipeline",
    "explain": "tf_amp_rewriter.report.explain",
    "rewrite_graph_def": "tf_amp_rewriter.pipeline",
    "rewrite_saved_model": "tf_amp_rewriter.pipeline",
}

if not TYPE_CHECKING:  # hidden from type checkers: they would take any name for one of ours

    def __getattr__(name: str) -> object:
        """Returns what a module holds that imports TensorFlow when first asked for it."""
        if name not in _MODULES:
            raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
        return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """Returns the public names, those not yet loaded too."""
    return sorted({*globals(), *__all__})
