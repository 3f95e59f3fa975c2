"""Datasets of other formats by name, turned once into a file of ours."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from acid.data.concatenate import read_hdf5
from acid.data.dinowm import read_dinowm
from acid.data.episodes import Episodes
from acid.data.lance_tables import read_lance
from acid.data.lerobot import read_lerobot
from acid.data.nwm import read_nwm
from acid.data.packed import unpacked
from acid.data.recon import read_recon
from acid.data.writer import Progress, Source, write_episodes
from acid.errors import DataError, look_up

# A reader takes a path. It may also take the keywords `size`, the side of the frames in pixels (None: as it thinks
# best), `camera`, if it has several to choose from, and `names`, a file that lists which trajectories are wanted.
FORMATS: dict[str, Callable[..., Source]] = {
    "dinowm": read_dinowm,
    "recon": read_recon,
    "nwm": read_nwm,
    "hdf5": read_hdf5,
    "lance": read_lance,
    "lerobot": read_lerobot,
}
_NOT_TAKEN = {
    "size": "keeps the size of its frames",
    "camera": "has no cameras to choose from",
    "names": "does not choose trajectories by name",
}
SUFFIXES = {"hdf5": (".h5", ".hdf5")}  # of formats that are one file, to find it in an archive


def import_episodes(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    format: str,
    *,
    size: int | None = None,
    camera: str | None = None,
    names: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Episodes:
    """Write the episodes at `path`, which may be packed as .zst or .tar.zst, to the new file `out`.

    size: of the frames, for formats that decode them. camera: which, for formats with several. names: a file that lists
    the trajectories to take, for formats whose trajectories have names.
    """
    if Path(out).exists():
        raise DataError(f"{out} exists already; remove it or choose another name")
    given = {"size": size, "camera": camera, "names": None if names is None else Path(names)}
    with unpacked(Path(path), Path(out), SUFFIXES.get(format, ())) as found:
        write_episodes(_square(_source(found, format, given)), out, progress=progress)
    return Episodes(out)


def import_once(folder: Path, format: str, size: int, *, progress: Progress | None = None) -> Episodes:
    """The folder's episodes from a file beside it, which is written the first time and when the folder has changed."""
    source = _square(_source(folder, format, {"size": size}))
    target = folder.with_name(f"{folder.name}.{size}px.h5")
    if target.exists():
        with Episodes(target) as stored:
            if stored.attributes == source.attributes:
                return stored
            if stored.attributes.get("format") != format:
                raise DataError(f"{target} was not imported from {folder} and would be overwritten; move it away")
    write_episodes(source, target, progress=progress)
    return Episodes(target)


def _source(path: Path, format: str, given: Mapping[str, Any]) -> Source:
    """What the reader of a format makes of a path; what it does not take must not have been given."""
    reader = look_up(FORMATS, format, "format")
    taken = inspect.signature(reader).parameters
    for name, value in given.items():
        if value is not None and name not in taken:
            raise DataError(f"the format {format!r} {_NOT_TAKEN[name]}; leave {name} {str(value)!r} out")
    source = reader(path, **{name: value for name, value in given.items() if name in taken})
    if not isinstance(source, Source):
        raise DataError(f"the reader of the format {format!r} must return a Source, got a {type(source).__name__}")
    return source


def _square(source: Source) -> Source:
    """The same, whose frames are checked as they are read: world models take square ones."""

    def episodes() -> Iterator[Mapping[str, np.ndarray]]:
        for episode in source.episodes:
            sides = np.shape(episode.get("pixels", ()))[1:3]
            if len(set(sides)) > 1:
                raise DataError(
                    f"the frames are {sides[1]} × {sides[0]} pixels, and world models take square ones; give a size, "
                    "or make them square if the format keeps it"
                )
            yield episode

    return source._replace(episodes=episodes())
