from __future__ import annotations

import contextlib
import struct
import tracemalloc
from pathlib import Path

import google_crc32c
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import tensor_bundle_pb2

from tf_amp_rewriter import dtypes, errors
from tf_amp_rewriter.saved_model import checkpoint as checkpoints
from tf_amp_rewriter.saved_model import table, tensor_bytes

DAMAGED = "the file is damaged or incomplete; copy or export the model again"
LOWS = pytest.mark.parametrize("low", [dtypes.HALF, dtypes.BFLOAT16], ids=lambda low: low.name)

RNG = np.random.default_rng(0)
TENSORS = {
    "bfloat16": RNG.standard_normal((3, 5)).astype(ml_dtypes.bfloat16),
    "bool": np.array([True, False, True]),
    "complex64": np.array([1 + 2j, 3 - 4j], np.complex64),
    "double": RNG.standard_normal((2, 2)),
    "float/empty": np.zeros((0, 7), np.float32),
    "float/matrix": RNG.standard_normal((33, 77)).astype(np.float32),
    "float/other": RNG.standard_normal(129).astype(np.float32),
    "float/scalar": np.float32(0.1),
    "float/special": np.array([0, -0.0, np.inf, -np.inf, 65504, 65520, 1e-8, -6e-8], np.float32),
    "half": RNG.standard_normal(9).astype(np.float16),
    "int64": np.array([-(2**63), 0, 2**63 - 1]),
    "int8": np.int8(-5),
    "string": np.array([[b"", b"a\0b"], [b"x" * 300, b"\xff"]], object),
    "string/empty": np.array([], object),
    "string/scalar": np.array(b"one \xc3\xa9", object),
    "\u00fcml\u00e4ut": np.float32([1.5, 2.5]),
    "zero": np.zeros(0, np.int32),
}
FLOATS = tuple(key for key, value in TENSORS.items() if value.dtype == np.float32)


def save(prefix: Path, tensors: dict[str, np.ndarray]) -> Path:
    values = [
        tf.constant(value, tf.string) if value.dtype == object else tf.constant(value)
        for value in tensors.values()
    ]
    prefix.parent.mkdir(parents=True, exist_ok=True)
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=values,
    )
    return prefix


def restored(prefix: Path, key: str, dtype: tf.DType) -> np.ndarray:
    """What TensorFlow's own reader makes of a tensor; it checks the checksum too."""
    (value,) = tf.raw_ops.RestoreV2(
        prefix=str(prefix), tensor_names=[key], shape_and_slices=[""], dtypes=[dtype]
    )
    return value.numpy()


def assert_same_bytes(expected: np.ndarray, actual: np.ndarray) -> None:
    expected, actual = np.asarray(expected), np.asarray(actual)
    assert expected.dtype == actual.dtype
    assert expected.shape == actual.shape
    if expected.dtype == object:
        assert expected.tolist() == actual.tolist()
    else:
        assert expected.tobytes() == actual.tobytes()


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def index_error(prefix: Path) -> str:
    with pytest.raises(errors.InputError) as caught:
        checkpoints.open_checkpoint(prefix)
    return str(caught.value)


def rewrite_index(prefix: Path, change) -> None:
    """Replaces the index by one with its rows as `change` returns them, checksums right."""
    path = checkpoints.index_path(prefix)
    path.write_bytes(table.table(change(dict(table.rows(path.read_bytes(), path))).items()))


@pytest.fixture(scope="module")
def prefix(tmp_path_factory) -> Path:
    return save(tmp_path_factory.mktemp("source") / "variables", TENSORS)


@pytest.fixture
def small(tmp_path) -> Path:
    return save(tmp_path / "small" / "variables", {"a": np.float32([1, 2]), "b": np.float32(3)})


# Reading.


def test_entries_are_what_tensorflow_lists(prefix):
    reader = tf.train.load_checkpoint(str(prefix))

    opened = checkpoints.open_checkpoint(prefix)

    assert reader.get_variable_to_shape_map() == {
        key: list(entry.shape) for key, entry in opened.entries.items()
    }
    assert {
        key: dtype.as_datatype_enum for key, dtype in reader.get_variable_to_dtype_map().items()
    } == {key: entry.dtype for key, entry in opened.entries.items()}
    assert sorted(TENSORS, key=str.encode) == list(opened.entries)


