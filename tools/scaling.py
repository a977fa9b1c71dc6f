"""Measures how rewriting scales: time by number of nodes, and ResNet50 against copying its files.

    tools/scaling.py [--nodes N ...] [--functions F ...] [--repeats R] [--skip_resnet50]
        [--json FILE]

1. Frozen graphs of 1,000, 10,000 and 100,000 nodes are made and rewritten in memory: time per node,
   and its ratio to the smallest graph's. In proportion means: the ratio stays near 1. Both count
   the process's own CPU time, which other processes on the machine disturb least.
2. Programs of 200 and 2,000 functions, of 50 nodes each, in nests ten deep: likewise. Every
   function is one that outsiders see, and all but the first of a nest are called from inside, by
   one or two others; so each is split into a face and what is behind it.
3. ResNet50's SavedModel is rewritten, copied with `cp -r`, and loaded and frozen by TensorFlow, in
   turns. Times and memory are without TensorFlow's import: each of the two runs in a process of its
   own that imports TensorFlow first; memory is the peak above what it held then.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

ROOT: Final = pathlib.Path(__file__).parent.parent
DEFAULT_NODES: Final = (1_000, 10_000, 100_000)
WIDTH: Final = 8  # of the weights in the synthetic graphs
BLOCK_NODES: Final = 12  # per block of the chain, see `chain`
DEFAULT_FUNCTIONS: Final = (200, 2_000)
BLOCKS_PER_FUNCTION: Final = 4  # and two calls: 50 nodes
NEST: Final = 10  # functions of a nest, each but the last calling the next, and the first the last
FUNCTION_SHARE: Final = 4  # one block of so many is a call; there is a function for each
MEGA: Final = 1e6


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", nargs="+", type=int, default=list(DEFAULT_NODES))
    parser.add_argument("--functions", nargs="*", type=int, default=list(DEFAULT_FUNCTIONS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--skip_resnet50", action="store_true")
    parser.add_argument("--json", type=pathlib.Path, help="write the figures there too")
    parser.add_argument("--task", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    flags = parser.parse_args(arguments)
    if flags.task:
        print(json.dumps(TASKS[flags.task[0]](*flags.task[1:])))
        return 0
    # This process never imports TensorFlow: a child's ru_maxrss starts at its parent's size.
    figures: dict[str, Any] = {}
    figures["nodes"] = measure_nodes("nodes", flags.nodes, flags.repeats)
    figures["functions"] = measure_nodes("functions", flags.functions, flags.repeats)
    if not flags.skip_resnet50:
        figures["resnet50"] = measure_resnet50(flags.repeats)
    if flags.json is not None:
        flags.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 0


def _child(*task: str) -> Any:
    """Runs a task in a new process and returns what it gives."""
    command = [sys.executable, "-m", "tools.scaling", "--task", *task]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


# ---------------------------------------------------------------- synthetic graphs


def measure_nodes(task: str, sizes: Sequence[int], repeats: int) -> Sequence[Mapping[str, float]]:
    """Rewrites a synthetic graph of each size, and prints the time per node.

    Args:
        task: `nodes` or `functions`; what the sizes count.
        sizes: the sizes.
        repeats: how often to rewrite each; the time is the median.
    """
    rows: list[dict[str, float]] = []
    print(f"\n| nodes | time | CPU time | per node | against the smallest |\n|{' --- |' * 5}")
    for size in sizes:
        nodes = size if task == "nodes" else size * 50
        # A large graph needs no repeats to be measured well.
        row = _child(task, str(size), str(max(1, min(repeats, 100_000 // nodes))))
        row["ratio"] = row["per_node_us"] / (rows or [row])[0]["per_node_us"]
        rows.append(row)
        print(
            f"| {row['nodes']:,} | {row['seconds']:.3f} s | {row['cpu_seconds']:.3f} s "
            f"| {row['per_node_us']:.1f} us | {row['ratio']:.2f} |",
            flush=True,
        )
    return rows


def rewrite_nodes(size: str, repeats: str) -> Mapping[str, float]:
    """Returns the median time to rewrite a synthetic graph of about `size` nodes."""
    import tf_amp_rewriter

    rewrite = tf_amp_rewriter.rewrite_graph_def
    rewrite(chain(BLOCK_NODES * 2 * FUNCTION_SHARE))  # reads tables, imports what is imported late
    graph_def = chain(int(size))
    options = tf_amp_rewriter.Options(outputs=("out:0",))
    return _timed(lambda: rewrite(graph_def, options), graph_def, int(repeats))


def rewrite_functions(count: str, repeats: str) -> Mapping[str, float]:
    """Returns the median time to rewrite a SavedModel of `count` functions, on disk."""
    import tf_amp_rewriter

    with tempfile.TemporaryDirectory(prefix="tf_amp_rewriter_scaling_") as folder:
        source, destination = pathlib.Path(folder) / "in", pathlib.Path(folder) / "out"
        options = tf_amp_rewriter.Options(overwrite=True)
        nests(NEST, source)
        tf_amp_rewriter.rewrite_saved_model(source, destination, options)
        graph_def = nests(int(count), source)
        return _timed(
            lambda: tf_amp_rewriter.rewrite_saved_model(source, destination, options),
            graph_def,
            int(repeats),
        )


def _timed(rewrite: Callable[[], Any], graph_def: Any, repeats: int) -> Mapping[str, float]:
    """Returns the median time of `rewrite`, which rewrites `graph_def`."""
    nodes = len(graph_def.node) + sum(len(f.node_def) for f in graph_def.library.function)
    times, cpu_times = [], []
    for _ in range(repeats):
        gc.collect()
        start, cpu_start = time.perf_counter(), time.process_time()
        report = rewrite()
        times.append(time.perf_counter() - start)
        cpu_times.append(time.process_time() - cpu_start)
        assert report.type_variables_low > nodes / BLOCK_NODES
    seconds, cpu_seconds = statistics.median(times), statistics.median(cpu_times)
    return {
        "nodes": nodes,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "per_node_us": cpu_seconds / nodes * 1e6,
    }


def chain(size: int) -> Any:
    """Returns a frozen GraphDef of about `size` nodes: a chain of blocks, some of them calls.

    A block: y = Relu(x W + b); z = y * c + x; beside it Sum(Exp(y)), which is denied, scales z: 12
    nodes with the constants. Every fourth block stands in a function of its own.
    """
    from tensorflow.core.framework import graph_pb2

    graph_def = graph_pb2.GraphDef()
    graph_def.versions.producer = 1882  # a recent one; it decides what the importer accepts
    builder = _Builder(graph_def.node)
    x = _placeholder(graph_def)
    for index in range(max(1, size // BLOCK_NODES)):
        if index % FUNCTION_SHARE == FUNCTION_SHARE - 1:
            _add_function(graph_def.library, f"block_{index}")
            x = builder.call(f"call_{index}", f"block_{index}", x)
        else:
            x = builder.block(f"block_{index}", x)
    builder.add("out", "Identity", [x])
    return graph_def


def nests(functions: int, directory: pathlib.Path) -> Any:
    """Writes a SavedModel of nested functions, and returns its GraphDef.

    Each function is `BLOCKS_PER_FUNCTION` blocks of `chain`, a MatMul, and a call of the next of
    its nest. The first of a nest also calls the last, which so has two callers.
    """
    import numpy as np
    from tensorflow.core.protobuf import saved_model_pb2

    saved_model = saved_model_pb2.SavedModel(saved_model_schema_version=1)
    meta_graph = saved_model.meta_graphs.add()
    meta_graph.meta_info_def.tags.append("serve")
    graph_def = meta_graph.graph_def
    graph_def.versions.producer = 1882
    x = main_x = _placeholder(graph_def)
    for index in range(functions):
        function = graph_def.library.function.add()
        function.signature.name = f"f{index}"
        function.signature.input_arg.add(name="x", type=_float())
        function.signature.output_arg.add(name="y", type=_float())
        meta_graph.object_graph_def.concrete_functions[f"f{index}"].SetInParent()
        body, y = _Builder(function.node_def, in_function=True), "x"
        for block in range(BLOCKS_PER_FUNCTION):
            y = body.block(f"block_{block}", y)
        weight = body.constant("w", np.full((WIDTH, WIDTH), 0.125, np.float32))
        y = body.add("matmul", "MatMul", [y, weight])
        place = index % NEST
        if place < NEST - 1 and index + 1 < functions:
            y = body.call("next", f"f{index + 1}", y)
        if place == 0 and index + NEST <= functions:
            y = body.call("last", f"f{index + NEST - 1}", y)
        function.ret["y"] = y
        if place == 0:
            x = _Builder(graph_def.node).call(f"call_{index}", f"f{index}", x)
    _Builder(graph_def.node).add("out", "Identity", [x])
    signature = meta_graph.signature_def["serving_default"]
    signature.inputs["x"].name, signature.outputs["out"].name = f"{main_x}:0", "out:0"
    directory.mkdir(exist_ok=True)
    (directory / "saved_model.pb").write_bytes(saved_model.SerializeToString())
    return graph_def


def _placeholder(graph_def: Any) -> str:
    x = _Builder(graph_def.node).add("x", "Placeholder", [], dtype=_float())
    shape = graph_def.node[0].attr["shape"].shape
    shape.dim.add(size=1)
    shape.dim.add(size=WIDTH)
    return x


def _float() -> Any:
    from tensorflow.core.framework import types_pb2

    return types_pb2.DT_FLOAT


def _add_function(library: Any, name: str) -> None:
    function = library.function.add()
    function.signature.name = name
    function.signature.input_arg.add(name="x", type=_float())
    function.signature.output_arg.add(name="y", type=_float())
    function.ret["y"] = _Builder(function.node_def, in_function=True).block("block", "x")


@dataclasses.dataclass(frozen=True)
class _Builder:
    """Adds nodes to a graph or to the body of a function, where inputs name their output too."""

    nodes: Any
    in_function: bool = False

    def add(self, name: str, op: str, inputs: Sequence[str], **types: Any) -> str:
        """Adds a node with `T`, or `types`, and returns how to refer to its output."""
        node = self.nodes.add(name=name, op=op, input=inputs)
        for attribute, dtype in (types or {"T": _float()}).items():
            node.attr[attribute].type = dtype
        output = {"MatMul": "product", "Relu": "activations", "Mul": "z", "AddV2": "z"}
        plain = {"Const", "BiasAdd", "Sum"}
        port = output.get(op, "output" if op in plain else "y")
        return f"{name}:{port}:0" if self.in_function else name

    def constant(self, name: str, value: Any) -> str:
        """Adds a Const."""
        from tensorflow.python.framework import tensor_util

        proto = tensor_util.make_tensor_proto(value)
        reference = self.add(name, "Const", [], dtype=proto.dtype)
        self.nodes[-1].attr["value"].tensor.CopyFrom(proto)
        return reference

    def block(self, name: str, x: str) -> str:
        """Adds the 12 nodes of a block and returns its result."""
        import numpy as np

        weight = self.constant(f"{name}/w", np.full((WIDTH, WIDTH), 0.125, np.float32))
        bias = self.constant(f"{name}/b", np.full(WIDTH, 0.5, np.float32))
        axis = self.constant(f"{name}/axis", np.array([1], np.int32))
        factor = self.constant(f"{name}/c", np.float32(0.5))
        product = self.add(f"{name}/matmul", "MatMul", [x, weight])
        y = self.add(f"{name}/relu", "Relu", [self.add(f"{name}/bias", "BiasAdd", [product, bias])])
        scaled = self.add(f"{name}/mul", "Mul", [y, factor])
        z = self.add(f"{name}/add", "AddV2", [scaled, x])
        total = self._sum(f"{name}/sum", self.add(f"{name}/exp", "Exp", [y]), axis)
        return self.add(f"{name}/scale", "Mul", [z, total])

    def _sum(self, name: str, x: str, axis: str) -> str:
        from tensorflow.core.framework import types_pb2

        result = self.add(name, "Sum", [x, axis], T=_float(), Tidx=types_pb2.DT_INT32)
        self.nodes[-1].attr["keep_dims"].b = True
        return result

    def call(self, name: str, function: str, x: str) -> str:
        """Adds a call of a function from one float32 to one."""
        node = self.nodes.add(name=name, op="PartitionedCall", input=[x])
        node.attr["Tin"].list.type.append(_float())
        node.attr["Tout"].list.type.append(_float())
        node.attr["f"].func.name = function
        return f"{name}:output:0" if self.in_function else name


# ---------------------------------------------------------------- ResNet50


def measure_resnet50(repeats: int) -> Mapping[str, Any]:
    """Measures the three ways in turns, and prints medians and ratios."""
    with tempfile.TemporaryDirectory(prefix="tf_amp_rewriter_scaling_") as folder:
        source = _child("build", folder)
        runs: dict[str, list[Mapping[str, float]]] = {"rewrite": [], "copy": [], "freeze": []}
        for index in range(repeats):
            destination = str(pathlib.Path(folder) / str(index))
            runs["copy"].append(_copy(source, destination + "_copy"))
            runs["rewrite"].append(_child("rewrite", source, destination + "_rewritten"))
            runs["freeze"].append(_child("freeze", source))
    medians = {
        task: {key: statistics.median(row[key] for row in rows) for key in rows[0]}
        for task, rows in runs.items()
    }
    ours, copy, freeze = (medians[task] for task in ("rewrite", "copy", "freeze"))
    print(f"\nResNet50, medians of {repeats}; peak memory above what TensorFlow's import holds\n")
    print("| | time | against cp -r | against load + freeze | CPU time | peak memory |")
    print("| --- | --- | --- | --- | --- | --- |")
    for title, row in (("rewrite", ours), ("cp -r", copy), ("load + freeze", freeze)):
        peak = f"{row['peak_mb']:.0f} MB" if "peak_mb" in row else "-"
        against_copy = row["seconds"] / copy["seconds"]
        against_freeze = row["seconds"] / freeze["seconds"]
        print(
            f"| {title} | {row['seconds']:.3f} s | {against_copy:.2f} | {against_freeze:.3f} "
            f"| {row['cpu_seconds']:.3f} s | {peak} |"
        )
    print(f"\nmemory of rewrite against load + freeze: {ours['peak_mb'] / freeze['peak_mb']:.3f}")
    return {"runs": runs, "medians": medians}


def _copy(source: str, destination: str) -> Mapping[str, float]:
    start, children = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(["cp", "-r", source, destination], check=True)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - children.ru_utime - children.ru_stime
    return {"seconds": seconds, "cpu_seconds": used}


def build_resnet50(folder: str) -> str:
    """Builds the SavedModel of the tests and returns its path."""
    from tests import models

    return str(models.builders()["resnet50"](pathlib.Path(folder)).path)


def rewrite_resnet50(source: str, destination: str) -> Mapping[str, float]:
    """Returns time and memory of rewriting a SavedModel."""
    import tf_amp_rewriter

    rewrite = tf_amp_rewriter.rewrite_saved_model  # imports TensorFlow
    return _measured(lambda: rewrite(source, destination))


def freeze_resnet50(source: str) -> Mapping[str, float]:
    """Returns time and memory of TensorFlow's own load and freeze of a SavedModel."""
    import tensorflow as tf
    from tensorflow.python.framework import convert_to_constants

    def freeze() -> object:
        loaded = tf.saved_model.load(source)
        return convert_to_constants.convert_variables_to_constants_v2(  # type: ignore[no-untyped-call]
            loaded.signatures["serving_default"]
        )

    tf.constant(0)  # starts the runtime
    return _measured(freeze)


def _measured(call: Callable[[], object]) -> Mapping[str, float]:
    pages = int(pathlib.Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    before = pages * resource.getpagesize()
    start, cpu_start = time.perf_counter(), time.process_time()
    call()
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"seconds": seconds, "cpu_seconds": cpu_seconds, "peak_mb": (peak - before) / MEGA}


TASKS: Final[Mapping[str, Callable[..., Any]]] = {
    "nodes": rewrite_nodes,
    "functions": rewrite_functions,
    "build": build_resnet50,
    "rewrite": rewrite_resnet50,
    "freeze": freeze_resnet50,
}

if __name__ == "__main__":
    sys.exit(main())
