"""Reads the published DINO-WM datasets of rope and granular: a folder of torch files, one of them per trajectory.

    states.pth              [N, T, P, 4]: positions of particles and their inverse mass
    actions.pth             [N, T, 4]: push start and end
    000000/obses.pth, …     [T, H, W, 3]: frames, 0 to 255

Files are opened with weights_only: nothing in them is executed. States and actions stay on disk until
they are asked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from acid.data.writer import Source
from acid.errors import DataError
from acid.files import load_torch

ACTION_SIZE = 4


class DinoWmFolder:
    """A published dataset folder as a sequence of trajectories, each a mapping that EpisodeWriter.write takes.

    The states are those of the publisher's simulator, which this library's tasks cannot restore.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            raise DataError(f"{self.path} is not a folder; give the one that holds states.pth and actions.pth")
        self._states = _load(self.path / "states.pth", "N, T, P, 4", (None, None, None, 4))
        self._actions = _load(self.path / "actions.pth", "N, T, 4", (None, None, ACTION_SIZE))
        if self._states.shape[:2] != self._actions.shape[:2]:
            raise DataError(
                f"{self.path} holds {list(self._states.shape[:2])} trajectories and steps of states "
                f"but {list(self._actions.shape[:2])} of actions; download it again"
            )

    def __len__(self) -> int:
        """Trajectories."""
        return len(self._actions)

    @property
    def steps(self) -> int:
        """Of every trajectory."""
        return self._actions.shape[1]

    @property
    def particles(self) -> int:
        return self._states.shape[2]

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        """pixels uint8 [T, H, W, 3], action float32 [T, 4], particles float32 [T, P, 4] of one trajectory."""
        if not 0 <= index < len(self):
            raise IndexError(f"{self.path} holds trajectories 0 to {len(self) - 1}, not {index}")
        frames = self.path / f"{index:06d}" / "obses.pth"
        pixels = _load(frames, "T, H, W, 3", (self.steps, None, None, 3))
        return {
            "pixels": _as_pixels(pixels, frames),
            "action": _as_numbers(self._actions[index], self.path / "actions.pth", index),
            "particles": _as_numbers(self._states[index], self.path / "states.pth", index),
        }


def read_dinowm(path: Path) -> Source:
    """The trajectories of a folder; frames keep their size."""
    folder = DinoWmFolder(path)
    return Source(len(folder), folder, {"format": "dinowm", "folder": path.resolve().name})


def _load(path: Path, letters: str, shape: tuple[int | None, ...]) -> Tensor:
    """The tensor in a file, mapped instead of read where the file's format allows that; None in `shape` is any size."""
    if not path.exists():
        raise DataError(
            f"{path} is missing; a DINO-WM folder needs states.pth, actions.pth and a folder per trajectory"
        )
    found = load_torch(path, mmap=True, remedy="download it again")
    if not isinstance(found, Tensor):
        raise DataError(f"{path} holds a {type(found).__name__}; expected one tensor [{letters}]")
    fits = found.ndim == len(shape) and all(want in (None, size) for size, want in zip(found.shape, shape, strict=True))
    if not fits or 0 in found.shape:
        names = letters.split(", ")
        wanted = ", ".join(letter if size is None else str(size) for letter, size in zip(names, shape, strict=True))
        raise DataError(f"{path} holds a tensor {list(found.shape)}; expected [{wanted}]")
    if found.is_complex() or found.dtype == torch.bool:
        raise DataError(f"{path} holds {found.dtype}; expected real numbers")
    return found


def _as_pixels(frames: Tensor, path: Path) -> np.ndarray:
    """uint8, from whatever numbers 0 to 255 the file holds."""
    if frames.dtype == torch.uint8:
        return frames.numpy().copy()
    low, high = float(frames.min()), float(frames.max())
    if not (low >= 0 and high <= 255):
        raise DataError(f"{path} holds values from {low:g} to {high:g}; frames need 0 to 255")
    return frames.round().to(torch.uint8).numpy()


def _as_numbers(values: Tensor, path: Path, index: int) -> np.ndarray:
    if not torch.isfinite(values).all():
        raise DataError(f"trajectory {index} of {path} holds numbers that are not finite; leave it out")
    return values.to(torch.float32).numpy().copy()
