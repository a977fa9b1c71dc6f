"""One container, one element type: lists, arrays and stacks, op by op, and all that stays float32.

Each text gives a matrix `y` of the low product `m`; `# E` stands on each op of the container.
"""

from __future__ import annotations

import inspect

import pytest

from tests.checks import check_precision, check_unchanged

FRAME = """
x: f32[4,4] = Placeholder
w: f32[4,4] = Const(seed=1)
row = Const([4])
square = Const([4, 4])
pair = Const([2, 4])
scalar: i32[0] = Const([])
zero = Const(0)
one = Const(1)
two = Const(2)
four = Const(4)
rows = Const([0, 1, 2, 3])
back = Const([3, 2, 1, 0])
halves: i64[2] = Const([2, 2])
"""
# Ops that give `y` of `m`; TensorFlow's element shape argument is `row` or `square`.
CONTAINERS = {
    "TensorListFromTensor, TensorListStack": """
        list = TensorListFromTensor(m, row)                               # E
        y: f32 = TensorListStack(list, row, element_dtype=f32)            # E
    """,
    "TensorListReserve, TensorListSetItem, TensorListGetItem": """
        empty = TensorListReserve(square, two, element_dtype=f32)         # E
        list = TensorListSetItem(empty, one, m)                           # E
        y: f32 = TensorListGetItem(list, one, square, element_dtype=f32)  # E
    """,
    "TensorListGather": """
        list = TensorListFromTensor(m, row)                               # E
        y: f32 = TensorListGather(list, back, row, element_dtype=f32)     # E
    """,
    "TensorListConcat": """
        list = TensorListFromTensor(m, row)                               # E
        all: f32, i64 = TensorListConcat(list, element_dtype=f32, element_shape=[4])   # E
        y = Reshape(all, square)
    """,
    "TensorListSplit, TensorListConcatV2": """
        list = TensorListSplit(m, pair, halves)                           # E
        y: f32, i64 = TensorListConcatV2(list, pair, halves, element_dtype=f32)   # E
    """,
    "TensorListScatter": """
        list = TensorListScatter(m, back, row)                            # E
        y: f32 = TensorListStack(list, row, element_dtype=f32)            # E
    """,
    "TensorListScatterV2": """
        list = TensorListScatterV2(m, back, row, four)                    # E
        y: f32 = TensorListStack(list, row, element_dtype=f32)            # E
    """,
    "TensorListScatterIntoExistingList": """
        empty = TensorListReserve(row, four, element_dtype=f32)           # E
        list = TensorListScatterIntoExistingList(empty, m, back)          # E
        y: f32 = TensorListStack(list, row, element_dtype=f32)            # E
    """,
    "EmptyTensorList, TensorListPushBack, TensorListPopBack": """
        empty = EmptyTensorList(square, four, element_dtype=f32)          # E
        list = TensorListPushBack(empty, m)                               # E
        rest: var, f32 = TensorListPopBack(list, square, element_dtype=f32)   # E
        y = Identity(rest:1)
    """,
    "TensorListConcatLists": """
        first = TensorListFromTensor(m, row)                              # E
        second = EmptyTensorList(row, four, element_dtype=f32)            # E
        both = TensorListConcatLists(second, first, element_dtype=f32)    # E
        y: f32 = TensorListStack(both, row, element_dtype=f32)            # E
    """,
    "TensorListPushBackBatch": """
        first = EmptyTensorList(row, four, element_dtype=f32)             # E
        handles = Pack([first, first, first, first])
        pushed = TensorListPushBackBatch(handles, m)                      # E
        lists: var, var, var, var = Unpack(pushed, num=4)
        all = TensorListConcatLists(lists:1, lists, element_dtype=f32)    # E
        more = TensorListConcatLists(lists:2, lists:3, element_dtype=f32) # E
        list = TensorListConcatLists(all, more, element_dtype=f32)        # E
        y: f32 = TensorListStack(list, row, element_dtype=f32)            # E
    """,
    "TensorListResize": """
        short = TensorListFromTensor(m, row)                              # E
        long = TensorListResize(short, two)
        flat: f32 = TensorListStack(long, row, element_dtype=f32)         # E
        y = ConcatV2([flat, flat], zero)
    """,
    "a list through Identity and IdentityN": """
        list = TensorListFromTensor(m, row)                               # E
        same = Identity(list)
        many: i32, var = IdentityN([one, same])
        y: f32 = TensorListStack(many:1, row, element_dtype=f32)          # E
    """,
    "a list through Switch and Merge": """
        yes = Const(True)
        list = TensorListFromTensor(m, row)                               # E
        switch = Switch(list, yes)
        turned = Identity(switch:1)
        merge = Merge([switch, turned])
        y: f32 = TensorListStack(merge, row, element_dtype=f32)           # E
    """,
    "TensorArrayWriteV3, TensorArrayReadV3": """
        array: res, f32 = TensorArrayV3(two, dtype=f32)                   # E
        flow = TensorArrayWriteV3(array, one, m, array:1)                 # E
        y: f32 = TensorArrayReadV3(array, one, flow)                      # E
    """,
    "TensorArrayScatterV3, TensorArrayGatherV3": """
        array: res, f32 = TensorArrayV3(four, dtype=f32)                  # E
        flow = TensorArrayScatterV3(array, back, m, array:1)              # E
        y: f32 = TensorArrayGatherV3(array, rows, flow)                   # E
    """,
    "TensorArraySplitV3, TensorArrayConcatV3": """
        array: res, f32 = TensorArrayV3(two, dtype=f32)                   # E
        flow = TensorArraySplitV3(array, m, halves, array:1)              # E
        y: f32, i64 = TensorArrayConcatV3(array, flow)                    # E
    """,
    "TensorArrayCloseV3": """
        array: res, f32 = TensorArrayV3(four, dtype=f32)                  # E
        flow = TensorArrayScatterV3(array, rows, m, array:1)              # E
        read: f32 = TensorArrayGatherV3(array, rows, flow)                # E
        close = TensorArrayCloseV3(array, ^read)
        y = Identity(read, ^close)
    """,
    "StackV2, StackPushV2, StackPopV2, StackCloseV2": """
        stack = StackV2(four, elem_type=f32)                              # E
        push = StackPushV2(stack, m)                                      # E
        pop: f32 = StackPopV2(stack, ^push)                               # E
        close = StackCloseV2(stack, ^pop)
        y = Identity(pop, ^close)
    """,
}


