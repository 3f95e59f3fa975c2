"""A file object for HDF5, which crashes the process when a write fails.

So no write fails: what the disk refuses is kept in memory, and told to whoever asks. Little comes after that, because
the writer asks after every episode and then gives up.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from acid.files import claim


class PatientFile:
    """What h5py asks of a file object. `failure` is the first error of the disk, if there was one."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            claim(self._file, path)
            os.ftruncate(self._file, 0)
        except BaseException:
            os.close(self._file)
            raise
        self._place = self._end = 0
        self._refused: list[tuple[int, bytes]] = []
        self.failure: OSError | None = None

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._place = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._end}[whence]
        return self._place

    def tell(self) -> int:
        return self._place

    def write(self, data: bytes) -> int:
        view = memoryview(data).cast("B")
        if self.failure is None:
            try:
                self._write(view)
            except OSError as error:
                self.failure = error
        if self.failure is not None:
            self._refused.append((self._place, bytes(view)))
        self._place += len(view)
        self._end = max(self._end, self._place)
        return len(view)

    def _write(self, view: memoryview) -> None:
        done = 0
        while done < len(view):
            done += os.pwrite(self._file, view[done:], self._place + done)

    def readinto(self, buffer: bytearray) -> int:
        view = memoryview(buffer).cast("B")
        count = min(len(view), max(0, self._end - self._place))
        found = os.pread(self._file, count, self._place)
        view[:count] = found + bytes(count - len(found))
        for offset, data in self._refused:
            start, stop = max(offset, self._place), min(offset + len(data), self._place + count)
            if start < stop:
                view[start - self._place : stop - self._place] = data[start - offset : stop - offset]
        self._place += count
        return count

    def read(self, size: int = -1) -> bytes:
        found = bytearray(self._end - self._place if size < 0 else size)
        return bytes(found[: self.readinto(found)])

    def truncate(self, size: int | None = None) -> int:
        self._end = self._place if size is None else size
        try:
            os.ftruncate(self._file, self._end)
        except OSError as error:
            self.failure = self.failure or error
        return self._end

    def flush(self) -> None:
        pass

    def close(self) -> None:
        with suppress(OSError):
            os.close(self._file)
