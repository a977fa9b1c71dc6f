"""The bytes of one tensor in its shard, read in pieces and checked.

Source: tensorflow/core/util/tensor_bundle/tensor_bundle.cc, TensorFlow 2.x.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import types
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from tensorflow.core.protobuf import tensor_bundle_pb2

from tf_amp_rewriter import dtypes, errors
from tf_amp_rewriter.saved_model import table

# Peak memory of reading or converting is less than four of these (a chunk as read, as rounded, as
# written) plus the index. Larger ones are no faster: this fits into the CPU's second-level cache.
CHUNK_BYTES: Final = 1 << 19


@dataclasses.dataclass(frozen=True)
class Entry:
    """What the index says about one tensor.

    Attributes:
        key: the checkpoint key; bytes that are no UTF-8 stand as surrogates.
        dtype: TensorFlow's `DataType` number.
        shape: the shape.
        shard: number of the shard that holds the bytes.
        offset: where in that shard they start.
        size: how many bytes there are.
        crc32c: their masked CRC32C.
        has_slices: the tensor is partitioned: the slices have entries and bytes of their own, and
            this entry has none.
        proto: the entry itself; read-only.
    """

    key: str
    dtype: dtypes.DataType
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    crc32c: int
    has_slices: bool
    proto: tensor_bundle_pb2.BundleEntryProto


def checked_chunks(entry: Entry, file: BinaryIO, path: Path, chunk_bytes: int) -> Iterator[bytes]:
    """Yields the bytes of a tensor; raises `InputError` if their checksum is wrong.

    The checksum of strings and variants is no plain one over the bytes and is checked before the
    first chunk, that of others behind the last.
    """
    file.seek(entry.offset)
    parts_crc = _PARTS_CRC.get(entry.dtype)
    if parts_crc:
        _check_crc(entry, path, parts_crc(entry, file, path))
        file.seek(entry.offset)
    left, crc = entry.size, 0
    while left:
        chunk = _read(entry, file, path, min(left, chunk_bytes))
        left -= len(chunk)
        if not parts_crc:
            crc = table.extend_crc(crc, chunk)
        yield chunk
    if not parts_crc:
        _check_crc(entry, path, crc)


def open_file(path: Path) -> BinaryIO:
    """Returns `path`, opened for reading; raises `InputError` if that fails."""
    with input_errors(path):
        return path.open("rb")


@contextlib.contextmanager
def input_errors(path: Path) -> Iterator[None]:
    """Turns an `OSError` into an `InputError` about `path`."""
    try:
        yield
    except FileNotFoundError:
        raise errors.InputError(
            "is missing, expected a file of the checkpoint",
            "copy the whole folder of the model",
            str(path),
        ) from None
    except OSError as error:
        raise errors.InputError(f"can't be read: {error.strerror}", "", str(path)) from error


def damage(entry: Entry, path: Path, found: str) -> errors.InputError:
    """Returns the error that says what is wrong with a tensor, in which file."""
    return errors.InputError(f"tensor `{shown(entry.key)}` {found}", table.DAMAGED, str(path))


def shown(key: str) -> str:
    """Returns `key` for a message; keys of slices are binary."""
    return key if key.isprintable() else ascii(key)[1:-1]


def _strings_crc(entry: Entry, file: BinaryIO, path: Path) -> int:
    """Returns the checksum of a string tensor.

    Its bytes are the lengths as varints, their masked CRC32C, and the strings. The checksum covers
    the lengths as integers of 4 bytes (8 if they need them) and all that follows them.
    """
    left, crc = entry.size, 0
    for _ in range(math.prod(entry.shape) if left else 0):
        length, count = _read_varint(entry, file, path, left)
        left -= count
        crc = table.extend_crc(crc, length.to_bytes(4 if length < 1 << 32 else 8, "little"))
    return _extend_over(crc, entry, file, path, left)


def _variants_crc(entry: Entry, file: BinaryIO, path: Path) -> int:
    """Returns the checksum of a variant tensor.

    Each element is its length as a varint, its bytes, and a masked CRC32C. The checksum covers the
    lengths as integers of 8 bytes and all the rest.
    """
    left, crc = entry.size, 0
    for _ in range(math.prod(entry.shape) if left else 0):
        length, count = _read_varint(entry, file, path, left)
        left -= count + length + 4
        if left < 0:
            raise damage(entry, path, "has an element that is longer than the tensor")
        crc = table.extend_crc(crc, length.to_bytes(8, "little"))
        crc = _extend_over(crc, entry, file, path, length + 4)
    return crc


_PARTS_CRC: Final = types.MappingProxyType(
    {dtypes.DT_STRING: _strings_crc, dtypes.DT_VARIANT: _variants_crc}
)


def _extend_over(crc: int, entry: Entry, file: BinaryIO, path: Path, size: int) -> int:
    """Returns `crc` extended over the next `size` bytes of `file`."""
    while size:
        chunk = _read(entry, file, path, min(size, CHUNK_BYTES))
        size -= len(chunk)
        crc = table.extend_crc(crc, chunk)
    return crc


def _read_varint(entry: Entry, file: BinaryIO, path: Path, left: int) -> tuple[int, int]:
    """Returns the varint at the place where `file` stands, and how many bytes it took."""
    digits = b""
    while len(digits) < min(left, 10):
        digits += _read(entry, file, path, 1)
        if digits[-1] < 0x80:
            return table.read_varint(digits, 0)[0], len(digits)
    raise damage(entry, path, "has an unreadable length of an element")


def _read(entry: Entry, file: BinaryIO, path: Path, size: int) -> bytes:
    """Returns the next `size` bytes."""
    with input_errors(path):
        data = file.read(size)
    if len(data) < size:
        raise damage(entry, path, "ends behind the end of the file")
    return data


def _check_crc(entry: Entry, path: Path, crc: int) -> None:
    computed = table.masked(crc)
    if computed != entry.crc32c:
        raise damage(entry, path, f"has checksum {computed:#010x}, expected {entry.crc32c:#010x}")
