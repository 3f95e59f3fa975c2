"""The HDF5 libraries and the names of the column layout, in one place.

Layout (that of stable-worldmodel): one dataset per column with one row per step of every episode, back to back, and
`ep_len`, `ep_offset` with one row per episode.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from acid.errors import AcidError, DataError
from acid.files import existing

try:
    import h5py
    import hdf5plugin  # importing it registers the compression filters that published files use
except ImportError as error:
    raise ImportError("acid.data needs h5py and hdf5plugin: pip install 'acid-planning[data]'") from error

LENGTHS = "ep_len"
OFFSETS = "ep_offset"
EPISODE_INDEX = "episode_idx"
STEP_INDEX = "step_idx"
INDEX_COLUMNS = (EPISODE_INDEX, STEP_INDEX)

# Published files disagree on this one name; we always speak of the first.
ALIASES = {EPISODE_INDEX: "ep_idx"}

MOST_CHUNK_BYTES = 256 * 1024**2  # a chunk is read whole, whatever is wanted of it


def open_file(path: Path, missing: str, **options: Any) -> h5py.File:
    existing(path, missing=missing)
    if path.suffix == ".zst":
        raise DataError(f"{path} is packed; run `acid import {path} --format hdf5 --out NAME.h5` once and use NAME.h5")
    try:
        return h5py.File(path, "r", **options)
    except OSError as error:
        if "truncated" in str(error):
            raise DataError(f"{path} is truncated ({error}); fetch or collect it again") from error
        if not h5py.is_hdf5(path):
            raise DataError(f"{path} is not an HDF5 file") from error
        raise DataError(f"cannot open {path}: {error}") from error


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Whatever h5py raises about a damaged file, as a DataError; `what` names file and column."""
    try:
        yield
    except AcidError:
        raise
    except Exception as error:  # h5py has no error of its own: a dozen kinds come out of it
        raise DataError(
            f"cannot read {what}: it is damaged or needs a filter that hdf5plugin lacks ({error})"
        ) from error


def find_dataset(file: h5py.File, name: str, path: Path) -> h5py.Dataset | None:
    """A dataset that lies in this file, whole; None if there is none of that name.

    HDF5 can take the numbers of a dataset from other files, any file, and can declare sizes that were never written.
    """
    place: Any = file
    for part in name.split("/"):
        if not isinstance(place, h5py.Group) or part not in place.keys():  # noqa: SIM118
            return None
        if not isinstance(place.get(part, getlink=True), h5py.HardLink):
            raise DataError(f"{name!r} of {path} is a link to somewhere else, which is not followed")
        place = place[part]
    if not isinstance(place, h5py.Dataset):
        return None
    if place.external or place.is_virtual:
        raise DataError(f"{name!r} of {path} takes its numbers from other files, which are not read")
    stored = place.id.get_storage_size()
    if place.chunks is not None:
        chunk = math.prod(place.chunks) * place.dtype.itemsize
        if chunk > MOST_CHUNK_BYTES:
            raise DataError(f"{name!r} of {path} is stored in pieces of {chunk} bytes; that is too much to read one")
        stored = place.id.get_num_chunks() * chunk
    if place.shape is None or stored < place.size * place.dtype.itemsize:
        raise DataError(f"{name!r} of {path} declares {place.shape} entries, but most of them were never written")
    return place


__all__ = [
    "ALIASES",
    "EPISODE_INDEX",
    "INDEX_COLUMNS",
    "LENGTHS",
    "OFFSETS",
    "STEP_INDEX",
    "find_dataset",
    "h5py",
    "hdf5plugin",
    "open_file",
    "reading",
]