def text_of(source: str, container: str, claim: str, end: str) -> str:
    """Returns the graph of one container between `source` and `end`."""
    body = inspect.cleandoc(container).replace("# E", f"# {claim}")
    return "\n".join([FRAME, inspect.cleandoc(source), body, inspect.cleandoc(end)])


LOW_SOURCE = "m = MatMul(x, w)   # low ALLOW"
FLOAT32_SOURCE = "m = Exp(x)   # f32 DENY"
LOW_END = "n = MatMul(y, w)   # low ALLOW\nout = Identity(n)   # f32 PINNED"
FLOAT32_END = "out = Identity(y)   # f32 PINNED"


@pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS)
def test_between_contractions_all_ops_of_a_container_are_low(container: str) -> None:
    text = text_of(LOW_SOURCE, container, "low CLEAR", LOW_END)
    check_precision(text, outputs=("out",), steps=1, casts=2)


@pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS)
def test_a_low_value_that_leaves_by_a_container_is_cast_behind_it(container: str) -> None:
    text = text_of(LOW_SOURCE, container, "low CLEAR", FLOAT32_END)
    check_precision(text, outputs=("out",), steps=1, casts=2)


@pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS)
def test_a_denied_value_for_a_contraction_is_cast_before_its_container(container: str) -> None:
    text = text_of(FLOAT32_SOURCE, container, "low CLEAR", LOW_END)
    check_precision(text, outputs=("out",), steps=1, casts=2)


@pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS)
def test_a_container_of_float32_values_for_float32_readers_stays_as_it_is(container: str) -> None:
    text = text_of(FLOAT32_SOURCE, container, "f32", FLOAT32_END)
    check_unchanged(text, outputs=("out",), steps=1, exact=("out",))


@pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS)
def test_a_second_float32_reader_of_a_float32_value_keeps_it_float32(container: str) -> None:
    text = text_of(
        FLOAT32_SOURCE, container, "f32", f"{LOW_END}\nexact = Identity(y)   # f32 PINNED"
    )
    check_precision(text, outputs=("out", "exact"), steps=1, exact=("exact",), casts=2)


# Containers that give no values, or that other containers hold: whichever way, it must run.
ANSWERS = {
    "TensorListLength": """
        list = TensorListFromTensor(m, row)                               # low CLEAR
        y: f32 = TensorListStack(list, row, element_dtype=f32)            # low CLEAR
        answer = TensorListLength(list)
    """,
    "TensorListElementShape": """
        list = TensorListFromTensor(m, row)                               # low CLEAR
        y: f32 = TensorListStack(list, row, element_dtype=f32)            # low CLEAR
        answer: i32 = TensorListElementShape(list, shape_type=i32)
    """,
    "TensorArraySizeV3": """
        array: res, f32 = TensorArrayV3(four, dtype=f32)                  # low CLEAR
        flow = TensorArrayScatterV3(array, back, m, array:1)              # low CLEAR
        y: f32 = TensorArrayGatherV3(array, rows, flow)                   # low CLEAR
        answer = TensorArraySizeV3(array, flow)
    """,
    "a list of integers beside it": """
        ids = TensorListFromTensor(rows, scalar)
        numbers: i32 = TensorListStack(ids, scalar, element_dtype=i32)
        answer = Identity(numbers)
        list = TensorListFromTensor(m, row)                               # low CLEAR
        y: f32 = TensorListStack(list, row, element_dtype=f32)            # low CLEAR
    """,
}


@pytest.mark.parametrize("container", ANSWERS.values(), ids=ANSWERS)
def test_what_a_container_says_of_itself_is_as_before(container: str) -> None:
    text = text_of(LOW_SOURCE, container, "", LOW_END)
    check_precision(text, outputs=("out", "answer"), steps=1, exact=("answer",), casts=2)


RUNS = {
    "a list of lists": """
        inner = TensorListFromTensor(m, row)
        empty = TensorListReserve(scalar, two, element_dtype=var)
        outer = TensorListSetItem(empty, one, inner)
        again: var = TensorListGetItem(outer, one, scalar, element_dtype=var)
        y: f32 = TensorListStack(again, row, element_dtype=f32)
    """,
    "a stack of lists": """
        inner = TensorListFromTensor(m, row)
        outer = EmptyTensorList(scalar, two, element_dtype=var)
        push = TensorListPushBack(outer, inner)
        all: var = TensorListStack(push, scalar, element_dtype=var)
        first: var = Unpack(all, num=1)
        y: f32 = TensorListStack(first, row, element_dtype=f32)
    """,
    "zeros like a list": """
        list = TensorListFromTensor(m, row)
        zeros = ZerosLike(list)
        sum = AddN([list, zeros])
        y: f32 = TensorListStack(sum, row, element_dtype=f32)
    """,
    "a list through StopGradient": """
        list = TensorListFromTensor(m, row)
        same = StopGradient(list)
        y: f32 = TensorListStack(same, row, element_dtype=f32)
    """,
    "a list selected by an index": """
        list = TensorListFromTensor(m, row)
        other = TensorListFromTensor(w, row)
        both = Pack([list, other])
        same = GatherV2(both, one, zero)
        y: f32 = TensorListStack(same, row, element_dtype=f32)
    """,
    "the gradient of an array": """
        array: res, f32 = TensorArrayV3(four, dtype=f32)
        flow = TensorArrayScatterV3(array, back, m, array:1)
        all: f32 = TensorArrayGatherV3(array, rows, flow)
        gradient: res, f32 = TensorArrayGradV3(array, flow, source='gradient', ^all)
        back_flow = TensorArrayScatterV3(gradient, rows, all, gradient:1)
        y: f32 = TensorArrayGatherV3(gradient, back, back_flow)
    """,
    "the gradient of an array with another shape": """
        array: res, f32 = TensorArrayV3(four, dtype=f32)
        flow = TensorArrayScatterV3(array, back, m, array:1)
        all: f32 = TensorArrayGatherV3(array, rows, flow)
        gradient: res, f32 = TensorArrayGradWithShape(array, flow, scalar, source='gradient', ^all)
        back_flow = TensorArrayScatterV3(gradient, rows, all, gradient:1)
        y: f32 = TensorArrayGatherV3(gradient, back, back_flow)
    """,
}