@pytest.mark.parametrize("chunk_bytes", [1, 4, 100, 1 << 20])
def test_chunks_joined_are_the_tensor(prefix, chunk_bytes):
    opened = checkpoints.open_checkpoint(prefix)

    for key in FLOATS:
        chunks = list(checkpoints.value_chunks(opened, key, chunk_bytes))

        assert all(0 < chunk.nbytes <= max(chunk_bytes, 4) for chunk in chunks)
        expected = restored(prefix, key, tf.float32)
        assert expected.tobytes() == b"".join(chunk.tobytes() for chunk in chunks)


def test_string_scalar_is_read(prefix):
    opened = checkpoints.open_checkpoint(prefix)

    assert checkpoints.read_bytes(opened, "string/scalar") == b"one \xc3\xa9"


def test_object_graph_is_read(tmp_path):
    tf.train.Checkpoint(v=tf.Variable(1.0)).write(str(tmp_path / "c"))
    key = "_CHECKPOINTABLE_OBJECT_GRAPH"
    opened = checkpoints.open_checkpoint(tmp_path / "c")

    assert restored(tmp_path / "c", key, tf.string) == checkpoints.read_bytes(opened, key)


@LOWS
@pytest.mark.parametrize(
    "values",
    [
        np.float32([1, 2, 3]),
        np.float32([1, 3.4e38, 70000, np.nan]),
        np.float32([-np.inf, 2]),
        np.float32(1e-7),
        np.full(1 << 18, 1e-9, np.float32),
        np.concatenate([np.full(1 << 18, 1e-9, np.float32), np.float32([1.0])]),
        np.zeros(3, np.float32),
        np.zeros(0, np.float32),
    ],
    ids=lambda values: f"{values.size}",
)
def test_misfit_of_a_stream_is_that_of_the_array(tmp_path, low, values):
    opened = checkpoints.open_checkpoint(save(tmp_path / "v", {"x": values}))

    assert dtypes.misfit(values, low) == checkpoints.fit_of(opened, "x", low).problem


def test_misfits_are_found_across_chunks(tmp_path):
    huge = np.ones(1 << 18, np.float32)
    huge[-1] = 1e6
    tiny = np.full(1 << 18, 1e-9, np.float32)
    tensors = {"huge": huge, "tiny": tiny, "scalar": np.float32(1e-7)}
    opened = checkpoints.open_checkpoint(save(tmp_path / "v", tensors))

    found = [checkpoints.fit_of(opened, key, dtypes.HALF).problem for key in tensors]

    assert found == [
        "holds 1e+06, beyond the range of half (65504)",
        "would lose 100 % of its norm in half",
        "is 1e-07, which half would make 1.19209e-07",
    ]


# Writing.


@LOWS
def test_converted_tensors_are_rounded_and_all_others_are_the_same(prefix, tmp_path, low):
    destination = tmp_path / "new" / "variables"
    converted = {key: low for key in FLOATS if key != "float/other"}

    checkpoints.write_checkpoint(checkpoints.open_checkpoint(prefix), destination, converted)

    reader = tf.train.load_checkpoint(str(destination))
    for key, dtype in tf.train.load_checkpoint(str(prefix)).get_variable_to_dtype_map().items():
        expected = restored(prefix, key, dtype)
        if key in converted:
            with np.errstate(over="ignore"):
                expected = np.asarray(expected).astype(low.numpy)
            dtype = tf.as_dtype(low.proto)
        assert_same_bytes(expected, restored(destination, key, dtype))
        assert_same_bytes(expected, reader.get_tensor(key))


@LOWS
def test_rounding_is_to_nearest_even(tmp_path, low):
    # 1 + half of the last digit is a tie and goes down, 1 + 3 halves goes up
    ulp = {"half": 2.0**-10, "bfloat16": 2.0**-7}[low.name]
    values = np.float32([1 + ulp / 2, 1 + 3 * ulp / 2, -1 - ulp / 2])
    source = checkpoints.open_checkpoint(save(tmp_path / "v", {"x": values}))

    checkpoints.write_checkpoint(source, tmp_path / "w", {"x": low})

    actual = restored(tmp_path / "w", "x", tf.as_dtype(low.proto)).astype(np.float64).tolist()
    assert [1.0, 1 + 2 * ulp, -1.0] == actual


