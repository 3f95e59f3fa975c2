"""A small LeRobot dataset in the layout of version 3, written with pyarrow and av."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

FPS = 10
SIDE = (48, 64)  # height, width


def frames_of(episode: int, steps: int, camera: int = 0) -> np.ndarray:
    """uint8 [T, 48, 64, 3]: one grey per frame, another in every episode and for every camera."""
    levels = 20 + 20 * episode + 100 * camera + 4 * np.arange(steps)
    return np.broadcast_to(levels[:, None, None, None], (steps, *SIDE, 3)).astype(np.uint8)


def actions_of(episode: int, steps: int) -> np.ndarray:
    return np.random.default_rng(episode).normal(size=(steps, 2)).astype(np.float32)


def write_lerobot(
    folder: Path, lengths: Sequence[int] = (12, 9, 15), *, cameras: Sequence[str] = ("top",), images: bool = False
) -> Path:
    """Episodes of these lengths, two to a file. `images` keeps frames in the tables instead of videos."""
    features: dict[str, Any] = {
        "action": {"dtype": "float32", "shape": [2], "names": ["x", "y"]},
        "observation.state": {"dtype": "float32", "shape": [3], "names": None},
        "next.done": {"dtype": "bool", "shape": [1], "names": None},
        "timestamp": {"dtype": "float32", "shape": [1], "names": None},
        "frame_index": {"dtype": "int64", "shape": [1], "names": None},
        "episode_index": {"dtype": "int64", "shape": [1], "names": None},
        "index": {"dtype": "int64", "shape": [1], "names": None},
        "task_index": {"dtype": "int64", "shape": [1], "names": None},
    }
    kind = "image" if images else "video"
    features |= {f"observation.images.{name}": {"dtype": kind, "shape": [*SIDE, 3]} for name in cameras}
    info = {
        "codebase_version": "v3.0",
        "robot_type": "toy",
        "total_episodes": len(lengths),
        "total_frames": sum(lengths),
        "fps": FPS,
        "splits": {"train": f"0:{len(lengths)}"},
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
        "features": features,
    }
    (folder / "meta").mkdir(parents=True)
    (folder / "meta" / "info.json").write_text(json.dumps(info))
    rows, table, first = [], [], 0
    for episode, steps in enumerate(lengths):
        file, place = divmod(episode, 2)
        start = lengths[episode - 1] / FPS if place else 0.0
        row: dict[str, Any] = {
            "episode_index": episode,
            "tasks": ["push"],
            "length": steps,
            "dataset_from_index": first,
            "dataset_to_index": first + steps,
            "data/chunk_index": 0,
            "data/file_index": file,
        }
        for name in cameras:
            key = f"videos/observation.images.{name}"
            row |= {f"{key}/chunk_index": 0, f"{key}/file_index": file, f"{key}/from_timestamp": start}
        rows.append(row)
        table += [_step(episode, step, first, steps, cameras if images else ()) for step in range(steps)]
        first += steps
        if place or episode == len(lengths) - 1:
            _write(folder / "data" / "chunk-000" / f"file-{file:03d}.parquet", table)
            table = []
            for number, name in enumerate(() if images else cameras):
                parts = [frames_of(e, lengths[e], number) for e in range(2 * file, episode + 1)]
                _video(folder / "videos" / f"observation.images.{name}" / "chunk-000" / f"file-{file:03d}.mp4", parts)
    _write(folder / "meta" / "episodes" / "chunk-000" / "file-000.parquet", rows)
    return folder


def _step(episode: int, step: int, first: int, steps: int, cameras: Sequence[str]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "action": actions_of(episode, steps)[step].tolist(),
        "observation.state": [float(episode), float(step), 0.5],
        "next.done": step == steps - 1,
        "timestamp": step / FPS,
        "frame_index": step,
        "episode_index": episode,
        "index": first + step,
        "task_index": 0,
    }
    for number, name in enumerate(cameras):
        row[f"observation.images.{name}"] = {"bytes": png(frames_of(episode, steps, number)[step]), "path": None}
    return row


def png(frame: np.ndarray) -> bytes:
    import io

    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(frame).save(buffer, format="PNG")
    return buffer.getvalue()


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.Table.from_pylist(rows), path)


def _video(path: Path, parts: Sequence[np.ndarray]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=FPS, options={"crf": "10", "g": "4"})
        stream.height, stream.width, stream.pix_fmt = *SIDE, "yuv420p"
        for frame in np.concatenate(parts):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")))
        container.mux(stream.encode())
