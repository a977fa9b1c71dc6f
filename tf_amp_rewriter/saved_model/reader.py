"""Directory or file -> `Source`: the protos as they are; nothing is loaded into TensorFlow.

On exit the files are what they claim to be, and the tags select at least one meta graph.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from google.protobuf import message, text_format
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from tf_amp_rewriter import errors
from tf_amp_rewriter.saved_model import checkpoint as checkpoints

_BINARY = "saved_model.pb"
_TEXT = "saved_model.pbtxt"
_CHUNKED = "saved_model.cpb"
_VARIABLES = "variables/variables"
# A serialized proto is limited to this by protobuf itself.
MAX_PROTO_BYTES = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class Source:
    """A SavedModel as read.

    Attributes:
        path: its directory.
        saved_model: the proto; read-only.
        selected: indexes of the meta graphs that have the given tags.
        checkpoint: its variables; None if it has none.
    """

    path: Path
    saved_model: saved_model_pb2.SavedModel
    selected: tuple[int, ...]
    checkpoint: checkpoints.Checkpoint | None

    @property
    def meta_graphs(self) -> tuple[meta_graph_pb2.MetaGraphDef, ...]:
        """The meta graphs that have the given tags."""
        return tuple(self.saved_model.meta_graphs[index] for index in self.selected)


def read_saved_model(path: Path, tags: tuple[str, ...]) -> Source:
    """Reads a SavedModel directory.

    Args:
        path: the directory.
        tags: selects the meta graphs that have all of these.

    Raises:
        errors.InputError: it is not a SavedModel, is damaged, or no meta graph has the tags.
    """
    if not path.is_dir():
        found = "is a file" if path.exists() else "does not exist"
        hint = "for a frozen graph use `--graph_def`" if path.exists() else "check the path"
        raise errors.InputError(f"{found}, expected a SavedModel directory", hint, str(path))
    saved_model = _read_proto(path)
    if not saved_model.meta_graphs:
        raise errors.InputError(
            "holds no meta graph, expected at least one", "export the model again", str(path)
        )
    selected = tuple(
        index
        for index, meta_graph in enumerate(saved_model.meta_graphs)
        if set(tags) <= set(meta_graph.meta_info_def.tags)
    )
    if not selected:
        found = "; ".join(
            ",".join(meta_graph.meta_info_def.tags) or "(none)"
            for meta_graph in saved_model.meta_graphs
        )
        raise errors.InputError(
            f"no meta graph has the tags `{','.join(tags)}`; its meta graphs have: {found}",
            "give these with `--tags`",
            str(path),
        )
    prefix = path / _VARIABLES
    has_variables = checkpoints.index_path(prefix).exists()
    if not has_variables and prefix.parent.is_dir() and any(prefix.parent.glob("variables.data-*")):
        raise errors.InputError(
            "is missing, but there are data shards beside it",
            "copy the whole directory again",
            str(checkpoints.index_path(prefix)),
        )
    checkpoint = checkpoints.open_checkpoint(prefix) if has_variables else None
    return Source(path, saved_model, selected, checkpoint)


def read_graph_def(path: Path) -> graph_pb2.GraphDef:
    """Reads a frozen GraphDef, binary or, if the name ends in `.pbtxt`, text.

    Raises:
        errors.InputError: it can't be read or is no GraphDef.
    """
    graph_def = graph_pb2.GraphDef()
    _parse(path, graph_def, is_text=path.suffix in (".pbtxt", ".txt"), what="GraphDef")
    if not graph_def.node:
        raise errors.InputError(
            "holds no nodes, expected a GraphDef with some",
            "for a SavedModel use `--saved_model_dir`",
            str(path),
        )
    return graph_def


def _read_proto(path: Path) -> saved_model_pb2.SavedModel:
    saved_model = saved_model_pb2.SavedModel()
    if (path / _BINARY).is_file():
        _parse(path / _BINARY, saved_model, is_text=False, what="SavedModel")
    elif (path / _TEXT).is_file():
        _parse(path / _TEXT, saved_model, is_text=True, what="SavedModel")
    elif (path / _CHUNKED).is_file():
        raise errors.InputError(
            f"is in the split format (`{_CHUNKED}`), which is not supported yet",
            "export it without `experimental_image_format`",
            str(path),
        )
    else:
        raise errors.InputError(
            f"holds neither `{_BINARY}` nor `{_TEXT}`, expected a SavedModel directory",
            _where_else(path),
            str(path),
        )
    return saved_model


def _where_else(path: Path) -> str:
    """Returns a hint that names the versions below a TF-Serving base path, if it is one."""
    versions = sorted(p.name for p in path.iterdir() if (p / _BINARY).is_file())
    if versions:
        return f"give the SavedModel itself, such as `{path / versions[-1]}`"
    return "give the directory that `tf.saved_model.save` or `model.export` wrote"


def _parse(path: Path, proto: message.Message, *, is_text: bool, what: str) -> None:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise errors.InputError(
            f"can't be read: {error.strerror}", "check the path and its permissions", str(path)
        ) from error
    if len(data) > MAX_PROTO_BYTES:
        raise errors.InputError(
            f"has {len(data)} bytes, expected at most {MAX_PROTO_BYTES}", "", str(path)
        )
    try:
        if is_text:
            text_format.Parse(data.decode("utf-8"), proto)
        else:
            proto.ParseFromString(data)
    except (message.DecodeError, text_format.ParseError, UnicodeDecodeError) as error:
        detail = str(error).strip().splitlines()[0] if str(error).strip() else "it is damaged"
        raise errors.InputError(
            f"is no {what}: {detail}",
            "the file is damaged or of another kind; export or copy it again",
            str(path),
        ) from error
