"""How often a recorded frame is shown: as it is, also mirrored, or also under every symmetry of its task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from acid import tasks
from acid.data import Episodes
from acid.errors import DataError
from acid.loop import SettingError
from acid.tasks.symmetry import Symmetry
from acid.training.part import Job

ALIKE = 1.0  # of 255: frames of one state by two machines differ by less


@dataclass(frozen=True)
class Views:
    """V views of every frame, the recorded one first."""

    name: str  # in the name of the file that keeps their latents
    actions: Tensor  # float32 [V, a, a]: what multiplies a recorded action
    show: Callable[[Any], Sequence[Tensor]]  # what is read of some frames to the pixels [M, S, S, 3] of each view
    columns: tuple[str, ...] = ()  # of the dataset, that are read besides pixels

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
    drawing = Drawing(job.task, job.episodes, known)
    drawing.check()
    matrices = torch.from_numpy(np.stack([np.eye(size), *(symmetry.action for symmetry in known)])).float()
    return Views("symmetric", matrices, drawing, ("state",))


class Drawing:
    """Draws recorded states again under symmetries."""

    def __init__(self, task: str, episodes: Episodes, symmetries: Sequence[Symmetry]) -> None:
        self._task, self._episodes, self._size = task, episodes, episodes.shape("pixels")[0]
        self._symmetries = symmetries

    def check(self) -> None:
        """A DataError if recorded frames look otherwise than the task draws them, as those of another simulator do."""
        recorded, state = (self._episodes.read(name, np.array([0]))[0] for name in ("pixels", "state"))
        with closing(tasks.make(self._task, size=self._size)) as task:
            away = np.abs(_draw(task, state).astype(np.int16) - recorded).mean()
        if away > ALIKE:
            raise DataError(
                f"frames of {self._episodes.path} are not what {self._task} draws of their states ({away:.1f} of 255 "
                "away on average), so frames under a symmetry would be of another kind; train without symmetries"
            )

    def __call__(self, seen: dict[str, Tensor]) -> Sequence[Tensor]:
        """{"pixels": [M, S, S, 3], "state": [M, S]} to the pixels of each view."""
        states = seen["state"].numpy()
        with closing(tasks.make(self._task, size=self._size)) as task:
            drawn = [[_draw(task, symmetry.state(state)) for state in states] for symmetry in self._symmetries]
        return seen["pixels"], *(torch.from_numpy(np.stack(frames)) for frames in drawn)


def _draw(task: tasks.Task, state: np.ndarray) -> np.ndarray:
    task.set_state(state)
    return task.render()
