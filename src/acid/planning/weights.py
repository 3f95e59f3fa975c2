"""How much a cost term counts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from acid.errors import PlanningError, is_number


class Weight(Protocol):
    """Turns spreads into the factor of a term."""

    @property
    def off(self) -> bool:
        """Whether the factor is 0 whatever the spreads; such a term plays no part in the search."""
        ...

    def __call__(self, spread: Tensor, reference: Tensor) -> Tensor:
        """Spread of the term [B] and of the reference term [B] to the factor [B]."""
        ...


@dataclass(frozen=True)
class Constant:
    """The same factor always."""

    value: float = 1.0

    def __post_init__(self) -> None:
        _check_number("constant weight", self.value)

    @property
    def off(self) -> bool:
        return self.value == 0

    def __call__(self, spread: Tensor, reference: Tensor) -> Tensor:
        return torch.full_like(spread, self.value)


@dataclass(frozen=True)
class Adaptive:
    """λ·σ_reference/σ_term, or 0 where the term does not tell the candidates apart (σ_term = 0)."""

    lam: float = 0.07

    def __post_init__(self) -> None:
        _check_number("λ of the adaptive weight", self.lam)

    @property
    def off(self) -> bool:
        return self.lam == 0

    def __call__(self, spread: Tensor, reference: Tensor) -> Tensor:
        flat = spread == 0
        factor = self.lam * reference / spread.masked_fill(flat, 1.0)
        # A spread near the smallest representable number overflows the ratio: no spread for our purposes.
        return factor.masked_fill(flat | ~factor.isfinite(), 0.0)


def _check_number(name: str, value: float) -> None:
    if not (is_number(value) and math.isfinite(value) and value >= 0):
        raise PlanningError(f"{name} must be a finite number that is not negative, got {value!r}")