def test_same_input_gives_same_bytes(prefix, tmp_path):
    opened = checkpoints.open_checkpoint(prefix)
    low = {"float/matrix": dtypes.HALF, "float/scalar": dtypes.BFLOAT16}

    for name in ("one", "two"):
        checkpoints.write_checkpoint(opened, tmp_path / name / "variables", low)

    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_copy_without_conversions_has_the_same_data_and_rows(prefix, tmp_path):
    opened = checkpoints.open_checkpoint(prefix)

    checkpoints.write_checkpoint(opened, tmp_path / "variables", {})

    index, *shards = opened.paths
    for path in shards:
        assert path.read_bytes() == (tmp_path / path.name).read_bytes()
    copied = tmp_path / index.name
    assert list(table.rows(index.read_bytes(), index)) == list(
        table.rows(copied.read_bytes(), copied)
    )


def test_shards_stay_as_many_as_they_were(tmp_path):
    parts = [
        save(tmp_path / f"part{i}", {f"v{i}": RNG.standard_normal(5).astype(np.float32)})
        for i in range(3)
    ]
    merged = tmp_path / "merged"
    tf.raw_ops.MergeV2Checkpoints(
        checkpoint_prefixes=[str(part) for part in parts], destination_prefix=str(merged)
    )
    opened = checkpoints.open_checkpoint(merged)

    checkpoints.write_checkpoint(opened, tmp_path / "out" / "v", {"v1": dtypes.HALF})

    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert [f"v.data-0000{i}-of-00003" for i in range(3)] + ["v.index"] == names
    for key, dtype in (("v0", tf.float32), ("v1", tf.half), ("v2", tf.float32)):
        expected = restored(merged, key, tf.float32).astype(dtype.as_numpy_dtype)
        assert_same_bytes(expected, restored(tmp_path / "out" / "v", key, dtype))


def test_partitioned_variable_is_copied_beside_a_converted_one(tmp_path):
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        v1.get_variable(
            "sliced",
            [6, 4],
            partitioner=v1.fixed_size_partitioner(3),
            initializer=v1.random_normal_initializer(),
            use_resource=False,
        )
        v1.get_variable("whole", [6], initializer=v1.random_normal_initializer())
        session.run(v1.global_variables_initializer())
        saver = v1.train.Saver(write_version=v1.train.SaverDef.V2)
        prefix = Path(saver.save(session, str(tmp_path / "v"), write_meta_graph=False))
    opened = checkpoints.open_checkpoint(prefix)

    checkpoints.write_checkpoint(opened, tmp_path / "out" / "v", {"whole": dtypes.HALF})

    assert [opened.entries[key].has_slices for key in ("sliced", "whole")] == [True, False]
    assert len(opened.entries) == 5
    expected = restored(prefix, "sliced", tf.float32)
    assert expected.shape == (6, 4)
    assert_same_bytes(expected, restored(tmp_path / "out" / "v", "sliced", tf.float32))
    expected = restored(prefix, "whole", tf.float32).astype(np.float16)
    assert_same_bytes(expected, restored(tmp_path / "out" / "v", "whole", tf.half))


def test_variant_tensor_is_copied_and_checked(tmp_path):
    elements = [tf.constant([1.0, 2.0]), tf.constant([3.0, 4.0])]
    handle = tf.raw_ops.TensorListFromTensor(
        tensor=tf.stack(elements), element_shape=tf.constant([2])
    )
    tf.raw_ops.SaveV2(
        prefix=str(tmp_path / "v"),
        tensor_names=["list"],
        shape_and_slices=[""],
        tensors=[tf.stack([handle, handle])],
    )
    opened = checkpoints.open_checkpoint(tmp_path / "v")

    checkpoints.write_checkpoint(opened, tmp_path / "w", {})

    (value,) = tf.raw_ops.RestoreV2(
        prefix=str(tmp_path / "w"),
        tensor_names=["list"],
        shape_and_slices=[""],
        dtypes=[tf.variant],
    )
    stacked = tf.raw_ops.TensorListStack(
        input_handle=value[1], element_shape=tf.constant([2]), element_dtype=tf.float32
    )
    assert stacked.numpy().tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_index_of_many_blocks(tmp_path):
    # about 90 bytes a row, so that 9000 rows need several blocks of 256 KiB
    keys = [f"a/rather/long/name/of/a/variable/{i:05d}/{hash_}" for i, hash_ in many_names(9000)]
    tensors = {key: np.float32(i) for i, key in enumerate(keys)}
    prefix = save(tmp_path / "v", tensors)
    opened = checkpoints.open_checkpoint(prefix)

    checkpoints.write_checkpoint(opened, tmp_path / "w", dict.fromkeys(keys[::2], dtypes.HALF))

    assert checkpoints.index_path(tmp_path / "w").stat().st_size > 2 * table.BLOCK_BYTES
    reader = tf.train.load_checkpoint(str(tmp_path / "w"))
    expected = {key: tf.float32 if i % 2 else tf.half for i, key in enumerate(keys)}
    assert expected == reader.get_variable_to_dtype_map()
    for i in (0, 1, 2049, 4096, 8999):
        expected_value = np.float32(i) if i % 2 else np.float16(i)
        assert_same_bytes(expected_value, reader.get_tensor(keys[i]))


