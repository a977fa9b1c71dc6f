from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.protobuf import fingerprint_pb2, saved_model_pb2

from tf_amp_rewriter import dtypes, errors
from tf_amp_rewriter.saved_model import checkpoint as checkpoints
from tf_amp_rewriter.saved_model import writer


class Model(tf.Module):
    def __init__(self, vocabulary: str) -> None:
        super().__init__()
        self.weights = tf.Variable(np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4))
        self.unused = tf.Variable(np.linspace(-3, 3, 7, dtype=np.float32))
        self.vocabulary = tf.saved_model.Asset(vocabulary)

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32)])
    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        return x @ self.weights


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("writer")
    (root / "vocabulary.txt").write_text("one\ntwo\n")
    model = Model(str(root / "vocabulary.txt"))
    tf.saved_model.save(model, str(root / "model"), signatures=model.__call__)
    source = root / "model"
    (source / "assets.extra").mkdir()
    (source / "assets.extra" / "tf_serving_warmup_requests").write_bytes(b"\0\1\2")
    (source / "keras_metadata.pb").write_bytes(b"keras")
    (source / "unknown" / "empty").mkdir(parents=True)
    (source / "unknown" / "script.sh").write_text("exit 0\n")
    (source / "unknown" / "script.sh").chmod(0o755)
    (source / "unknown" / "link").symlink_to(root / "vocabulary.txt")
    (source / "variables" / "notes").write_text("mine")
    return source


def read(source: Path) -> tuple[saved_model_pb2.SavedModel, checkpoints.Checkpoint]:
    proto = saved_model_pb2.SavedModel.FromString((source / "saved_model.pb").read_bytes())
    return proto, checkpoints.open_checkpoint(source / "variables" / "variables")


def files(directory: Path) -> dict[str, bytes]:
    """All files with their bytes, and all folders."""
    walk = os.walk(directory)
    paths = (Path(root) / name for root, folders, names in walk for name in folders + names)
    return {
        str(path.relative_to(directory)): b"" if path.is_dir() else path.read_bytes()
        for path in paths
    }


def test_all_that_is_not_rewritten_is_copied(source, tmp_path):
    writer.write(source, tmp_path / "out", *read(source), {})

    before, after = files(source), files(tmp_path / "out")
    assert before.keys() == after.keys()
    rewritten = {"saved_model.pb", "fingerprint.pb", "variables/variables.index"}
    assert {name: before[name] for name in before.keys() - rewritten} == {
        name: after[name] for name in after.keys() - rewritten
    }
    assert not (tmp_path / "out" / "unknown" / "link").is_symlink()
    assert os.access(tmp_path / "out" / "unknown" / "script.sh", os.X_OK)


def test_written_model_loads_with_the_same_answers(source, tmp_path):
    writer.write(source, tmp_path / "out", *read(source), {})

    loaded = tf.saved_model.load(str(tmp_path / "out"))
    x = tf.constant([[1.0, 2.0, 3.0]])
    expected = tf.saved_model.load(str(source))(x)
    assert expected.numpy().tolist() == loaded(x).numpy().tolist()


def test_converted_variable_is_low_in_the_checkpoint(source, tmp_path):
    key = "unused/.ATTRIBUTES/VARIABLE_VALUE"

    writer.write(source, tmp_path / "out", *read(source), {key: dtypes.BFLOAT16})

    reader = tf.train.load_checkpoint(str(tmp_path / "out" / "variables" / "variables"))
    expected = np.linspace(-3, 3, 7, dtype=np.float32).astype(dtypes.BFLOAT16.numpy)
    assert expected.tobytes() == reader.get_tensor(key).tobytes()
    assert tf.bfloat16 == reader.get_variable_to_dtype_map()[key]


def test_same_input_gives_same_bytes(source, tmp_path):
    for name in ("one", "two"):
        writer.write(source, tmp_path / name, *read(source), {})

    assert files(tmp_path / "one") == files(tmp_path / "two")


