"""Datasets of other formats by name, turned once into a file of ours."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path

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

# A reader takes a path and the side of the frames in pixels (None: as they are). It may also take the keywords
# `camera`, if it has several to choose from, and `names`, a file that lists which trajectories are wanted.
FORMATS: dict[str, Callable[..., Source]] = {
    "dinowm": read_dinowm,
    "recon": read_recon,
    "nwm": read_nwm,
    "hdf5": read_hdf5,
    "lance": read_lance,
    "lerobot": read_lerobot,
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
    reader = look_up(FORMATS, format, "format")
    taken = inspect.signature(reader).parameters
    if camera is not None and "camera" not in taken:
        raise DataError(f"the format {format!r} has no cameras to choose from; leave {camera!r} out")
    if names is not None and "names" not in taken:
        raise DataError(f"the trajectories of the format {format!r} are not chosen by name; leave {names} out")
    given = {"camera": camera, "names": None if names is None else Path(names)}
    chosen = {name: value for name, value in given.items() if value is not None}
    with unpacked(Path(path), Path(out), SUFFIXES.get(format, ())) as found:
        write_episodes(reader(found, size, **chosen), out, progress=progress)
    return Episodes(out)


def import_once(folder: Path, format: str, size: int, *, progress: Progress | None = None) -> Episodes:
    """The folder's episodes from a file beside it, which is written the first time and when the folder has changed."""
    source = look_up(FORMATS, format, "format")(folder, size)
    target = folder.with_name(f"{folder.name}.{size}px.h5")
    if target.exists():
        with Episodes(target) as stored:
            if stored.attributes == source.attributes:
                return stored
            if stored.attributes.get("format") != format:
                raise DataError(f"{target} was not imported from {folder} and would be overwritten; move it away")
    write_episodes(source, target, progress=progress)
    return Episodes(target)