def many_names(count: int):
    for i in range(count):
        yield i, f"{(i * 2654435761) % 2**64:020d}" * 2


@LOWS
def test_memory_does_not_grow_with_the_tensor(tmp_path, low):
    size = 8 << 20
    opened = checkpoints.open_checkpoint(save(tmp_path / "v", {"x": np.ones(size, np.float32)}))

    tracemalloc.start()
    try:
        assert checkpoints.fit_of(opened, "x", low).problem == ""
        checkpoints.write_checkpoint(opened, tmp_path / "w", {"x": low})
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak_bytes < 4 * tensor_bytes.CHUNK_BYTES
    assert 2 * size == checkpoints.shard_path(tmp_path / "w", 0, 1).stat().st_size


# What is wrong with the input is said.


def test_flipped_bit_in_a_float_tensor_names_it(small, tmp_path):
    opened = checkpoints.open_checkpoint(small)
    shard = opened.shard_path(0)
    flip(shard, opened.entries["b"].offset)
    stored = opened.entries["b"].crc32c
    (computed,) = struct.unpack("<I", masked_crc(shard.read_bytes()[8:12]))
    message = (
        f"{shard}: tensor `b` has checksum {computed:#010x}, expected {stored:#010x}\n"
        f"hint: {DAMAGED}"
    )

    for conversions in ({}, {"b": dtypes.HALF}):
        with pytest.raises(errors.InputError) as caught:
            checkpoints.write_checkpoint(opened, tmp_path / "w", conversions)
        assert message == str(caught.value)
    with pytest.raises(errors.InputError) as caught:
        checkpoints.fit_of(opened, "b", dtypes.HALF)
    assert message == str(caught.value)


