"""Small datasets, a stand-in for a pretrained encoder, and recipes cut down to a few steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acid.data import EpisodeWriter
from acid.data.poses import integrate, normalise
from acid.models.compact import CompactConfig, ConvFeaturesConfig, PixelDecoderConfig, QFormerConfig
from acid.models.nwm import CDiTConfig, NWMConfig
from acid.models.patch_encoders import PatchEncoder, PatchEncoderConfig
from acid.nn.unmasking import Unmasking
from acid.training import Recipe, recipe
from acid.verifier import TransformerSize

EPISODES = 12
SIDE = 16  # px of drives and of noise
TOKENS = CompactConfig(
    ConvFeaturesConfig(SIDE, (8, 8)),
    QFormerConfig(queries=4, width=16, depth=1, heads=2, mlp_width=16),
    PixelDecoderConfig(SIDE, 16, 1, 2, 16, (4, 4)),
    levels=(5, 4, 3),
)
NWM = NWMConfig(0, TOKENS, CDiTConfig(16, 1, 2, 16), context=2, factorised=True, waves=4, unmasking=Unmasking(2))
SMALL = TransformerSize(width=24, depth=1, heads=3)


def small(part: str, model: str, **changes: Any) -> Recipe:
    """The lite recipe for three steps; for nwm with networks that are as small as they can be."""
    found = recipe(part, model)
    loop = replace(found.loop, steps=3, batch_size=4, log_every=1, save_every=2)
    networks = {("tokenizer", "nwm"): TOKENS, ("model", "nwm"): NWM}
    usual = {"loop": loop, "network": networks.get((part, model), found.network)}
    if model == "nwm" and part in ("verifier", "policy"):
        usual |= {"channels": (8,)}
    return replace(found, **(usual | changes))


def blobs(path: Path, seed: int = 0) -> Path:
    """A blob of 64 px frames that actions move; its state is noise."""
    random, grid = np.random.default_rng(seed), np.arange(64)
    with EpisodeWriter(path) as writer:
        for _ in range(EPISODES):
            action = random.normal(size=(40, 2)).astype(np.float32)
            place = np.clip(np.cumsum(action, 0) * 2 + 32, 4, 60)
            pixels = np.zeros((40, 64, 64, 3), np.uint8)
            for frame, (x, y) in zip(pixels, place, strict=True):
                blob = np.exp(-((grid[:, None] - y) ** 2 + (grid[None] - x) ** 2) / 20)
                frame[:] = (blob[..., None] * [255, 128, 64]).astype(np.uint8)
            writer.write({"pixels": pixels, "action": action, "state": random.normal(size=(40, 9))})
    return path


def noise(path: Path) -> Path:
    """Short episodes of noise, with states that are three points in space."""
    random = np.random.default_rng(1)
    with EpisodeWriter(path) as writer:
        for _ in range(EPISODES):
            pixels = random.integers(256, size=(8, SIDE, SIDE, 3), dtype=np.uint8)
            action = random.normal(size=(8, 4)).astype(np.float32)
            writer.write({"pixels": pixels, "action": action, "state": random.normal(size=(8, 9))})
    return path


def drives(path: Path) -> Path:
    """A bright column that turning moves sideways."""
    random = np.random.default_rng(2)
    with EpisodeWriter(path) as writer:
        for _ in range(EPISODES):
            steps = np.stack(
                [random.uniform(0.1, 0.4, 13), random.normal(0, 0.02, 13), random.normal(0, 0.2, 13)], axis=1
            )
            poses = integrate(steps, np.zeros(3))
            pixels = np.zeros((14, SIDE, SIDE, 3), np.uint8)
            for frame, (_, _, yaw) in zip(pixels, poses, strict=True):
                frame[:, int(8 + 7 * np.sin(yaw))] = 255
            action = np.concatenate([normalise(steps), np.zeros((1, 3))]).astype(np.float32)
            writer.write({"pixels": pixels, "pose": poses, "action": action})
    return path


class Patches(nn.Module):
    """A fixed random convolution to 16 channels at stride 4, which counts the frames that it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 3, 4, 4, generator=torch.Generator().manual_seed(0)) / 4)
        self.seen = 0

    def forward(self, x: Tensor) -> Tensor:
        self.seen += len(x)
        return F.conv2d(x, self.weight, stride=4)


def stand_in(network: nn.Module) -> PatchEncoder:
    """For EfficientNet-lite0, by its name."""
    return PatchEncoder(PatchEncoderConfig("efficientnet-lite0", observation_size=SIDE, image_size=SIDE), network)


class Difference:
    """For LPIPS, which needs larger frames; counts the pictures that it compares."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, drawn: Tensor, images: Tensor) -> Tensor:
        self.asked.append(len(drawn))
        return (drawn - images).abs().mean((1, 2, 3))

    def to(self, device: torch.device) -> Difference:
        return self


class ThreePoints:
    """For a task whose states are points."""

    def pose(self, state: np.ndarray) -> np.ndarray:
        return state.reshape(3, 3)
