"""Pixels as networks take them, and distances between pictures [..., S, S, 3] with values in 0..1."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from acid.errors import ShapeError

Perceptual = Callable[[Tensor, Tensor], Tensor]  # planes [M, 3, S, S] in 0..1, twice, to distances [M], e.g. LPIPS
AT_ONCE = 128  # pictures compared at once
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of images from 0 to 1


def check_pixels(what: str, pixels: Tensor, side: int, *, rank: int | None = 4) -> None:
    """A ShapeError unless these are uint8 [..., side, side, 3] of this rank (None: any); `what` takes them."""
    fits = tuple(pixels.shape[-3:]) == (side, side, 3) and rank in (None, pixels.dim())
    if pixels.dtype != torch.uint8 or not fits:
        raise ShapeError(f"{what} takes uint8 images [..., {side}, {side}, 3], got {pixels.dtype} {list(pixels.shape)}")


def imagenet_statistics(scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """ImageNet's mean and deviation [3, 1, 1], of images from 0 to `scale`."""
    mean, std = (torch.tensor(values).view(3, 1, 1) * scale for values in (IMAGENET_MEAN, IMAGENET_STD))
    return mean, std


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
