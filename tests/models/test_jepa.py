"""World models of every preset: shapes, refusals, and checkpoints that bring back the same model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from acid import checkpoint, models
from acid.errors import CheckpointError, ShapeError, UnknownNameError
from acid.models import JepaWorldModel, jepa
from acid.nn.causal import CausalConfig
from acid.types import ActionScaler, WorldModel

SCALER = ActionScaler(mean=(0.5, -1.0), std=(2.0, 3.0), frameskip=5)
PARAMETERS = {"paper": 18_034_478, "lite": 1_318_608}


def make_model(preset: str) -> JepaWorldModel:
    """With modulations that are not zero, so that actions matter."""
    torch.manual_seed(0)
    model = models.build("lewm", preset, SCALER)
    for block in model.dynamics[0].predictor.blocks:
        nn.init.normal_(block.modulation.weight, std=0.05)
        nn.init.normal_(block.modulation.bias, std=0.3)
    return model.eval().requires_grad_(False)


def images(model: JepaWorldModel, *lead: int) -> Tensor:
    side = model.config.encoder.image_size
    return torch.randint(256, (*lead, side, side, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def lite() -> JepaWorldModel:
    return make_model("lite")


@pytest.mark.parametrize("preset", sorted(jepa.PRESETS))
def test_presets_encode_and_imagine(preset: str) -> None:
    model = make_model(preset)
    assert isinstance(model, WorldModel)
    assert sum(parameter.numel() for parameter in model.parameters()) == PARAMETERS[preset]
    latent = model.encode(images(model, 2))
    assert latent.shape == (2, 1, model.config.latent_size)
    imagined = model.rollout(latent, torch.randn(2, 3, 4, SCALER.size))
    assert imagined.shape == (2, 3, 4, 1, model.config.latent_size)
    assert imagined.isfinite().all()


def test_images_are_embedded_one_by_one(lite: JepaWorldModel) -> None:
    pixels = images(lite, 2, 3)
    together = lite.embed(pixels)
    assert together.shape == (2, 3, lite.config.latent_size)
    torch.testing.assert_close(together[1, 2], lite.embed(pixels[1, 2]), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(together[0, 0], together[0, 1])


def test_standardised_embeddings_have_spread_one_in_every_channel(lite: JepaWorldModel) -> None:
    torch.manual_seed(0)
    model = JepaWorldModel(lite.config, SCALER)
    embeddings = model.embed(images(model, 8, 3)).flatten(0, 1)
    torch.testing.assert_close(embeddings.mean(0), torch.zeros(model.config.latent_size), rtol=0, atol=1e-4)
    assert (embeddings.var(0, correction=0) - 1).abs().max() < 0.1
    pixels = images(model, 2, 3)
    together = model.eval().embed(pixels)  # by what training saw, not by its neighbours
    torch.testing.assert_close(together[1, 2], model.embed(pixels[1, 2]), rtol=1e-4, atol=1e-5)


def test_the_first_imagined_latent_is_the_prediction(lite: JepaWorldModel) -> None:
    latent = lite.encode(images(lite, 2))
    actions = torch.randn(2, 3, 2, SCALER.size)
    predicted = lite.dynamics[0](latent.repeat_interleave(3, 0), actions[:, :, :1].flatten(0, 1))
    imagined = lite.rollout(latent, actions)[:, :, 0].flatten(0, 1)
    torch.testing.assert_close(imagined, predicted, rtol=1e-4, atol=1e-5)


def test_candidates_are_imagined_from_the_latent_of_their_own_problem(lite: JepaWorldModel) -> None:
    latent = lite.encode(images(lite, 2))
    actions = torch.randn(2, 3, 5, SCALER.size)
    together = lite.rollout(latent, actions)
    alone = lite.rollout(latent[1:], actions[1:, 2:])
    torch.testing.assert_close(together[1:, 2:], alone, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(together[0], together[1])


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda x: x.float(), "torch.float32"),
        (lambda x: x[:, :32], r"\[2, 32, 64, 3\]"),
        (lambda x: x.permute(0, 3, 1, 2), r"\[2, 3, 64, 64\]"),
    ],
)
def test_wrong_images_are_refused(lite: JepaWorldModel, spoil, told: str) -> None:
    with pytest.raises(ShapeError, match=rf"uint8 images \[\.\.\., 64, 64, 3\], got .*{told}"):
        lite.encode(spoil(images(lite, 2)))


def test_wrong_actions_are_refused(lite: JepaWorldModel) -> None:
    with pytest.raises(ShapeError, match=r"actions of size 10, got \[1, 3, 4, 9\]"):
        lite.rollout(torch.zeros(1, 1, lite.config.latent_size), torch.zeros(1, 3, 4, 9))
    with pytest.raises(ShapeError, match="actions of size 10, the scaler makes 2"):
        JepaWorldModel(lite.config, ActionScaler((0.0, 0.0), (1.0, 1.0)))


@pytest.mark.parametrize("wrong", [{"latent_size": 32.5}, {"latent_size": -1}, {"predictor": CausalConfig(depth=True)}])
def test_sizes_that_are_none_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ShapeError, match=r"Config\.\w+ must be a whole number of at least 0, got (32\.5|-1|True)"):
        JepaWorldModel(replace(jepa.lite(SCALER.size), **wrong), SCALER)


@pytest.mark.parametrize("channels", [(48, 0), (48, -96), (48, 1.5), (48, True)])
def test_channels_that_are_none_are_refused(channels: tuple[Any, ...]) -> None:
    config = jepa.lite(SCALER.size)
    for name in ("channels", "detectors"):
        wrong = replace(config, encoder=replace(config.encoder, **{name: channels}))
        with pytest.raises(ShapeError, match=f"ConvConfig.{name} must hold whole numbers of at least 1, got"):
            JepaWorldModel(wrong, SCALER)


def test_unknown_names_get_a_suggestion() -> None:
    with pytest.raises(UnknownNameError, match="world model 'lewn'; did you mean 'lewm'"):
        models.build("lewn", "lite", SCALER)
    with pytest.raises(UnknownNameError, match="scale 'papers'; did you mean 'paper'"):
        models.build("lewm", "papers", SCALER)


@pytest.mark.parametrize("preset", sorted(jepa.PRESETS))
def test_a_checkpoint_brings_back_the_same_model(preset: str, tmp_path: Path) -> None:
    model = make_model(preset)
    models.save(model, "lewm", tmp_path, {"steps": 3})
    loaded = models.load(tmp_path)
    assert (loaded.config, loaded.scaler, loaded.training) == (model.config, SCALER, False)
    state = loaded.state_dict()
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    pixels = images(model, 1)
    assert torch.equal(loaded.encode(pixels), model.encode(pixels))


def test_half_precision_is_nearly_the_same_model(lite: JepaWorldModel, tmp_path: Path) -> None:
    models.save(lite, "lewm", tmp_path, {}, half_precision=True)
    loaded = models.load(tmp_path)
    assert all(p.dtype == torch.float32 for p in loaded.parameters())
    pixels = images(lite, 2)
    torch.testing.assert_close(loaded.encode(pixels), lite.encode(pixels), rtol=1e-2, atol=1e-2)


def test_other_checkpoints_are_refused(lite: JepaWorldModel, tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "verifier", kind="verifier", config={}, state={"x": torch.zeros(1)}, scaler=SCALER)
    with pytest.raises(CheckpointError, match="holds a 'verifier' checkpoint, not a world model"):
        models.load(tmp_path / "verifier")
    checkpoint.save(tmp_path / "bare", kind="lewm", config=lite.config, state=lite)
    with pytest.raises(CheckpointError, match="no action statistics"):
        models.load(tmp_path / "bare")


def test_latents_of_two_tokens_are_refused(lite: JepaWorldModel) -> None:
    actions = torch.zeros(2, 3, 4, SCALER.size)
    for shape in ((2, 2, lite.config.latent_size), (3, 1, lite.config.latent_size), (2, lite.config.latent_size)):
        with pytest.raises(ShapeError, match=r"the model takes latents \[2, 1, 32\]"):
            lite.rollout(torch.zeros(shape), actions)


def test_channels_of_shapes_see_only_what_detectors_found() -> None:
    encoder = replace(jepa.lite(10).encoder, detectors=(4, 8))
    config = replace(jepa.lite(10), encoder=encoder, shape_size=3)
    model = JepaWorldModel(config, SCALER).eval().requires_grad_(False)
    model.encoder.head.weight.zero_()  # the main trunk sees nothing
    model.encoder.head.bias.zero_()
    first, second = model.encode(images(model, 2)).squeeze(1)
    assert torch.equal(first[:-3], second[:-3])
    assert not torch.allclose(first[-3:], second[-3:])


@pytest.mark.parametrize(("shapes", "detectors"), [(3, ()), (0, (4, 8)), (32, (4, 8)), (-1, (4, 8))])
def test_channels_of_shapes_and_detectors_go_together(shapes: int, detectors: tuple[int, ...]) -> None:
    config = jepa.lite(10)
    wanted = r"shape_size must be (1 to 31.*needs an encoder with detectors|a whole number of at least 0)"
    with pytest.raises(ShapeError, match=wanted):
        JepaWorldModel(replace(config, encoder=replace(config.encoder, detectors=detectors), shape_size=shapes), SCALER)


def test_a_vit_has_no_detectors() -> None:
    with pytest.raises(ShapeError, match=r"needs an encoder with detectors; got 3 and detectors \(\)"):
        JepaWorldModel(replace(jepa.paper(10), shape_size=3), SCALER)
