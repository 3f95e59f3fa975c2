"""From a latent back to pixels with little training, for inspection only: planning does not use it.

The latent says where some points are. Each point is a soft spot on a coarse map, and convolutions turn spots into
pixels, so that a thing that moves is drawn by a spot that moves and need not be learned anew at every place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acid.models.decoder import VectorDecoder


@dataclass(frozen=True)
class KeypointDecoderConfig:
    """The lite size by default: 16 × 16 squares of 4 pixels."""

    latent_size: int  # D; 0 in a recipe: the world model's
    image_size: int = 64
    patch: int = 4
    points: int = 32
    ground: int = 16  # channels that do not depend on the latent
    hidden: int = 192
    width: int = 64  # channels of the convolutions


class KeypointDecoder(VectorDecoder):
    kind: ClassVar[str] = "keypoint-decoder"
    config_type: ClassVar[type] = KeypointDecoderConfig

    def __init__(self, config: KeypointDecoderConfig) -> None:
        super().__init__(config)
        size, hidden, width = config.latent_size, config.hidden, config.width
        self.hidden = nn.Sequential(nn.Linear(size, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU())
        self.points = nn.Linear(size + hidden, 3 * config.points)  # x, y and how strong
        self.log_radius = nn.Parameter(torch.linspace(-2.5, -1.0, config.points))  # the map reaches from -1 to 1
        self.ground = nn.Parameter(0.1 * torch.randn(1, config.ground, self.side, self.side))
        self.layers = nn.Sequential(
            nn.Conv2d(config.points + config.ground, width, 3, padding=1),
            nn.GELU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.GELU(),
            nn.Conv2d(width, 3 * config.patch**2, 3, padding=1),
        )

    def draw(self, latents: Tensor) -> Tensor:
        known = torch.cat([latents, self.hidden(latents)], 1)
        x, y, strength = self.points(known).unflatten(1, (3, -1)).unsqueeze(-1).unbind(1)  # each [M, points, 1]
        places = (torch.arange(self.side, device=latents.device) + 0.5) / self.side * 2 - 1
        sharpness = -0.5 * torch.exp(-2 * self.log_radius)[:, None]
        across = torch.exp(sharpness * (places - x).square())
        down = strength * torch.exp(sharpness * (places - y).square())
        spots = down.unsqueeze(-1) * across.unsqueeze(-2)
        drawn = self.layers(torch.cat([spots, self.ground.expand(len(latents), -1, -1, -1)], 1))
        return F.pixel_shuffle(drawn, self.config.patch).permute(0, 2, 3, 1)
