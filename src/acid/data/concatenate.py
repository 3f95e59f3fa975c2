"""Episodes of files in the column layout of stable-worldmodel, read one by one to be written elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from acid.data._hdf5 import INDEX_COLUMNS
from acid.data.episodes import Episodes
from acid.data.writer import Source, write_episodes
from acid.errors import DataError


def read_hdf5(path: Path) -> Source:
    """The episodes of one file, checked; frames keep their size, and columns of text are left out."""
    with Episodes(path) as episodes:
        left_out = [name for name in episodes.columns if not episodes.is_numeric(name)]
        known = {"left_out": ", ".join(left_out)} if left_out else {}
        return Source(len(episodes), _episodes([path]), episodes.attributes | known)


def concatenate(
    parts: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    compression: bool = True,
    attributes: Mapping[str, str] | None = None,
) -> None:
    """Write the episodes of all parts to `out`, in order, holding one episode in memory at a time.

    Attributes default to those of the first part. The parts stay where they are.
    """
    if not parts:
        raise DataError(f"no part files were given to merge into {out}")
    known = read_hdf5(Path(parts[0])).attributes if attributes is None else attributes
    write_episodes(Source(None, _episodes(parts), known), out, compression=compression)


def _episodes(paths: Sequence[str | os.PathLike[str]]) -> Iterator[Mapping[str, np.ndarray]]:
    for path in paths:
        with Episodes(path) as part:
            columns = [name for name in part.columns if name not in INDEX_COLUMNS and part.is_numeric(name)]
            for index in range(len(part)):
                yield part.episode(index, columns)
