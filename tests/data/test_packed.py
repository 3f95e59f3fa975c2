"""Packed datasets: unpacked for the time of an import, and stopped where they would do harm."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zstandard

from acid.data import Episodes, import_episodes, packed
from acid.errors import DataError


def pack(path: Path, content: bytes, *, frames: int = 1) -> Path:
    """Several frames one after another are one file, as `zstd` and `pzstd` write it."""
    step = -(-len(content) // frames)
    parts = (content[start : start + step] for start in range(0, len(content), step))
    path.write_bytes(b"".join(zstandard.compress(part) for part in parts))
    return path


def tar(path: Path, files: dict[str, bytes], *others: tarfile.TarInfo) -> Path:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        for entry in others:
            archive.addfile(entry)
    return pack(path, made.getvalue())


@pytest.mark.parametrize("frames", [1, 3])
def test_a_packed_file_is_imported_and_nothing_else_stays(
    write: Callable[..., Path], tmp_path: Path, frames: int
) -> None:
    path = write((4, 6))
    whole = pack(tmp_path / "a.h5.zst", path.read_bytes(), frames=frames)
    found = import_episodes(whole, tmp_path / "out" / "b.h5", "hdf5")
    assert (found.episode(1)["action"] == Episodes(path).episode(1)["action"]).all()
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["b.h5"]


def test_an_archive_of_one_file(write: Callable[..., Path], tmp_path: Path) -> None:
    path = write((4, 6))
    whole = tar(tmp_path / "a.tar.zst", {"data/README.md": b"hello", "data/a.h5": path.read_bytes()})
    assert len(import_episodes(whole, tmp_path / "b.h5", "hdf5")) == 2
    several = tar(tmp_path / "c.tar.zst", {"a.h5": b"", "b.h5": b""})
    with pytest.raises(DataError, match=r"must hold one file \.h5 or \.hdf5, got a\.h5, b\.h5"):
        import_episodes(several, tmp_path / "d.h5", "hdf5")


def test_an_archive_of_a_folder(tmp_path: Path) -> None:
    import torch

    def saved(value: torch.Tensor) -> bytes:
        made = io.BytesIO()
        torch.save(value, made)
        return made.getvalue()

    frames = saved(torch.zeros(5, 12, 12, 3, dtype=torch.uint8))
    files = {"rope/states.pth": saved(torch.randn(1, 5, 7, 4)), "rope/actions.pth": saved(torch.randn(1, 5, 4))}
    whole = tar(tmp_path / "rope.tar.zst", files | {"rope/000000/obses.pth": frames})
    assert import_episodes(whole, tmp_path / "rope.h5", "dinowm").attributes["folder"] == "rope"


def test_a_packed_file_is_not_read_as_it_is(write: Callable[..., Path], tmp_path: Path) -> None:
    whole = pack(tmp_path / "a.h5.zst", write((4,)).read_bytes())
    with pytest.raises(DataError, match=r"a\.h5\.zst is packed; run `acid import .*a\.h5\.zst --format hdf5"):
        Episodes(whole)


def test_a_bomb_is_stopped(tmp_path: Path) -> None:
    bomb = pack(tmp_path / "a.h5.zst", bytes(200 * 2**20))
    assert bomb.stat().st_size * packed.MOST_TIMES < 200 * 2**20
    with pytest.raises(DataError, match="becomes more than 2000 times its size and was not unpacked"):
        import_episodes(bomb, tmp_path / "b.h5", "hdf5")
    assert [file.name for file in tmp_path.iterdir()] == ["a.h5.zst"]


def test_the_disk_is_not_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "SPARE_DISK", 2**60)
    with pytest.raises(DataError, match="does not fit on the disk of"):
        import_episodes(pack(tmp_path / "a.h5.zst", b"some"), tmp_path / "b.h5", "hdf5")


def test_a_wide_window_is_refused(tmp_path: Path) -> None:
    """A file may ask for gigabytes of memory before it gives a byte."""
    wide = zstandard.ZstdCompressionParameters(window_log=28, compression_level=1)
    stream = zstandard.ZstdCompressor(compression_params=wide).compressobj()
    (tmp_path / "a.h5.zst").write_bytes(stream.compress(bytes(1000)) + stream.flush())
    with pytest.raises(DataError, match="truncated, damaged or not what its name says"):
        import_episodes(tmp_path / "a.h5.zst", tmp_path / "b.h5", "hdf5")


def entry(name: str, kind: bytes, to: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, to
    return made


@pytest.mark.parametrize(
    "intruder",
    [
        entry("../outside", tarfile.REGTYPE),
        entry("/tmp/outside", tarfile.REGTYPE),
        entry("link", tarfile.SYMTYPE, "/etc/passwd"),
        entry("link", tarfile.LNKTYPE, "a.h5"),
        entry("pipe", tarfile.FIFOTYPE),
        entry("device", tarfile.CHRTYPE),
    ],
    ids=["above", "absolute", "symbolic-link", "hard-link", "pipe", "device"],
)
def test_only_plain_files_leave_an_archive(
    write: Callable[..., Path], tmp_path: Path, intruder: tarfile.TarInfo
) -> None:
    whole = tar(tmp_path / "a.tar.zst", {"a.h5": write((4,)).read_bytes()}, intruder)
    with pytest.raises(DataError, match="which is no plain file inside it; it was not unpacked"):
        import_episodes(whole, tmp_path / "out" / "b.h5", "hdf5")
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("name", ["a.h5.zst", "a.tar.zst"])
@pytest.mark.parametrize("kept", [0.0, 0.3, 0.9])
def test_damaged_files(write: Callable[..., Path], tmp_path: Path, name: str, kept: float) -> None:
    content = np.random.default_rng(0).bytes(50_000)
    whole = pack(tmp_path / name, content) if name == "a.h5.zst" else tar(tmp_path / name, {"a.h5": content})
    packed_bytes = whole.read_bytes()
    whole.write_bytes(packed_bytes[: int(kept * len(packed_bytes))])
    with pytest.raises(DataError, match=r"truncated|damaged|not an HDF5 file|must hold one file"):
        import_episodes(whole, tmp_path / "b.h5", "hdf5")
    assert not (tmp_path / "b.h5").exists()
