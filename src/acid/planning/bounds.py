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
        if not isinstance(limits, tuple | list) or len(limits) != 2:
            raise PlanningError(f"bounds must be a pair (low, high), got {limits!r}")
        low, high = (_vector(name, limit, size) for name, limit in zip(("low", "high"), limits, strict=True))
        if not (low < high).all():
            raise PlanningError(f"the low bound must be below the high bound, got {low.tolist()} and {high.tolist()}")
        return cls(low, high, scaler)

    def normalised(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Lowest and highest model action [A], with the dtype and on the device of `like`."""
        low, high = self.low.to(like), self.high.to(like)
        if self.scaler is None:
            return low, high
        low, high = (self.scaler.normalise(limit.expand(self.scaler.frameskip, -1))[0] for limit in (low, high))
        return low, high

    def clamp_env(self, env_actions: Tensor) -> Tensor:
        """Actions [..., H*block, a] in environment units within the bounds (de-normalising may round past them)."""
        return torch.clamp(env_actions, self.low.to(env_actions), self.high.to(env_actions))


def _vector(name: str, limit: Limit, size: int) -> Tensor:
    try:
        vector = torch.as_tensor(limit, dtype=torch.float64, device="cpu")
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise PlanningError(f"the {name} bound must be a number or one per action dimension, got {limit!r}") from error
    if vector.dim() > 1 or (vector.dim() == 1 and len(vector) != size):
        raise PlanningError(
            f"the {name} bound must be one number or {size} (one per action dimension), got shape {list(vector.shape)}"
        )
    return vector.expand(size)
