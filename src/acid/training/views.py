"""How often a recorded frame is shown: as it is, also mirrored, or also under every symmetry of its task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from acid import tasks
from acid.data import Episodes
from acid.errors import DataError
from acid.loop import SettingError
from acid.models.patch_encoders import digest
from acid.tasks.symmetry import Symmetry
from acid.training.part import Job, spread

CHECKED = 16  # frames, spread over the dataset, that are drawn again
ALIKE = 0.25  # of how far symmetries change frames: two machines' frames of one state differ by less


@dataclass(frozen=True)
class Views:
    """V views of every frame, the recorded one first."""

    name: str  # in the name of the file that keeps their latents
    actions: Tensor  # float32 [V, a, a]: what multiplies a recorded action
    show: Callable[[Any], Sequence[Tensor]]  # what is read of some frames to the pixels [M, S, S, 3] of each view
    columns: tuple[str, ...] = ()  # of the dataset, that are read besides pixels
    fingerprint: str = ""  # changes with what is shown

    def __len__(self) -> int:
        return len(self.actions)


# A mirror turns displacements (x, y, yaw) into (x, −y, −yaw).
MIRRORED = Views(
    "mirrored", torch.tensor([[1.0, 1.0, 1.0], [1.0, -1.0, -1.0]]).diag_embed(), lambda pixels: (pixels, pixels.flip(2))
)


def views_of(job: Job, size: int) -> Views | None:
    """Those that the recipe asks for, of actions of so many numbers; None for frames as they are."""
    mirror, symmetries = (getattr(job.recipe, name, False) for name in ("mirror", "symmetries"))
    if mirror and symmetries:
        raise SettingError("mirror and symmetries are two ways to show more of the same frames: choose one")
    if mirror:
        if job.kind.actions != "displacements":
            raise SettingError(
                f"mirror=True: it is not known what a mirror does to the actions of a {job.recipe.model}"
            )
        return MIRRORED
    return _symmetric(job, size) if symmetries else None


def _symmetric(job: Job, size: int) -> Views:
    known: Sequence[Symmetry] = tasks.task_class(job.task).symmetries
    if not known or job.kind.actions == "displacements":
        raise SettingError(f"symmetries=True: the task {job.task!r} has none for a {job.recipe.model}; leave it out")
    if any(symmetry.action.shape != (size, size) for symmetry in known):
        raise SettingError(
            f"symmetries=True: those of {job.task!r} are not for actions of {size} numbers; leave it out"
        )
    if "state" not in job.episodes.columns:
        raise DataError(f"{job.episodes.path} has no column 'state', which frames under a symmetry are drawn from")
    drawing = Drawing(job.task, job.episodes.shape("pixels")[0], known)
    matrices = torch.from_numpy(np.stack([np.eye(size), *(symmetry.action for symmetry in known)])).float()
    few = _check(drawing, job.episodes)
    fingerprint = digest({"actions": matrices, "frames": torch.stack(list(few))})
    return Views("symmetric", matrices, drawing, ("state",), fingerprint)


class Drawing:
    """Draws recorded states again under symmetries."""

    def __init__(self, task: str, size: int, symmetries: Sequence[Symmetry]) -> None:
        self._name, self._size, self._symmetries = task, size, symmetries

    def __call__(self, seen: Mapping[str, Tensor]) -> Sequence[Tensor]:
        """{"pixels": [M, S, S, 3], "state": [M, S]} to the pixels of each view."""
        states = seen["state"].numpy()
        turned = (np.stack([symmetry.state(state) for state in states]) for symmetry in self._symmetries)
        return seen["pixels"], *map(self.draw, turned)

    def draw(self, states: np.ndarray) -> Tensor:
        """Pixels uint8 [M, S, S, 3] of states [M, S]."""
        return torch.from_numpy(np.stack([_draw(self._task, state) for state in states]))

    @cached_property
    def _task(self) -> tasks.Task:
        """Built once; its renderer is freed with the process."""
        return tasks.make(self._name, size=self._size)


def _draw(task: tasks.Task, state: np.ndarray) -> np.ndarray:
    task.set_state(state)
    return task.render()


def _check(drawing: Drawing, episodes: Episodes) -> Sequence[Tensor]:
    """A few frames in every view; a DataError if recorded frames look otherwise than the task draws their states.

    So they do if they are of another simulator, or if the column tells something else than the states of the frames.
    """
    rows = spread(np.arange(episodes.rows), CHECKED)
    seen = {name: torch.from_numpy(episodes.read(name, rows)) for name in ("pixels", "state")}
    recorded, *others = drawing(seen)
    again = drawing.draw(seen["state"].numpy())
    away = _apart(recorded, again)
    changed = torch.stack([_apart(view, again) for view in others]).mean()
    if (away > ALIKE * changed).any():
        row = int(rows[int((away > ALIKE * changed).nonzero()[0])])
        raise DataError(
            f"the frame in row {row} of {episodes.path} is not what the task draws of its state, so frames under a "
            "symmetry would not fit the recorded ones; train without symmetries"
        )
    return recorded, *others


def _apart(frames: Tensor, others: Tensor) -> Tensor:
    """Mean absolute difference [M] of pixels [M, S, S, 3]."""
    return (frames.float() - others.float()).abs().mean((1, 2, 3))
