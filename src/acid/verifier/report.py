"""What a fitted flow knows: which part of the action two frames identify."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from acid.verifier.flow import ActionFlow
from acid.verifier.transitions import Transitions


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

    @property
    def r2(self) -> tuple[float, ...]:
        """Explained share of the variance of each action dimension, one Euler step."""
        return tuple(1 - error for error in self.one_step)

    @property
    def mean_r2(self) -> float:
        return sum(self.r2) / len(self.r2)

    def __str__(self) -> str:
        """A small table, one line per action dimension."""
        rows = zip(self.one_step, self.ten_steps, self.r2, strict=True)
        lines = [f"{i:>9}  {one:>8.3f}  {ten:>9.3f}  {r2:>6.3f}" for i, (one, ten, r2) in enumerate(rows)]
        one, ten = (sum(errors) / len(errors) for errors in (self.one_step, self.ten_steps))
        return "\n".join(
            [
                f"held-out error / action variance ({self.train} transitions trained on, {self.held_out} held out)",
                f"{'dimension':>9}  {'one step':>8}  {'ten steps':>9}  {'R²':>6}",
                *lines,
                f"{'mean':>9}  {one:>8.3f}  {ten:>9.3f}  {self.mean_r2:>6.3f}",
            ]
        )


@torch.no_grad()
def measure(flow: ActionFlow, transitions: Transitions, train: Tensor, held_out: Tensor, *, seed: int) -> FlowReport:
    """The report of a flow: one step from its own noise, ten from noise drawn for each transition."""
    latent, next_latent, action, condition = transitions.batch(held_out)
    variance = transitions.actions[transitions.start].var(dim=0, correction=0)

    def error(steps: int, noise: Tensor | None = None) -> tuple[float, ...]:
        inferred = flow.infer(latent, next_latent, condition, steps=steps, noise=noise)
        return tuple(((inferred - action).square().mean(dim=0) / variance).tolist())

    drawn = torch.randn(action.shape, generator=torch.Generator().manual_seed(seed)).to(action)
    return FlowReport(one_step=error(1), ten_steps=error(10, drawn), train=len(train), held_out=len(held_out))
