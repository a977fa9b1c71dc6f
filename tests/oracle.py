"""TensorFlow's own grappler pass as an oracle, in a process of its own.

The pass reads its environment variables once, before TensorFlow is first used; and it needs the
GPU kernels that the GPU build of TensorFlow registers even on a machine without a GPU (read in
grappler's own sources). So it runs in a worker that is started with these variables and answers one
MetaGraphDef after the other, on its standard input and output. This file is both ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
from types import TracebackType
from typing import BinaryIO

from tensorflow.core.framework import graph_pb2, types_pb2
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2, rewriter_config_pb2

PREFIX = "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_"
ENVIRONMENT = {
    f"{PREFIX}SIMULATE_GPU": "1",
    f"{PREFIX}IGNORE_PERFORMANCE": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
NO_KERNELS = "this TensorFlow has no GPU kernels, so grappler's pass can't be simulated"


class Oracle:
    """The worker; a context manager.

    Attributes:
        unusable: why there is no oracle here; empty if there is.
    """

    def __enter__(self) -> Oracle:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **ENVIRONMENT},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to: BinaryIO = self._process.stdin  # type: ignore[assignment]
        self._from: BinaryIO = self._process.stdout  # type: ignore[assignment]
        self.unusable = _receive(self._from).decode()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._to.close()
        self._process.wait(timeout=30)
        self._from.close()

    def rewrite(self, graph: graph_pb2.GraphDef, outputs: tuple[str, ...]) -> graph_pb2.GraphDef:
        """Returns the graph as grappler's pass gives it; `outputs` are preserved."""
        meta_graph = meta_graph_pb2.MetaGraphDef(graph_def=graph)
        meta_graph.collection_def["train_op"].node_list.value.extend(outputs)
        _send(self._to, meta_graph.SerializeToString())
        return graph_pb2.GraphDef.FromString(_receive(self._from))


def low_nodes(graph: graph_pb2.GraphDef) -> frozenset[str]:
    """Returns the names of the nodes whose `T` is half."""
    return frozenset(node.name for node in graph.node if node.attr["T"].type == types_pb2.DT_HALF)


def _send(stream: BinaryIO, content: bytes) -> None:
    stream.write(len(content).to_bytes(8, "little") + content)
    stream.flush()


def _receive(stream: BinaryIO) -> bytes:
    """Returns one message.

    Raises:
        EOFError: the other end is gone.
    """
    head = stream.read(8)
    if len(head) < 8:
        raise EOFError("the oracle's process ended")
    return stream.read(int.from_bytes(head, "little"))


def _config() -> config_pb2.ConfigProto:
    """Returns settings that run nothing but the mixed-precision pass, once."""
    config = config_pb2.ConfigProto()
    rewrite = config.graph_options.rewrite_options
    rewrite.min_graph_nodes = -1
    rewrite.meta_optimizer_iterations = rewriter_config_pb2.RewriterConfig.ONE
    rewrite.auto_mixed_precision = rewriter_config_pb2.RewriterConfig.ON
    rewrite.optimizers.append("auto_mixed_precision")
    return config


def _work() -> None:
    """The worker's loop: says whether it is usable, then answers until its input ends."""
    from tensorflow.python.framework import kernels
    from tensorflow.python.grappler import tf_optimizer

    registered = kernels.get_registered_kernels_for_op("Relu").kernel
    usable = any(kernel.device_type == "GPU" for kernel in registered)
    _send(sys.stdout.buffer, b"" if usable else NO_KERNELS.encode())
    while True:
        try:
            content = _receive(sys.stdin.buffer)
        except EOFError:
            return
        meta_graph = meta_graph_pb2.MetaGraphDef.FromString(content)
        result = tf_optimizer.OptimizeGraph(_config(), meta_graph)
        _send(sys.stdout.buffer, result.SerializeToString())


if __name__ == "__main__":
    _work()
