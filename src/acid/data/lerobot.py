"""LeRobot datasets of version 3, a real robot's episodes: tables in parquet files, frames in videos.

    meta/info.json                          version, fps, features, where files are
    meta/episodes/chunk-000/file-000.parquet  which rows and which part of which video belong to an episode
    data/chunk-000/file-000.parquet         action, observation.state, ... of every step
    videos/KEY/chunk-000/file-000.mp4       frames of many episodes, one after another

They are read with pyarrow and av, without lerobot. `observation.state` becomes the column proprio, the first camera
pixels, another one called NAME pixels_NAME.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from acid.data.arrow import as_numbers
from acid.data.images import frame, open_image, pillow
from acid.data.writer import Source
from acid.errors import DataError, did_you_mean, is_number, need_package, some
from acid.files import clipped, existing, read_json_object, reason

SIZE = 64  # px, unless something else is asked for
VERSION = "v3"
CAMERAS = "observation.images."
STATE, ACTION = "observation.state", "action"
BOOKKEEPING = ("timestamp", "frame_index", "episode_index", "index", "task_index")
_DATA = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
_VIDEO = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
_PLACE = re.compile(r"{(chunk_index|file_index|video_key)(?::(0?\dd))?}")  # what is filled in, and how wide
_MOST = 2**31  # of any number in a table of episodes


def is_lerobot(path: Path) -> bool:
    """Whether a folder looks like a LeRobot dataset, of any version."""
    return (path / "meta" / "info.json").is_file()


def read_lerobot(path: Path, size: int | None = None, camera: str | None = None) -> Source:
    """The episodes of a folder, in order; `camera` is one name, or several with commas, the first of which is pixels.

    Frames are resized whole, so that nothing at their sides is lost.
    """
    dataset = Dataset.open(path, camera)
    size = SIZE if size is None else size
    known = {
        "format": "lerobot",
        "size": str(size),
        "camera": ",".join(dataset.cameras),
        "fps": str(dataset.fps),
        "files": dataset.fingerprint(),
    }
    return Source(len(dataset.episodes), dataset.read(size), known)


@dataclass(frozen=True)
class Dataset:
    """A folder, opened and checked."""

    path: Path
    info: Mapping[str, Any]
    fps: float
    cameras: Mapping[str, str]  # feature by name
    columns: Mapping[str, str]  # feature by the name of our column
    episodes: Sequence[Mapping[str, Any]]

    @classmethod
    def open(cls, path: Path, camera: str | None) -> Dataset:
        info = _info(path)
        features: Mapping[str, Any] = info["features"]
        if ACTION not in features:
            raise DataError(f"{path} has no feature {ACTION!r}; it has {some(sorted(features))}")
        images = {
            key.removeprefix(CAMERAS).removeprefix("observation."): key
            for key, feature in features.items()
            if feature.get("dtype") in ("video", "image")
        }
        numbers = {
            _column_name(key): key
            for key, feature in features.items()
            if key not in BOOKKEEPING and str(feature.get("dtype")).startswith(("float", "int", "bool"))
        }
        cameras = {name: images[name] for name in _chosen(images, camera, path)}
        return cls(path, info, float(info["fps"]), cameras, numbers, _episodes(path))

    def fingerprint(self) -> str:
        """Changes with any file's name, length or time of writing."""
        found = hashlib.sha256()
        for file in sorted(self.path.rglob("*")):
            if file.suffix in (".parquet", ".mp4", ".json"):
                known = file.stat()
                found.update(f"{file.relative_to(self.path)} {known.st_size} {known.st_mtime_ns}".encode())
        return found.hexdigest()[:16]

    def read(self, size: int) -> Iterator[dict[str, np.ndarray]]:
        for episode in self.episodes:
            table = self._rows(episode)
            steps = len(table)
            columns = {name: self._numbers(table, key, episode) for name, key in self.columns.items()}
            for place, (name, key) in enumerate(self.cameras.items()):
                frames = self._frames(table, key, episode, size)
                if len(frames) != steps:
                    raise DataError(
                        f"episode {episode['episode_index']} of {self.path} has {steps} steps but {len(frames)} frames "
                        f"of camera {name!r}; leave it out, or record it again"
                    )
                columns["pixels" if place == 0 else f"pixels_{name}"] = frames
            yield columns

    def _rows(self, episode: Mapping[str, Any]) -> Any:
        """The steps of an episode, a table."""
        file = self.path / self._where("data_path", _DATA, episode, "data")
        keys = [key for key in (*self.columns.values(), *self.cameras.values()) if not self._is_video(key)]
        own = _parquet(file, [*keys, "frame_index"], episode=int(episode["episode_index"])).sort_by("frame_index")
        if len(own) != int(episode["length"]):
            raise DataError(
                f"episode {episode['episode_index']} of {self.path} should have {episode['length']} steps, but {file} "
                f"holds {len(own)} of them; fetch the dataset again"
            )
        return own

    def _numbers(self, table: Any, key: str, episode: Mapping[str, Any]) -> np.ndarray:
        return as_numbers(table[key], f"{key!r} of episode {episode['episode_index']} of {self.path}")

    def _frames(self, table: Any, key: str, episode: Mapping[str, Any], size: int) -> np.ndarray:
        """uint8 [T, size, size, 3]."""
        if self._is_video(key):
            file = self.path / self._where("video_path", _VIDEO, episode, f"videos/{key}", video_key=key)
            start = float(_number(episode, f"videos/{key}/from_timestamp", self.path))
            return _video(file, start, len(table), self.fps, size)
        try:
            return np.stack([frame(open_image(image["bytes"]), size) for image in table[key].to_pylist()])
        except (ValueError, TypeError) as error:
            raise DataError(
                f"an image of {key!r} in episode {episode['episode_index']} of {self.path} cannot be decoded ({error})"
            ) from error

    def _is_video(self, key: str) -> bool:
        return self.info["features"][key].get("dtype") == "video"

    def _where(self, setting: str, usual: str, episode: Mapping[str, Any], prefix: str, **more: str) -> str:
        known = {name: int(_number(episode, f"{prefix}/{name}", self.path)) for name in ("chunk_index", "file_index")}
        form = str(self.info.get(setting) or usual)
        found = _PLACE.sub(lambda place: f"{(known | more)[place[1]]:{place[2] or ''}}", form)
        if {"{", "}", "\0"} & set(found) or not (self.path / found).resolve().is_relative_to(self.path.resolve()):
            raise DataError(f"{setting} in {self.path}/meta/info.json, {clipped(form)}, names no file of the dataset")
        return found


