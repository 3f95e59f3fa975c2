"""MAGE's VQGAN, an image codec of stride 16 with 1 024 codes, as it lies inside CompACT's published tokenizers.

Its parts are called as in those files. Other codecs, whose weights stay outside of a tokenizer, are in `image_codecs`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acid.errors import ShapeError
from acid.nn.pictures import check_pixels

GROUPS = 32  # of channels that are normalised together


@dataclass(frozen=True)
class VQGANConfig:
    codes: int = 1024
    size: int = 256  # numbers of a code
    channels: int = 128
    multipliers: tuple[int, ...] = (1, 1, 2, 2, 4)  # of the channels, from the finest level on; each next one is halved
    blocks: int = 2  # per level
    grid: int = 16  # codes along a side

    def __post_init__(self) -> None:
        if not self.multipliers or min(self.codes, self.size, self.blocks, self.grid, *self.multipliers) < 1:
            raise ShapeError(f"a VQGAN needs levels, blocks and codes, got {self}")
        if self.channels < 1 or self.channels % GROUPS:
            raise ShapeError(f"a VQGAN's channels are a multiple of {GROUPS}, got {self.channels}")

    @property
    def image_size(self) -> int:
        return self.grid * 2 ** (len(self.multipliers) - 1)


class VQGAN(nn.Module):
    """uint8 pixels [M, S, S, 3] to code numbers [M, G·G], and these to images [M, 3, S, S] in 0..1. Always frozen."""

    def __init__(self, config: VQGANConfig) -> None:
        super().__init__()
        self.config = config
        self.size, self.grid = config.codes, config.grid
        self.encoder = _Encoder(config)
        self.decoder = _Decoder(config)
        self.quantize = nn.ModuleDict({"embedding": nn.Embedding(config.codes, config.size)})
        self.requires_grad_(False)

    @property
    def book(self) -> Tensor:
        """The codes [codes, size]."""
        return self.quantize["embedding"].weight  # type: ignore[return-value]

    @torch.no_grad()
    def encode(self, pixels: Tensor) -> Tensor:
        check_pixels("the codec", pixels, self.config.image_size)
        found = self.encoder(pixels.permute(0, 3, 1, 2).float() / 255).flatten(2).transpose(1, 2)
        return torch.cdist(found, self.book.expand(len(found), -1, -1)).argmin(-1)

    @torch.no_grad()
    def decode(self, codes: Tensor) -> Tensor:
        vectors = F.embedding(codes, self.book).transpose(1, 2)
        return self.decoder(vectors.unflatten(2, (self.grid, self.grid))).clamp(0, 1)


class _Residual(nn.Module):
    """Where the number of channels changes, what is added is a mixture of the block's own output."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = _norm(before), _norm(after)
        self.conv1 = nn.Conv2d(before, after, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.nin_shortcut = None if before == after else nn.Conv2d(after, after, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        found = self.conv1(F.silu(self.norm1(x)))
        found = self.conv2(F.silu(self.norm2(found)))
        return found + (x if self.nin_shortcut is None else self.nin_shortcut(found))


class _Level(nn.Module):
    def __init__(self, before: int, after: int, blocks: int, *, doubled: bool = False) -> None:
        super().__init__()
        self.block = nn.ModuleList(_Residual(before if i == 0 else after, after) for i in range(blocks))
        self.upsample = nn.ModuleDict({"conv": nn.Conv2d(after, after, 3, padding=1)}) if doubled else None

    def forward(self, x: Tensor) -> Tensor:
        for block in self.block:
            x = block(x)
        if self.upsample is None:
            return x
        return self.upsample["conv"](F.interpolate(x, scale_factor=2.0, mode="nearest"))


class _Encoder(nn.Module):
    """Images [M, 3, S, S] in 0..1 to vectors [M, size, G, G]."""

    def __init__(self, config: VQGANConfig) -> None:
        super().__init__()
        widths = [config.channels * multiplier for multiplier in (1, *config.multipliers)]
        self.conv_in = nn.Conv2d(3, widths[0], 3, padding=1, bias=False)
        self.down = nn.ModuleList(_Level(before, after, config.blocks) for before, after in pairwise(widths))
        self.mid = _middle(widths[-1])
        self.norm_out = _norm(widths[-1])
        self.conv_out = nn.Conv2d(widths[-1], config.size, 1)

    def forward(self, images: Tensor) -> Tensor:
        x = self.conv_in(images)
        for number, level in enumerate(self.down):
            x = level(x if number == 0 else F.avg_pool2d(x, 2))
        for block in self.mid.values():
            x = block(x)
        return self.conv_out(F.silu(self.norm_out(x)))


class _Decoder(nn.Module):
    """Vectors [M, size, G, G] to images [M, 3, S, S], not yet clamped to 0..1."""

    def __init__(self, config: VQGANConfig) -> None:
        super().__init__()
        widths = [config.channels * multiplier for multiplier in config.multipliers]
        self.conv_in = nn.Conv2d(config.size, widths[-1], 3, padding=1)
        self.mid = _middle(widths[-1])
        coarser = [*widths[1:], widths[-1]]
        self.up = nn.ModuleList(
            _Level(before, after, config.blocks, doubled=number > 0)
            for number, (before, after) in enumerate(zip(coarser, widths, strict=True))
        )
        self.norm_out = _norm(widths[0])
        self.conv_out = nn.Conv2d(widths[0], 3, 3, padding=1)

    def forward(self, vectors: Tensor) -> Tensor:
        x = self.conv_in(vectors)
        for block in self.mid.values():
            x = block(x)
        for level in reversed(self.up):
            x = level(x)
        return self.conv_out(F.silu(self.norm_out(x)))


def _norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(GROUPS, channels, eps=1e-6)


def _middle(width: int) -> nn.ModuleDict:
    return nn.ModuleDict({name: _Residual(width, width) for name in ("block_1", "block_2")})
