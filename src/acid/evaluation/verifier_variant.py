"""A verifier with other settings of inference than its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from acid.verifier import Verifier


@dataclass(frozen=True)
class VerifierVariant:
    """Another number of Euler steps, or random noise instead of the usual start.

    The noise differs between candidates and steps and is the same for every problem, so that a plan does not depend on
    which problems are planned for together.
    """

    verifier: Verifier
    steps: int | None = None
    random_start: bool = False

    @property
    def scaler(self) -> Any:
        return self.verifier.scaler

    @property
    def report(self) -> Any:
        return self.verifier.report

    def infer(self, latent: Tensor, next_latent: Tensor) -> Tensor:
        noise = self._noise(latent) if self.random_start else None
        return self.verifier.infer(latent, next_latent, steps=self.steps, noise=noise)

    def _noise(self, latent: Tensor) -> Tensor:
        """[B, ..., A] for latents [B, ..., P, D]."""
        shape = (*latent.shape[1:-2], self.verifier.config.action_size)
        drawn = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        return drawn.to(latent).expand(latent.shape[0], *shape)
