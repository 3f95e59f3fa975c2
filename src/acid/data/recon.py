"""RECON's trajectories, one HDF5 file each, as frames and poses to train on; and a writer of the same files.

    images/rgb_left                                     [T] encoded images (JPEG, PNG, ...)
    jackal/position [T, 3], jackal/yaw [T]              m, rad, 4 times a second
    jackal/linear_velocity, jackal/angular_velocity     [T], m/s and rad/s; as the next two, and collision/*, not needed
    commands/linear_velocity, commands/angular_velocity

Frames are centre-cropped to 4:3 and resized to a square. `open_recon` decodes a folder once into a dataset file:

    episodes = open_recon("recon_release", size=64)
    parts = split(len(episodes), held_out=0.1)
    windows = PoseWindows(episodes, parts.train, frames=12)
    batch = windows.batch([0, 1])      # frames uint8 [2, 12, 64, 64, 3], actions float32 [2, 12, 3], poses, worlds
    case = batch.goal_case(context=4)  # 4 frames of context, a goal 8 frames ahead

An action is the next pose in the local frame of the current one, normalised as in `acid.data.poses`.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from acid.data._hdf5 import h5py
from acid.data.episodes import Episodes
from acid.data.pose_windows import CONTEXT, GoalCase, PoseBatch, PoseWindows
from acid.data.poses import (
    STEP_SECONDS,
    WAYPOINT,
    denormalise,
    displacements,
    integrate,
    normalise,
    to_local,
    to_world,
    wrap,
)
from acid.data.writer import EpisodeWriter
from acid.errors import DataError

IMAGES, POSITION, YAW = "images/rgb_left", "jackal/position", "jackal/yaw"
WORLD = "simulator_world"  # attribute of a simulated trajectory: the seed of its world
SUFFIXES = (".hdf5", ".h5")
Encoding = Literal["jpeg", "png"]
_FORMAT = "1"  # of the decoded dataset; another one is decoded anew


@dataclass(frozen=True)
class Recording:
    """What one file says."""

    images: Sequence[bytes]  # T encoded images
    poses: np.ndarray  # float64 [T, 3]
    world: int = -1  # the simulator's world, −1 in the real one
    extra: Mapping[str, np.ndarray] = field(default_factory=dict)  # other datasets by name, [T, ...]


def square_frame(image: np.ndarray, size: int) -> np.ndarray:
    """uint8 [H, W, 3], centre-cropped to 4:3 and resized to [size, size, 3] by averaging."""
    return _square(_pillow().fromarray(image), size)


def encode_image(image: np.ndarray, encoding: Encoding = "jpeg") -> bytes:
    """uint8 [H, W, 3] as the bytes of an image file; "png" keeps every pixel, "jpeg" takes less room."""
    written = io.BytesIO()
    options = {"quality": 95, "subsampling": 0} if encoding == "jpeg" else {"compress_level": 1}
    _pillow().fromarray(image).save(written, encoding, **options)
    return written.getvalue()


def decode_image(encoded: bytes, size: int) -> np.ndarray:
    """The bytes of an image file as a square frame uint8 [size, size, 3]; a ValueError if they are no image."""
    pillow = _pillow()
    try:
        with pillow.open(io.BytesIO(encoded)) as image:
            return _square(image.convert("RGB"), size)
    except Exception as error:  # Pillow's decoders raise many kinds for damaged bytes
        raise ValueError(str(error).splitlines()[0] if str(error) else type(error).__name__) from error


def read_trajectory(path: str | os.PathLike[str]) -> Recording:
    """The images, poses and, if it is simulated, the world of one file."""
    path = Path(path)
    if not path.is_file():
        raise DataError(f"no RECON trajectory at {path}; check the path")
    try:
        with h5py.File(path, "r") as file:
            images = [_bytes(value) for value in _dataset(file, IMAGES, path)[()]]
            position = np.asarray(_dataset(file, POSITION, path), np.float64)
            yaw = np.asarray(_dataset(file, YAW, path), np.float64).reshape(-1)
            world = int(file.attrs.get(WORLD, -1))  # type: ignore[arg-type]
    except OSError as error:
        raise DataError(f"{path} cannot be read, it may be truncated or no HDF5 file; fetch it again") from error
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
    return Recording(images, poses, world)


def read_frames(path: str | os.PathLike[str], size: int) -> tuple[np.ndarray, Recording]:
    """Frames uint8 [T, size, size, 3] of one file, and the rest of it."""
    trajectory = read_trajectory(path)
    frames = np.empty((len(trajectory.images), size, size, 3), np.uint8)
    for step, encoded in enumerate(trajectory.images):
        try:
            frames[step] = decode_image(encoded, size)
        except ValueError as error:
            raise DataError(f"image {step} of {path} cannot be decoded ({error}); leave the file out") from error
    return frames, trajectory


def write_trajectory(path: str | os.PathLike[str], trajectory: Recording) -> None:
    """Write one file in RECON's layout; it appears under its final name whole, or not at all."""
    path, steps = Path(path), len(trajectory.images)
    poses = np.asarray(trajectory.poses, np.float64)
    columns = {POSITION: np.pad(poses[:, :2], ((0, 0), (0, 1))), YAW: poses[:, 2], **trajectory.extra}
    wrong = {name: len(values) for name, values in columns.items() if len(values) != steps}
    if wrong or not steps:
        raise DataError(f"a trajectory of {steps} images needs {steps} steps of everything, got {wrong}")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    try:
        with h5py.File(partial, "w") as file:
            file.create_dataset(IMAGES, data=np.array(trajectory.images, dtype=np.bytes_))  # as RECON: fixed length
            for name, values in columns.items():
                file.create_dataset(name, data=values)
            if trajectory.world >= 0:
                file.attrs[WORLD] = trajectory.world
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def recon_files(folder: str | os.PathLike[str]) -> list[Path]:
    """The trajectories of a folder, in order of their names."""
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; give the one that holds RECON's .hdf5 files")
    files = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES)
    if not files:
        raise DataError(f"{folder} holds no {' or '.join(SUFFIXES)} files; give the folder of RECON's trajectories")
    return files


