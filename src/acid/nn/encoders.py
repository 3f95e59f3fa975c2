"""Image encoders: pixels to one feature vector per frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acid.nn.batch_norm import BatchNorm2d


@dataclass(frozen=True)
class ViTConfig:
    """ViT-tiny by default; the class token is the feature."""

    image_size: int = 224
    patch: int = 14
    width: int = 192
    depth: int = 12
    heads: int = 3
    mlp_width: int = 768
    kind: Literal["vit"] = "vit"


@dataclass(frozen=True)
class ConvConfig:
    """A small convolutional trunk for small images: patches, then 3 × 3 convolutions of stride 2.

    Keypoints are the coordinates where some learned channels respond (a spatial softmax). They locate things that are
    too small for the trunk. Detectors are channels of a second trunk, of each the strongest response anywhere: they
    tell what is seen, which way round it is for example, but not where. They are the last numbers of the features.
    """

    image_size: int = 64
    patch: int = 4
    channels: tuple[int, ...] = (48, 96, 128)
    width: int = 256
    normalise: bool = False  # by the batch, after every convolution
    keypoints: int = 0
    detectors: tuple[int, ...] = ()  # channels of the second trunk, layer by layer; none: no second trunk
    kind: Literal["conv"] = "conv"


class _ViTBlock(nn.Module):
    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.norm_attention = nn.LayerNorm(config.width, eps=1e-12)
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)
        self.norm_mlp = nn.LayerNorm(config.width, eps=1e-12)
        self.up = nn.Linear(config.width, config.mlp_width)
        self.down = nn.Linear(config.mlp_width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(self.norm_attention(x)).chunk(3, -1)
        )
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm_mlp(x))))


class ViTEncoder(nn.Module):
    """Images [M, 3, S, S] to the class token [M, width]."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        tokens = (config.image_size // config.patch) ** 2
        self.patches = nn.Conv2d(3, config.width, config.patch, config.patch)
        self.token = nn.Parameter(torch.zeros(1, 1, config.width))
        self.positions = nn.Parameter(torch.randn(1, tokens + 1, config.width) * 0.02)
        self.blocks = nn.ModuleList(_ViTBlock(config) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.width, eps=1e-12)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.norm(x[:, 0])


class Keypoints(nn.Module):
    """Feature maps [M, C, S, S] to where each of K learned channels responds, x and y in [−2, 2]: [M, 2·K]."""

    grid: Tensor

    def __init__(self, channels: int, count: int, side: int) -> None:
        super().__init__()
        self.response = nn.Conv2d(channels, count, 3, 1, 1)
        self.log_sharpness = nn.Parameter(torch.zeros(count))
        line = torch.linspace(-2, 2, side)
        grid = torch.stack(torch.meshgrid(line, line, indexing="ij"), -1).view(-1, 2)
        self.register_buffer("grid", grid, persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        response = self.response(features).flatten(2) * self.log_sharpness.exp()[:, None]
        return (response.softmax(-1) @ self.grid).flatten(1)


class Detectors(nn.Sequential):
    """Images [M, 3, S, S] to the strongest response of each channel anywhere, [M, C]: a quarter of the resolution."""

    def __init__(self, channels: Sequence[int], normalise: bool) -> None:
        strides = [2, 2, *[1] * len(channels)]
        layers: list[nn.Module] = []
        for before, after, stride in zip((3, *channels), channels, strides, strict=False):
            side = 3 if layers else 5
            layers += _convolution(nn.Conv2d(before, after, side, stride, side // 2), normalise)
        super().__init__(*layers)

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images).amax((2, 3))


class ConvEncoder(nn.Module):
    """Images [M, 3, S, S] to a feature vector [M, width], followed by what detectors found, [M, width + detected]."""

    def __init__(self, config: ConvConfig) -> None:
        super().__init__()
        first, *rest = config.channels
        side = config.image_size // config.patch
        layers = _convolution(nn.Conv2d(3, first, config.patch, config.patch), config.normalise)
        self.stem_layers = len(layers)
        for before, after in zip(config.channels, rest, strict=False):
            layers += _convolution(nn.Conv2d(before, after, 3, 2, 1), config.normalise)
        self.trunk = nn.Sequential(*layers)
        self.keypoints = Keypoints(first, config.keypoints, side) if config.keypoints else None
        last = side // 2 ** len(rest)
        self.head = nn.Linear(config.channels[-1] * last * last + 2 * config.keypoints, config.width)
        self.detectors = Detectors(config.detectors, config.normalise) if config.detectors else None

    def forward(self, images: Tensor) -> Tensor:
        images = images.contiguous(memory_format=torch.channels_last)
        patches = self.trunk[: self.stem_layers](images)
        features = self.trunk[self.stem_layers :](patches).flatten(1)
        if self.keypoints is not None:
            features = torch.cat([features, self.keypoints(patches)], 1)
        features = self.head(features)
        return features if self.detectors is None else torch.cat([features, self.detectors(images)], 1)


def _convolution(layer: nn.Conv2d, normalise: bool) -> list[nn.Module]:
    return [layer, *([BatchNorm2d(layer.out_channels)] if normalise else []), nn.GELU()]


EncoderConfig = ViTConfig | ConvConfig


def build_encoder(config: EncoderConfig) -> nn.Module:
    return ViTEncoder(config) if isinstance(config, ViTConfig) else ConvEncoder(config)
