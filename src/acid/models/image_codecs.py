"""Frozen image codecs (VQGANs) by name: pixels to a grid of discrete codes and back.

As with the encoders, their weights are other people's, never part of our checkpoints, and never downloaded here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from acid.errors import CheckpointError, look_up
from acid.models.patch_encoders import digest, from_transformers
from acid.nn.pictures import check_pixels


@dataclass(frozen=True)
class CodecConfig:
    """Which frozen codec draws the pixels."""

    name: str = "vqgan16"
    image_size: int = 224
    source: str | None = None  # a folder in the layout of transformers, or a hub name that is in its cache
    digest: str | None = None  # of the weights; filled in by the tokenizer, and checked when it is loaded


class CodecNetwork(Protocol):
    """What an image codec is made of; in fact an `nn.Module`."""

    def encode(self, images: Tensor) -> Tensor:
        """Images [M, 3, S, S] in −1..1 to code numbers [M, G, G]."""
        ...

    def decode(self, codes: Tensor) -> Tensor:
        """Code numbers [M, G, G] to images [M, 3, S, S] in −1..1."""
        ...


class ImageCodec:
    """uint8 pixels [M, S, S, 3] to code numbers [M, G·G], and these to images [M, 3, S, S] in 0..1.

    Deliberately not an `nn.Module`: a tokenizer may hold one without its weights joining the tokenizer's.
    `network` is a `CodecNetwork`.
    """

    def __init__(self, config: CodecConfig, network: nn.Module, *, size: int, grid: int) -> None:
        self.config = config
        self.network = network.eval().requires_grad_(False)
        self.size = size  # of the code book
        self.grid = grid
        self.digest = digest(network.state_dict())
        self.check(config)

    def check(self, config: CodecConfig) -> None:
        """Refuse to serve a configuration that was trained with other weights."""
        if config.digest not in (None, self.digest):
            raise CheckpointError(
                f"the tokenizer was trained with weights {config.digest} of {config.name!r}, but those found are "
                f"{self.digest}; install the version that it was trained with"
            )

    @torch.no_grad()
    def encode(self, pixels: Tensor) -> Tensor:
        check_pixels("the codec", pixels, self.config.image_size)
        images = pixels.permute(0, 3, 1, 2).float() / 127.5 - 1
        return self._on(pixels.device).encode(images).flatten(1)

    @torch.no_grad()
    def decode(self, codes: Tensor) -> Tensor:
        images = self._on(codes.device).decode(codes.unflatten(1, (self.grid, self.grid)))
        return (images / 2 + 0.5).clamp(0, 1)

    def _on(self, device: torch.device) -> CodecNetwork:
        return cast(CodecNetwork, self.network.to(device))


def load_codec(config: CodecConfig) -> ImageCodec:
    """The frozen codec that a configuration names, from what is on disk."""
    return look_up(CODECS, config.name, "image codec")(config)


class _VQGAN16(nn.Module):
    """The VQGAN of stride 16 with 16 384 codes that transformers knows as a part of Janus."""

    stride = 16

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model: Any = model

    def encode(self, images: Tensor) -> Tensor:
        grid = images.shape[-1] // self.stride
        return self.model.encode(images).image_tokens.reshape(len(images), grid, grid)

    def decode(self, codes: Tensor) -> Tensor:
        return self.model.decode(codes.flatten(1)).reshape(len(codes), 3, *(self.stride * s for s in codes.shape[1:]))


def _vqgan16(config: CodecConfig) -> ImageCodec:
    how = "save a JanusVQVAE of transformers (a VQGAN of stride 16) to a folder and name it as `source`"
    grid = config.image_size // _VQGAN16.stride
    model = from_transformers("JanusVQVAE", config.name, config.source, how, num_patches=grid)
    return ImageCodec(config, _VQGAN16(model), size=model.config.num_embeddings, grid=grid)


CODECS: dict[str, Callable[[CodecConfig], ImageCodec]] = {"vqgan16": _vqgan16}
