"""What a search looks for: every number of an action sequence, or a few that determine the whole of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from acid.errors import PlanningError
from acid.types import ActionScaler


class Parametrisation(Protocol):
    """Maps V rows of d search variables to H actions. A search begins at 0 with the standard deviation it is given."""

    @property
    def size(self) -> int:
        """d: numbers in a row of variables."""
        ...

    def length(self, horizon: int) -> int:
        """V: rows of variables that determine a sequence of H actions."""
        ...

    def __call__(self, variables: Tensor, horizon: int) -> Tensor:
        """Variables [..., V, d] to normalised actions [..., H, A]."""
        ...


@dataclass(frozen=True)
class Free:
    """The identity: every number of every action is a variable of its own."""

    size: int  # A

    def length(self, horizon: int) -> int:
        return horizon

    def __call__(self, variables: Tensor, horizon: int) -> Tensor:
        return variables


@dataclass(frozen=True)
class StraightLine:
    """A displacement repeated at every step, which may lead sideways, and a turn at the end.

    Variables are (x, y, yaw) in units of `std` from `mean`, both in normalised action units.
    """

    mean: tuple[float, float, float] = (-0.1, 0.0, 0.0)
    std: tuple[float, float, float] = (0.02, 0.1, 0.1)

    def __post_init__(self) -> None:
        _check(self.std)

    @property
    def size(self) -> int:
        return 3

    def length(self, horizon: int) -> int:
        return 1

    def __call__(self, variables: Tensor, horizon: int) -> Tensor:
        displacement = torch.stack(_scaled(variables, self.mean, self.std), -1)
        turning = torch.zeros(horizon, 3, dtype=torch.bool, device=variables.device)
        turning[:-1, 2] = True  # no turn before the last step
        return displacement.expand(*variables.shape[:-2], horizon, 3).masked_fill(turning, 0.0)


@dataclass(frozen=True)
class HeadedLine(StraightLine):
    """The same as NWM's public code makes it: the first step also turns to where the line leads, atan2(y, x), and the
    turn at the end counts in half turns.

    `scaler` is that of the model's (x, y, yaw) actions, yaw in radians.
    """

    scaler: ActionScaler = field(default_factory=lambda: ActionScaler((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)))

    def __call__(self, variables: Tensor, horizon: int) -> Tensor:
        forward, sideways, turn = _scaled(variables, self.mean, self.std)  # [..., 1] each
        (mean_x, mean_y, mean_yaw), (std_x, std_y, std_yaw) = self.scaler.mean, self.scaler.std
        heading = torch.atan2(sideways * std_y + mean_y, forward * std_x + mean_x)
        still = torch.zeros_like(heading).expand(*heading.shape[:-1], horizon - 1)
        yaw = torch.cat([heading, still], -1) + torch.cat([still, torch.pi * turn], -1)
        return torch.stack([forward.expand_as(yaw), sideways.expand_as(yaw), (yaw - mean_yaw) / std_yaw], -1)


@dataclass(frozen=True)
class Arc:
    """Constant speed and constant curvature, as a differential drive moves: the robot looks where it goes.

    Variables are (forward displacement, turn) of one step in units of `std` from `mean`, both in normalised action
    units. The sideways displacement follows: the chord of an arc lies at half of the turn.
    `scaler` is that of the model's (x, y, yaw) actions; x and y must have the same physical unit, yaw is in radians.
    """

    scaler: ActionScaler
    mean: tuple[float, float] = (-0.1, 0.0)
    std: tuple[float, float] = (0.02, 0.1)

    def __post_init__(self) -> None:
        _check(self.std)
        if self.scaler.size != 3:
            raise PlanningError(f"an arc needs actions (x, y, yaw), but the scaler's have {self.scaler.size} numbers")

    @property
    def size(self) -> int:
        return 2

    def length(self, horizon: int) -> int:
        return 1

    def __call__(self, variables: Tensor, horizon: int) -> Tensor:
        forward, turn = _scaled(variables, self.mean, self.std)
        (mean_x, mean_y, mean_yaw), (std_x, std_y, std_yaw) = self.scaler.mean, self.scaler.std
        angle = turn * std_yaw + mean_yaw
        sideways = (forward * std_x + mean_x) * (angle / 2).tan()
        step = torch.stack([forward, (sideways - mean_y) / std_y, turn], -1)
        return step.expand(*step.shape[:-2], horizon, 3)

    def along(self, actions: Tensor) -> Tensor:
        """The variables [..., 1, 2] of an arc whose places are close to those of normalised actions [..., H, 3].

        By least squares, as if turns were small: a step counts by how much it moves the places after it.
        """
        horizon = actions.shape[-2]
        time = torch.arange(1, horizon + 1, dtype=actions.dtype, device=actions.device)
        passed = (time[:, None] - time).clamp(min=-0.5) + 0.5  # [t, j] steps from the middle of step j to place t
        weights = torch.stack([time @ (passed > 0).to(time), time.square() @ passed], -1)
        found = (actions[..., [0, 2]] * (weights / weights.sum(0))).sum(-2, keepdim=True)
        return (found - found.new_tensor(self.mean)) / found.new_tensor(self.std)


@dataclass(frozen=True)
class Space:
    """The variables of one search, and the actions within the bounds that they stand for."""

    parametrisation: Parametrisation
    horizon: int
    limits: tuple[Tensor, Tensor] | None  # lowest and highest normalised action [A], if they are bounded

    def clamp(self, variables: Tensor) -> Tensor:
        """Variables [..., V, d] within the bounds where they are the actions themselves."""
        return self._within(variables) if isinstance(self.parametrisation, Free) else variables

    def actions(self, variables: Tensor) -> Tensor:
        """Variables [..., V, d] to normalised actions [..., H, A] within the bounds."""
        return self._within(self.parametrisation(variables, self.horizon))

    def _within(self, actions: Tensor) -> Tensor:
        return actions if self.limits is None else torch.clamp(actions, *self.limits)


def _scaled(variables: Tensor, mean: Sequence[float], std: Sequence[float]) -> list[Tensor]:
    """Variables [..., d] to d tensors [...] in normalised action units."""
    return [number * s + m for number, m, s in zip(variables.unbind(-1), mean, std, strict=True)]


def _check(std: Sequence[float]) -> None:
    if not all(0 < number < float("inf") for number in std):
        raise PlanningError(f"the std of a parametrisation must be positive and finite, got {std}")
