"""A complete SavedModel directory from the original, new protos and new dtypes of variables.

All that is not rewritten is copied as it is, known or not: assets, warm-up requests, Keras' own
files, empty folders.
"""

from __future__ import annotations

import hashlib
import importlib
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from google.protobuf import text_format
from tensorflow.core.protobuf import fingerprint_pb2, saved_model_pb2

from tf_amp_rewriter import dtypes, errors
from tf_amp_rewriter.saved_model import checkpoint as checkpoints
from tf_amp_rewriter.saved_model import publish

_BINARY: Final = "saved_model.pb"
_TEXT: Final = "saved_model.pbtxt"
_CHUNKED: Final = "saved_model.cpb"
_FINGERPRINT: Final = "fingerprint.pb"


def write(
    source_dir: Path,
    staging: Path,
    saved_model: saved_model_pb2.SavedModel,
    checkpoint: checkpoints.Checkpoint | None,
    conversions: Mapping[str, dtypes.LowPrecision],
    clamped: Collection[str] = (),
) -> None:
    """Writes the SavedModel to `staging`. The same input gives the same bytes.

    Args:
        source_dir: the original.
        staging: where to write; nothing exists there yet.
        saved_model: the rewritten proto.
        checkpoint: the original's checkpoint, if it has one.
        conversions: the new precision of variables, by checkpoint key.
        clamped: keys of those in which what overflows becomes the largest finite value.

    Raises:
        errors.InputError: a file of the original can't be read or is damaged.
        errors.OutputError: a file can't be written.
    """
    rewritten = {source_dir / name for name in (_BINARY, _TEXT, _CHUNKED, _FINGERPRINT)}
    if checkpoint is not None:
        rewritten.update(checkpoint.paths)
    _copy_directory(source_dir, staging, frozenset(rewritten), ())
    _write_proto(source_dir, staging, saved_model)
    if checkpoint is not None:
        prefix = staging / checkpoint.prefix.relative_to(source_dir)
        checkpoints.write_checkpoint(checkpoint, prefix, conversions, clamped)
    _write_fingerprint(staging)


def _copy_directory(
    source: Path, target: Path, left_out: frozenset[Path], ancestors: tuple[Path, ...]
) -> None:
    """Copies what is in `source` but for the files `left_out`; follows links, not in circles."""
    real = source.resolve()
    if real in ancestors:
        raise errors.InputError("is a link to a folder around it", "remove it", str(source))
    try:
        paths = sorted(source.iterdir())
    except OSError as error:
        raise errors.InputError(f"can't be read: {error.strerror}", "", str(source)) from error
    with publish.output_errors(target):
        target.mkdir(parents=True)
    for path in paths:
        if path in left_out:
            continue
        if path.is_dir():
            _copy_directory(path, target / path.name, left_out, (*ancestors, real))
        else:
            _copy_file(path, target / path.name)


def _copy_file(source: Path, target: Path) -> None:
    if not source.is_file():
        raise errors.InputError(
            "is a broken link or no regular file, expected files and folders", "", str(source)
        )
    try:
        source.open("rb").close()
    except OSError as error:
        raise errors.InputError(f"can't be read: {error.strerror}", "", str(source)) from error
    with publish.output_errors(target):
        shutil.copy(source, target)


def _write_proto(source_dir: Path, staging: Path, saved_model: saved_model_pb2.SavedModel) -> None:
    """Writes the proto as text if the original has nothing else; TensorFlow prefers the binary."""
    is_text = (source_dir / _TEXT).exists() and not (source_dir / _BINARY).exists()
    path = staging / (_TEXT if is_text else _BINARY)
    if is_text:
        data = text_format.MessageToString(saved_model).encode()
    else:
        try:
            data = saved_model.SerializeToString(deterministic=True)
        except ValueError as error:
            raise errors.OutputError(f"can't be written: {error}", "", str(path)) from error
    with publish.output_errors(path):
        path.write_bytes(data)


def _write_fingerprint(directory: Path) -> None:
    """Writes TensorFlow's fingerprint of the SavedModel, or none where TensorFlow makes none.

    The hashes are TensorFlow's; the uuid, there a random number of 128 bits, comes from them.
    """
    fingerprint = _fingerprint(directory)
    if fingerprint is None or not fingerprint.saved_model_checksum:
        return
    fingerprint.uuid = ""  # type: ignore[attr-defined]  # the stubs are older
    digest = hashlib.sha256(fingerprint.SerializeToString(deterministic=True)).digest()
    fingerprint.uuid = str(int.from_bytes(digest[:16], "big"))  # type: ignore[attr-defined]
    path = directory / _FINGERPRINT
    with publish.output_errors(path):
        path.write_bytes(fingerprint.SerializeToString(deterministic=True))


def _fingerprint(directory: Path) -> fingerprint_pb2.FingerprintDef | None:
    """Returns what TensorFlow makes: without a checksum if there is no binary proto (TF 2.21)."""
    if not (directory / _BINARY).exists():
        return None
    try:
        pywrap = importlib.import_module(
            "tensorflow.python.saved_model.pywrap_saved_model.fingerprinting"
        )
    except ImportError:  # no public API: TensorFlow may move it
        return None
    try:
        data: bytes = pywrap.CreateFingerprintDef(str(directory))
    except pywrap.FingerprintException:
        return None
    return fingerprint_pb2.FingerprintDef.FromString(data)
