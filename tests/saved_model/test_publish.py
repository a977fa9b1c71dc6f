from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tf_amp_rewriter import errors
from tf_amp_rewriter.saved_model import publish

OVERWRITE = "hint: give another path, or `--overwrite` to replace it"
ANOTHER = "hint: give another directory for the output"


@pytest.fixture
def source(tmp_path) -> Path:
    return filled(tmp_path / "in")


def filled(path: Path, text: str = "old") -> Path:
    path.mkdir(parents=True)
    (path / "file").write_text(text)
    (path / "folder").mkdir()
    return path


def names(path: Path) -> list[str]:
    return sorted(child.name for child in path.iterdir())


def refusal(*arguments) -> str:
    with pytest.raises(errors.OutputError) as caught:
        publish.check_destination(*arguments)
    return str(caught.value)


# check_destination.


def test_new_or_empty_destination_is_fine(source, tmp_path):
    (tmp_path / "empty").mkdir()

    publish.check_destination(source, tmp_path / "empty", False)
    publish.check_destination(source, tmp_path / "deep" / "new", False)
    publish.check_destination(source, filled(tmp_path / "old"), True)

    assert names(tmp_path) == ["empty", "in", "old"]


def test_filled_destination_needs_overwrite(source, tmp_path):
    old = filled(tmp_path / "old")

    assert f"{old}: exists already and is not empty\n{OVERWRITE}" == refusal(source, old, False)


@pytest.mark.parametrize("overwrite", [False, True])
def test_destination_apart_from_source(source, tmp_path, overwrite):
    (tmp_path / "link").symlink_to(source)
    around = f"lies around the input `{source}`, expected a place apart from it"
    inside = f"lies inside the input `{source}`, expected a place apart from it"
    bad = {
        source: "is the input",
        source / ".." / "in": "is the input",
        tmp_path / "link": "is the input",
        source / "new": inside,
        tmp_path / "link" / "a" / "b": inside,
        tmp_path: around,
    }

    for path, found in bad.items():
        assert f"{path}: {found}\n{ANOTHER}" == refusal(source, path, overwrite)


def test_destination_whose_name_starts_like_the_source_is_fine(source, tmp_path):
    publish.check_destination(source, tmp_path / "in2", False)


@pytest.mark.parametrize("overwrite", [False, True])
def test_file_in_the_way(source, tmp_path, overwrite):
    path = tmp_path / "file"
    path.touch()

    assert f"{path}: is a file, expected a directory or nothing\n{ANOTHER}" == refusal(
        source, path, overwrite
    )
    assert f"{path / 'new'}: can't be made: `{path}` is a file, expected a directory" == refusal(
        source, path / "new", overwrite
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_parent_without_write_permission(source, tmp_path):
    parent = tmp_path / "locked"
    parent.mkdir(mode=0o500)

    assert (
        f"{parent / 'new'}: can't be made: `{parent}` is not writable\n"
        "hint: change its permissions, or give another directory for the output"
    ) == refusal(source, parent / "new", False)


# staging_beside.


def test_staging_is_new_and_beside_the_destination(tmp_path):
    destination = tmp_path / "deep" / "out"

    with publish.staging_beside(destination) as one, publish.staging_beside(destination) as two:
        assert one != two
        for staging in (one, two):
            assert destination.parent == staging.parent
            assert staging.parent.is_dir()
            assert staging.name.startswith(".out.tmp-")
            assert not staging.exists()


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_staging_is_cleared_up_on_an_error(tmp_path, error):
    with pytest.raises(error), publish.staging_beside(tmp_path / "deep" / "out") as staging:  # noqa: PT012
        filled(staging)
        raise error

    assert names(tmp_path) == []


def test_staging_needs_a_folder_above(tmp_path):
    (tmp_path / "file").touch()

    with (
        pytest.raises(errors.OutputError) as caught,
        publish.staging_beside(tmp_path / "file" / "out"),
    ):
        pass

    assert f"{tmp_path / 'file'}: can't be written: File exists" == str(caught.value)


# publish.


@pytest.mark.parametrize("overwrite", [False, True])
def test_published_is_the_staged_directory(tmp_path, overwrite):
    destination = tmp_path / "deep" / "out"

    with publish.staging_beside(destination) as staging:
        filled(staging, "new")
        publish.publish(staging, destination, overwrite)

    assert names(destination.parent) == ["out"]
    assert names(destination) == ["file", "folder"]
    assert (destination / "file").read_text() == "new"


def test_empty_directory_is_replaced(tmp_path):
    (tmp_path / "out").mkdir()

    publish.publish(filled(tmp_path / "staging"), tmp_path / "out", False)

    assert names(tmp_path) == ["out"]
    assert names(tmp_path / "out") == ["file", "folder"]


def test_overwrite_replaces_all(tmp_path):
    destination = filled(tmp_path / "out")
    (destination / "more").touch()

    publish.publish(filled(tmp_path / "staging", "new"), destination, True)

    assert names(tmp_path) == ["out"]
    assert names(destination) == ["file", "folder"]
    assert (destination / "file").read_text() == "new"


def test_link_stays_a_link(tmp_path):
    filled(tmp_path / "real")
    (tmp_path / "link").symlink_to("real")

    with publish.staging_beside(tmp_path / "link") as staging:
        filled(staging, "new")
        publish.publish(staging, tmp_path / "link", True)

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "file").read_text() == "new"


