"""What a fitted flow knows: which part of the action two frames identify."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from acid.verifier.directions import Directions
from acid.verifier.flow import ActionFlow
from acid.verifier.transitions import Transitions

_ROWS = 4096  # transitions measured at once
_NOTHING = 0.1  # a share of the variance below this is as good as none


@dataclass(frozen=True)
class FlowReport:
    """Held-out mean squared error as a share of the action's variance, per action dimension.

    0 means that the two frames give that part of the action away, 1 that they say nothing about it. One Euler step
    estimates the mean; ten steps draw a sample, whose error is twice as large wherever the frames leave doubt.
    """

    one_step: tuple[float, ...]
    ten_steps: tuple[float, ...]
    train: int  # transitions
    held_out: int
    directions: Directions | None = None  # of the action, one Euler step; None in old reports, or with too few rows

    @property
    def r2(self) -> tuple[float, ...]:
        """Explained share of the variance of each action dimension, one Euler step."""
        return tuple(1 - error for error in self.one_step)

    @property
    def mean_r2(self) -> float:
        return sum(self.r2) / len(self.r2)

    @property
    def tells(self) -> bool:
        """Whether two frames tell anything about any dimension of the action."""
        return max(self.r2) >= self._by_chance

    @property
    def _by_chance(self) -> float:
        """R² that may as well be none: a mean of so many squares varies by √(2 / n)."""
        return max(_NOTHING, math.sqrt(2 / self.held_out))

    @property
    def verdict(self) -> str:
        """What this means, in plain words."""
        if not self.tells:
            return (
                "Two frames tell it nothing about the action that lies between them, so it cannot check what a model "
                "imagines. Look for rows shifted by one, actions that are not those of the frames, a frameskip that "
                "is not the model's step, or latents that leave out what the actions change."
            )
        silent = [str(dimension) for dimension, r2 in enumerate(self.r2) if r2 < self._by_chance]
        unseen = f" It cannot check dimension {', '.join(silent)}: two frames do not show it." if silent else ""
        return (
            f"Two frames tell {max(self.mean_r2, 0):.0%} of how actions vary. As far as they tell, it can check that "
            f"the model imagines what an action does; of the rest it only knows which actions are usual.{unseen}"
        )

    def __str__(self) -> str:
        """A small table, one line per action dimension, and what it means."""
        rows = zip(self.one_step, self.ten_steps, self.r2, strict=True)
        lines = [f"{i:>9}  {one:>8.3f}  {ten:>9.3f}  {r2:>6.3f}" for i, (one, ten, r2) in enumerate(rows)]
        one, ten = (sum(errors) / len(errors) for errors in (self.one_step, self.ten_steps))
        return "\n".join(
            [
                f"held-out error / action variance ({self.train} transitions trained on, {self.held_out} held out)",
                f"{'dimension':>9}  {'one step':>8}  {'ten steps':>9}  {'R²':>6}",
                *lines,
                f"{'mean':>9}  {one:>8.3f}  {ten:>9.3f}  {self.mean_r2:>6.3f}",
                self.verdict,
                *([] if self.directions is None else [f"In directions: {self.directions}."]),
            ]
        )


@torch.no_grad()
def measure(flow: ActionFlow, transitions: Transitions, train: Tensor, held_out: Tensor, *, seed: int) -> FlowReport:
    """The report of a flow: one step from its own noise, ten from noise drawn for each transition."""
    variance = transitions.actions[transitions.start].var(dim=0, correction=0)
    device = flow.noise.device
    rows = held_out.split(_ROWS)
    shape = (len(held_out), transitions.actions.shape[1])
    noise = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(transitions.actions)

    def errors(steps: int, *, drawn: bool) -> Tensor:
        wrong = []
        for index, start in zip(rows, noise.split(len(rows[0])), strict=True):
            latent, next_latent, action, condition = transitions.batch(index)
            told = None if condition is None else condition.to(device)
            where = start.to(device) if drawn else None
            inferred = flow.infer(latent.to(device), next_latent.to(device), told, steps=steps, noise=where)
            wrong.append(inferred.to(action) - action)
        return torch.cat(wrong)

    def shares(wrong: Tensor) -> tuple[float, ...]:
        return tuple((wrong.square().mean(dim=0) / variance).tolist())

    one, ten = errors(1, drawn=False), errors(10, drawn=True)
    enough = len(held_out) > 2 * shape[1]  # to estimate a covariance from
    directions = Directions.measure(transitions.actions[transitions.start[held_out]], one) if enough else None
    return FlowReport(shares(one), shares(ten), train=len(train), held_out=len(held_out), directions=directions)
