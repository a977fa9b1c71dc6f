"""The tensors of a checkpoint (TensorFlow's tensor bundle, V2), read and written as a stream.

On disk: `PREFIX.index`, a table (see `table`) from each tensor's key to its `BundleEntryProto`, and
`PREFIX.data-IIIII-of-NNNNN`, the shards, with the tensors' bytes at the places that the entries
name. A partitioned variable has an entry without bytes that lists its slices, and one entry for
each slice under a binary key.

Nothing here holds more than `tensor_bytes.CHUNK_BYTES` of a tensor at a time, but for a string
tensor that is asked for with `read_bytes`.

Source: tensorflow/core/util/tensor_bundle/tensor_bundle.cc, TensorFlow 2.x.
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
from google.protobuf import message
from numpy.typing import NDArray
from tensorflow.core.protobuf import tensor_bundle_pb2

from tf_amp_rewriter import dtypes, errors
from tf_amp_rewriter.saved_model import publish, table, tensor_bytes
from tf_amp_rewriter.saved_model.tensor_bytes import Entry as Entry  # for our callers too

_FLOAT_BYTES: Final = 4


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """An opened checkpoint; the bytes of the tensors stay on disk.

    Attributes:
        prefix: the path of its files without their endings.
        header: the header; read-only.
        entries: every tensor by key, in the order of the index.
    """

    prefix: Path
    header: tensor_bundle_pb2.BundleHeaderProto
    entries: Mapping[str, Entry]

    @property
    def paths(self) -> tuple[Path, ...]:
        """The index, and the shards that some entry names."""
        shards = sorted(_by_shard(self.entries.values()))
        return (index_path(self.prefix), *(self.shard_path(shard) for shard in shards))

    def shard_path(self, shard: int) -> Path:
        """Returns the path of the shard of that number."""
        return shard_path(self.prefix, shard, self.header.num_shards)


def index_path(prefix: Path) -> Path:
    """Returns the path of the index of the checkpoint `prefix`."""
    return prefix.with_name(f"{prefix.name}.index")


def shard_path(prefix: Path, shard: int, num_shards: int) -> Path:
    """Returns the path of one shard of the checkpoint `prefix`."""
    return prefix.with_name(f"{prefix.name}.data-{shard:05d}-of-{num_shards:05d}")


def open_checkpoint(prefix: Path) -> Checkpoint:
    """Reads the index, and checks that the shards can hold what it names.

    Raises:
        errors.InputError: the index or a shard is missing, unreadable, damaged or too short, or the
            tensors are big-endian.
    """
    path = index_path(prefix)
    with tensor_bytes.input_errors(path):
        data = path.read_bytes()
    rows = table.rows(data, path)
    key, value = next(rows, (None, b""))
    if key != b"":
        raise errors.InputError("has no header, expected one as its first row", "", str(path))
    header = tensor_bundle_pb2.BundleHeaderProto()
    _parse(header, value, "the header", path)
    if header.endianness != tensor_bundle_pb2.BundleHeaderProto.LITTLE:
        raise errors.InputError(
            "holds big-endian tensors, expected little-endian ones",
            "load the model on a little-endian machine and save it again",
            str(path),
        )
    entries = {entry.key: entry for entry in (_entry(key, value, path) for key, value in rows)}
    checkpoint = Checkpoint(prefix, header, types.MappingProxyType(entries))
    _check_shards(checkpoint)
    return checkpoint


def value_chunks(
    checkpoint: Checkpoint, key: str, chunk_bytes: int = tensor_bytes.CHUNK_BYTES
) -> Iterator[NDArray[np.float32]]:
    """Yields the values of the float32 tensor `key`, flat, `chunk_bytes` or less at a time.

    Raises:
        errors.InputError: after the last chunk: the bytes do not have the checksum of the index.
        errors.InternalError: the tensor is not there, is partitioned or is not float32.
    """
    entry = _float_entry(checkpoint, key)
    path = checkpoint.shard_path(entry.shard)
    chunk_bytes = max(chunk_bytes // _FLOAT_BYTES, 1) * _FLOAT_BYTES
    with tensor_bytes.open_file(path) as file:
        for chunk in tensor_bytes.checked_chunks(entry, file, path, chunk_bytes):
            yield np.frombuffer(chunk, np.dtype("<f4"))


def fit_of(
    checkpoint: Checkpoint,
    key: str,
    low: dtypes.LowPrecision,
    max_loss: float = dtypes.MAX_LOSS,
) -> dtypes.Fit:
    """Returns whether the float32 tensor `key` may be rounded to `low`.

    The rules are those of `dtypes.misfit`; errors are those of `value_chunks`.
    """
    size = math.prod(checkpoint.entries[key].shape)
    return dtypes.fit_of_chunks(value_chunks(checkpoint, key), size, low, max_loss)


def read_bytes(checkpoint: Checkpoint, key: str) -> bytes:
    """Returns the value of the scalar string tensor `key`.

    Raises:
        errors.InputError: the bytes are damaged.
        errors.InternalError: there is no scalar string tensor of that key.
    """
    entry = checkpoint.entries.get(key)
    if entry is None or entry.dtype != dtypes.DT_STRING or entry.shape or entry.has_slices:
        raise errors.InternalError(f"`{tensor_bytes.shown(key)}` is no scalar string tensor")
    path = checkpoint.shard_path(entry.shard)
    with tensor_bytes.open_file(path) as file:
        data = b"".join(tensor_bytes.checked_chunks(entry, file, path, tensor_bytes.CHUNK_BYTES))
    size, start = table.read_varint(data, 0) if data else (0, 0)
    start += 4 if data else 0  # the checksum of the length
    if start + size != len(data):
        raise tensor_bytes.damage(entry, path, f"has {len(data)} bytes, expected {start + size}")
    return data[start:]


def write_checkpoint(
    checkpoint: Checkpoint,
    destination: Path,
    conversions: Mapping[str, dtypes.LowPrecision],
    clamped: Collection[str] = (),
) -> None:
    """Writes a copy in which some tensors are rounded to nearest even in a low precision.

    The copy has the shards and the order of entries of the original; tensors lie without gaps. All
    tensors that `conversions` does not name keep their bytes. The same input gives the same bytes.
    Every file has been synced to disk on return.

    Args:
        checkpoint: what to copy.
        destination: the prefix of the new files; the folder is made if it does not exist.
        conversions: the new precision by key; float32 tensors, not partitioned.
        clamped: keys of those in which what overflows becomes the largest finite value.

    Raises:
        errors.InputError: a tensor does not have the checksum of the index.
        errors.OutputError: a file can't be written.
        errors.InternalError: `conversions` names a tensor that can't be converted.
    """
    for key in conversions:
        _float_entry(checkpoint, key)
    with publish.output_errors(destination.parent):
        destination.parent.mkdir(parents=True, exist_ok=True)
    moved: dict[str, tensor_bundle_pb2.BundleEntryProto] = {}
    for shard, entries in sorted(_by_shard(checkpoint.entries.values()).items()):
        path = shard_path(destination, shard, checkpoint.header.num_shards)
        source = checkpoint.shard_path(shard)
        with publish.output_errors(path), path.open("wb") as output:
            with tensor_bytes.open_file(source) as file:
                for entry in entries:
                    chunks = tensor_bytes.checked_chunks(
                        entry, file, source, tensor_bytes.CHUNK_BYTES
                    )
                    low = conversions.get(entry.key)
                    moved[entry.key] = _append(output, entry, chunks, low, entry.key in clamped)
            publish.sync(output)
    path = index_path(destination)
    with publish.output_errors(path), path.open("wb") as output:
        output.write(table.table(_index_rows(checkpoint, moved)))
        publish.sync(output)


def _append(
    output: BinaryIO,
    entry: Entry,
    chunks: Iterable[bytes],
    low: dtypes.LowPrecision | None,
    is_clamped: bool,
) -> tensor_bundle_pb2.BundleEntryProto:
    """Appends a tensor, rounded to `low` if given, and returns its new entry."""
    start, size, crc = output.tell(), 0, 0
    for chunk in chunks:
        data = chunk
        if low is not None:
            values = np.frombuffer(chunk, np.dtype("<f4"))
            if is_clamped:
                values = dtypes.clamped(values, low.max)
            data = dtypes.round_to(values, low).tobytes()
            crc = table.extend_crc(crc, data)
        output.write(data)
        size += len(data)
    proto = tensor_bundle_pb2.BundleEntryProto()
    proto.CopyFrom(entry.proto)
    proto.offset = start
    if low is not None:
        proto.dtype = low.proto
        proto.size = size
        proto.crc32c = table.masked(crc)
    return proto


def _index_rows(
    checkpoint: Checkpoint, moved: Mapping[str, tensor_bundle_pb2.BundleEntryProto]
) -> Iterator[tuple[bytes, bytes]]:
    yield b"", checkpoint.header.SerializeToString(deterministic=True)
    for key, entry in checkpoint.entries.items():
        proto = moved.get(key, entry.proto)
        yield key.encode("utf-8", "surrogateescape"), proto.SerializeToString(deterministic=True)


def _entry(key: bytes, value: bytes, path: Path) -> Entry:
    name = key.decode("utf-8", "surrogateescape")
    proto = tensor_bundle_pb2.BundleEntryProto()
    _parse(proto, value, f"the entry of `{tensor_bytes.shown(name)}`", path)
    entry = Entry(
        key=name,
        dtype=proto.dtype,
        shape=tuple(dim.size for dim in proto.shape.dim),
        shard=proto.shard_id,
        offset=proto.offset,
        size=proto.size,
        crc32c=proto.crc32c,
        has_slices=bool(proto.slices),
        proto=proto,
    )
    if proto.shape.unknown_rank or any(size < 0 for size in entry.shape):
        raise tensor_bytes.damage(entry, path, "has no full shape, expected one")
    if entry.dtype == dtypes.DT_FLOAT and not entry.has_slices:
        expected = _FLOAT_BYTES * math.prod(entry.shape)
        if entry.size != expected:
            raise tensor_bytes.damage(
                entry, path, f"has {entry.size} bytes, expected {expected} for its shape"
            )
    return entry


def _check_shards(checkpoint: Checkpoint) -> None:
    index = index_path(checkpoint.prefix)
    num_shards = checkpoint.header.num_shards
    for shard, entries in sorted(_by_shard(checkpoint.entries.values()).items()):
        if not 0 <= shard < num_shards:
            raise tensor_bytes.damage(
                entries[0], index, f"is in shard {shard}, expected one of {num_shards}"
            )
        path = checkpoint.shard_path(shard)
        with tensor_bytes.input_errors(path):
            length = path.stat().st_size
        for entry in entries:
            if entry.offset < 0 or entry.size < 0:
                raise tensor_bytes.damage(
                    entry, index, f"has {entry.size} bytes at byte {entry.offset}"
                )
            end = entry.offset + entry.size
            if end > length:
                raise tensor_bytes.damage(
                    entry, path, f"ends at byte {end}, but the file has {length} bytes"
                )


def _by_shard(entries: Iterable[Entry]) -> dict[int, list[Entry]]:
    """Returns the entries that have bytes of their own, by shard, in the order of their bytes."""
    shards: dict[int, list[Entry]] = {}
    for entry in entries:
        if not entry.has_slices:
            shards.setdefault(entry.shard, []).append(entry)
    for shard in shards.values():
        shard.sort(key=lambda entry: (entry.offset, entry.size))
    return shards


def _float_entry(checkpoint: Checkpoint, key: str) -> Entry:
    entry = checkpoint.entries.get(key)
    if entry is None or entry.dtype != dtypes.DT_FLOAT or entry.has_slices:
        raise errors.InternalError(f"`{tensor_bytes.shown(key)}` is no float32 tensor in one piece")
    return entry


def _parse(proto: message.Message, data: bytes, name: str, path: Path) -> None:
    try:
        proto.ParseFromString(data)
    except message.DecodeError:
        raise errors.InputError(
            f"{name} is no readable `{proto.DESCRIPTOR.name}`", table.DAMAGED, str(path)
        ) from None