def test_what_came_meanwhile_is_not_overwritten(tmp_path):
    destination = filled(tmp_path / "out")
    staging = filled(tmp_path / "staging", "new")

    with pytest.raises(errors.OutputError) as caught:
        publish.publish(staging, destination, False)

    assert f"{destination}: exists already and is not empty\n{OVERWRITE}" == str(caught.value)
    assert (destination / "file").read_text() == "old"
    assert staging.exists()


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_old_one_is_put_back_when_the_new_one_fails(tmp_path, monkeypatch, error):
    destination = filled(tmp_path / "out")
    staging = filled(tmp_path / "staging", "new")
    rename = Path.rename

    def fail_for_staging(path: Path, target: Path) -> Path:
        if path == staging:
            raise error
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail_for_staging)
    with pytest.raises((errors.OutputError, KeyboardInterrupt)) as caught:
        publish.publish(staging, destination, True)

    assert names(tmp_path) == ["out", "staging"]
    assert (destination / "file").read_text() == "old"
    if isinstance(error, OSError):
        assert f"{destination}: can't be written: No space left on device" == str(caught.value)


def test_everything_is_synced_before_the_rename(tmp_path, monkeypatch):
    staging = filled(tmp_path / "staging")
    synced: list[str] = []

    def record(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))

    monkeypatch.setattr(os, "fsync", record)
    publish.publish(staging, tmp_path / "out", False)

    paths = [staging / "file", staging, staging / "folder", tmp_path]
    assert [str(path) for path in paths] == synced


# write_file_atomically.


def test_file_is_written(tmp_path):
    publish.write_file_atomically(tmp_path / "deep" / "report.json", b"{}", False)

    assert names(tmp_path / "deep") == ["report.json"]
    assert (tmp_path / "deep" / "report.json").read_bytes() == b"{}"


def test_file_needs_overwrite(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    with pytest.raises(errors.OutputError) as caught:
        publish.write_file_atomically(path, b"new", False)

    assert f"{path}: exists already\n{OVERWRITE}" == str(caught.value)
    assert path.read_bytes() == b"old"
    publish.write_file_atomically(path, b"new", True)
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["file"]


def test_directory_is_no_file(tmp_path):
    with pytest.raises(errors.OutputError) as caught:
        publish.write_file_atomically(tmp_path, b"", True)

    assert f"{tmp_path}: is a directory, expected a file" == str(caught.value)


def test_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(errors.OutputError) as caught:
        publish.write_file_atomically(path, b"new", True)

    assert f"{path}: can't be written: No space left on device" == str(caught.value)
    assert names(tmp_path) == ["file"]
    assert path.read_bytes() == b"old"


def test_pipe_is_written_directly(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()

    publish.write_file_atomically(pipe, b"data", False)

    reader.join()
    assert read == [b"data"]
    assert pipe.is_fifo()
