"""Merging part files, such as those of parallel collectors, into one dataset."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from acid.data._hdf5 import INDEX_COLUMNS
from acid.data.episodes import Episodes
from acid.data.writer import EpisodeWriter
from acid.errors import DataError


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
    if attributes is None:
        attributes = Episodes(parts[0]).attributes
    with EpisodeWriter(out, compression=compression, attributes=attributes) as writer:
        for path in parts:
            with Episodes(path) as part:
                columns = [name for name in part.columns if name not in INDEX_COLUMNS]
                for index in range(len(part)):
                    writer.write(part.episode(index, columns))
