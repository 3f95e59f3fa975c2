"""Windows of frames with the poses they were seen from, and the goals that lie some frames ahead in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
import torch
from torch import Tensor

from acid.data.episodes import Episodes
from acid.data.poses import displacements, normalise
from acid.data.windows import Shuffle
from acid.errors import DataError

CONTEXT = 4  # frames that NWM sees of the past


@dataclass(frozen=True)
class GoalCase:
    """B problems: where the robot is and was, and the frame that it shall see k steps later."""

    context: Tensor  # uint8 [B, C, S, S, 3], oldest first; the last one is seen now
    context_actions: Tensor  # float32 [B, C - 1, 3], between the frames of the context
    future: Tensor  # uint8 [B, k, S, S, 3], the frames that were seen next
    actions: Tensor  # float32 [B, k, 3], the actions that were taken
    poses: Tensor  # float64 [B, k + 1, 3], from the present one to that of the goal
    worlds: Tensor  # int64 [B], the simulator's world, −1 in the real one

    @property
    def goal(self) -> Tensor:
        """The frame to see, uint8 [B, S, S, 3]."""
        return self.future[:, -1]


@dataclass(frozen=True)
class PoseBatch:
    """B windows of T frames."""

    frames: Tensor  # uint8 [B, T, S, S, 3]
    actions: (
        Tensor  # float32 [B, T, 3], normalised; action t leads from frame t to the next, the last out of the window
    )
    poses: Tensor  # float64 [B, T + 1, 3] in metres and radians; pose t is that of frame t
    worlds: Tensor  # int64 [B], the simulator's world, −1 in the real one

    def goal_case(self, context: int = CONTEXT) -> GoalCase:
        """The first frames as context, the others as what shall be reached."""
        frames = self.frames.shape[1]
        if not 1 <= context < frames:
            raise DataError(f"a context of {context} frames leaves no goal in windows of {frames}")
        return GoalCase(
            context=self.frames[:, :context],
            context_actions=self.actions[:, : context - 1],
            future=self.frames[:, context:],
            actions=self.actions[:, context - 1 : -1],
            poses=self.poses[:, context - 1 : -1],
            worlds=self.worlds,
        )


class PoseWindows:
    """Every window of `frames` frames, and the pose after it, inside one of the given episodes.

    Actions are computed from the column `pose`, whatever the file's own actions are. `in_memory` loads the frames of
    the whole file once (12 KB a 64-px frame); without it each is read from the disk when it is needed.
    """

    def __init__(
        self, episodes: Episodes, ids: Sequence[int] | np.ndarray, frames: int, *, in_memory: bool = True
    ) -> None:
        if frames < 1:
            raise DataError(f"windows need at least 1 frame, got {frames}")
        if episodes.shape("pose") != (3,):
            raise DataError(f"column 'pose' of {episodes.path} must hold x, y, yaw, got {list(episodes.shape('pose'))}")
        self.episodes, self.frames = episodes, frames
        self._ids = episodes.check_ids(ids)
        lengths = episodes.lengths[self._ids]
        self._ends = np.cumsum(np.maximum(lengths - frames, 0))  # windows up to and including each episode
        if not len(self):
            raise DataError(
                f"windows of {frames} frames and a pose after them need trajectories of {frames + 1} steps, but the "
                f"longest of the {len(self._ids)} given in {episodes.path} has {int(lengths.max(initial=0))}"
            )
        for column in ("pose", *(["world"] if "world" in episodes.columns else []), *(["pixels"] if in_memory else [])):
            episodes.cache(column)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def starts(self, indices: Sequence[int] | np.ndarray) -> np.ndarray:
        """The first row of each window: [B]."""
        wanted = np.asarray(indices, dtype=np.int64)
        if wanted.size and (wanted.min() < 0 or wanted.max() >= len(self)):
            raise DataError(f"window indices {wanted.min()} to {wanted.max()} are outside 0 to {len(self) - 1}")
        position = np.searchsorted(self._ends, wanted, side="right")
        first = np.concatenate([[0], self._ends[:-1]])[position]
        return self.episodes.offsets[self._ids[position]] + wanted - first

    def batch(self, indices: Sequence[int] | np.ndarray) -> PoseBatch:
        """The windows with these indices."""
        rows = self.starts(indices)[:, None] + np.arange(self.frames + 1)
        poses = self.episodes.read("pose", rows)
        worlds = (
            self.episodes.read("world", rows[:, 0]).reshape(len(rows)).astype(np.int64)
            if "world" in self.episodes.columns
            else np.full(len(rows), -1)
        )
        return PoseBatch(
            frames=torch.from_numpy(self.episodes.read("pixels", rows[:, :-1])),
            actions=torch.from_numpy(normalise(displacements(poses)).astype(np.float32)),
            poses=torch.from_numpy(poses.astype(np.float64, copy=False)),
            worlds=torch.from_numpy(worlds),
        )

    def batches(self, batch_size: int, seed: int, start_step: int = 0) -> Iterator[PoseBatch]:
        """An endless stream of shuffled batches; batch s depends on (seed, s) only, so training resumes at any step."""
        if batch_size < 1 or start_step < 0:
            raise DataError(f"batches need batch_size >= 1 and start_step >= 0, got {batch_size} and {start_step}")
        shuffle = Shuffle(len(self), batch_size, seed)
        return (self.batch(shuffle.indices(step)) for step in count(start_step))
