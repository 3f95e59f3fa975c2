"""RECON and the like as NWM processes them: a folder per trajectory, and lists of what to evaluate.

    NAME/0.jpg, 1.jpg, …        frames, 4 times a second
    NAME/traj_data.pkl          {"position": [T, 2] in m, "yaw": [T] or [T, 1] in rad}
    traj_names.txt              the names of a split, one a line
    navigation_eval.pkl         [(name, step, least steps to the goal, most steps to the goal), …]

Frames and actions become those of `acid.data.recon`. The pickles are read as plain values; nothing in them runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from acid.data.images import open_image
from acid.data.pickles import read_pickle
from acid.data.recon import SIZE, as_episode, fingerprint, square_image
from acid.data.writer import Source
from acid.errors import DataError, some
from acid.files import check_name, clipped, read_bytes

DATA = "traj_data.pkl"


def read_nwm(folder: Path, size: int | None = None, names: Path | None = None) -> Source:
    """The trajectories of a folder, all of them in order of their names, or those that a file lists, in its order."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; give the one that holds a folder per trajectory")
    chosen = trajectory_names(folder, names)
    size = SIZE if size is None else size
    known = {"format": "nwm", "size": str(size), "files": fingerprint([folder / name / DATA for name in chosen])}
    return Source(len(chosen), (read_folder(folder / name, size) for name in chosen), known)


def trajectory_names(folder: Path, names: Path | None = None) -> list[str]:
    """Names of the trajectories that `read_nwm` gives, which are its episodes 0, 1, …"""
    if names is None:
        found = sorted(place.name for place in folder.iterdir() if (place / DATA).is_file())
        if not found:
            raise DataError(f"no folder in {folder} holds a {DATA}; give the folder of NWM's processed trajectories")
        return found
    try:
        listed = read_bytes(names).decode().split()
    except UnicodeDecodeError as error:
        raise DataError(f"{names} is no list of names; give a traj_names.txt") from error
    found = [check_name(name, f"name in {names},") for name in listed]
    if missing := [name for name in found if not (folder / name / DATA).is_file()]:
        raise DataError(f"{names} lists {some(missing)}, but {folder} has no {DATA} of that name")
    if not found or len(set(found)) < len(found):
        raise DataError(f"{names} lists no trajectory, or one of them twice")
    return found


def read_folder(folder: Path, size: int) -> dict[str, np.ndarray]:
    """One trajectory as an episode."""
    poses = _poses(folder / DATA)
    frames = np.empty((len(poses), size, size, 3), np.uint8)
    for step in range(len(poses)):
        image = folder / f"{step}.jpg"
        try:
            frames[step] = square_image(open_image(read_bytes(image)), size)
        except ValueError as error:
            raise DataError(f"{image} cannot be read ({error}); leave the trajectory out") from error
    return as_episode(frames, poses)


class Start(NamedTuple):
    """Where an evaluation begins, and how many steps later its goal may be."""

    episode: int
    step: int
    least: int
    most: int


def read_starts(path: Path, names: Sequence[str]) -> list[Start]:
    """NWM's evaluation list, with trajectories as the numbers of the episodes that `names` were imported as."""
    listed, numbers = read_pickle(path), {name: number for number, name in enumerate(names)}
    if not isinstance(listed, list) or not listed:
        raise DataError(f"{path} holds {clipped(listed)} instead of a list of starts")
    starts = []
    for entry in listed:
        fits = isinstance(entry, tuple) and len(entry) == 4 and all(type(value) is int for value in entry[1:])
        if not fits or entry[0] not in numbers or entry[1] < 0 or entry[2] > entry[3]:
            raise DataError(
                f"{path} lists {clipped(entry)}, which is no (name, step, least, most) of the imported trajectories"
            )
        starts.append(Start(numbers[entry[0]], *entry[1:]))
    return starts


def _poses(path: Path) -> np.ndarray:
    """float64 [T, 3]."""
    found = read_pickle(path)
    if not isinstance(found, dict) or not {"position", "yaw"} <= found.keys():
        raise DataError(f"{path} must hold position and yaw, got {clipped(found)}")
    try:
        position, yaw = (np.asarray(found[name], np.float64) for name in ("position", "yaw"))
        poses = np.concatenate([position[:, :2], yaw.reshape(-1, 1)], axis=1)
    except (IndexError, TypeError, ValueError) as error:
        raise DataError(f"position and yaw of {path} are not [T, 2] and [T] ({error})") from error
    if poses.shape[1] != 3 or not len(poses) or not np.isfinite(poses).all():
        raise DataError(f"position and yaw of {path} must be finite numbers [T, 2] and [T], T at least 1")
    return poses
