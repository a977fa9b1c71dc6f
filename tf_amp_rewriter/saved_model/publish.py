"""How output gets to where the user wants it: complete, or not at all.

What is written goes first to a place beside the destination, on the same file system; then one
rename puts it into place.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from tf_amp_rewriter import errors

_OVERWRITE_HINT = "give another path, or `--overwrite` to replace it"


def check_destination(source: Path, destination: Path, overwrite: bool) -> None:
    """Refuses a `destination` that the rewritten `source` could not be published to.

    Nothing is written. That the check passes is no promise: `publish` checks again.

    Args:
        source: the model that is read.
        destination: the directory to write.
        overwrite: whether an existing directory may be replaced.

    Raises:
        errors.OutputError: the two overlap, something is in the way, or the folder can't be made.
    """
    path, real_source = destination.resolve(), source.resolve()
    if path == real_source:
        raise errors.OutputError(
            "is the input", "give another directory for the output", str(destination)
        )
    for outer, inner, place in ((real_source, path, "inside"), (path, real_source, "around")):
        if outer in inner.parents:
            raise errors.OutputError(
                f"lies {place} the input `{source}`, expected a place apart from it",
                "give another directory for the output",
                str(destination),
            )
    _check_replaceable(destination, overwrite)
    _check_parent(destination)


@contextlib.contextmanager
def staging_beside(destination: Path) -> Iterator[Path]:
    """Gives a path beside `destination` on which nothing exists yet, and clears it up in the end.

    Parents of `destination` are made if they don't exist, and removed again if nothing gets there.

    Raises:
        errors.OutputError: a parent can't be made.
    """
    path = destination.resolve()
    missing = [parent for parent in path.parents if not parent.exists()]
    staging = _beside(path, "tmp")
    try:
        with output_errors(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        for parent in missing:
            with contextlib.suppress(OSError):
                parent.rmdir()


def publish(staging: Path, destination: Path, overwrite: bool) -> None:
    """Moves the directory `staging` to `destination`, after all of it has been synced to disk.

    A directory that is replaced is moved aside first, and back if the new one can't take its place.

    Args:
        staging: a complete directory beside the destination, see `staging_beside`.
        destination: nothing, an empty directory, or with `overwrite` any directory.
        overwrite: whether an existing directory may be replaced.

    Raises:
        errors.OutputError: something is in the way, or the disk refuses.
    """
    path = destination.resolve()
    _check_replaceable(destination, overwrite)
    with output_errors(destination):
        _sync_tree(staging)
        if _is_filled(path):
            _replace(staging, path)
        else:
            staging.rename(path)
        _sync_directory(path.parent)


def write_file_atomically(destination: Path, data: bytes, overwrite: bool) -> None:
    """Writes a file that is either complete or not there; a device or pipe is written directly.

    Raises:
        errors.OutputError: something is in the way, or the disk refuses.
    """
    path = destination.resolve()
    if path.is_dir():
        raise errors.OutputError("is a directory, expected a file", "", str(destination))
    if path.exists() and not path.is_file():
        with output_errors(destination):
            path.write_bytes(data)
        return
    if path.exists() and not overwrite:
        raise errors.OutputError("exists already", _OVERWRITE_HINT, str(destination))
    staging = _beside(path, "tmp")
    with output_errors(destination):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with staging.open("xb") as file:
                file.write(data)
                sync(file)
            staging.replace(path)
        finally:
            staging.unlink(missing_ok=True)
        _sync_directory(path.parent)


@contextlib.contextmanager
def output_errors(path: Path) -> Iterator[None]:
    """Turns an `OSError` into an `OutputError` about `path`."""
    try:
        yield
    except OSError as error:
        raise errors.OutputError(f"can't be written: {error.strerror}", "", str(path)) from error


def sync(file: BinaryIO) -> None:
    """Returns once what was written to `file` is on disk."""
    file.flush()
    os.fsync(file.fileno())


def _check_replaceable(destination: Path, overwrite: bool) -> None:
    path = destination.resolve()
    if path.exists() and not path.is_dir():
        raise errors.OutputError(
            "is a file, expected a directory or nothing",
            "give another directory for the output",
            str(destination),
        )
    with output_errors(destination):
        is_filled = _is_filled(path)
    if is_filled and not overwrite:
        raise errors.OutputError(
            "exists already and is not empty", _OVERWRITE_HINT, str(destination)
        )


def _check_parent(destination: Path) -> None:
    parents = destination.resolve().parents
    parent = next((parent for parent in parents if parent.exists()), Path("/"))
    if not parent.is_dir():
        raise errors.OutputError(
            f"can't be made: `{parent}` is a file, expected a directory", "", str(destination)
        )
    if not os.access(parent, os.W_OK | os.X_OK):
        raise errors.OutputError(
            f"can't be made: `{parent}` is not writable",
            "change its permissions, or give another directory for the output",
            str(destination),
        )


def _is_filled(path: Path) -> bool:
    return path.exists() and any(path.iterdir())


def _beside(path: Path, purpose: str) -> Path:
    return path.with_name(f".{path.name}.{purpose}-{secrets.token_hex(8)}")


def _replace(staging: Path, path: Path) -> None:
    aside = _beside(path, "old")
    path.rename(aside)
    try:
        staging.rename(path)
    except BaseException:
        aside.rename(path)
        raise
    shutil.rmtree(aside)


def _sync_tree(directory: Path) -> None:
    for root, _, names in os.walk(directory):
        for name in names:
            with (Path(root) / name).open("rb") as file:
                os.fsync(file.fileno())
        _sync_directory(Path(root))


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