def open_recon(
    folder: str | os.PathLike[str],
    *,
    size: int = 64,
    cache: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Episodes:
    """A folder of trajectories as episodes, one per file, decoded the first time and read from `cache` after that.

    Columns: pixels uint8 [size, size, 3], pose float64 [3], action float32 [3] (normalised, 0 at the last step of a
    trajectory) and world int64 [1]. The default cache is a file beside the folder; it is made anew when files changed.
    """
    folder = Path(folder)
    files = recon_files(folder)
    target = Path(cache) if cache is not None else folder.with_name(f"{folder.name}.{size}px.h5")
    fingerprint = _fingerprint(files, size)
    if target.is_file():
        stored = Episodes(target)
        if stored.attributes.get("recon") == fingerprint:
            return stored
        if "recon" not in stored.attributes:
            raise DataError(f"{target} is not a cache of RECON frames and would be overwritten; name another cache")
        stored.close()
    with EpisodeWriter(target, attributes={"recon": fingerprint}) as writer:
        for done, path in enumerate(files):
            writer.write(_episode(*read_frames(path, size)))
            if progress is not None:
                progress(done + 1, len(files))
    return Episodes(target)


def _episode(frames: np.ndarray, trajectory: Recording) -> dict[str, np.ndarray]:
    steps = normalise(displacements(trajectory.poses)).astype(np.float32)
    return {
        "pixels": frames,
        "pose": trajectory.poses,
        "action": np.pad(steps, ((0, 1), (0, 0))),
        "world": np.full((len(frames), 1), trajectory.world, np.int64),
    }


def _fingerprint(files: Sequence[Path], size: int) -> str:
    """Changes with any file's name, length or time of writing."""
    found = hashlib.sha256(f"{_FORMAT} {size}".encode())
    for path in files:
        known = path.stat()
        found.update(f"{path.name} {known.st_size} {known.st_mtime_ns}".encode())
    return found.hexdigest()[:16]


def _dataset(file: h5py.File, name: str, path: Path) -> h5py.Dataset:
    item = file.get(name)
    if not isinstance(item, h5py.Dataset):
        raise DataError(f"{path} has no {name!r}, so it is not a RECON trajectory; leave it out")
    return item


def _bytes(value: Any) -> bytes:
    """An encoded image as bytes, however HDF5 stored it: a string, an opaque value or an array of uint8."""
    return value.tobytes() if isinstance(value, np.ndarray | np.void) else bytes(value)


def _square(image: Any, size: int) -> np.ndarray:
    width, height = image.size
    kept_width, kept_height = min(width, round(height * 4 / 3)), min(height, round(width * 3 / 4))
    left, top = (width - kept_width) // 2, (height - kept_height) // 2
    box = (left, top, left + kept_width, top + kept_height)
    return np.array(image.resize((size, size), _pillow().Resampling.BOX, box=box))


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError("RECON's images need Pillow: pip install 'acid-planning[navigation]'") from error
    return Image


__all__ = [
    "CONTEXT",
    "STEP_SECONDS",
    "WAYPOINT",
    "Encoding",
    "GoalCase",
    "PoseBatch",
    "PoseWindows",
    "Recording",
    "decode_image",
    "denormalise",
    "displacements",
    "encode_image",
    "integrate",
    "normalise",
    "open_recon",
    "read_frames",
    "read_trajectory",
    "recon_files",
    "square_frame",
    "to_local",
    "to_world",
    "write_trajectory",
]
