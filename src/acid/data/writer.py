"""Writing episodes: a file appears under its final name whole, or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import numpy as np

from acid.data._hdf5 import EPISODE_INDEX, INDEX_COLUMNS, LENGTHS, OFFSETS, STEP_INDEX, h5py, hdf5plugin
from acid.data.disk import PatientFile
from acid.errors import DataError
from acid.files import check_name, flush, writing

Progress = Callable[[int, int], None]
_RESERVED = (*INDEX_COLUMNS, LENGTHS, OFFSETS)
_CHUNK_BYTES = 64 * 1024
_CHUNK_ROWS = 8192


class EpisodeWriter:
    """Context manager that writes episodes to `path` through `path.partial`.

        with EpisodeWriter("reacher.h5", attributes={"task": "reacher"}) as writer:
            writer.write({"pixels": uint8 [T, H, W, 3], "action": float32 [T, a], "state": float64 [T, S]})

    Leaving the block cleanly flushes to disk and renames; leaving it by an exception removes the partial file.
    The first episode fixes the columns, their shapes and dtypes. Indices, lengths and offsets are added here.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, compression: bool = True, attributes: Mapping[str, str] | None = None
    ) -> None:
        self.path = Path(path)
        self._partial = self.path.with_name(self.path.name + ".partial")
        self._compression = compression
        self._attributes = dict(attributes or {})
        self._disk: PatientFile | None = None
        self._file: h5py.File | None = None
        self._columns: dict[str, h5py.Dataset] = {}
        self._lengths: list[int] = []
        self._rows = 0

    def __len__(self) -> int:
        """Episodes written so far."""
        return len(self._lengths)

    def __enter__(self) -> EpisodeWriter:
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._disk = PatientFile(self._partial)
        # The 1.10 format is the oldest one that readers may open in SWMR mode, which stable-worldmodel does.
        self._file = h5py.File(self._disk, "w", libver=("v110", "v110"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def write(self, episode: Mapping[str, np.ndarray]) -> None:
        """Append one episode: a mapping of column names to arrays [T, ...] of the same T."""
        file = self._opened()
        columns = {name: np.asarray(values) for name, values in episode.items()}
        steps = _check_episode(columns)
        columns[EPISODE_INDEX] = np.full(steps, len(self._lengths), dtype=np.int64)
        columns[STEP_INDEX] = np.arange(steps, dtype=np.int64)
        if not self._columns:
            for name, values in columns.items():
                self._columns[name] = _create_column(file, name, values, compression=self._compression)
        _check_schema(self._columns, columns)
        for name, values in columns.items():
            dataset = self._columns[name]
            dataset.resize(self._rows + steps, axis=0)
            dataset[self._rows :] = values
        self._lengths.append(steps)
        self._rows += steps
        self._check_disk()

    def close(self) -> None:
        """Finish the file and give it its final name; does nothing the second time."""
        if self._file is None:
            return
        try:
            self._finish(self._file)
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        """Drop what was written."""
        file, self._file = self._file, None
        if file is None:
            return
        try:
            file.close()
        finally:
            with suppress(OSError):
                self._partial.unlink(missing_ok=True)
            self._close_disk()

    def _finish(self, file: h5py.File) -> None:
        if not self._lengths:
            raise DataError(f"no episode was written to {self.path}, so the file was not created")
        lengths = np.asarray(self._lengths, dtype=np.int64)
        offsets = np.cumsum(lengths) - lengths
        file.create_dataset(LENGTHS, data=lengths.astype(np.int32), maxshape=(None,))
        file.create_dataset(OFFSETS, data=offsets, maxshape=(None,))
        file.attrs.update(self._attributes)
        file.close()
        self._check_disk()
        with writing(self.path):
            flush(self._partial)
            os.replace(self._partial, self.path)
            flush(self.path.parent)
        self._file = None
        self._close_disk()

    def _check_disk(self) -> None:
        """A DataError if something was not written."""
        if self._disk is not None and self._disk.failure is not None:
            with writing(self.path):
                raise self._disk.failure

    def _close_disk(self) -> None:
        if self._disk is not None:
            self._disk.close()

    def _opened(self) -> h5py.File:
        if self._file is None:
            raise DataError(
                f"the writer of {self.path} is not open; write inside `with EpisodeWriter(path) as writer:`"
            )
        return self._file


class Source(NamedTuple):
    """Episodes to write, read one at a time, and what is known about all of them."""

    count: int | None  # None: not known before they are read
    episodes: Iterable[Mapping[str, np.ndarray]]
    attributes: Mapping[str, str]


def write_episodes(
    source: Source, out: str | os.PathLike[str], *, compression: bool = True, progress: Progress | None = None
) -> None:
    """Write all episodes of a source to a file; `progress` is told (episodes written, episodes in all)."""
    with EpisodeWriter(out, compression=compression, attributes=source.attributes) as writer:
        for episode in source.episodes:
            writer.write(episode)
            if progress is not None:
                progress(len(writer), source.count or len(writer))


def _check_episode(columns: Mapping[str, np.ndarray]) -> int:
    """The number of steps, if the columns can be stored together."""
    if "action" not in columns:
        raise DataError(f"an episode needs an 'action' column, got {sorted(columns)}")
    for name, values in columns.items():
        check_name(name, "column")
        if name in _RESERVED:
            raise DataError(f"column {name!r} is written by EpisodeWriter itself; leave it out of the episode")
        if values.dtype.kind not in "biuf":
            raise DataError(f"column {name!r} has dtype {values.dtype}; only numbers and booleans can be stored")
        if values.ndim == 0 or len(values) == 0:
            raise DataError(f"column {name!r} has shape {list(values.shape)}; an episode needs at least one step")
        if name == "pixels" and (values.dtype != np.uint8 or values.ndim != 4 or values.shape[-1] != 3):
            raise DataError(
                f"column 'pixels' must be uint8 [steps, height, width, 3], got {values.dtype} {list(values.shape)}"
            )
    if columns["action"].ndim != 2:
        raise DataError(f"column 'action' must be [steps, numbers], got shape {list(columns['action'].shape)}")
    steps = {name: len(values) for name, values in columns.items()}
    if len(set(steps.values())) > 1:
        raise DataError(f"every column of an episode needs the same number of steps, got {steps}")
    return steps["action"]


def _check_schema(first: Mapping[str, h5py.Dataset], columns: Mapping[str, np.ndarray]) -> None:
    """A later episode must look like the first one, or the columns would no longer line up."""
    if set(first) != set(columns):
        missing, extra = sorted(set(first) - set(columns)), sorted(set(columns) - set(first))
        raise DataError(f"an episode's columns differ from the first episode's: missing {missing}, unexpected {extra}")
    for name, values in columns.items():
        expected, found = (first[name].shape[1:], first[name].dtype), (values.shape[1:], values.dtype)
        if expected != found:
            raise DataError(
                f"column {name!r} holds {list(found[0])} {found[1]} per step, "
                f"but the first episode held {list(expected[0])} {expected[1]}"
            )


def _create_column(file: h5py.File, name: str, values: np.ndarray, *, compression: bool) -> h5py.Dataset:
    row = values.shape[1:]
    is_image = values.dtype == np.uint8 and values.ndim == 4
    # One frame per chunk: a random read decompresses that frame and nothing else. LZ4 adds about 5 microseconds to the
    # 20 that reaching a 64 px frame costs; Zstd files are a quarter smaller but take twice as long to read.
    rows = 1 if is_image else int(np.clip(_CHUNK_BYTES // max(values[0].nbytes, 1), 1, _CHUNK_ROWS))
    filters = hdf5plugin.LZ4() if is_image and compression else {}
    return file.create_dataset(
        name, shape=(0, *row), maxshape=(None, *row), chunks=(rows, *row), dtype=values.dtype, **filters
    )
