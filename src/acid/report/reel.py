"""Films that run in step with each other: what was imagined beside what happened, with curves under them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from acid.errors import DataError
from acid.report.images import as_frames
from acid.report.shapes import data_address


@dataclass(frozen=True)
class Track:
    """One film: frames, and which of them is seen at each tick of the clock that all tracks share."""

    label: str
    kind: str  # "imagined", "executed", "goal"
    colour: str
    frames: np.ndarray  # uint8 [n, S, S, 3]
    index: Sequence[int]  # one per tick
    notes: Sequence[str] = ()  # under the film, one per tick


@dataclass(frozen=True)
class Curve:
    """A number per model step."""

    label: str
    colour: str
    values: Sequence[float]


@dataclass(frozen=True)
class Reel:
    """Tracks and curves of one episode."""

    title: str
    text: str  # which episode this is and by which rule it was chosen
    tracks: Sequence[Track]
    curves: Sequence[Curve]
    curve_name: str  # of all curves
    ticks_per_step: int = 1

    @property
    def ticks(self) -> int:
        return max(len(track.index) for track in self.tracks)

    @property
    def steps(self) -> int:
        return max((len(curve.values) for curve in self.curves), default=0)

    @property
    def highest(self) -> float:
        return max((value for curve in self.curves for value in curve.values), default=0.0) or 1.0

    def films(self) -> list[dict[str, Any]]:
        """The tracks for the page's script: all frames of a track as one image."""
        return [_film(track) for track in self.tracks]

    def save(self, path: Path, **more: Any) -> None:
        """Written whole; `more` is kept beside it, as JSON."""
        told = {
            "title": self.title,
            "text": self.text,
            "curves": [asdict(curve) for curve in self.curves],
            "curve_name": self.curve_name,
            "ticks_per_step": self.ticks_per_step,
            "tracks": [{n: v for n, v in vars(track).items() if n != "frames"} for track in self.tracks],
            "more": more,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial.npz")
        frames = {f"frames{k}": track.frames for k, track in enumerate(self.tracks)}
        np.savez_compressed(partial, told=json.dumps(told), **frames)  # type: ignore[arg-type]
        partial.replace(path)

    @classmethod
    def load(cls, path: Path) -> tuple[Reel, dict[str, Any]]:
        """The reel and what was kept beside it."""
        try:
            with np.load(path, allow_pickle=False) as stored:
                told = json.loads(str(stored["told"]))
                tracks = [Track(frames=stored[f"frames{k}"], **one) for k, one in enumerate(told.pop("tracks"))]
            more, curves = told.pop("more"), [Curve(**one) for one in told.pop("curves")]
            for track in tracks:
                as_frames(track.label, track.frames)
                if not all(0 <= k < len(track.frames) for k in track.index):
                    raise ValueError(f"{track.label} shows frames that it does not have")
            return cls(tracks=tracks, curves=curves, **told), more
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path} is not a film ({error}): delete it and make it again") from error


def _film(track: Track) -> dict[str, Any]:
    columns = math.ceil(math.sqrt(len(track.frames)))
    rows = math.ceil(len(track.frames) / columns)
    height, width = track.frames.shape[1:3]
    sprite = np.zeros((rows * height, columns * width, 3), np.uint8)
    for k, frame in enumerate(track.frames):
        top, left = k // columns * height, k % columns * width
        sprite[top : top + height, left : left + width] = frame
    return {
        "source": data_address(sprite),
        "columns": columns,
        "width": width,
        "height": height,
        "index": list(track.index),
        "notes": list(track.notes),
    }
