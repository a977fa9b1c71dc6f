"""Runs a model through every loader that users have; one function each, all with one contract.

`run_...(path, signature, inputs, tags)` calls a signature of the SavedModel in `path` with arrays
by input name and returns arrays by output name; string arrays have dtype object and hold bytes.
Each call loads the model anew.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

Array = NDArray[Any]
Arrays = Mapping[str, Array]
Loader = Callable[..., dict[str, Array]]

SERVE = ("serve",)


def run_tf2(path: Path, signature: str, inputs: Arrays, tags: Sequence[str] = SERVE) -> Arrays:
    """Calls a signature as `tf.saved_model.load` gives it."""
    function = tf.saved_model.load(str(path), tags=list(tags)).signatures[signature]
    specs = function.structured_input_signature[1]
    tensors = {name: _tensor(array, specs[name].dtype) for name, array in inputs.items()}
    return {name: value.numpy() for name, value in function(**tensors).items()}


def run_tf1(path: Path, signature: str, inputs: Arrays, tags: Sequence[str] = SERVE) -> Arrays:
    """Calls a signature in a session that `tf.compat.v1.saved_model.load` filled."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        meta_graph = tf.compat.v1.saved_model.load(session, list(tags), str(path))
        called = meta_graph.signature_def[signature]
        feeds = {called.inputs[name].name: array for name, array in inputs.items()}
        names = sorted(called.outputs)
        values = session.run([called.outputs[name].name for name in names], feeds)
    return {name: np.asarray(value) for name, value in zip(names, values, strict=True)}


def run_keras(path: Path, signature: str, inputs: Arrays, tags: Sequence[str] = SERVE) -> Arrays:
    """Calls a signature as the layer `keras.layers.TFSMLayer`.

    The layer can do no more than the tag `serve` and one input; ValueError for anything else.
    """
    import keras

    if tuple(tags) != SERVE or len(inputs) != 1:
        raise ValueError(f"TFSMLayer takes one input and tags {SERVE}, got {[*inputs]} and {tags}")
    meta_graph = _meta_graph(path, tags)
    ((name, array),) = inputs.items()
    dtype = tf.as_dtype(meta_graph.signature_def[signature].inputs[name].dtype)
    layer = keras.layers.TFSMLayer(str(path), call_endpoint=signature)
    return {name: value.numpy() for name, value in layer(_tensor(array, dtype)).items()}


def run_c_api(path: Path, signature: str, inputs: Arrays, tags: Sequence[str] = SERVE) -> Arrays:
    """Calls a signature through `TF_LoadSessionFromSavedModel`, the loader of TF-Serving."""
    with _c_session(path, tags) as (graph, session, meta_graph):
        called = meta_graph.signature_def[signature]
        feeds = [
            (called.inputs[name].name, array, called.inputs[name].dtype)
            for name, array in inputs.items()
        ]
        names = sorted(called.outputs)
        fetches = [called.outputs[name].name for name in names]
        values = _c_run(graph, session, feeds, fetches)
    return dict(zip(names, values, strict=True))


LOADERS: Mapping[str, Loader] = {"tf2": run_tf2, "tf1": run_tf1, "c_api": run_c_api}


def run_graph_def(
    graph_def: graph_pb2.GraphDef, inputs: Arrays, outputs: Sequence[str]
) -> dict[str, Array]:
    """Imports a GraphDef and fetches `outputs`; inputs and outputs are named `node:port`."""
    with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        tf.import_graph_def(graph_def, name="")
        tables = [op.name for op in graph.get_operations() if op.type.startswith("InitializeTable")]
        tables += [op.name for op in graph.get_operations() if op.type == "LookupTableImportV2"]
        session.run(tables)
        values = session.run(list(outputs), dict(inputs))
    return {name: np.asarray(value) for name, value in zip(outputs, values, strict=True)}


def read_graph_def(file: Path) -> graph_pb2.GraphDef:
    """Returns the GraphDef of a binary file."""
    return graph_pb2.GraphDef.FromString(file.read_bytes())