def masked_crc(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


@pytest.mark.parametrize("key", [key for key, value in TENSORS.items() if value.size])
def test_flipped_bit_is_found_in_every_dtype(tmp_path, key):
    opened = checkpoints.open_checkpoint(save(tmp_path / "v", {key: TENSORS[key]}))
    flip(opened.shard_path(0), opened.entries[key].size - 1)

    with pytest.raises(errors.InputError, match=f"tensor `{key}` has checksum 0x"):
        checkpoints.write_checkpoint(opened, tmp_path / "w", {})


def test_missing_index(tmp_path):
    expected = (
        f"{tmp_path}/v.index: is missing, expected a file of the checkpoint\n"
        "hint: copy the whole folder of the model"
    )

    assert expected == index_error(tmp_path / "v")


def test_missing_shard(small):
    shard = checkpoints.shard_path(small, 0, 1)
    shard.unlink()
    expected = (
        f"{shard}: is missing, expected a file of the checkpoint\n"
        "hint: copy the whole folder of the model"
    )

    assert expected == index_error(small)


def test_short_shard(small):
    shard = checkpoints.shard_path(small, 0, 1)
    shard.write_bytes(shard.read_bytes()[:-1])
    expected = f"{shard}: tensor `b` ends at byte 12, but the file has 11 bytes\nhint: {DAMAGED}"

    assert expected == index_error(small)


@pytest.mark.parametrize("size", [0, 1, 47, 48, 60])
def test_truncated_index(small, size):
    path = checkpoints.index_path(small)
    data = path.read_bytes()[:size]
    path.write_bytes(data)
    found = f"has {size} bytes, expected at least 48"
    if size >= 48:
        magic = int.from_bytes(data[-8:], "little")
        found = f"ends with {magic:#018x}, expected 0xdb4775248b80fb57, the mark of a table"

    assert f"{path}: {found}\nhint: {DAMAGED}" == index_error(small)


def test_every_flipped_bit_in_the_index_is_an_input_error_or_harmless(small):
    path = checkpoints.index_path(small)
    data = path.read_bytes()
    whole = dict(table.rows(data, path))

    for offset in range(len(data)):
        flip(path, offset)
        with contextlib.suppress(errors.InputError):
            assert whole == dict(table.rows(path.read_bytes(), path)), offset
        path.write_bytes(data)


def test_flipped_bit_in_the_index(small):
    path = checkpoints.index_path(small)
    flip(path, 0)

    found = index_error(small)

    assert found.startswith(f"{path}: the block at byte 0 has checksum 0x")
    assert found.endswith(f"\nhint: {DAMAGED}")


def test_compressed_index(small):
    path = checkpoints.index_path(small)
    rows = path.read_bytes()
    # one block of data, one empty meta block of 8 bytes + 5, one index block
    size = rows.index(
        struct.pack("<II", 0, 1) + b"\0" + masked_crc(struct.pack("<II", 0, 1) + b"\0")
    )
    block = rows[: size - 5] + b"\1"
    path.write_bytes(block + masked_crc(block) + rows[size:])
    expected = (
        f"{path}: the block at byte 0 is compressed (snappy), expected no compression\n"
        "hint: load the model with TensorFlow and save it again"
    )

    assert expected == index_error(small)


def test_no_header(small):
    rewrite_index(small, lambda rows: {key: value for key, value in rows.items() if key})
    path = checkpoints.index_path(small)

    assert f"{path}: has no header, expected one as its first row" == index_error(small)


def test_big_endian(small):
    header = tensor_bundle_pb2.BundleHeaderProto(num_shards=1, endianness="BIG")
    rewrite_index(small, lambda rows: rows | {b"": header.SerializeToString()})
    expected = (
        f"{checkpoints.index_path(small)}: "
        "holds big-endian tensors, expected little-endian ones\n"
        "hint: load the model on a little-endian machine and save it again"
    )

    assert expected == index_error(small)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (b"\x08", "the entry of `a` is no readable `BundleEntryProto`"),
        ({"size": 12}, "tensor `a` has 12 bytes, expected 8 for its shape"),
        ({"shard_id": 3}, "tensor `a` is in shard 3, expected one of 1"),
        ({"offset": -1}, "tensor `a` has 8 bytes at byte -1"),
        ({"shape": {"unknown_rank": True}}, "tensor `a` has no full shape, expected one"),
        ({"shape": {"dim": [{"size": -1}]}}, "tensor `a` has no full shape, expected one"),
    ],
)
def test_bad_entry(small, change, found):
    def changed(rows: dict[bytes, bytes]) -> dict[bytes, bytes]:
        if isinstance(change, bytes):
            return rows | {b"a": change}
        proto = tensor_bundle_pb2.BundleEntryProto.FromString(rows[b"a"])
        for name, value in change.items():
            proto.ClearField(name)
            proto.MergeFrom(tensor_bundle_pb2.BundleEntryProto(**{name: value}))
        return rows | {b"a": proto.SerializeToString()}

    rewrite_index(small, changed)

    assert f"{checkpoints.index_path(small)}: {found}\nhint: {DAMAGED}" == index_error(small)


def test_keys_out_of_order(small):
    rewrite_index(small, lambda rows: {key: rows[key] for key in (b"", b"b", b"a")})
    expected = (
        f"{checkpoints.index_path(small)}: has key b'a' behind b'b', expected ascending keys\n"
        f"hint: {DAMAGED}"
    )

    assert expected == index_error(small)


def test_binary_keys_are_shown_escaped(small):
    rewrite_index(small, lambda rows: rows | {b"c\x00\xff": b"\x08"})
    path = checkpoints.index_path(small)
    expected = f"{path}: the entry of `c\\x00\\udcff` is no readable `BundleEntryProto`"

    assert f"{expected}\nhint: {DAMAGED}" == index_error(small)


@pytest.mark.parametrize("key", ["string", "none", "half"])
def test_only_float32_can_be_converted(prefix, tmp_path, key):
    opened = checkpoints.open_checkpoint(prefix)

    with pytest.raises(errors.InternalError) as caught:
        checkpoints.write_checkpoint(opened, tmp_path / "v", {key: dtypes.HALF})

    assert f"`{key}` is no float32 tensor in one piece" == str(caught.value)
    assert not list(tmp_path.iterdir())


def test_only_scalar_strings_are_read_as_bytes(prefix):
    with pytest.raises(errors.InternalError) as caught:
        checkpoints.read_bytes(checkpoints.open_checkpoint(prefix), "string")

    assert str(caught.value) == "`string` is no scalar string tensor"


def test_unwritable_destination(small, tmp_path):
    (tmp_path / "w.index").mkdir()

    with pytest.raises(errors.OutputError) as caught:
        checkpoints.write_checkpoint(checkpoints.open_checkpoint(small), tmp_path / "w", {})

    assert f"{tmp_path}/w.index: can't be written: Is a directory" == str(caught.value)
