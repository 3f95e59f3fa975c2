"""From a latent back to pixels, for inspection only: planning does not use it.

One memory token holds the frozen latent; learned patch queries attend to it and each turns into a square of pixels.
The decoder sees a single vector, so what it draws is what that vector holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from acid.errors import ShapeError
from acid.models.stored import StoredNetwork


@dataclass(frozen=True)
class DecoderConfig:
    """The published sizes by default: 14 × 14 patches of 16 pixels."""

    latent_size: int  # D; 0 in a recipe: the world model's
    image_size: int = 224
    patch: int = 16
    width: int = 512
    depth: int = 4
    heads: int = 8
    mlp_width: int = 2048
    shared_head: bool = True  # one linear map to pixels for all patches, or one for each, which learns sooner


class VectorDecoder(StoredNetwork):
    """Latents [..., 1, D] to images [..., S, S, 3] with values in 0..1, in squares of `patch` pixels."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        if config.image_size % config.patch:
            raise ShapeError(f"the image size {config.image_size} is not a multiple of the patch {config.patch}")
        self.config = config
        self.side = config.image_size // config.patch

    def draw(self, latents: Tensor) -> Tensor:
        """Latents [M, D] to images [M, S, S, 3]."""
        raise NotImplementedError

    def forward(self, latents: Tensor) -> Tensor:
        if tuple(latents.shape[-2:]) != (1, self.config.latent_size):
            raise ShapeError(f"the decoder draws [..., 1, {self.config.latent_size}], got {list(latents.shape)}")
        drawn = self.draw(latents.reshape(-1, latents.shape[-1]))
        return drawn.reshape(*latents.shape[:-2], *drawn.shape[1:])

    def error(self, latents: Tensor, pixels: Tensor, weight: Tensor | float = 1.0) -> Tensor:
        """Mean squared error of drawing latents [M, 1, D] against uint8 pixels [M, S, S, 3], weighted by pixel."""
        return (weight * (self(latents) - pixels.float() / 255).square()).mean()

    @torch.no_grad()
    def pixels(self, latents: Tensor) -> Tensor:
        """Latents [..., 1, D] to uint8 images [..., S, S, 3]."""
        return (self(latents).clamp(0, 1) * 255).round().to(torch.uint8)


class Decoder(VectorDecoder):
    kind: ClassVar[str] = "decoder"
    config_type: ClassVar[type] = DecoderConfig

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(config)
        self.memory = nn.Linear(config.latent_size, config.width)
        self.queries = nn.Parameter(
            torch.randn(1, self.side**2, config.width)
        )  # large: the memory token is the same for all
        layer = nn.TransformerDecoderLayer(
            config.width,
            config.heads,
            config.mlp_width,
            dropout=0.0,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        self.layers = nn.TransformerDecoder(layer, config.depth, norm=nn.LayerNorm(config.width))
        heads = 1 if config.shared_head else self.side**2
        self.head = nn.Parameter(0.01 * torch.randn(heads, config.width, 3 * config.patch**2))
        self.bias = nn.Parameter(torch.zeros(heads, 3 * config.patch**2))

    def draw(self, latents: Tensor) -> Tensor:
        tokens = self.layers(self.queries.expand(len(latents), -1, -1), self.memory(latents).unsqueeze(1))
        side, patch = self.side, self.config.patch
        drawn = torch.einsum("mtw,twp->mtp", tokens, self.head.expand(side * side, -1, -1)) + self.bias
        squares = drawn.view(-1, side, side, patch, patch, 3).transpose(2, 3)
        return squares.reshape(-1, side * patch, side * patch, 3)
