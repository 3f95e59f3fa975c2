"""How networks compute while a plan is made."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from acid.errors import PlanningError, did_you_mean

PrecisionName = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class Precision:
    """float32: as the networks are. bfloat16: where autocast allows it; latents, candidates and costs stay wider."""

    name: PrecisionName

    def __post_init__(self) -> None:
        if self.name not in ("float32", "bfloat16"):
            raise PlanningError(f"unknown precision {self.name!r}{did_you_mean(self.name, ['float32', 'bfloat16'])}")

    def computing(self, device: torch.device) -> AbstractContextManager:
        """The context in which the model and the cost terms run."""
        return nullcontext() if self.name == "float32" else torch.autocast(device.type, torch.bfloat16)

    def latent(self, latent: Tensor) -> Tensor:
        """What a network returned, in at least single precision if autocast made it narrower."""
        return latent if self.name == "float32" else at_least_single(latent)


def at_least_single(values: Tensor) -> Tensor:
    return values if values.dtype in (torch.float32, torch.float64) else values.float()
