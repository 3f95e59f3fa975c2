"""Distances between pictures [..., S, S, 3] with values in 0..1."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Perceptual = Callable[[Tensor, Tensor], Tensor]  # planes [M, 3, S, S] in 0..1, twice, to distances [M], e.g. LPIPS
AT_ONCE = 128  # pictures compared at once


def psnr(images: Tensor, others: Tensor) -> Tensor:
    """Peak signal-to-noise ratio in dB between pictures [..., S, S, 3]: [...]."""
    return -10 * (images - others).square().mean((-3, -2, -1)).clamp(min=1e-10).log10()


def perceived(distance: Perceptual, images: Tensor, others: Tensor) -> Tensor:
    """A perceptual distance between pictures [..., S, S, 3]: [...]."""
    pairs = zip(*(_planes(side).split(AT_ONCE) for side in (images, others)), strict=True)
    return torch.cat([distance(*pair) for pair in pairs]).reshape(images.shape[:-3])


def _planes(images: Tensor) -> Tensor:
    """[..., S, S, 3] to [M, 3, S, S]."""
    return images.reshape(-1, *images.shape[-3:]).permute(0, 3, 1, 2)
