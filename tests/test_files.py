"""Files are read whole or refused, written whole or not at all, and always told in one sentence."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from acid import files
from acid.errors import AcidError, CheckpointError, DataError


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


READERS = [files.read_bytes, files.read_json, files.load_torch, files.load_safetensors]


@pytest.mark.parametrize("read", READERS)
def test_a_pipe_a_device_and_a_folder_are_refused_at_once(read, pipe: Path, tmp_path: Path) -> None:
    for path, kind in ((pipe, "a pipe"), (Path("/dev/zero"), "a device"), (tmp_path, "a folder")):
        with pytest.raises(DataError, match=f"{path} is {kind}, not a file"):
            read(path)
    with pytest.raises(DataError, match="nowhere: there is no such file"):
        read(tmp_path / "nowhere")
    with pytest.raises(DataError, match="cannot be read: embedded null"):
        read("a\0b")


def test_a_file_that_may_not_be_read_is_not_called_missing(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "a").write_text("{}")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(CheckpointError, match="a cannot be read: Permission denied"):
        files.read_json(tmp_path / "a", CheckpointError)


@pytest.mark.parametrize("text", ["{", "", "[" * 100_000, '{"a": 1' + "0" * 5000 + "}", b"\xff\xfe"])
def test_what_is_not_json_is_told(tmp_path: Path, text) -> None:
    (tmp_path / "a").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DataError, match=r"a is not valid JSON .*; remove it"):
        files.read_json(tmp_path / "a", remedy="remove it")


def test_a_text_that_is_absurdly_long_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as file:
        file.truncate(files.MOST_TEXT + 1)  # takes no room on the disk
    with pytest.raises(DataError, match="no text of ours is that long"):
        files.read_bytes(tmp_path / "a")


def test_a_bomb_is_not_opened(tmp_path: Path) -> None:
    torch.save(torch.zeros(3), tmp_path / "a.pth")
    with (
        zipfile.ZipFile(tmp_path / "a.pth") as whole,
        zipfile.ZipFile(tmp_path / "b.pth", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for name in whole.namelist():
            packed.writestr(name, whole.read(name) if "/data/" not in name else bytes(10**7))
    with pytest.raises(DataError, match="claims to hold more than its length"):
        files.load_torch(tmp_path / "b.pth")


def test_every_flipped_bit_of_stored_tensors_is_found(tmp_path: Path) -> None:
    values = torch.arange(64.0)
    torch.save({"a": values}, tmp_path / "a.pth")
    content = (tmp_path / "a.pth").read_bytes()
    place = content.index(values.numpy().tobytes())
    for byte in range(place, place + 256, 7):
        (tmp_path / "b.pth").write_bytes(content[:byte] + bytes([content[byte] ^ 1]) + content[byte + 1 :])
        with pytest.raises(DataError, match=r"b\.pth is damaged: the check sum of"):
            files.load_torch(tmp_path / "b.pth")


def test_nothing_is_imported(tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "executed"),)

    torch.save(Hostile(), tmp_path / "a.pth")
    with pytest.raises(DataError, match=r"asks to import posix.mkdir and was not opened"):
        files.load_torch(tmp_path / "a.pth")
    assert not (tmp_path / "executed").exists()


def test_all_files_have_the_mode_that_the_user_wants(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with files.replacing(tmp_path / "weights") as partial:
            save_file({"a": torch.zeros(2)}, partial)
            partial.chmod(0o600)
        files.write_text(tmp_path / "config", "{}")
    finally:
        os.umask(before)
    assert {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("weights", "config")} == {0o640}


def write_and_fail(path: Path, error: Exception) -> None:
    with files.replacing(path) as partial:
        partial.write_text("new")
        raise error


def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    files.write_text(tmp_path / "a", "old")
    for error, told in ((KeyError("x"), KeyError), (OSError(28, "No space left on device"), DataError)):
        with pytest.raises(told, match=r"x|cannot write .*a: No space left on device; free some space"):
            write_and_fail(tmp_path / "a", error)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "old"


SLOW_WRITER = """
import sys
from acid.files import replacing
with replacing(sys.argv[1]) as partial:
    partial.write_text("theirs")
    print("begun", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def slow_writer(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has begun to write the file, and goes on when it is told to."""
    command = [sys.executable, "-c", SLOW_WRITER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        yield process


def test_a_file_that_two_processes_write_at_once_is_one_of_theirs(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with slow_writer(path) as process:
        files.write_text(path, "ours")
        assert path.read_text() == "ours"
        process.communicate("go on\n")
    assert process.returncode == 0
    assert path.read_text() == "theirs"
    assert [left.name for left in tmp_path.iterdir()] == ["a.json"]


def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with slow_writer(path) as process:
        process.kill()
    assert len(list(tmp_path.iterdir())) == 1
    files.write_text(path, "ours")
    assert [left.name for left in tmp_path.iterdir()] == ["a.json"]


def test_a_growing_file_takes_back_what_was_not_written_whole(tmp_path: Path, monkeypatch) -> None:
    file = files.GrowingFile(tmp_path / "rows")
    file.add(b"one\n")
    monkeypatch.setattr(os, "fsync", lambda descriptor: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(DataError, match="No space left"):
        file.add(b"two\n", sync=True)
    assert (tmp_path / "rows").read_bytes() == b"one\n"


def test_two_processes_do_not_write_one_file(tmp_path: Path) -> None:
    first, second = (files.GrowingFile(tmp_path / "rows") for _ in range(2))
    files.claim(first.file.fileno(), first.path)
    with pytest.raises(AcidError, match="is being written by another process"):
        files.claim(second.file.fileno(), second.path)


@pytest.mark.parametrize("name", ["", ".", "..", "../evil", "a/b", "a\\b", "\x1b[2J", "a\nb", "x" * 300])
def test_names_stay_in_their_folder_and_off_the_terminal(name: str) -> None:
    with pytest.raises(DataError, match="cannot be part of a file's name") as raised:
        files.check_name(name, "task")
    assert str(raised.value).isprintable()


def test_names_that_are_fine() -> None:
    for name in ("reacher", "acid λ 0.07", "cem-n300-j30", "e12.s3"):
        assert files.check_name(name, "task") == name
