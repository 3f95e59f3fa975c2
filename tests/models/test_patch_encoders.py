"""Frozen encoders: the real EfficientNet-lite0, DINOv2's layout with random weights, and the projection to tokens."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from matplotlib import cbook
from PIL import Image
from torch import Tensor, nn

from acid.errors import CheckpointError, ShapeError, UnknownNameError
from acid.models import patch_encoders
from acid.models.patch_encoders import (
    EncoderError,
    PatchEncoder,
    PatchEncoderConfig,
    ProjectionConfig,
    efficientnet_file,
    fit_projection,
    load_encoder,
)
from acid.nn.efficientnet import EfficientNetLite0

MILITARY_UNIFORM = 652  # of ImageNet's classes


def images(count: int, side: int) -> Tensor:
    return torch.randint(256, (count, side, side, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_efficientnet_recognises_what_a_photograph_shows() -> None:
    photograph = Image.open(cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)).convert("RGB")
    square = photograph.crop((0, 30, 512, 542)).resize((224, 224))
    encoder = load_encoder(PatchEncoderConfig("efficientnet-lite0", 224, 224, block=15))
    features = encoder(torch.from_numpy(np.array(square))[None]).permute(0, 3, 1, 2)
    state = torch.load(efficientnet_file(), weights_only=True)  # the head behind the blocks, which we do not build
    wide = F.conv2d(features, state["_conv_head.weight"])
    norm = [state[f"_bn1.{name}"] for name in ("running_mean", "running_var", "weight", "bias")]
    pooled = F.relu6(F.batch_norm(wide, *norm, eps=1e-3)).mean((2, 3))
    scores = (pooled @ state["_fc.weight"].T + state["_fc.bias"]).softmax(1)[0]
    assert scores.argmax() == MILITARY_UNIFORM
    assert scores.max() > 0.3


@pytest.mark.parametrize(("block", "stride", "channels"), [(2, 4, 24), (4, 8, 40), (7, 16, 80), (10, 16, 112)])
def test_blocks_have_the_documented_stride_and_channels(block: int, stride: int, channels: int) -> None:
    features = EfficientNetLite0(block)(torch.zeros(1, 3, 64, 96))
    assert features.shape == (1, channels, 64 // stride, 96 // stride)


def test_unknown_blocks_and_encoders_are_refused() -> None:
    with pytest.raises(ShapeError, match="blocks 0 to 15, got 16"):
        EfficientNetLite0(16)
    with pytest.raises(UnknownNameError, match="patch encoder 'efficientnet-lite'; did you mean 'efficientnet-lite0'"):
        load_encoder(PatchEncoderConfig("efficientnet-lite", 64, 64))


def test_images_are_encoded_one_by_one_in_any_number() -> None:
    encoder = load_encoder(PatchEncoderConfig("efficientnet-lite0", 64, 64, block=4))
    pixels = images(9, 64)  # more than go through at once
    together = encoder(pixels)
    assert together.shape == (9, *encoder.grid, encoder.channels) == (9, 8, 8, 40)
    torch.testing.assert_close(together[8:], encoder(pixels[8:]), rtol=1e-4, atol=1e-4)
    with pytest.raises(ShapeError, match=r"uint8 images \[..., 64, 64, 3\], got torch.float32"):
        encoder(pixels.float())


class Mean(nn.Module):
    """A stand-in for a network: each 4 × 4 patch's mean colour."""

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(x, 4)


def test_resizing_cropping_and_normalising() -> None:
    pixels = torch.zeros(1, 32, 32, 3, dtype=torch.uint8)
    pixels[:, :16] = 255
    whole = PatchEncoder(PatchEncoderConfig("mean", 32, 16), Mean())
    assert whole.grid == (4, 4)
    torch.testing.assert_close(whole(pixels)[0, [0, -1], 0, 0], torch.tensor([1.0, -1.0]))
    lower = PatchEncoder(PatchEncoderConfig("mean", 32, 16, crop=(12, 0, 4, 16)), Mean())
    assert lower.grid == (1, 4)
    assert lower(pixels).max() < -0.99
    with pytest.raises(ShapeError, match=r"crop .* is not inside an image of side 16"):
        PatchEncoder(PatchEncoderConfig("mean", 32, 16, crop=(14, 0, 4, 16)), Mean())


