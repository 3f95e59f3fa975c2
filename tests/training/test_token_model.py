"""From episodes on disk to a DINO-WM and its verifier, every frame encoded once; with a stand-in for the encoder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acid import checkpoint
from acid.data import EpisodeWriter
from acid.errors import AcidError
from acid.loop import LoopConfig
from acid.models import DinoWorldModel, patch_encoders
from acid.models.patch_encoders import PatchEncoder, PatchEncoderConfig
from acid.training import inverse, token_model, world_model
from acid.training.latents import load_latents
from acid.verifier import FitConfig, TransformerSize, Verifier

FRAMES = 12 * 8


class Patches(nn.Module):
    """A fixed random convolution to 16 channels at stride 4, which counts the frames that it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 3, 4, 4, generator=torch.Generator().manual_seed(0)) / 4)
        self.seen = 0

    def forward(self, x: Tensor) -> Tensor:
        self.seen += len(x)
        return F.conv2d(x, self.weight, stride=4)


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Patches:
    """Stands in for EfficientNet-lite0, by its name."""
    found = Patches()
    config = PatchEncoderConfig("efficientnet-lite0", observation_size=16, image_size=16)
    monkeypatch.setitem(patch_encoders.ENCODERS, "efficientnet-lite0", lambda _: PatchEncoder(config, found))
    return found


@pytest.fixture
def data(tmp_path: Path) -> Path:
    generator = np.random.default_rng(0)
    with EpisodeWriter(tmp_path / "data" / "toy.h5") as writer:
        for _ in range(12):
            pixels = generator.integers(256, size=(8, 16, 16, 3), dtype=np.uint8)
            writer.write({"pixels": pixels, "action": generator.normal(size=(8, 4)).astype(np.float32)})
    return tmp_path / "data" / "toy.h5"


def test_every_frame_is_encoded_once(network: Patches, data: Path, tmp_path: Path) -> None:
    recipe = replace(token_model.RECIPES["lite"], loop=LoopConfig(steps=4, batch_size=4, log_every=2, save_every=2))
    told: list[tuple[int, int]] = []
    out = tmp_path / "cell"
    trained = token_model.train_token_model(data, out / "model", recipe, encoding=lambda *now: told.append(now))
    assert told[-1] == (FRAMES, FRAMES)
    assert set(checkpoint.load(out / "model").metadata["validation"]) == {"prediction", "imagined_1_of_still"}

    dataset = load_latents(out / "model", data)
    loaded = dataset.model
    assert isinstance(loaded, DinoWorldModel)
    assert loaded.encoder_fingerprint == trained.encoder_fingerprint
    assert (dataset.latents.dtype, dataset.latents.shape[1:]) == (torch.float16, (4, 64))
    fitted, probed = len(dataset.rows), 2  # frames that the projection saw; a black one to size each model's map
    assert network.seen == FRAMES + fitted + probed

    pixels = torch.from_numpy(dataset.episodes.read("pixels", dataset.rows[:5]))
    torch.testing.assert_close(loaded.encode(pixels), dataset.latents[:5].float(), rtol=1e-2, atol=1e-2)

    small = inverse.InverseRecipe(TransformerSize(width=12, depth=1, heads=2), FitConfig(steps=5, batch_size=16), True)
    assert inverse.train_verifier(dataset, out / "verifier", small).config.channels == inverse.CHANNELS
    assert Verifier.load(out / "verifier").config.tokens == 4


def test_each_kind_has_its_own_recipe(network: Patches, data: Path, tmp_path: Path) -> None:
    with pytest.raises(AcidError, match=r"trained on encoded frames, not on pixels: use training\.token_model"):
        world_model.train_world_model(data, tmp_path, replace(world_model.RECIPES["lewm"]["lite"], kind="dinowm"))
    with pytest.raises(AcidError, match=r"learns its encoder from pixels: use training\.world_model"):
        token_model.train_token_model(data, tmp_path, replace(token_model.RECIPES["lite"], kind="lewm"))
