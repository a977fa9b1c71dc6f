"""Random programs: what must hold of each once rewritten, whatever calls, loops, lists it has.

AMP_PROPERTY_EXAMPLES=2000 tries as many programs, other ones in each run; without it, CI tries the
same few each time. A failing example prints as a text: make a test below of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from tensorflow.core.framework import graph_pb2

from tests import checks, graph_text
from tests.property import graph_view, rounding_checker
from tests.property.answers import compare_answers
from tests.property.programs import Example, examples

MORE = int(os.environ.get("AMP_PROPERTY_EXAMPLES", "0"))
IN_CI = 60
TRIALS = settings(
    max_examples=MORE or IN_CI,
    deadline=None,
    derandomize=not MORE,
    database=None,
    suppress_health_check=list(HealthCheck),
)
# Of each line, some program must have one in the low precision: else they try nothing.
MET = """
    PartitionedCall StatefulPartitionedCall
    Case If StatelessCase StatelessIf
    StatelessWhile While
    NextIteration
    Merge
    TensorArrayReadV3 TensorArrayWriteV3
    TensorListPushBack TensorListSetItem
    TensorListConcatV2 TensorListGather TensorListGetItem TensorListPopBack TensorListStack
    TensorListFromTensor TensorListScatterV2 TensorListSplit
"""


@pytest.mark.parametrize("dtype", checks.BOTH)
def test_random_programs_are_rewritten_right(dtype: str) -> None:
    met: set[str] = set()

    @TRIALS
    @given(examples())
    def check(example: Example) -> None:
        met.update(low_ops(check_example(example, dtype)))

    check()
    never = [line for line in MET.split("\n") if line.split() and not met & set(line.split())]
    assert not never, f"no program has these low: {never}"


# Programs that were once rewritten wrong, as small as they can be.
FOUND = {
    "a loop invariant comes back as another, low value too": """
    x: f32[4,4] = Placeholder
    y: f32[4,4] = Placeholder
    n: i32[] = Placeholder
    zero = Const(0)
    w: i32, i32, f32, f32 = While([zero, n, x, y], cond=@cond, body=@body)
    c: f32[4,4] = Const(seed=0, scale=0.25)
    m = MatMul(w:2, c)
    out = Identity(m)
    out_too = Exp(w:3)

    @body(i: i32[], n: i32[], a: f32[4,4], b: f32[4,4]) -> (j=j, m=n, y=b, z=b)
      one = Const(1)
      j = AddV2(i, one)

    @cond(i: i32[], n: i32[], a: f32[4,4], b: f32[4,4]) -> (go=p)
      p = Less(i, n)
    """,
}


@pytest.mark.parametrize("text", FOUND.values(), ids=FOUND.keys())
@pytest.mark.parametrize("dtype", checks.BOTH)
@pytest.mark.parametrize("number", [0, 2])
def test_what_was_found_is_right_now(dtype: str, text: str, number: int) -> None:
    check_example(Example(text, 1, number, ("out", "out_too")), dtype)


def check_example(example: Example, dtype: str) -> graph_pb2.GraphDef:
    """Rewrites one program, checks all that must hold, and returns the result."""
    graph = graph_text.parse(example.text)
    # Also: the input is not changed, the same input gives the same bytes, a second run, on the
    # result, changes nothing, and TensorFlow imports the result.
    report = checks.checked_rewrite(
        graph, dtype, not_run="compared below", options={"outputs": example.outputs}
    )
    assert report.graph_def is not None
    assert rounding_checker.violations(graph, report.graph_def, example.outputs) == []
    compare_answers(graph, report.graph_def, example)
    return report.graph_def


def low_ops(graph_def: graph_pb2.GraphDef) -> Iterator[str]:
    """Yields the types of the ops that have a low input, output or element."""
    for scope in graph_view.view(graph_def).values():
        for node in scope.nodes.values():
            elements = {node.type_of("element_dtype"), node.type_of("dtype")}
            if {*node.in_types, *node.out_types, *elements} & set(rounding_checker.LOW):
                yield node.op
