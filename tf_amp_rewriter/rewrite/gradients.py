"""Custom gradients of ops in functions that are low now.

A SavedModel holds the gradient of an op such as the IdentityN of `tf.nn.swish` as a function of
float32 tensors: what flows back, and what the forward function computed. Where the forward function
computes anything low, that does not fit any more, so the op names a gradient that nobody registers:
TensorFlow's lookup then fails with that name, and saving the model again leaves the gradient out.

Source: tensorflow/python/saved_model/{save,function_deserialization}.py of TensorFlow 2.21.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tensorflow.core.framework import function_pb2, node_def_pb2

from tf_amp_rewriter.ops import calls as table

_ATTR: Final = "_gradient_op_type"
_MARK: Final = b" (a float32 gradient of what is low now: train the original model)"


def sever(nodes: Iterable[node_def_pb2.NodeDef], library: function_pb2.FunctionDefLibrary) -> None:
    """Renames, in place, the gradients of `nodes` that `library` registers."""
    registered = {g.registered_op_type.encode() for g in library.registered_gradients}
    for node in nodes:
        # calls name the gradient of their function in the same way: that is made anew when loaded
        if node.op not in table.CALLS and _ATTR in node.attr and node.attr[_ATTR].s in registered:
            node.attr[_ATTR].s += _MARK
