"""Compares rewritten models with grappler's auto mixed precision, on the same flat graphs.

    tools/benchmark [--model NAME ...] [--device any gpu] [--dtype half] [--json FILE]

Every model is built with seeded random weights (or is a trained one of tools/corpus), and taken at
batch 8, other unknown dimensions 64. Original and rewritten are flattened by TensorFlow's
`convert_variables_to_constants_v2`; grappler works on the original's flat graph, as for a GPU.
What is in a loop counts once, however often it runs; Casts in loops are counted apart, those on
weights too. `traffic` is the float bytes that all ops read and write, against float32's.
`error` is the largest error of an output over the spread of that output, against float32; the
median over five sets of seeded inputs. All graphs run on this machine's CPU kernels; in those meant
for a GPU (grappler's, and ours with `--device gpu`), what accumulates in float32 there does here.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

ROOT: Final = pathlib.Path(__file__).parent.parent
TIMEOUT_S: Final = 900
# Read by TensorFlow once, before its first use. Source: grappler/optimizers/auto_mixed_precision.cc
ENVIRONMENT: Final = {
    "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_SIMULATE_GPU": "1",
    "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_IGNORE_PERFORMANCE": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
MODELS: Final = (
    "resnet50",
    "mobilenet_v3_small",
    "efficientnet_b0",
    "convnext_tiny",
    "transformer",
    "transformer_decoder",
    "encoder",
    "lstm",
    "gru",
    "string_table",
    "tied_embedding",
    "mixed_float16",
    "tf_keras",
    "resaved_tower",
    "tf1",
    "frozen_cnn",
    "frozen_loop",
    "keras_masked",
    "lstm_5",
    "lstm_500",
    "tf_keras_rnn",
    "tf_keras_plain",
    "resaved_rnn",
    "streaming",
    "tf1_dynamic_rnn",
    "frozen_lstm_by_hand",
    "frozen_nested_loops",
    "map_fn",
    "scan",
    "beam_search",
    "decoder",
    "detector",
)
CORPUS: Final = (
    "basic_pitch",
    "deeplc_rt",
    "emotion",
    "fer_emotion",
    "foolnltk_seg",
    "lang_detect_tfjs",
    "nanodet",
)
HEADER: Final = (
    "model",
    "graph",
    "contractions low",
    "activation casts",
    "MB",
    "weight casts",
    "MB",
    "traffic",
    "weight MB",
    "error",
    "not better than grappler in",
)

Json = Mapping[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns 1 where a model or a figure is missing."""
    flags = _parser().parse_args(arguments)
    results: list[Json] = []
    print(environment() + "\n\n" + _line(HEADER) + "\n" + _line(["---"] * len(HEADER)), flush=True)
    for name in flags.model:
        results.append(measure(name, flags.dtype, flags.device))
        print("\n".join(table_lines(results[-1])), flush=True)
    print("\n" + "\n".join(notes(results)))
    if flags.json is not None:
        content = {"environment": environment(), "dtype": flags.dtype, "models": results}
        flags.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return 1 if any(failures(result) for result in results) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tools/benchmark",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [*MODELS, *CORPUS]
    parser.add_argument("--model", nargs="+", choices=names, metavar="NAME", default=names)
    devices = ("any", "gpu", "cpu")
    parser.add_argument("--device", nargs="+", choices=devices, default=["any", "gpu"])
    parser.add_argument("--dtype", choices=("half", "bfloat16"), default="half")
    parser.add_argument("--json", type=pathlib.Path, help="write all figures there too")
    return parser


def environment() -> str:
    """Returns the date, versions and machine that the figures are for."""
    tensorflow = importlib.metadata.version("tensorflow")
    keras = importlib.metadata.version("keras")
    return (
        f"{datetime.date.today().isoformat()}, TensorFlow {tensorflow}, Keras {keras}, "
        f"Python {platform.python_version()}, CPU kernels of {platform.machine()}"
    )


def measure(name: str, dtype: str, devices: Sequence[str]) -> Json:
    """Measures one model in a process of its own; what goes wrong there is in the result."""
    if name in CORPUS and (missing := _fetch(name)):
        return {"model": name, "rows": [], "failure": missing}
    command = [
        *(sys.executable, "-m", "tools.benchmark_model", name),
        *("--dtype", dtype, "--device", *devices),
    ]
    done = _run(command)
    if done.returncode:
        failure = f"exit status {done.returncode}: {_last_line(done.stderr)}"
        return {"model": name, "rows": [], "failure": failure}
    result: Json = json.loads(done.stdout.splitlines()[-1])
    return result


