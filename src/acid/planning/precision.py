"""How networks compute while a plan is made."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from acid.errors import PlanningError, did_you_mean

PrecisionName = Literal["float32", "bfloat16", "mixed"]
NAMES = get_args(PrecisionName)


@dataclass(frozen=True)
class Precision:
    """float32: as the networks are. bfloat16: where autocast allows it; latents, candidates and costs stay wider.

    mixed: the world model as it is, and the cost terms, which means the verifier, as with bfloat16.
    """

    name: PrecisionName

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise PlanningError(f"unknown precision {self.name!r}{did_you_mean(self.name, NAMES)}")

    def imagining(self, device: torch.device) -> AbstractContextManager:
        """The context in which the model runs."""
        return torch.autocast(device.type, torch.bfloat16) if self.name == "bfloat16" else nullcontext()

    def judging(self, device: torch.device) -> AbstractContextManager:
        """The context in which the cost terms run."""
        return nullcontext() if self.name == "float32" else torch.autocast(device.type, torch.bfloat16)

    def latent(self, latent: Tensor) -> Tensor:
        """What the model returned, in at least single precision if autocast made it narrower."""
        return at_least_single(latent) if self.name == "bfloat16" else latent


def at_least_single(values: Tensor) -> Tensor:
    return values if values.dtype in (torch.float32, torch.float64) else values.float()
