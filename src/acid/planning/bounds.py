"""Limits on actions, given in the units the caller knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from acid.errors import PlanningError
from acid.types import ActionScaler

Limit = float | Sequence[float] | Tensor


@dataclass(frozen=True)
class Bounds:
    """Lowest and highest action: environment units [a] if there is a scaler, else normalised units [A]."""

    low: Tensor
    high: Tensor
    scaler: ActionScaler | None

    @classmethod
    def of(cls, limits: tuple[Limit, Limit], *, size: int, scaler: ActionScaler | None) -> Bounds:
        """From one number for all dimensions or one per dimension; infinity means unbounded."""
        size = size if scaler is None else scaler.env_size
        low, high = (_vector(name, limit, size) for name, limit in zip(("low", "high"), limits, strict=True))
        if not (low < high).all():
            raise PlanningError(f"the low bound must be below the high bound, got {low.tolist()} and {high.tolist()}")
        return cls(low, high, scaler)

    def clamp(self, actions: Tensor) -> Tensor:
        """Normalised actions [..., H, A] within the bounds."""
        return torch.clamp(actions, self._normalised(self.low, actions), self._normalised(self.high, actions))

    def clamp_env(self, env_actions: Tensor) -> Tensor:
        """Actions [..., H*block, a] in environment units within the bounds (de-normalising may round past them)."""
        return torch.clamp(env_actions, self.low.to(env_actions), self.high.to(env_actions))

    def _normalised(self, limit: Tensor, like: Tensor) -> Tensor:
        limit = limit.to(like)
        return limit if self.scaler is None else self.scaler.normalise(limit.expand(self.scaler.frameskip, -1))


def _vector(name: str, limit: Limit, size: int) -> Tensor:
    vector = torch.as_tensor(limit, dtype=torch.float64)
    if vector.dim() > 1 or (vector.dim() == 1 and len(vector) != size):
        raise PlanningError(
            f"the {name} bound must be one number or {size} (one per action dimension), got shape {list(vector.shape)}"
        )
    return vector.expand(size)
