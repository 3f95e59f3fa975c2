"""From the tokens of a frame back to pixels, for inspection only: planning does not use it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acid.errors import ShapeError
from acid.models.stored import StoredNetwork


@dataclass(frozen=True)
class TokenDecoderConfig:
    """Tokens in rows and columns as the encoder laid them; every layer but the first doubles the picture's side."""

    latent_size: int  # D; 0 in a recipe: the world model's
    grid: int = 14  # tokens along each side; 0 in a recipe: the world model's
    channels: tuple[int, ...] = (384, 256, 128, 64, 32)


def paper(latent_size: int, grid: int) -> TokenDecoderConfig:
    return TokenDecoderConfig(latent_size, grid)


def lite(latent_size: int, grid: int) -> TokenDecoderConfig:
    return TokenDecoderConfig(latent_size, grid, channels=(96, 64, 48, 24, 12, 8))


PRESETS = {"paper": paper, "lite": lite}


class TokenDecoder(StoredNetwork):
    """Latents [..., P, D] to images [..., S, S, 3] with values in 0..1; S is the grid's side, doubled by each layer."""

    kind: ClassVar[str] = "token-decoder"
    config_type: ClassVar[type] = TokenDecoderConfig

    def __init__(self, config: TokenDecoderConfig) -> None:
        super().__init__()
        self.config = config
        first, *rest = config.channels
        layers: list[nn.Module] = [nn.Conv2d(config.latent_size, first, 3, padding=1), nn.GELU()]
        for before, after in zip(config.channels, rest, strict=False):
            layers += [nn.Upsample(scale_factor=2), nn.Conv2d(before, after, 3, padding=1), nn.GELU()]
        self.layers = nn.Sequential(*layers, nn.Conv2d(config.channels[-1], 3, 3, padding=1))

    @property
    def image_size(self) -> int:
        return self.config.grid * 2 ** (len(self.config.channels) - 1)

    def forward(self, latents: Tensor) -> Tensor:
        grid, lead = self.config.grid, latents.shape[:-2]
        if tuple(latents.shape[-2:]) != (grid * grid, self.config.latent_size):
            raise ShapeError(f"the decoder draws [..., {grid * grid}, {self.config.latent_size}], got {latents.shape}")
        tokens = latents.reshape(-1, grid, grid, self.config.latent_size).permute(0, 3, 1, 2)
        return self.layers(tokens).permute(0, 2, 3, 1).unflatten(0, lead)

    def error(self, latents: Tensor, pixels: Tensor) -> Tensor:
        """Mean squared error of drawing latents [M, P, D] against uint8 pixels [M, *, *, 3] of any size."""
        wanted = F.interpolate(pixels.permute(0, 3, 1, 2).float() / 255, self.image_size, mode="area")
        return (self(latents) - wanted.permute(0, 2, 3, 1)).square().mean()

    @torch.no_grad()
    def pixels(self, latents: Tensor) -> Tensor:
        """Latents [..., P, D] to uint8 images [..., S, S, 3]."""
        return (self(latents).clamp(0, 1) * 255).round().to(torch.uint8)