@pytest.mark.parametrize("container", RUNS.values(), ids=RUNS)
def test_containers_in_containers_agree_and_run(container: str) -> None:
    text = text_of(LOW_SOURCE, container, "", LOW_END)
    check_precision(text, outputs=("out",), steps=1)


FLOAT32 = {
    "a queue": """
        queue = FIFOQueueV2(component_types=[f32], capacity=4, shapes=[])
        put = QueueEnqueueV2(queue, [m])                                  # Tcomponents[0] f32
        y: f32 = QueueDequeueV2(queue, component_types=[f32], ^put)       # component_types[0] f32
    """,
    "a stage": """
        put = Stage([m], shared_name='s')                          # dtypes[0] f32
        y: f32 = Unstage(dtypes=[f32], shared_name='s', ^put)            # dtypes[0] f32
    """,
    "a map of stages": """
        key: i64 = Const(7)
        put = MapStage(key, rows_of_one, [m], dtypes=[f32], shared_name='m')
        rows_of_one = Const([0])
        y: f32 = MapUnstage(key, rows_of_one, dtypes=[f32], shared_name='m', ^put)
    """,
    "a map": """
        empty = EmptyTensorMap
        map = TensorMapInsert(empty, one, m)                              # value_dtype f32
        y: f32 = TensorMapLookup(map, one, value_dtype=f32)               # value_dtype f32
    """,
    "a list in a map": """
        list = TensorListFromTensor(m, row)                               # f32
        empty = EmptyTensorMap
        map = TensorMapInsert(empty, one, list)
        same: var = TensorMapLookup(map, one, value_dtype=var)
        y: f32 = TensorListStack(same, row, element_dtype=f32)            # f32
    """,
    "a list in a queue": """
        list = TensorListFromTensor(m, row)                               # f32
        queue = FIFOQueueV2(component_types=[var], capacity=4, shapes=[])
        put = QueueEnqueueV2(queue, [list])
        same: var = QueueDequeueV2(queue, component_types=[var], ^put)
        y: f32 = TensorListStack(same, row, element_dtype=f32)            # f32
    """,
    "a ragged value": """
        splits: i64[3] = Const([0, 1, 4])
        ragged = RaggedTensorToVariant([splits], m, batched_input=False)  # Tvalues f32
        open: i64, f32 = RaggedTensorFromVariant(ragged, input_ragged_rank=1, output_ragged_rank=1, Tvalues=f32)   # Tvalues f32
        y = Reshape(open:1, square)
    """,  # noqa: E501
}


@pytest.mark.parametrize("container", FLOAT32.values(), ids=FLOAT32)
def test_other_containers_hold_float32(container: str) -> None:
    text = text_of(LOW_SOURCE, container, "", LOW_END)
    check_precision(text, outputs=("out",), steps=1, casts=4)


def test_a_list_that_leaves_the_model_is_float32_for_all_its_ops() -> None:
    text = text_of(LOW_SOURCE, CONTAINERS["TensorListFromTensor, TensorListStack"], "f32", LOW_END)
    check_precision(text, outputs=("out", "list"), not_run="no variant can be fetched", casts=4)


def test_a_list_that_comes_from_outside_is_float32_for_all_its_ops() -> None:
    check_precision(
        """
        given: var = Placeholder
        x: f32[4] = Placeholder
        w: f32[4,4] = Const(seed=1)
        row = Const([4])
        list = TensorListPushBack(given, x)                       # f32
        y: f32 = TensorListStack(list, row, element_dtype=f32)    # f32
        m = MatMul(y, w)                                          # low ALLOW
        out = Identity(m)                                         # f32 PINNED
        """,
        not_run="no variant can be fed",
        casts=2,
    )