def test_fingerprint_is_new(source, tmp_path):
    proto, checkpoint = read(source)
    del proto.meta_graphs[0].signature_def["__saved_model_init_op"]
    key = "unused/.ATTRIBUTES/VARIABLE_VALUE"

    writer.write(source, tmp_path / "out", proto, checkpoint, {key: dtypes.HALF})

    old = fingerprint_pb2.FingerprintDef.FromString((source / "fingerprint.pb").read_bytes())
    data = (tmp_path / "out" / "fingerprint.pb").read_bytes()
    new = fingerprint_pb2.FingerprintDef.FromString(data)
    for field in ("saved_model_checksum", "signature_def_hash", "checkpoint_hash", "uuid"):
        assert getattr(old, field) != getattr(new, field)
    assert old.saved_object_graph_hash == new.saved_object_graph_hash
    assert old.version == new.version
    loaded = tf.saved_model.experimental.read_fingerprint(str(tmp_path / "out"))
    assert new.saved_model_checksum == loaded.saved_model_checksum


def test_text_proto_stays_text_and_has_no_fingerprint(source, tmp_path):
    proto, checkpoint = read(source)
    model = tmp_path / "text"
    writer.write(source, model, proto, checkpoint, {})
    (model / "saved_model.pb").unlink()
    (model / "saved_model.pbtxt").write_text("")
    checkpoint = checkpoints.open_checkpoint(model / "variables" / "variables")

    writer.write(model, tmp_path / "out", proto, checkpoint, {})

    assert not (tmp_path / "out" / "saved_model.pb").exists()
    assert not (tmp_path / "out" / "fingerprint.pb").exists()
    text = (tmp_path / "out" / "saved_model.pbtxt").read_text()
    assert proto == text_format.Parse(text, saved_model_pb2.SavedModel())
    assert tf.saved_model.load(str(tmp_path / "out")).signatures


def test_model_without_variables(tmp_path):
    model = tf.Module()
    signature = tf.function(lambda x: {"y": 2 * x}, input_signature=[tf.TensorSpec([2])])
    tf.saved_model.save(model, str(tmp_path / "in"), signatures=signature.get_concrete_function())
    for path in (tmp_path / "in" / "variables").iterdir():
        path.unlink()
    data = (tmp_path / "in" / "saved_model.pb").read_bytes()

    proto = saved_model_pb2.SavedModel.FromString(data)
    writer.write(tmp_path / "in", tmp_path / "out", proto, None, {})

    assert files(tmp_path / "in").keys() == files(tmp_path / "out").keys()
    written = (tmp_path / "out" / "saved_model.pb").read_bytes()
    assert proto == saved_model_pb2.SavedModel.FromString(written)


def input_error(source: Path, staging: Path) -> str:
    with pytest.raises(errors.InputError) as caught:
        writer.write(source, staging, saved_model_pb2.SavedModel(), None, {})
    return str(caught.value)


def test_broken_link(tmp_path):
    (tmp_path / "in").mkdir()
    link = tmp_path / "in" / "link"
    link.symlink_to("nowhere")

    assert (
        f"{link}: is a broken link or no regular file, expected files and folders"
    ) == input_error(tmp_path / "in", tmp_path / "out")


def test_link_in_a_circle(tmp_path):
    (tmp_path / "in" / "assets").mkdir(parents=True)
    link = tmp_path / "in" / "assets" / "link"
    link.symlink_to(tmp_path / "in")

    assert f"{link}: is a link to a folder around it\nhint: remove it" == input_error(
        tmp_path / "in", tmp_path / "out"
    )


def test_missing_source(tmp_path):
    assert f"{tmp_path / 'in'}: can't be read: No such file or directory" == input_error(
        tmp_path / "in", tmp_path / "out"
    )


def test_staging_in_the_way(source, tmp_path):
    with pytest.raises(errors.OutputError) as caught:
        writer.write(source, tmp_path, *read(source), {})

    assert f"{tmp_path}: can't be written: File exists" == str(caught.value)
