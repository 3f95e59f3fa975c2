"""Reading episodes: whole ones, or any rows of any column."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from acid.data._hdf5 import ALIASES, LENGTHS, OFFSETS, find_dataset, h5py, open_file, reading
from acid.errors import DataError, did_you_mean

# Holds the chunk a run of rows lies in, also where a published file packs a hundred large frames into one chunk.
_CHUNK_CACHE_BYTES = 64 * 1024 * 1024
_CACHE_ROWS = 4096
_MOST_ROWS = 2**40
_NUMBERS = "biuf"  # kinds of dtypes


class Episodes:
    """Episodes of one HDF5 file in the stable-worldmodel column layout, checked when opened.

    Every column has one row per step; episode i owns rows `offsets[i] : offsets[i] + lengths[i]`. Row t holds what was
    seen at step t and the action taken then. The file is opened on first use in each process, so an `Episodes` can be
    pickled and survives a fork.
    """

    def __init__(self, path: str | os.PathLike[str], *, require: Sequence[str] = ("action",)) -> None:
        self.path = Path(path)
        self._file: h5py.File | None = None
        self._process: int | None = None
        self._cached: dict[str, np.ndarray] = {}
        with _open(self.path) as file, reading(str(self.path)):
            self.lengths, self.offsets = _read_extents(file, self.path)
            self.rows = int((self.offsets + self.lengths).max())
            self.attributes = {name: _text(value) for name, value in file.attrs.items()}
            stored = _stored_columns(file, self.path)
            for name in require:
                _check_column(name, stored, self.rows, self.path)
            self._shapes = {name: shape[1:] for name, shape in stored.items() if shape[0] >= self.rows}

    def __len__(self) -> int:
        return len(self.lengths)

    def __enter__(self) -> Episodes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_file": None, "_process": None, "_cached": {}}

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns with one row per step."""
        return tuple(self._shapes)

    def shape(self, column: str) -> tuple[int, ...]:
        """The shape of one row of a column."""
        if column not in self._shapes:
            raise DataError(f"{self.path} has no column {column!r}{did_you_mean(column, self._shapes)}")
        return self._shapes[column]

    def is_numeric(self, column: str) -> bool:
        """Whether a column holds numbers or booleans, rather than e.g. text."""
        return self._dataset(column).dtype.kind in _NUMBERS

    def rows_of(self, ids: Sequence[int] | np.ndarray | None = None) -> np.ndarray:
        """The rows of the given episodes (default all), episode after episode."""
        chosen = np.arange(len(self)) if ids is None else self.check_ids(ids)
        if not len(chosen):
            return np.empty(0, dtype=np.int64)
        return np.concatenate([np.arange(self.offsets[i], self.offsets[i] + self.lengths[i]) for i in chosen])

    def check_ids(self, ids: Sequence[int] | np.ndarray) -> np.ndarray:
        """Episode numbers as an array, or a DataError for one that does not exist."""
        array = np.asarray(ids, dtype=np.int64)
        outside = array[(array < 0) | (array >= len(self))]
        if len(outside):
            raise DataError(f"episode {outside[0]} does not exist: {self.path} holds episodes 0 to {len(self) - 1}")
        return array

    def episode(self, index: int, columns: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """One episode as a mapping of column names to arrays [T, ...]."""
        rows = self.rows_of([index])
        return {name: self.read(name, rows) for name in (self.columns if columns is None else columns)}

    def read(self, column: str, rows: Sequence[int] | np.ndarray) -> np.ndarray:
        """The rows of a column, in the order given (any order, repeats allowed, any shape): [*rows.shape, ...]."""
        row_shape = self.shape(column)
        wanted = np.asarray(rows, dtype=np.int64)
        flat = wanted.ravel()
        if flat.size and (flat.min() < 0 or flat.max() >= self.rows):
            raise DataError(f"rows {flat.min()} to {flat.max()} asked of {self.path}, which has {self.rows}")
        if column in self._cached:
            return self._cached[column][wanted]
        if not flat.size:
            return np.empty((*wanted.shape, *row_shape), dtype=self._dataset(column).dtype)
        if (np.diff(flat) > 0).all():
            values = self._read_sorted(column, flat)
        else:
            unique, inverse = np.unique(flat, return_inverse=True)
            values = self._read_sorted(column, unique)[inverse]
        return values.reshape(*wanted.shape, *row_shape)

    def cache(self, column: str) -> None:
        """Load a whole column into memory, so that later reads of it do not touch the disk."""
        if column in self._cached:
            return
        dataset = self._dataset(column)
        values = np.empty((self.rows, *self.shape(column)), dtype=dataset.dtype)
        for start in range(0, self.rows, _CACHE_ROWS):
            block = slice(start, min(start + _CACHE_ROWS, self.rows))
            values[block] = self._read_sorted(column, np.arange(block.start, block.stop))
        self._cached[column] = values

    def close(self) -> None:
        """Close the file and forget cached columns; a later read opens it again."""
        if self._file is not None and self._process == os.getpid():
            self._file.close()
        self._file = None
        self._cached.clear()

    def _dataset(self, column: str) -> h5py.Dataset:
        self.shape(column)
        if self._file is None or self._process != os.getpid():
            self._file, self._process = _open(self.path), os.getpid()
        stored = column if column in self._file else ALIASES.get(column, column)
        dataset = self._file.get(stored)
        if not isinstance(dataset, h5py.Dataset):
            raise DataError(f"{self.path} has lost its column {column!r} since it was opened")
        return dataset

    def _read_sorted(self, column: str, rows: np.ndarray) -> np.ndarray:
        """Increasing rows of a column, one read per run of neighbours.

        h5py's own list indexing takes over a millisecond a frame when rows are scattered, its slicing 80 microseconds;
        naming the block to HDF5 directly takes 25.
        """
        dataset = self._dataset(column)
        with reading(f"column {column!r} of {self.path}"):
            if dataset.dtype.kind not in _NUMBERS:
                return np.concatenate([dataset[start:stop] for start, stop in _runs(rows)])
            values = np.empty((len(rows), *dataset.shape[1:]), dtype=dataset.dtype)
            origin, row_shape = (0,) * (dataset.ndim - 1), dataset.shape[1:]
            space = dataset.id.get_space()
            filled = 0
            for start, stop in _runs(rows):
                count = stop - start
                space.select_hyperslab((start, *origin), (count, *row_shape))
                target = h5py.h5s.create_simple((count, *row_shape))
                dataset.id.read(target, space, values[filled : filled + count])
                filled += count
            return values


def _runs(rows: np.ndarray) -> Iterator[tuple[int, int]]:
    """Increasing rows as half-open runs of neighbours."""
    breaks = np.flatnonzero(np.diff(rows) != 1) + 1
    starts = rows[np.concatenate([[0], breaks])]
    stops = rows[np.concatenate([breaks - 1, [len(rows) - 1]])] + 1
    return zip(starts.tolist(), stops.tolist(), strict=True)


def _open(path: Path) -> h5py.File:
    missing = "there is no dataset; check the path, or collect one with `acid collect`"
    return open_file(path, missing, rdcc_nbytes=_CHUNK_CACHE_BYTES)


def _stored_columns(file: h5py.File, path: Path) -> dict[str, tuple[int, ...]]:
    """Column names, published ones translated to ours, and their full shapes."""
    ours = {theirs: name for name, theirs in ALIASES.items() if name not in file}
    found = {name: find_dataset(file, name, path) for name in map(str, file) if name not in (LENGTHS, OFFSETS)}
    return {ours.get(name, name): item.shape for name, item in found.items() if item is not None and item.shape}


def _read_extents(file: h5py.File, path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Lengths and offsets of the episodes, both int64 [episodes]."""
    items = [find_dataset(file, name, path) for name in (LENGTHS, OFFSETS)]
    for name, item in zip((LENGTHS, OFFSETS), items, strict=True):
        if item is None:
            raise DataError(f"{path} has no {name!r}, so it is not an episode dataset; it holds {sorted(file)[:8]}")
    lengths, offsets = (np.asarray(item, dtype=np.int64).ravel() for item in items)
    if len(lengths) != len(offsets):
        raise DataError(f"{path} has {len(lengths)} episode lengths but {len(offsets)} offsets")
    if not len(lengths):
        raise DataError(f"{path} holds no episodes")
    absurd = (lengths < 1) | (offsets < 0) | (lengths > _MOST_ROWS) | (offsets > _MOST_ROWS)
    if absurd.any():
        bad = int(np.argmax(absurd))
        raise DataError(f"episode {bad} of {path} has length {lengths[bad]} at offset {offsets[bad]}")
    order = np.argsort(offsets, kind="stable")
    overlap = np.flatnonzero((offsets + lengths)[order][:-1] > offsets[order][1:])
    if len(overlap):
        first, second = order[overlap[0]], order[overlap[0] + 1]
        raise DataError(
            f"episodes {first} and {second} of {path} overlap; its lengths and offsets contradict each other"
        )
    return lengths, offsets


def _check_column(name: str, stored: dict[str, tuple[int, ...]], rows: int, path: Path) -> None:
    if name not in stored:
        raise DataError(f"{path} has no column {name!r}{did_you_mean(name, stored)}")
    if stored[name][0] < rows:
        raise DataError(
            f"{path} is truncated: column {name!r} has {stored[name][0]} rows, but its episodes reach to row {rows}; "
            "fetch or collect it again"
        )


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
