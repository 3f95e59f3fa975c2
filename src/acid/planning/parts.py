"""Latents of several sources, e.g. visual tokens and the state of the robot's joints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from acid.errors import ShapeError, some
from acid.planning.terms import GoalDistance
from acid.planning.weights import Constant, Weight
from acid.types import Trajectory


@dataclass(frozen=True)
class Parts:
    """Names for what a latent [..., P, D] is made of; it stays one tensor wherever it goes.

    along: "numbers": the sources lie side by side in every token, `Parts({"visual": 384, "proprio": 10})`; one that has
    no tokens is repeated for each of them. "tokens": each source has tokens of its own, all of D numbers.
    """

    sizes: Mapping[str, int]
    along: Literal["numbers", "tokens"] = "numbers"

    @property
    def _dimension(self) -> int:
        return -1 if self.along == "numbers" else -2

    def join(self, sources: Mapping[str, Tensor]) -> Tensor:
        """Sources by name, [..., P, D_i] (or [..., D_i] without tokens) or [..., P_i, D], to one latent [..., P, D]."""
        fits = sources.keys() == self.sizes.keys()
        if not fits or any(sources[name].shape[self._dimension] != size for name, size in self.sizes.items()):
            got = {name: list(value.shape) for name, value in sources.items()}
            raise ShapeError(f"a latent of {dict(self.sizes)} {self.along} cannot be made of {got}")
        if self.along == "tokens":
            return torch.cat([sources[name] for name in self.sizes], dim=-2)
        rank = max(value.dim() for value in sources.values())
        tokens = max(value.shape[-2] for value in sources.values() if value.dim() == rank)
        return torch.cat([_with_tokens(sources[name], rank, tokens) for name in self.sizes], dim=-1)

    def split(self, latent: Tensor) -> dict[str, Tensor]:
        """A latent [..., P, D] as its sources, [..., P, D_i] or [..., P_i, D]."""
        if latent.shape[self._dimension] != sum(self.sizes.values()):
            raise ShapeError(f"a latent of {dict(self.sizes)} {self.along} cannot have the shape {list(latent.shape)}")
        return dict(zip(self.sizes, latent.split(list(self.sizes.values()), dim=self._dimension), strict=True))


@dataclass(frozen=True)
class PartDistances:
    """The distance to the goal of each source by itself, times its own factor (1 unless given), and their sum.

    By default each is a mean over its tokens and numbers, so that a few numbers of a robot's state are heard beside
    thousands of visual ones.
    """

    parts: Parts
    factors: Mapping[str, float] = field(default_factory=dict)
    reduction: Literal["sum", "mean"] = "mean"
    weight: Weight = field(default_factory=Constant)
    name: str = "goal"

    def __post_init__(self) -> None:
        unknown = sorted(self.factors.keys() - self.parts.sizes.keys())
        if unknown:
            raise ShapeError(f"the latents have no source {some(unknown)}; they have {', '.join(self.parts.sizes)}")

    def __call__(self, trajectory: Trajectory, goal: Tensor) -> Tensor:
        distance, wanted = GoalDistance(self.reduction), self.parts.split(goal)
        total = goal.new_zeros(trajectory.actions.shape[:2])
        for name, last in self.parts.split(trajectory.latents[:, :, -1:]).items():
            reached = Trajectory(last, trajectory.actions)
            total = total + self.factors.get(name, 1.0) * distance(reached, wanted[name])
        return total


def _with_tokens(source: Tensor, rank: int, tokens: int) -> Tensor:
    if source.dim() == rank:
        return source
    return source.unsqueeze(-2).expand(*source.shape[:-1], tokens, -1)
