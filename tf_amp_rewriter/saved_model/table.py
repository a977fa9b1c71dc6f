"""The sorted table of keys and values that holds a checkpoint's index.

On disk: data blocks, an empty meta index block, an index block (last key of a block -> its handle)
and a footer of 48 bytes. A block is a run of rows, each of which shares a prefix with the key
before; then the restart points (offsets of rows that share nothing) and their count. Behind each
block stand one byte for the compression and the masked CRC32C of both.

Source: tensorflow/core/lib/io/{format,table_builder,block_builder}.cc, TensorFlow 2.x.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import google_crc32c

from tf_amp_rewriter import errors

MAGIC: Final = 0xDB4775248B80FB57
FOOTER_BYTES: Final = 48
TRAILER_BYTES: Final = 5
DAMAGED: Final = "the file is damaged or incomplete; copy or export the model again"
# TensorFlow's own sizes: a look-up reads one block, and scans at most this many rows of it.
BLOCK_BYTES: Final = 1 << 18
RESTART_INTERVAL: Final = 16

_MAX_VARINT_BYTES: Final = 10
_UNCOMPRESSED: Final = 0
_SNAPPY: Final = 1
_MASK_DELTA: Final = 0xA282EAD8


class _DamageError(Exception):
    """The table breaks its format; the text says where."""


def extend_crc(crc: int, data: bytes) -> int:
    """Returns the CRC32C of what `crc` covers followed by `data`."""
    return int(google_crc32c.extend(crc, data))


def masked(crc: int) -> int:
    """Returns `crc` in the form in which TensorFlow stores it: rotated, with a constant added."""
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def rows(data: bytes, path: Path) -> Iterator[tuple[bytes, bytes]]:
    """Yields (key, value) in the order of the keys.

    Args:
        data: the whole table.
        path: where it is from, for errors.

    Raises:
        errors.InputError: the table is damaged, or compressed.
    """
    try:
        yield from _rows(data, path)
    except _DamageError as damage:
        raise errors.InputError(str(damage), DAMAGED, str(path)) from None


def table(items: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Returns the table of `items`; their keys must ascend. Equal items give equal bytes."""
    output = bytearray()
    index = _Block(restart_interval=1)
    block = _Block(RESTART_INTERVAL)
    for key, value in items:
        if block.size >= BLOCK_BYTES:
            index.add(block.last_key, _append_block(output, block))
            block = _Block(RESTART_INTERVAL)
        block.add(key, value)
    index.add(block.last_key, _append_block(output, block))
    footer = _append_block(output, _Block(restart_interval=1)) + _append_block(output, index)
    output += footer.ljust(FOOTER_BYTES - 8, b"\0") + struct.pack("<Q", MAGIC)
    return bytes(output)


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Returns the varint at `position` of `data` and the position behind it.

    Raises:
        ValueError: there is none.
    """
    value = 0
    for count, byte in enumerate(data[position : position + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value, position + count + 1
    raise ValueError(f"no varint at byte {position}")


def _rows(data: bytes, path: Path) -> Iterator[tuple[bytes, bytes]]:
    if len(data) < FOOTER_BYTES:
        raise _DamageError(f"has {len(data)} bytes, expected at least {FOOTER_BYTES}")
    footer = data[-FOOTER_BYTES:]
    (magic,) = struct.unpack("<Q", footer[-8:])
    if magic != MAGIC:
        raise _DamageError(f"ends with {magic:#018x}, expected {MAGIC:#018x}, the mark of a table")
    _, _, start = _handle(footer, 0)
    offset, size, _ = _handle(footer, start)
    last_key: bytes | None = None
    for _, value in _block_rows(_block(data, offset, size, path), offset):
        offset, size, _ = _handle(value, 0)
        for key, row in _block_rows(_block(data, offset, size, path), offset):
            if last_key is not None and key <= last_key:
                raise _DamageError(f"has key {key!r} behind {last_key!r}, expected ascending keys")
            last_key = key
            yield key, row


def _handle(data: bytes, position: int) -> tuple[int, int, int]:
    """Returns the offset and size of a block, and the position behind them."""
    try:
        offset, position = read_varint(data, position)
        size, position = read_varint(data, position)
    except ValueError:
        raise _DamageError("has no readable block handle where one is expected") from None
    return offset, size, position


def _block(data: bytes, offset: int, size: int, path: Path) -> bytes:
    end = offset + size + TRAILER_BYTES
    if end > len(data) - FOOTER_BYTES:
        raise _DamageError(
            f"has {len(data)} bytes, expected a block at bytes {offset} to {end} and a footer"
        )
    compression, stored = struct.unpack("<BI", data[end - TRAILER_BYTES : end])
    computed = masked(extend_crc(0, data[offset : offset + size + 1]))
    if stored != computed:
        raise _DamageError(
            f"the block at byte {offset} has checksum {computed:#010x}, expected {stored:#010x}"
        )
    if compression != _UNCOMPRESSED:
        name = "snappy" if compression == _SNAPPY else f"number {compression}"
        raise errors.InputError(
            f"the block at byte {offset} is compressed ({name}), expected no compression",
            "load the model with TensorFlow and save it again",
            str(path),
        )
    return data[offset : offset + size]


def _block_rows(block: bytes, offset: int) -> Iterator[tuple[bytes, bytes]]:
    if len(block) < 4:
        raise _DamageError(f"the block at byte {offset} has {len(block)} bytes, expected 4 or more")
    (restarts,) = struct.unpack("<I", block[-4:])
    end = len(block) - 4 * (restarts + 1)
    position, key = 0, b""
    while position < end:
        try:
            shared, position = read_varint(block, position)
            added, position = read_varint(block, position)
            size, position = read_varint(block, position)
        except ValueError:
            raise _DamageError(f"the block at byte {offset} has an unreadable row") from None
        if shared > len(key) or position + added + size > end:
            raise _DamageError(f"the block at byte {offset} has a row that does not fit into it")
        key = key[:shared] + block[position : position + added]
        position += added + size
        yield key, block[position - size : position]
    if position != end:
        raise _DamageError(f"the block at byte {offset} has {restarts} restart points, too many")


class _Block:
    """A block while it is built."""

    def __init__(self, restart_interval: int) -> None:
        self.last_key = b""
        self._restart_interval = restart_interval
        self._count = 0
        self._data = bytearray()
        self._restarts = [0]

    @property
    def size(self) -> int:
        """Bytes of the block if it ended here."""
        return len(self._data) + 4 * (len(self._restarts) + 1)

    def add(self, key: bytes, value: bytes) -> None:
        """Appends a row."""
        shared = 0
        if self._count == self._restart_interval:
            self._restarts.append(len(self._data))
            self._count = 0
        elif self._data:
            shared = _shared_prefix(self.last_key, key)
        for number in (shared, len(key) - shared, len(value)):
            self._data += _varint(number)
        self._data += key[shared:] + value
        self.last_key = key
        self._count += 1

    def contents(self) -> bytes:
        """Returns the rows and restart points."""
        count = len(self._restarts)
        return bytes(self._data) + struct.pack(f"<{count + 1}I", *self._restarts, count)


def _append_block(output: bytearray, block: _Block) -> bytes:
    """Appends `block` with its trailer and returns its handle."""
    contents = block.contents()
    handle = _varint(len(output)) + _varint(len(contents))
    contents += bytes([_UNCOMPRESSED])
    output += contents + struct.pack("<I", masked(extend_crc(0, contents)))
    return handle


def _varint(value: int) -> bytes:
    digits = bytearray()
    while value >= 0x80:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)


def _shared_prefix(left: bytes, right: bytes) -> int:
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count
