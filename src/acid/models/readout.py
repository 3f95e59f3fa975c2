"""From a latent to the set of points that it shows: how an imagined shape is measured in the task's own unit.

Nothing plans with it. It is fitted to real frames only, so of an imagined latent it tells what a frame like that
would show.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn

from acid.errors import ShapeError
from acid.models.stored import StoredNetwork


@dataclass(frozen=True)
class ReadoutConfig:
    tokens: int  # P; 0 in a recipe: the world model's
    latent_size: int  # D; 0 in a recipe: the world model's
    points: int = 40
    width: int = 256
    depth: int = 2  # hidden layers


class Readout(StoredNetwork):
    """Latents [..., P, D] to points [..., n, 3] in no particular order."""

    kind: ClassVar[str] = "readout"
    config_type: ClassVar[type] = ReadoutConfig

    def __init__(self, config: ReadoutConfig) -> None:
        super().__init__()
        self.config = config
        sizes = [config.tokens * config.latent_size] + [config.width] * config.depth
        layers: list[nn.Module] = [nn.LayerNorm(sizes[0])]
        for before, after in pairwise(sizes):
            layers += [nn.Linear(before, after), nn.GELU()]
        self.layers = nn.Sequential(*layers, nn.Linear(sizes[-1], 3 * config.points))

    def forward(self, latents: Tensor) -> Tensor:
        expected = (self.config.tokens, self.config.latent_size)
        if tuple(latents.shape[-2:]) != expected:
            raise ShapeError(f"the readout takes [..., {expected[0]}, {expected[1]}], got {list(latents.shape)}")
        return self.layers(latents.flatten(-2)).unflatten(-1, (self.config.points, 3))


def chamfer(points: Tensor, others: Tensor) -> Tensor:
    """Mean distance of points [..., n, 3] from the nearest of others [..., m, 3], plus the other way round: [...]."""
    distances = torch.cdist(points, others)
    return distances.amin(-1).mean(-1) + distances.amin(-2).mean(-1)
