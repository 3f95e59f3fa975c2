"""RECON's trajectories, one HDF5 file each, as frames and poses to train on.

    images/rgb_left                         [T] encoded images (JPEG, PNG, ...)
    jackal/position [T, 3], jackal/yaw [T]  m, rad, 4 times a second

Frames are centre-cropped to 4:3 and resized to a square. An action is the next pose in the local frame of the current
one, normalised as in `acid.data.poses`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from acid.data._hdf5 import find_dataset, h5py, open_file, reading
from acid.data.images import open_image, pillow
from acid.data.poses import displacements, normalise, wrap
from acid.data.writer import Source
from acid.errors import DataError

IMAGES, POSITION, YAW = "images/rgb_left", "jackal/position", "jackal/yaw"
SUFFIXES = (".hdf5", ".h5")
SIZE = 64  # px, unless something else is asked for


def read_recon(folder: Path, size: int | None = None) -> Source:
    """The trajectories of a folder, in order of their names.

    Columns: pixels uint8 [size, size, 3], pose float64 [3] and action float32 [3] (0 at the last step of a trajectory).
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; give the one that holds RECON's .hdf5 files")
    files = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES)
    if not files:
        raise DataError(f"{folder} holds no {' or '.join(SUFFIXES)} files; give the folder of RECON's trajectories")
    size = SIZE if size is None else size
    known = {"format": "recon", "size": str(size), "files": fingerprint(files)}
    return Source(len(files), (read_trajectory(path, size) for path in files), known)


def read_trajectory(path: Path, size: int) -> dict[str, np.ndarray]:
    """One file as an episode."""
    images, poses = _read_file(path)
    frames = np.empty((len(images), size, size, 3), np.uint8)
    for step, encoded in enumerate(images):
        try:
            frames[step] = square_image(open_image(encoded), size)
        except ValueError as error:
            raise DataError(f"image {step} of {path} cannot be decoded ({error}); leave the file out") from error
    return as_episode(frames, poses)


def as_episode(frames: np.ndarray, poses: np.ndarray) -> dict[str, np.ndarray]:
    """Columns of frames uint8 [T, size, size, 3] and poses float64 [T, 3]."""
    steps = normalise(displacements(poses)).astype(np.float32)
    return {"pixels": frames, "pose": poses, "action": np.pad(steps, ((0, 1), (0, 0)))}


def square_frame(image: np.ndarray, size: int) -> np.ndarray:
    """uint8 [H, W, 3], centre-cropped to 4:3 and resized to [size, size, 3] by averaging."""
    return square_image(pillow().fromarray(image), size)


def _read_file(path: Path) -> tuple[list[bytes], np.ndarray]:
    """Encoded images and poses float64 [T, 3]."""
    with open_file(path, "there is no such trajectory") as file, reading(str(path)):
        images = [_bytes(value) for value in _dataset(file, IMAGES, path)[()]]
        position = np.asarray(_dataset(file, POSITION, path), np.float64)
        yaw = np.asarray(_dataset(file, YAW, path), np.float64).reshape(-1)
    if position.ndim != 2 or position.shape[1] not in (2, 3):
        raise DataError(f"{POSITION} of {path} has shape {list(position.shape)}; expected [T, 3]")
    if not len(images) == len(position) == len(yaw) or not images:
        raise DataError(
            f"{path} holds {len(images)} images, {len(position)} positions and {len(yaw)} yaws; a trajectory needs one "
            "of each per step: leave it out"
        )
    poses = np.concatenate([position[:, :2], wrap(yaw)[:, None]], axis=1)
    if not np.isfinite(poses).all():
        raise DataError(f"step {int(np.argmin(np.isfinite(poses).all(1)))} of {path} has a pose that is not finite")
    return images, poses


def fingerprint(files: Sequence[Path]) -> str:
    """Changes with any file's name, length or time of writing."""
    found = hashlib.sha256()
    for path in files:
        known = path.stat()
        found.update(f"{path.name} {known.st_size} {known.st_mtime_ns}".encode())
    return found.hexdigest()[:16]


def _dataset(file: h5py.File, name: str, path: Path) -> h5py.Dataset:
    item = find_dataset(file, name, path)
    if item is None:
        raise DataError(f"{path} has no {name!r}, so it is not a RECON trajectory; leave it out")
    return item


def _bytes(value: Any) -> bytes:
    """An encoded image as bytes, however HDF5 stored it: a string, an opaque value or an array of uint8."""
    return value.tobytes() if isinstance(value, np.ndarray | np.void) else bytes(value)


def square_image(image: Any, size: int) -> np.ndarray:
    """The same of an image of Pillow."""
    width, height = image.size
    kept_width, kept_height = min(width, round(height * 4 / 3)), min(height, round(width * 3 / 4))
    left, top = (width - kept_width) // 2, (height - kept_height) // 2
    box = (left, top, left + kept_width, top + kept_height)
    return np.array(image.resize((size, size), pillow().Resampling.BOX, box=box))