def _fetch(name: str) -> str:
    """Fetches a model of the corpus; returns why it can't be had, or nothing."""
    done = _run([sys.executable, "tools/corpus", "--only", name])
    return _last_line(done.stdout or done.stderr) if done.returncode else ""


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, **ENVIRONMENT}
    try:
        return subprocess.run(
            command,
            cwd=ROOT,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"not done in {TIMEOUT_S} s")


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1]


# ---------------------------------------------------------------- the table


def table_lines(result: Json) -> Iterator[str]:
    """Gives the lines of a model in the table, in markdown."""
    if result["failure"]:
        yield _line([result["model"], f"FAILED: {result['failure']}", *[""] * (len(HEADER) - 2)])
    rows = {row["graph"]: row for row in result["rows"]}
    for index, row in enumerate(rows.values()):
        figures = row["census"]
        cells = [result["model"] if index == 0 else "", row["graph"]]
        if figures is None:
            yield _line([*cells, f"FAILED: {row['failure']}", *[""] * (len(HEADER) - 3)])
            continue
        base = rows["float32"]["census"]
        yield _line(
            [
                *cells,
                f"{figures['contractions_low']}/{figures['contractions']}",
                _activation_casts(figures),
                f"{figures['activation_cast_mb']:.3f}",
                str(figures["weight_casts"]),
                f"{figures['weight_cast_mb']:.3f}",
                _traffic(figures, base if index else None),
                f"{figures['weight_mb']:.3f}",
                _error(row),
                ", ".join(not_better(row, rows["grappler"])),
            ]
        )


def _activation_casts(figures: Json) -> str:
    """Returns their number; the MB and the traffic leave out those whose rank nobody knows."""
    told = {"in loops": figures["loop_casts"], "of unknown size": figures["unknown_shape_casts"]}
    remarks = ", ".join(f"{number} {which}" for which, number in told.items() if number)
    return f"{figures['activation_casts']}" + (f" ({remarks})" if remarks else "")


def _traffic(figures: Json, base: Json | None) -> str:
    if base is None:
        return f"{figures['traffic_mb']:.3f} MB"
    return f"{figures['traffic_mb'] / base['traffic_mb']:.3f}" if base["traffic_mb"] else "-"


def _error(row: Json) -> str:
    if row["error"] is not None:
        return f"{row['error']:.2e}"
    return row["failure"] or "-"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"


def not_better(ours: Json, grappler: Json) -> list[str]:
    """Returns the figures in which a row of ours is not better than grappler's.

    A contraction that grappler lowers and we do not; any Cast on a weight; traffic that is not
    below grappler's; an error above grappler's. Without a figure of grappler's nothing is marked.
    """
    if not ours["graph"].startswith("ours"):
        return []
    marks = []
    mine, its = ours["census"], grappler["census"]
    if mine["weight_casts"]:
        marks.append("weight casts")
    if its is not None and mine["contractions_low"] < its["contractions_low"]:
        marks.append("contractions")
    if its is not None and mine["traffic_mb"] >= its["traffic_mb"]:
        marks.append("traffic")
    if None not in (ours["error"], grappler["error"]) and ours["error"] > grappler["error"]:
        marks.append("error")
    return marks


def failures(result: Json) -> list[str]:
    """Returns what is missing of a model, a sentence each."""
    found = [f"{result['model']}: {result['failure']}"] if result["failure"] else []
    found += [
        f"{result['model']}, {row['graph']}: {row['failure']}"
        for row in result["rows"]
        if row["failure"]
    ]
    return found


def notes(results: Iterable[Json]) -> Iterator[str]:
    """Gives what is missing, and where ours is not better: what stayed float32 there, and why."""
    for result in results:
        yield from (f"- missing: {failure}" for failure in failures(result))
        grappler = next((row for row in result["rows"] if row["graph"] == "grappler"), None)
        for row in result["rows"]:
            if grappler is None or row["census"] is None:
                continue
            marks = not_better(row, grappler)
            if marks:
                yield f"- {result['model']}, {row['graph']}: not better in {', '.join(marks)}"
                yield from (f"    - float32: {text}" for text in row["float32_contractions"])
                yield from (f"    - weight cast: {text}" for text in row["weight_casts"])
                yield from (f"    - {text}" for text in row["causes"])


if __name__ == "__main__":
    sys.exit(main())
