"""From which pose would an imagined frame have been seen? A search in the simulator, which can draw any pose.

Poses are drawn around a guess, and those whose frames look most like the imagined one, as the tokenizer draws both,
say where to look next: the cross-entropy method, with a picture in place of a plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from acid.data.poses import to_world
from acid.evaluation.kits import NavigationKit
from acid.nn.pictures import perceived
from acid.planning.search import Gaussian, Start, lowest

if TYPE_CHECKING:
    from acid.tasks.navigation import Navigation

SPREAD = (0.10, 0.05, 0.04)  # m forward, m sideways and rad around a guess: about what one imagined step is off
POSES, KEPT, ROUNDS = 24, 4, 3


@dataclass(frozen=True)
class Locator:
    """Finds frames in one world."""

    kit: NavigationKit
    task: Navigation
    world: int
    generator: torch.Generator

    def follow(self, frames: Tensor, start: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """The poses [H, 3] of frames [H, S, S, 3], values in 0..1.

        Each is looked for around where its step [H, 3], a displacement, would lead from the pose before.
        """
        poses = [start]
        for frame, step in zip(frames, steps, strict=True):
            poses.append(self.locate(frame, to_world(step, poses[-1])))
        return np.stack(poses[1:])

    @torch.no_grad()
    def locate(self, frame: Tensor, guess: np.ndarray) -> np.ndarray:
        """The pose [3] near a guess from which the world looks most like a frame [S, S, 3]."""
        found = Start(torch.zeros(1, 1, 3, dtype=torch.float64)).gaussian(SPREAD)
        for _ in range(ROUNDS):
            noise = torch.randn(1, POSES, 1, 3, dtype=torch.float64, generator=self.generator)
            noise[:, 0] = 0
            offsets = found.sample(noise)
            distances = self._distances(frame, to_world(offsets[0, :, 0].numpy(), guess))
            found = Gaussian.fit(lowest(distances[None], KEPT), offsets)
        return to_world(found.mean[0, 0].numpy(), guess)

    def _distances(self, frame: Tensor, poses: np.ndarray) -> Tensor:
        """LPIPS between a frame and those seen from poses [n, 3]: [n]."""
        model = self.kit.model
        seen = torch.from_numpy(np.stack([self.task.render_pose(self.world, pose) for pose in poses]))
        return perceived(self.kit.lpips, model.decode(model.encode(seen)), frame.expand(len(poses), *frame.shape))
