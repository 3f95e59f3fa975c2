"""Which directions of an action two frames tell, and which they leave open.

A verifier may know the sum of two numbers of an action and nothing of their difference. So what it can check are not
single numbers but directions: those along which its held-out errors are uncorrelated and the data's actions too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from acid.errors import PlanningError, ShapeError, did_you_mean

Part = Literal["all", "told", "untold"]
TOLD_BELOW = 0.5  # share of a direction's variance that the verifier may get wrong and still be said to tell it
_FLOOR = 1e-6  # of the mean variance: directions in which the data hardly ever go are not divided by zero


@dataclass(frozen=True)
class Directions:
    """A directions of an action, those that are told best first."""

    shares: tuple[float, ...]  # error of each as a share of its variance: 0 told exactly, 1 not at all
    axes: tuple[tuple[float, ...], ...]  # [A, A], one row each; along a row normalised actions of the data vary by 1

    def __post_init__(self) -> None:
        if any(len(axis) != len(self.shares) for axis in self.axes) or len(self.axes) != len(self.shares):
            raise ShapeError(f"{len(self.shares)} directions need as many axes of that size")

    @classmethod
    def measure(cls, actions: Tensor, errors: Tensor) -> Directions:
        """From held-out normalised actions and the errors of inferring them, both [M, A]."""
        spread, wrong = (x.double().T.cov().reshape(x.shape[1], -1) for x in (actions, errors))
        values, vectors = torch.linalg.eigh(spread)
        whiten = vectors / values.clamp(min=_FLOOR * float(values.mean())).sqrt()
        shares, rotation = torch.linalg.eigh(whiten.T @ wrong @ whiten)
        axes = (whiten @ rotation).T
        return cls(tuple(shares.tolist()), tuple(map(tuple, axes.tolist())))

    @property
    def told(self) -> int:
        """How many of them two frames tell."""
        return sum(share < TOLD_BELOW for share in self.shares)

    @property
    def known(self) -> float:
        """The same, each counted by the share of its variance that is inferred rightly."""
        return sum(min(max(1 - share, 0.0), 1.0) for share in self.shares)

    def part(self, name: Part, *, like: Tensor) -> Tensor:
        """The axes of a part, as columns [A, k]: differences of actions times it are coordinates along them."""
        if name not in get_args(Part):
            raise PlanningError(f"unknown part of an action {name!r}{did_you_mean(name, get_args(Part))}")
        rows = {"all": self.axes, "told": self.axes[: self.told], "untold": self.axes[self.told :]}[name]
        if not rows:
            raise PlanningError(
                f"two frames tell {self.told} of the {len(self.shares)} directions of an action, so there is no "
                f"{name} part to compare; use part='all'"
            )
        return torch.tensor(rows, dtype=like.dtype, device=like.device).T

    def __str__(self) -> str:
        shares = ", ".join(f"{share:.2f}" for share in self.shares)
        return f"two frames tell {self.told} of {len(self.shares)} directions of an action (error shares {shares})"
