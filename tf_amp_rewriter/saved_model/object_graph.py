"""What a SavedModel says of itself outside of its graphs: signatures, objects, checkpoint keys."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from google.protobuf import message
from tensorflow.core.framework import function_pb2, node_def_pb2
from tensorflow.core.protobuf import (
    meta_graph_pb2,
    saved_object_graph_pb2,
    trackable_object_graph_pb2,
)

from tf_amp_rewriter import errors
from tf_amp_rewriter.dtypes import DT_FLOAT
from tf_amp_rewriter.ir import outsiders, variables
from tf_amp_rewriter.ir import program as ir
from tf_amp_rewriter.ops import handles
from tf_amp_rewriter.saved_model import checkpoint as checkpoints
from tf_amp_rewriter.saved_model.reader import Source

OBJECT_GRAPH_KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"
_VALUE = "VARIABLE_VALUE"
# A signature of this name stands for the op that runs once after loading.
_INIT_SIGNATURE = "__saved_model_init_op"
_INIT_COLLECTIONS = ("saved_model_main_op", "legacy_init_op", "saved_model_train_op")


def graph_source(meta_graph: meta_graph_pb2.MetaGraphDef, path: str) -> ir.GraphSource:
    """Returns the graph of a meta graph with what outsiders see of it.

    Raises:
        errors.InputError: a signature names a node that does not exist.
    """
    feeds: set[str] = set()
    fetches: set[str] = set()
    for signature in meta_graph.signature_def.values():
        feeds.update(_tensors(signature.inputs.values()))
        fetches.update(_tensors(signature.outputs.values()))
    nodes = {node.name for node in meta_graph.graph_def.node}
    for tensor in sorted(feeds | fetches):
        if tensor.partition(":")[0] not in nodes:
            raise errors.InputError(
                f"a signature names the tensor `{tensor}`, but no node has that name", path=path
            )
    return ir.GraphSource(
        meta_graph.graph_def,
        {op.name: op for op in meta_graph.meta_info_def.stripped_op_list.op},
        frozenset(feeds),
        frozenset(fetches),
        frozenset(_init_nodes(meta_graph)) & frozenset(nodes),
        frozenset(_visible_functions(meta_graph)),
        _captured_constants(meta_graph, nodes),
    )


def links(source: Source) -> variables.Links:
    """Returns what ties objects, functions and checkpoint keys of `source` together."""
    bound, object_keys, slots = {}, {}, {}
    trackables = _trackable_graph(source)
    for graph, meta_graph in enumerate(source.meta_graphs):
        objects = meta_graph.object_graph_def
        for name, function in objects.concrete_functions.items():
            bound[graph, name] = tuple(function.bound_inputs)
        if trackables is not None and objects.nodes:
            for node_id, key in _keys_of_objects(objects, trackables).items():
                object_keys[graph, node_id] = key
        for node in objects.nodes:
            for slot in node.slot_variables:
                original = (graph, slot.original_variable_node_id)
                slots[graph, slot.slot_variable_node_id] = original
    entries = source.checkpoint.entries.values() if source.checkpoint else ()
    float_keys = frozenset(e.key for e in entries if e.dtype == DT_FLOAT and not e.has_slices)
    foreign: set[str] = set()
    for index, meta_graph in enumerate(source.saved_model.meta_graphs):
        if index not in source.selected:
            foreign.update(_restored_keys(meta_graph))
    return variables.Links(bound, object_keys, float_keys, frozenset(foreign), slots)


def _captured_constants(
    meta_graph: meta_graph_pb2.MetaGraphDef, nodes: Collection[str]
) -> Mapping[str, tuple[str, ...]]:
    objects = meta_graph.object_graph_def
    operations = [node.constant.operation for node in objects.nodes]  # empty for other kinds
    return {
        name: tuple(
            operations[bound] if operations[bound] in nodes else ""
            for bound in function.bound_inputs
        )
        for name, function in objects.concrete_functions.items()
    }


def _tensors(infos: Iterable[meta_graph_pb2.TensorInfo]) -> Iterator[str]:
    for info in infos:
        match info.WhichOneof("encoding"):
            case "name":
                yield info.name
            case "coo_sparse":
                sparse = info.coo_sparse
                yield sparse.values_tensor_name
                yield sparse.indices_tensor_name
                yield sparse.dense_shape_tensor_name
            case "composite_tensor":
                yield from _tensors(info.composite_tensor.components)


def _init_nodes(meta_graph: meta_graph_pb2.MetaGraphDef) -> Iterator[str]:
    for name in _INIT_COLLECTIONS:
        yield from (
            meta_graph.collection_def[name].node_list.value
            if (name in meta_graph.collection_def)
            else ()
        )
    if _INIT_SIGNATURE in meta_graph.signature_def:
        outputs = meta_graph.signature_def[_INIT_SIGNATURE].outputs
        yield from (info.name.partition(":")[0] for info in outputs.values())


def _visible_functions(meta_graph: meta_graph_pb2.MetaGraphDef) -> Iterator[str]:
    """Yields functions that the object graph, a gradient or a training pair names."""
    yield from meta_graph.object_graph_def.concrete_functions
    yield from outsiders.of_training(meta_graph.graph_def.library)


def _trackable_graph(
    source: Source,
) -> trackable_object_graph_pb2.TrackableObjectGraph | None:
    if source.checkpoint is None or OBJECT_GRAPH_KEY not in source.checkpoint.entries:
        return None
    graph = trackable_object_graph_pb2.TrackableObjectGraph()
    try:
        graph.ParseFromString(checkpoints.read_bytes(source.checkpoint, OBJECT_GRAPH_KEY))
    except message.DecodeError as error:
        raise errors.InputError(
            f"`{OBJECT_GRAPH_KEY}` is no object graph: {error}",
            "the checkpoint is damaged; export or copy the model again",
            str(checkpoints.index_path(source.checkpoint.prefix)),
        ) from error
    return graph


def _keys_of_objects(
    objects: saved_object_graph_pb2.SavedObjectGraph,
    trackables: trackable_object_graph_pb2.TrackableObjectGraph,
) -> dict[int, str]:
    """Returns the checkpoint key of each variable, found by the same path in both graphs.

    Both graphs start at node 0 and name their edges alike; this is how the loader pairs them
    (tensorflow/python/checkpoint/restore.py).
    """
    tracked_of = {0: 0} if trackables.nodes else {}
    stack = list(tracked_of)
    while stack:
        saved_id = stack.pop()
        saved, tracked = objects.nodes[saved_id], trackables.nodes[tracked_of[saved_id]]
        children = {child.local_name: child.node_id for child in tracked.children}
        for child in saved.children:
            if child.node_id not in tracked_of and child.local_name in children:
                tracked_of[child.node_id] = children[child.local_name]
                stack.append(child.node_id)
    # An optimizer's slots are not its children: they are named by variable and slot name.
    for saved_id, tracked_id in list(tracked_of.items()):
        tracked_slots = {
            (slot.original_variable_node_id, slot.slot_name): slot.slot_variable_node_id
            for slot in trackables.nodes[tracked_id].slot_variables
        }
        for slot in objects.nodes[saved_id].slot_variables:
            place = (tracked_of.get(slot.original_variable_node_id, -1), slot.slot_name)
            if place in tracked_slots:
                tracked_of[slot.slot_variable_node_id] = tracked_slots[place]
    return {
        saved_id: attribute.checkpoint_key
        for saved_id, tracked_id in tracked_of.items()
        if objects.nodes[saved_id].WhichOneof("kind") == "variable"
        for attribute in trackables.nodes[tracked_id].attributes
        if attribute.name == _VALUE
    }


def _restored_keys(meta_graph: meta_graph_pb2.MetaGraphDef) -> Iterator[str]:
    """Yields the checkpoint keys that a meta graph restores.

    Every string constant of a scope with a RestoreV2 counts: too many keys only mean that a
    variable stays float32.
    """
    scopes: list[list[node_def_pb2.NodeDef]] = [list(meta_graph.graph_def.node)]
    functions: list[function_pb2.FunctionDef] = list(meta_graph.graph_def.library.function)
    scopes += [list(function.node_def) for function in functions]
    for nodes in scopes:
        if any(node.op == handles.RESTORE for node in nodes):
            for node in nodes:
                if node.op == handles.CONSTANT:
                    for value in node.attr["value"].tensor.string_val:
                        yield value.decode("utf-8", "surrogateescape")
