"""Ops on containers of tensors that have one element type: lists, arrays and stacks.

A list (`TensorList*`) is a variant; an array (`TensorArray*V3`) and a stack (`Stack*V2`) are
resources. All variant inputs and outputs of one of these ops, or all its resources, are handles of
one container; in a list of lists, whose element type is variant, so are its elements.

Source of all rows: the op definitions of TensorFlow 2.21 (list_ops.cc, data_flow_ops.cc). Arrays of
older versions, whose handles are references to strings, and those of gradients, which add up in
their element type, have no rows: what they touch stays float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# Op -> attribute with the type of the elements; empty if the op says nothing about it.
ELEMENT_TYPES: Final[Mapping[str, str]] = {
    # Lists.
    "EmptyTensorList": "element_dtype",
    "TensorListConcat": "element_dtype",
    "TensorListConcatLists": "element_dtype",
    "TensorListConcatV2": "element_dtype",
    "TensorListElementShape": "",
    "TensorListFromTensor": "element_dtype",
    "TensorListGather": "element_dtype",
    "TensorListGetItem": "element_dtype",
    "TensorListLength": "",
    "TensorListPopBack": "element_dtype",
    "TensorListPushBack": "element_dtype",
    "TensorListPushBackBatch": "element_dtype",
    "TensorListReserve": "element_dtype",
    "TensorListResize": "",
    "TensorListScatter": "element_dtype",
    "TensorListScatterIntoExistingList": "element_dtype",
    "TensorListScatterV2": "element_dtype",
    "TensorListSetItem": "element_dtype",
    "TensorListSplit": "element_dtype",
    "TensorListStack": "element_dtype",
    # Arrays.
    "TensorArrayCloseV3": "",
    "TensorArrayConcatV3": "dtype",
    "TensorArrayGatherV3": "dtype",
    "TensorArrayReadV3": "dtype",
    "TensorArrayScatterV3": "T",
    "TensorArraySizeV3": "",
    "TensorArraySplitV3": "T",
    "TensorArrayV3": "dtype",
    "TensorArrayWriteV3": "T",
    # Stacks.
    "StackCloseV2": "",
    "StackPopV2": "elem_type",
    "StackPushV2": "T",
    "StackV2": "elem_type",
}
