"""Datasets as they are published, `NAME.h5.zst` and `NAME.tar.zst`, unpacked beside where they are imported to.

What a packed file becomes is not known before. So it is unpacked piece by piece and stopped when it becomes more than
2,000 times its size, or would leave less than 1 GiB of the disk. Of a tar archive only files and folders are taken.
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from acid.errors import AcidError, DataError, need_package
from acid.files import clipped, existing, reason, writing

SUFFIX, TAR = ".zst", ".tar.zst"
MOST_TIMES = 2_000  # its packed size; frames of a simulator on a plain background reach some hundreds
AT_LEAST = 2**20  # bytes that a small file may become all the same
SPARE_DISK = 2**30  # bytes
MOST_WINDOW = 2**27  # bytes of memory to unpack with, which every file of `zstd` without --long needs at most
MOST_ENTRIES = 1_000_000  # of an archive
PIECE = 2**20  # bytes


@contextmanager
def unpacked(path: Path, out: Path, suffixes: tuple[str, ...] = ()) -> Iterator[Path]:
    """The path itself, or what a packed file holds, in a temporary folder beside `out` that is removed afterwards.

    An archive with one entry is that entry. `suffixes`: of the one file that is looked for in an archive.
    """
    if path.suffix != SUFFIX:
        yield path
        return
    existing(path)
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f"{out.name}.unpacked-", dir=out.parent))
    try:
        yield _unpack(path, folder, suffixes)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unpack(path: Path, folder: Path, suffixes: tuple[str, ...]) -> Path:
    try:
        with path.open("rb") as packed, _Unpacking(packed, path, folder) as stream, writing(folder):
            if not path.name.endswith(TAR):
                target = folder / path.stem
                with target.open("xb") as file:
                    shutil.copyfileobj(stream, file, PIECE)
                return target
            _extract(stream, folder, path)
    except AcidError:
        raise
    except Exception as error:  # tarfile and zstandard raise kinds of their own
        what = f"{path} is truncated, damaged or not what its name says"
        raise DataError(f"{what} ({reason(error)}); fetch it again") from error
    return _wanted(folder, path, suffixes)


def _extract(stream: Any, folder: Path, path: Path) -> None:
    """Files only; their folders are made for them. Links, devices and places outside are refused."""
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for number, entry in enumerate(archive):
            if number >= MOST_ENTRIES:
                raise DataError(f"{path} has more than {MOST_ENTRIES} entries, which no dataset needs")
            if entry.isdir():
                continue
            name = PurePosixPath(entry.name)
            if not entry.isreg() or entry.issparse() or name.is_absolute() or ".." in name.parts or not name.parts:
                raise DataError(
                    f"{path} holds {clipped(entry.name)}, which is no plain file inside it; it was not unpacked"
                )
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            source = archive.extractfile(entry)
            assert source is not None  # of a regular file there is one
            with source, target.open("xb") as file:
                shutil.copyfileobj(source, file, PIECE)


def _wanted(folder: Path, path: Path, suffixes: tuple[str, ...]) -> Path:
    if suffixes:
        found = sorted(file for file in folder.rglob("*") if file.suffix in suffixes)
        if len(found) != 1:
            names = ", ".join(str(file.relative_to(folder)) for file in found[:5]) or "none"
            raise DataError(
                f"{path} must hold one file {' or '.join(suffixes)}, got {names}; unpack it yourself "
                "(`tar --zstd -xf`) and import one of them"
            )
        return found[0]
    entries = list(folder.iterdir())
    if not entries:
        raise DataError(f"{path} is empty")
    return entries[0] if len(entries) == 1 else folder


class _Unpacking(io.RawIOBase):
    """What a packed file becomes, to be read once, as long as that is not absurdly much."""

    def __init__(self, packed: BinaryIO, path: Path, folder: Path) -> None:
        zstandard = need_package("zstandard", "data", f"a {SUFFIX} file", DataError)
        decompressor = zstandard.ZstdDecompressor(max_window_size=MOST_WINDOW)
        self._stream = decompressor.stream_reader(packed, read_across_frames=True, closefd=False)
        self._path, self._folder = path, folder
        self._left = max(AT_LEAST, MOST_TIMES * os.fstat(packed.fileno()).st_size)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        read = self._stream.readinto(buffer)
        self._left -= read
        if self._left < 0:
            raise DataError(
                f"{self._path} becomes more than {MOST_TIMES} times its size and was not unpacked; if that is right, "
                "unpack it yourself (`zstd -d`)"
            )
        if shutil.disk_usage(self._folder).free - read < SPARE_DISK:
            raise DataError(
                f"{self._path} does not fit on the disk of {self._folder.parent}: less than {SPARE_DISK / 2**30:.0f} "
                "GiB would be free; choose another folder"
            )
        return read

    def read(self, size: int = -1) -> bytes:  # RawIOBase reads in pieces that are too small for tarfile
        if size is None or size < 0:
            return self.readall()
        pieces = bytearray()
        while len(pieces) < size and (more := super().read(min(PIECE, size - len(pieces)))):
            pieces += more
        return bytes(pieces)