def _info(path: Path) -> dict[str, Any]:
    file = path / "meta" / "info.json"
    if not file.is_file():
        raise DataError(f"{path} has no meta/info.json, so it is not a LeRobot dataset")
    info = read_json_object(file)
    version, fps, features = (info.get(name) for name in ("codebase_version", "fps", "features"))
    if not isinstance(version, str) or not isinstance(features, dict) or not all(map(_is_object, features.values())):
        raise DataError(
            f"{file} is damaged or not of a LeRobot dataset: codebase_version is {clipped(version)}, features are "
            f"{clipped(features)}; fetch it again"
        )
    if not version.startswith(VERSION):
        raise DataError(
            f"{path} is a LeRobot dataset of version {version}, and version 3 is read: convert it with lerobot's "
            "convert_dataset_v21_to_v30"
        )
    if fps is None or not is_number(fps) or not 0 < fps < 100_000:
        raise DataError(f"{file} gives {clipped(fps)} frames a second")
    return info


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _chosen(images: Mapping[str, str], camera: str | None, path: Path) -> list[str]:
    if not images:
        raise DataError(f"{path} has no camera; episodes are learned from frames")
    if camera is None:
        if len(images) > 1:
            raise DataError(
                f"{path} has the cameras {', '.join(images)}: choose with `acid import --camera {next(iter(images))}`"
            )
        return list(images)
    asked = [name.strip() for name in camera.split(",")]
    for name in asked:
        if name not in images:
            raise DataError(f"{path} has no camera {name!r}{did_you_mean(name, images)}")
    return asked


def _episodes(path: Path) -> list[dict[str, Any]]:
    """The table of episodes, in order."""
    files = sorted((path / "meta" / "episodes").rglob("*.parquet"))
    if not files:
        raise DataError(f"{path} has no meta/episodes/*/*.parquet; fetch the whole dataset")
    found = [row for file in files for row in _parquet(file).to_pylist()]
    for row in found:
        for name in ("episode_index", "length"):
            _number(row, name, path)
    if not found:
        raise DataError(f"{path} holds no episodes")
    return sorted(found, key=lambda row: row["episode_index"])


def _number(row: Mapping[str, Any], name: str, path: Path) -> float:
    found = row.get(name)
    if found is None:
        raise DataError(f"the table of episodes of {path} has no {name!r}, so it is not one of version 3")
    if not is_number(found, whole=not name.endswith("timestamp")) or not 0 <= found < _MOST:
        raise DataError(f"the table of episodes of {path} gives {clipped(found)} as {name!r}; fetch it again")
    return found


def _column_name(key: str) -> str:
    return "proprio" if key == STATE else key.removeprefix("observation.").replace(".", "_")


def _need(module: str) -> Any:
    return need_package(module, "robots", "a LeRobot dataset", DataError)


def _parquet(file: Path, columns: list[str] | None = None, episode: int | None = None) -> Any:
    """A table, or the rows of one episode of it."""
    parquet, pyarrow = (_need(module) for module in ("pyarrow.parquet", "pyarrow"))
    if not file.is_file():
        raise DataError(f"{file} is missing; fetch the whole dataset")
    existing(file)
    try:
        chosen = None if episode is None else [("episode_index", "=", episode)]
        return parquet.read_table(file, columns=columns, filters=chosen)
    except (pyarrow.ArrowException, OSError, LookupError, ValueError) as error:
        raise DataError(f"{file} cannot be read, it may be truncated ({reason(error)})") from error


def _video(file: Path, start: float, count: int, fps: float, size: int) -> np.ndarray:
    """The `count` frames from `start` seconds on; as many as there are, if fewer."""
    av = _need("av")
    if not file.is_file():
        raise DataError(f"{file} is missing; fetch the whole dataset")
    found: list[np.ndarray] = []
    first = start - 0.5 / fps  # a frame is that of the nearest moment
    try:
        with av.open(str(file)) as container:
            stream = container.streams.video[0]
            stream.thread_type = "AUTO"
            container.seek(max(0, int(first / float(stream.time_base or 1))), stream=stream)  # to a key frame before it
            for picture in container.decode(stream):
                if picture.time is not None and picture.time >= first:
                    found.append(frame(pillow().fromarray(picture.to_ndarray(format="rgb24")), size))
                if len(found) == count:
                    break
    except (av.FFmpegError, LookupError, ValueError, OSError, ArithmeticError) as error:
        raise DataError(f"{file} cannot be decoded ({reason(error)}); fetch it again") from error
    return np.stack(found) if found else np.empty((0, size, size, 3), np.uint8)