def resave(path: Path, destination: Path, tags: Sequence[str] = SERVE) -> None:
    """Loads a SavedModel and saves it again with the same signatures."""
    loaded = tf.saved_model.load(str(path), tags=list(tags))
    tf.saved_model.save(loaded, str(destination), signatures=dict(loaded.signatures))


def _meta_graph(path: Path, tags: Sequence[str]) -> meta_graph_pb2.MetaGraphDef:
    content = (path / "saved_model.pb").read_bytes()
    graphs = saved_model_pb2.SavedModel.FromString(content).meta_graphs
    return next(graph for graph in graphs if set(graph.meta_info_def.tags) == set(tags))


def _tensor(array: Array, dtype: tf.DType) -> tf.Tensor:
    return tf.constant(array.tolist() if array.dtype.kind in "OSU" else array, dtype)


# ---------------------------------------------------------------- the C API

_STRING_BYTES = 24  # sizeof(TF_TString); tensorflow/c/tf_tstring.h of TF 2.21


class _Buffer(ctypes.Structure):
    """`TF_Buffer` of tensorflow/c/tf_buffer.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("length", ctypes.c_size_t),
        ("data_deallocator", ctypes.c_void_p),
    )


class _Output(ctypes.Structure):
    """`TF_Output` of tensorflow/c/c_api.h: one port of an operation."""

    _fields_ = (("operation", ctypes.c_void_p), ("index", ctypes.c_int))


@functools.cache
def _library() -> ctypes.CDLL:
    """Returns the wheel's C library (the copy that Python's TensorFlow runs on), with types set."""
    library = ctypes.CDLL(str(Path(tf.__file__).parent / "libtensorflow_cc.so.2"))
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    results = {
        pointer: "TF_NewStatus TF_NewGraph TF_NewSessionOptions TF_GraphOperationByName"
        " TF_LoadSessionFromSavedModel TF_AllocateTensor TF_TensorData TF_StringGetDataPointer",
        ctypes.POINTER(_Buffer): "TF_NewBuffer",
        size: "TF_TensorByteSize TF_StringGetSize",
        number: "TF_GetCode TF_TensorType TF_NumDims",
        ctypes.c_int64: "TF_Dim",
        ctypes.c_char_p: "TF_Message",
        None: "TF_DeleteStatus TF_DeleteGraph TF_DeleteSessionOptions TF_DeleteBuffer"
        " TF_CloseSession TF_DeleteSession TF_DeleteTensor TF_SessionRun TF_StringInit"
        " TF_StringCopy TF_StringDealloc",
    }
    for result, names in results.items():
        for name in names.split():
            getattr(library, name).restype = result
    library.TF_AllocateTensor.argtypes = [number, pointer, number, size]
    library.TF_StringCopy.argtypes = [pointer, ctypes.c_char_p, size]
    return library


def _pointer(address: int | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(address)


@contextmanager
def _status() -> Iterator[ctypes.c_void_p]:
    """Yields a `TF_Status`; raises what it says afterwards."""
    library = _library()
    status = _pointer(library.TF_NewStatus())
    try:
        yield status
        if library.TF_GetCode(status):
            raise RuntimeError(library.TF_Message(status).decode(errors="replace"))
    finally:
        library.TF_DeleteStatus(status)


@contextmanager
def _c_session(
    path: Path, tags: Sequence[str]
) -> Iterator[tuple[ctypes.c_void_p, ctypes.c_void_p, meta_graph_pb2.MetaGraphDef]]:
    library = _library()
    graph = _pointer(library.TF_NewGraph())
    options = _pointer(library.TF_NewSessionOptions())
    buffer = library.TF_NewBuffer()
    tag_array = (ctypes.c_char_p * len(tags))(*(tag.encode() for tag in tags))
    with _status() as status:
        session = _pointer(
            library.TF_LoadSessionFromSavedModel(
                options, None, str(path).encode(), tag_array, len(tags), graph, buffer, status
            )
        )
    try:
        content = ctypes.string_at(buffer.contents.data, buffer.contents.length)
        yield graph, session, meta_graph_pb2.MetaGraphDef.FromString(content)
    finally:
        for close in (library.TF_CloseSession, library.TF_DeleteSession):
            with _status() as status:
                close(session, status)
        library.TF_DeleteBuffer(buffer)
        library.TF_DeleteSessionOptions(options)
        library.TF_DeleteGraph(graph)


def _c_run(
    graph: ctypes.c_void_p,
    session: ctypes.c_void_p,
    feeds: Sequence[tuple[str, Array, int]],
    fetches: Sequence[str],
) -> list[Array]:
    library = _library()
    sources = (_Output * len(feeds))(*(_output(graph, name) for name, _, _ in feeds))
    sinks = (_Output * len(fetches))(*(_output(graph, name) for name in fetches))
    given = [_to_c(array, dtype) for _, array, dtype in feeds]
    given_array = (ctypes.c_void_p * len(given))(*(tensor.value for tensor in given))
    got = (ctypes.c_void_p * len(fetches))()
    with _status() as status:
        library.TF_SessionRun(
            session,
            None,
            *(sources, given_array, len(feeds)),
            *(sinks, got, len(fetches)),
            *(None, 0),
            None,
            status,
        )
    values = [_from_c(_pointer(address)) for address in got]
    for (_, array, dtype), tensor in zip(feeds, given, strict=True):
        if dtype == tf.string.as_datatype_enum:  # else strings of over 22 bytes would leak
            for place in _string_places(library.TF_TensorData(tensor), array.size):
                library.TF_StringDealloc(place)
        library.TF_DeleteTensor(tensor)
    return values


def _output(graph: ctypes.c_void_p, name: str) -> _Output:
    node, _, port = name.partition(":")
    operation = _library().TF_GraphOperationByName(graph, node.encode())
    if not operation:
        raise KeyError(f"the loaded graph has no node `{node}`")
    return _Output(operation, int(port or 0))


def _to_c(array: Array, dtype: int) -> ctypes.c_void_p:
    """Returns a new `TF_Tensor` of TensorFlow's type number `dtype`."""
    library = _library()
    is_string = dtype == tf.string.as_datatype_enum
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    if not is_string:
        # not `ascontiguousarray`, which makes a scalar a vector of one
        array = np.asarray(array, tf.as_dtype(dtype).as_numpy_dtype, order="C")
    size = _STRING_BYTES * array.size if is_string else array.nbytes
    tensor = _pointer(library.TF_AllocateTensor(dtype, shape, array.ndim, size))
    start = library.TF_TensorData(tensor)
    if not is_string:
        ctypes.memmove(start, array.ctypes.data, array.nbytes)
        return tensor
    for place, value in zip(_string_places(start, array.size), array.reshape(-1), strict=True):
        content = value.encode() if isinstance(value, str) else bytes(value)
        library.TF_StringInit(place)
        library.TF_StringCopy(place, content, len(content))
    return tensor


def _from_c(tensor: ctypes.c_void_p) -> Array:
    """Returns a copy of a `TF_Tensor`, and deletes it."""
    library = _library()
    dtype = library.TF_TensorType(tensor)
    shape = [library.TF_Dim(tensor, axis) for axis in range(library.TF_NumDims(tensor))]
    start = library.TF_TensorData(tensor)
    if dtype == tf.string.as_datatype_enum:
        array = np.array(_strings(start, int(np.prod(shape))), dtype=object).reshape(shape)
    else:
        content = ctypes.string_at(start, library.TF_TensorByteSize(tensor)) if start else b""
        array = np.frombuffer(content, tf.as_dtype(dtype).as_numpy_dtype).reshape(shape).copy()
    library.TF_DeleteTensor(tensor)
    return array


def _strings(start: int, count: int) -> list[bytes]:
    library = _library()
    return [
        ctypes.string_at(library.TF_StringGetDataPointer(place), library.TF_StringGetSize(place))
        for place in _string_places(start, count)
    ]


def _string_places(start: int, count: int) -> list[ctypes.c_void_p]:
    return [_pointer(start + index * _STRING_BYTES) for index in range(count)]