def test_two_lists_that_a_branch_joins_are_one() -> None:
    # The float32 value in the second list keeps the first one float32 as well.
    check_precision(
        """
        x: f32[4,4] = Placeholder
        p: bool[] = Placeholder
        w: f32[4,4] = Const(seed=1)
        row = Const([4])
        m = MatMul(x, w)                                          # low ALLOW
        a = TensorListFromTensor(m, row)                          # f32
        b = TensorListFromTensor(x, row)                          # f32
        c: var = If(p, [a, b], then_branch=@t, else_branch=@e, Tout=[var])
        y: f32 = TensorListStack(c, row, element_dtype=f32)       # f32
        out = Identity(y)                                         # f32 PINNED

        @t(a: var, b: var) -> (c=a)

        @e(a: var, b: var) -> (c=b)
        """,
        feeds={"p": False},
        steps=1,
        exact=("out",),
        casts=2,
    )


def test_one_function_on_two_lists_makes_them_one() -> None:
    check_precision(
        """
        x: f32[4,4] = Placeholder
        w: f32[4,4] = Const(seed=1)
        row = Const([4])
        m = MatMul(x, w)                                          # low ALLOW
        a = TensorListFromTensor(m, row)                          # f32
        b = TensorListFromTensor(x, row)                          # f32
        c: f32 = PartitionedCall([a], Tout=[f32], f=@read)        # Tout[0] f32
        d: f32 = PartitionedCall([b], Tout=[f32], f=@read)        # Tout[0] f32
        n = MatMul(c, w)                                          # low ALLOW
        out1 = Identity(n)                                        # f32 PINNED
        out2 = Identity(d)                                        # f32 PINNED

        @read(a: var) -> (y=y)
          row = Const([4])
          y: f32 = TensorListStack(a, row, element_dtype=f32)     # f32
        """,
        steps=1,
        exact=("out2",),
        casts=4,
    )


def test_lists_swapped_in_a_loop_are_one() -> None:
    check_precision(
        """
        x: f32[4,4] = Placeholder
        w: f32[4,4] = Const(seed=1)
        zero = Const(0)
        row = Const([4])
        m = MatMul(x, w)                                          # low ALLOW
        a = TensorListFromTensor(m, row)                          # f32
        b = TensorListFromTensor(x, row)                          # f32
        loop: i32, var, var = While([zero, a, b], cond=@c, body=@b)
        y: f32 = TensorListStack(loop:1, row, element_dtype=f32)  # f32
        out = Identity(y)                                         # f32 PINNED

        @c(i: i32, a: var, b: var) -> (go=go)
          n = Const(3)
          go = Less(i, n)

        @b(i: i32, a: var, b: var) -> (i1=i1, a1=b, b1=a)
          one = Const(1)
          i1 = AddV2(i, one)
        """,
        steps=3,
        exact=("out",),
        casts=2,
    )


def test_a_list_that_a_function_makes_is_the_callers() -> None:
    """No handle goes into the call: what comes out tells that the two are one list."""
    check_precision(
        """
        x: f32[4,4] = Placeholder
        w: f32[4,4] = Const(seed=1)
        square = Const([4, 4])
        zero = Const(0)
        list: var = PartitionedCall([x], Tout=[var], f=@make)
        y: f32 = TensorListGetItem(list, zero, square, element_dtype=f32)  # low CLEAR
        out = Identity(y)                                         # f32 PINNED

        @make(x: f32) -> (list=full)
          w: f32[4,4] = Const(seed=1)
          square = Const([4, 4])
          zero = Const(0)
          two = Const(2)
          m = MatMul(x, w)                                        # low ALLOW
          empty = TensorListReserve(square, two, element_dtype=f32)  # low CLEAR
          full = TensorListSetItem(empty, zero, m)                # low CLEAR
        """,
        steps=1,
        casts=2,
    )
