"""Training examples: which pairs of frames belong together, and which of them are held out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from acid.errors import DataError, ShapeError

# With fewer episodes than this, holding out whole ones would make the held-out error a matter of luck.
_EPISODES_TO_SPLIT = 10

Table = Tensor | np.ndarray


@dataclass(frozen=True)
class Transitions:
    """K pairs of rows of one table of latents, so that no frame is stored twice."""

    latents: Tensor  # [M, P, D], of any precision
    actions: Tensor  # [M, A], the action taken at each row
    start: Tensor  # [K] row of the first frame, whose action is the target
    stop: Tensor  # [K] row of the second frame
    episode: Tensor  # [K]
    condition: Tensor | None = None  # [K] integers the network is told besides the two frames

    def __post_init__(self) -> None:
        std, mean = torch.std_mean(self.actions[self.start].double(), dim=0, correction=0)
        constant = (std <= 1e-6 * (1 + mean.abs())).nonzero()
        if len(constant):
            dimension = int(constant[0])
            raise DataError(
                f"action dimension {dimension} is always {mean[dimension]:g}; nothing can be learned about an action "
                "that never varies: drop that dimension or collect more varied data"
            )

    def __len__(self) -> int:
        return len(self.start)

    @property
    def conditions(self) -> int:
        """How many values the condition has, 0 without one."""
        return 0 if self.condition is None else int(self.condition.max()) + 1

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """First latents [B, P, D], second latents [B, P, D], actions [B, A] and conditions [B] of some pairs."""
        start, stop = self.start[index], self.stop[index]
        condition = None if self.condition is None else self.condition[index]
        return self.latents[start].float(), self.latents[stop].float(), self.actions[start], condition

    def split(self, held_out: float, seed: int) -> tuple[Tensor, Tensor]:
        """Indices of training and of held-out pairs; whole episodes are held out where there are at least ten."""
        generator = torch.Generator().manual_seed(seed)
        episodes = self.episode.unique()
        if len(episodes) >= _EPISODES_TO_SPLIT:
            chosen = episodes[torch.randperm(len(episodes), generator=generator)[: round(held_out * len(episodes))]]
            mask = torch.isin(self.episode, chosen)
        else:
            chosen = torch.randperm(len(self), generator=generator)[: round(held_out * len(self))]
            mask = torch.zeros(len(self), dtype=torch.bool)
            mask[chosen] = True
        train, held = (~mask).nonzero()[:, 0], mask.nonzero()[:, 0]
        if not len(train) or not len(held):
            raise DataError(
                f"holding out {held_out:g} of {len(self)} transitions leaves {len(train)} to train on and {len(held)} "
                "to test on; both must be positive: collect more data or change held_out"
            )
        return train, held


def successive(latents: Table, actions: Table, episodes: Table, *, frameskip: int = 1) -> Transitions:
    """Every pair of rows i → i + frameskip that lies inside one episode.

    Latents [M, P, D], actions [M, A] and episode ids [M], the rows of an episode consecutive and in order. An action
    that is NaN marks a row from which no transition starts, e.g. the last one of an episode. Tensors may be of any
    precision and still belong to a gradient, and arrays will do.
    """
    latents, actions, episodes = _checked_table(latents, actions, episodes)
    start, stop = _pairs(actions, episodes, frameskip)
    return Transitions(latents, actions, start, stop, episodes[start])


def goal_pairs(latents: Table, actions: Table, episodes: Table, *, horizon: int, frameskip: int = 1) -> Transitions:
    """Every pair of rows i → i + k·frameskip inside one episode for k = 1..horizon, conditioned on k − 1.

    Tables as in `successive`; the target is the first action, the one taken at row i.
    """
    if horizon < 1:
        raise ShapeError(f"the horizon, in actions from a frame to its goal, must be at least 1, got {horizon}")
    latents, actions, episodes = _checked_table(latents, actions, episodes)
    pairs = [_pairs(actions, episodes, k * frameskip) for k in range(1, horizon + 1)]
    start, stop = (torch.cat(side) for side in zip(*pairs, strict=True))
    left = torch.cat([torch.full_like(first, k) for k, (first, _) in enumerate(pairs)])
    return Transitions(latents, actions, start, stop, episodes[start], left)


def _pairs(actions: Tensor, episodes: Tensor, distance: int) -> tuple[Tensor, Tensor]:
    """First and second rows of all pairs this far apart inside one episode whose first row has an action."""
    if distance < 1:
        raise ShapeError(f"the frameskip, in rows from one frame to the next, must be at least 1, got {distance}")
    same_episode = episodes[:-distance] == episodes[distance:]
    acted = ~actions[:-distance].isnan().any(dim=-1)
    start = (same_episode & acted).nonzero()[:, 0]
    if not len(start):
        longest = int(episodes.unique_consecutive(return_counts=True)[1].max())
        raise DataError(
            f"no episode is long enough: the longest has {longest} frame(s), but a pair of frames {distance} apart "
            f"needs {distance + 1} and, at the first, an action that is not NaN"
        )
    return start, start + distance


def _checked_table(latents: Table, actions: Table, episodes: Table) -> tuple[Tensor, Tensor, Tensor]:
    """Tensors without a gradient: latents of single or half precision, actions of single precision, whole ids."""
    latents, actions, episodes = _tensor("latents", latents), _tensor("actions", actions), _tensor("episodes", episodes)
    latents = latents if latents.dtype in (torch.float16, torch.bfloat16) else latents.float()
    actions = actions.float()
    if episodes.is_floating_point() and not torch.equal(episodes, episodes.round()):
        raise ShapeError("episodes must be whole numbers, the id of each row's episode")
    if latents.dim() != 3 or actions.dim() != 2 or episodes.dim() != 1:
        raise ShapeError(
            f"latents must be [M, P, D], actions [M, A] and episodes [M], got {list(latents.shape)}, "
            f"{list(actions.shape)} and {list(episodes.shape)}"
        )
    if not len(latents) == len(actions) == len(episodes):
        raise ShapeError(
            f"latents, actions and episodes must have one row per frame, got {len(latents)}, {len(actions)} and "
            f"{len(episodes)} rows"
        )
    if not len(latents):
        raise DataError("there are no frames to learn from: latents have 0 rows")
    _check_rows("latents", "NaN or infinite", ~latents.flatten(1).isfinite().all(dim=1))
    _check_rows("actions", "infinite", actions.isinf().any(dim=1))
    visits = Counter(episodes.unique_consecutive().tolist())
    episode, count = visits.most_common(1)[0]
    if count > 1:
        raise DataError(f"the rows of episode {episode} are not consecutive; sort the frames by episode and step")
    return latents, actions, episodes.long()


def _tensor(name: str, values: Table) -> Tensor:
    if not isinstance(values, Tensor | np.ndarray):
        raise ShapeError(f"{name} must be a tensor or an array, got {type(values).__name__}")
    try:
        return torch.as_tensor(values).detach()
    except TypeError as error:
        raise ShapeError(f"{name} must hold numbers, got an array of {getattr(values, 'dtype', 'objects')}") from error


def _check_rows(name: str, trouble: str, bad: Tensor) -> None:
    if bad.any():
        raise DataError(f"{name} hold {trouble} values, first in row {int(bad.nonzero()[0])} of {len(bad)}")