def test_other_weights_than_those_trained_with_are_refused() -> None:
    with pytest.raises(CheckpointError, match="trained with weights 0123 of 'efficientnet-lite0'"):
        load_encoder(PatchEncoderConfig("efficientnet-lite0", 32, 32, block=0, digest="0123"))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EncoderError, match=r"acid-planning\[dinowm\]"):
        load_encoder(PatchEncoderConfig("efficientnet-lite0", 32, 32))


def test_damaged_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "weights"
    (package / "models").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "models" / patch_encoders.EFFICIENTNET_FILE).write_bytes(b"something else")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(patch_encoders, "EFFICIENTNET_PACKAGE", "weights")
    with pytest.raises(EncoderError, match="not the file with SHA-256 57934424"):
        efficientnet_file()


def test_dinov2_gives_the_normalised_patch_tokens_row_by_row(tmp_path: Path) -> None:
    from transformers import Dinov2Config, Dinov2Model

    torch.manual_seed(0)
    model = Dinov2Model(
        Dinov2Config(hidden_size=12, num_hidden_layers=1, num_attention_heads=2, image_size=56, patch_size=14)
    ).eval()
    model.save_pretrained(tmp_path)
    encoder = load_encoder(PatchEncoderConfig("dinov2-vits14", 48, 42, source=str(tmp_path)))
    assert (encoder.grid, encoder.channels) == ((3, 3), 12)
    pixels = images(2, 48)
    resized = F.interpolate(pixels.permute(0, 3, 1, 2) / 255, size=(42, 42), mode="bilinear", antialias=True)
    with torch.no_grad():
        tokens = model(pixel_values=(resized - 0.5) / 0.5).last_hidden_state[:, 1:]
    torch.testing.assert_close(encoder(pixels).flatten(1, 2), tokens, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("source", [None, "acid/not-in-any-cache"])
def test_dinov2_is_never_downloaded(source: str | None) -> None:
    with pytest.raises(EncoderError, match="hf download facebook/dinov2-small"):
        load_encoder(PatchEncoderConfig("dinov2-vits14", 224, 196, source=source))


def correlated_features(frames: int) -> Tensor:
    """[M, 4, 6, 5] in which 3 hidden directions, told apart from place to place by an offset, are all that varies."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(frames, 4, 6, 3, generator=generator) * torch.tensor([3.0, 2.0, 1.0])
    return hidden @ torch.randn(3, 5, generator=generator) + 10 * torch.randn(4, 6, 5, generator=generator)


def test_the_projection_keeps_distances_up_to_one_scale() -> None:
    features = correlated_features(200)
    projection = fit_projection(features, ProjectionConfig(merge=1, size=3))
    tokens = projection(features)
    assert tokens.shape == (200, 24, 3)
    assert projection.explained > 0.999
    assert tokens.mean(0).abs().max() < 0.02  # each position's mean is gone
    assert tokens.square().mean().item() == pytest.approx(1, abs=0.01)
    true = (features[:100] - features[100:]).square().sum((1, 2, 3))
    ratio = (tokens[:100] - tokens[100:]).square().sum((1, 2)) / true
    assert ratio.max() / ratio.min() < 1.01


def test_merging_puts_neighbours_side_by_side() -> None:
    features = torch.arange(4 * 6).float().view(1, 4, 6, 1).repeat(30, 1, 1, 1)
    features = features + 0.01 * torch.randn(features.shape, generator=torch.Generator().manual_seed(0))
    merged = fit_projection(features, ProjectionConfig(merge=2, size=4)).merged(features).round()
    assert merged.shape == (30, 6, 4)
    assert merged[0, 0].tolist() == [0, 1, 6, 7]
    assert merged[0, 4].tolist() == [14, 15, 20, 21]


def test_impossible_projections_are_refused() -> None:
    features = correlated_features(10)
    with pytest.raises(ShapeError, match="4 × 6 map cannot be merged 3 × 3"):
        fit_projection(features, ProjectionConfig(merge=3, size=2))
    with pytest.raises(ShapeError, match="20 channels have 1 to 20 principal components, not 21"):
        fit_projection(features, ProjectionConfig(merge=2, size=21))
    with pytest.raises(ShapeError, match="6 tokens are too few"):
        fit_projection(features[:1], ProjectionConfig(merge=2, size=2))
