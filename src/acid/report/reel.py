"""Films that run in step with each other: what was imagined beside what happened, with curves under them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from acid.errors import DataError, ShapeError, are_numbers, is_number
from acid.files import load_arrays, replacing
from acid.report.images import as_frames
from acid.report.shapes import data_address

_TEXTS = ("title", "text", "curve_name", "label", "kind", "colour")


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
        frames = {f"frames{k}": track.frames for k, track in enumerate(self.tracks)}
        with replacing(path) as partial, partial.open("wb") as file:
            np.savez_compressed(file, told=json.dumps(told), **frames)  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: Path) -> tuple[Reel, dict[str, Any]]:
        """The reel and what was kept beside it."""
        remedy = "delete it and make it again"
        arrays = load_arrays(path, remedy=remedy)
        try:
            told = json.loads(str(arrays["told"]))
            tracks = [Track(frames=arrays[f"frames{k}"], **one) for k, one in enumerate(told.pop("tracks"))]
            more, curves = dict(told.pop("more")), [Curve(**one) for one in told.pop("curves")]
            reel = cls(tracks=tracks, curves=curves, **told)
            reel._check()
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ShapeError) as error:
            raise DataError(f"{path} is not a film ({error}); {remedy}") from error
        return reel, more

    def _check(self) -> None:
        """For one that comes from a file."""
        named = [self, *self.tracks, *self.curves]
        texts = [value for one in named for name, value in vars(one).items() if name in _TEXTS]
        texts += [note for track in self.tracks for note in track.notes]
        if not (all(isinstance(text, str) for text in texts) and is_number(self.ticks_per_step, whole=True)):
            raise ValueError("a text is none, or ticks_per_step is not a whole number")
        if self.ticks_per_step < 1 or not self.tracks:
            raise ValueError("it has no tracks, or no ticks in a step")
        for track in self.tracks:
            as_frames(track.label, track.frames)
            if not are_numbers(track.index) or not all(
                is_number(k, whole=True) and 0 <= k < len(track.frames) for k in track.index
            ):
                raise ValueError(f"{track.label} shows frames that it does not have")
        for curve in self.curves:
            if not are_numbers(curve.values):
                raise ValueError(f"the values of {curve.label} are not finite numbers")


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
