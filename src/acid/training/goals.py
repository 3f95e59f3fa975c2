"""Contexts with goals: frames some way ahead or behind, each with the motion that leads there, as NWM is trained."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from acid.data.poses import to_local
from acid.models import Batch
from acid.training.dataset import WindowReader


class GoalReader:
    """Batches of contexts, which are the windows of a reader, with goals at most `reach` frames from their last one."""

    def __init__(self, contexts: WindowReader, reach: int) -> None:
        self.contexts, self.reach = contexts, reach
        episodes = contexts.episodes
        self.poses = episodes.read("pose", np.arange(episodes.rows))

    def read(self, indices: np.ndarray, places: np.ndarray, view: Tensor | None = None) -> Batch:
        """The contexts with these numbers [B], in these views [B].

        places [B, G], from 0 to 1: where each goal lies between the first and the last frame that it may be, which are
        in reach and inside the context's episode. Going nowhere is a goal too.
        """
        episodes, actions = self.contexts.episodes, self.contexts.actions
        seen = self.contexts.windows.frame_rows(indices)
        now = seen[:, -1:]
        episode = np.searchsorted(episodes.offsets, now, side="right") - 1
        first = episodes.offsets[episode]
        last = first + episodes.lengths[episode] - 1
        low, high = np.maximum(now - self.reach, first), np.minimum(now + self.reach, last)
        goals = low + (places * (high - low + 1)).astype(np.int64)
        steps = torch.from_numpy(to_local(self.poses[goals], self.poses[now])).float()
        if view is not None:
            steps = actions.seen(steps, view)
        frames = self.contexts.latents_at(np.concatenate([seen, goals], 1), view)
        return Batch(frames, actions.scaler.normalise(steps), torch.from_numpy(goals - now).float())
