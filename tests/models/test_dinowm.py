"""DINO-WM in both forms on a small stand-in for the encoder: shapes, rollout, learning, checkpoints, cached tokens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from acid import models
from acid.errors import CheckpointError, ShapeError
from acid.models import Batch, DinoWorldModel, dinowm
from acid.models.dinowm import DinoWMConfig, DinoWMLoss, DinoWMLossConfig
from acid.models.patch_encoders import PatchEncoder, PatchEncoderConfig, ProjectionConfig
from acid.nn.causal import CausalConfig
from acid.planning import CEM, Planner, acid_cost
from acid.types import ActionScaler, WorldModel
from acid.verifier import FlowConfig, TransformerSize, Verifier

SCALER = ActionScaler((0.0, 1.0, 0.0, -1.0), (1.0, 2.0, 1.0, 1.0))
SIDE = 16
ENCODER = PatchEncoderConfig("stand-in", observation_size=SIDE, image_size=SIDE)
SMALL = CausalConfig(frames=1, width=14, depth=2, heads=2, head_width=6, mlp_width=20)


class Patches(nn.Module):
    """A fixed random convolution: [M, 3, ·, ·] to 8 channels at stride 4."""

    def __init__(self, channels: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        weight = torch.randn(channels, 3, stride, stride, generator=torch.Generator().manual_seed(0))
        self.weight = nn.Parameter(weight / stride, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight, stride=self.stride)


TILED = DinoWMConfig(4, ENCODER, latent_size=8, predictor=SMALL, action_width=6)
MODULATED = DinoWMConfig(
    4,
    ENCODER,
    latent_size=5,
    projection=ProjectionConfig(merge=2, size=5),
    predictor=SMALL,
    action="modulation",
    waves=4,
    residual=True,
)
FORMS = {"tiled": TILED, "modulation": MODULATED}
TOKENS = {"tiled": 16, "modulation": 4}


def make_encoder() -> PatchEncoder:
    return PatchEncoder(ENCODER, Patches(8, 4))


def images(count: int) -> Tensor:
    return torch.randint(256, (count, SIDE, SIDE, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def make_model(form: str, frames: int = 1) -> DinoWorldModel:
    """With weights that are nowhere zero, so that everything matters."""
    torch.manual_seed(0)
    config = replace(FORMS[form], predictor=replace(SMALL, frames=frames))
    model = DinoWorldModel(config, SCALER, make_encoder())
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    model.fit_encoder(lambda count: images(60))
    return model.eval().requires_grad_(False)


@pytest.mark.parametrize("form", FORMS)
def test_latents_have_p_tokens(form: str) -> None:
    model = make_model(form)
    assert isinstance(model, WorldModel)
    latent = model.encode(images(2))
    assert latent.shape == (2, TOKENS[form], model.config.latent_size)
    imagined = model.rollout(latent, torch.randn(2, 3, 4, 4))
    assert imagined.shape == (2, 3, 4, *latent.shape[1:])
    assert imagined.isfinite().all()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("frames", [1, 2])
def test_rollout_is_stepping_by_hand(form: str, frames: int) -> None:
    model = make_model(form, frames)
    latent, actions = model.encode(images(1)), torch.randn(1, 2, 3, 4)
    imagined = model.rollout(latent, actions)
    for candidate in range(2):
        latents = [latent]
        for t in range(3):
            first = max(0, t + 1 - frames)
            window = torch.stack(latents[first:], 1)
            latents.append(model.dynamics(window, actions[:, candidate, first : t + 1])[:, -1])
        torch.testing.assert_close(imagined[0, candidate], torch.cat(latents[1:]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_batching_changes_nothing(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model(form)
    latent, actions = model.encode(images(2)), torch.randn(2, 3, 2, 4)
    together = model.rollout(latent, actions)
    torch.testing.assert_close(together[1:, 2:], model.rollout(latent[1:], actions[1:, 2:]), rtol=1e-4, atol=1e-5)
    monkeypatch.setattr(dinowm, "_CPU_TOKENS", 1)  # row by row
    torch.testing.assert_close(together, model.rollout(latent, actions), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(together[:, 0], together[:, 1])  # actions matter


@pytest.mark.parametrize("form", FORMS)
def test_gradients_reach_the_actions(form: str) -> None:
    model = make_model(form)
    actions = torch.randn(1, 2, 2, 4, requires_grad=True)
    model.rollout(model.encode(images(1)), actions).square().sum().backward()
    assert actions.grad is not None
    assert actions.grad.abs().min() > 0


def test_a_fresh_residual_model_predicts_no_change() -> None:
    torch.manual_seed(0)
    model = DinoWorldModel(MODULATED, SCALER, make_encoder())
    before = torch.randn(2, 1, 4, 5)
    torch.testing.assert_close(model.dynamics(before, torch.randn(2, 1, 4)), before)


def test_what_the_predictor_says_about_the_action_is_not_in_the_loss() -> None:
    model = make_model("tiled")
    batch = Batch(torch.randn(3, 2, 16, 8), torch.randn(3, 1, 4))
    loss = DinoWMLoss(DinoWMLossConfig(), model)
    before = loss(model, batch)["loss"]
    model.dynamics.predictor.norm.bias[8:] += 5.0
    torch.testing.assert_close(loss(model, batch)["loss"], before)
    model.dynamics.predictor.norm.bias[:8] += 5.0
    assert loss(model, batch)["loss"] > before + 1


@pytest.mark.parametrize("form", FORMS)
def test_training_learns_what_an_action_does(form: str) -> None:
    torch.manual_seed(0)
    model = DinoWorldModel(replace(FORMS[form], predictor=replace(SMALL, dropout=0.0)), SCALER, make_encoder())
    loss = DinoWMLoss(DinoWMLossConfig(), model)
    optimiser = torch.optim.AdamW(model.parameters(), lr=5e-3)
    effect = torch.randn(4, model.config.latent_size)
    for _ in range(150):
        first, actions = torch.randn(32, 1, model.tokens, model.config.latent_size), torch.randn(32, 1, 4)
        tokens = torch.cat([first, first + (actions @ effect).unsqueeze(2)], 1).half()
        losses = loss(model, Batch(tokens, actions))
        optimiser.zero_grad()
        losses["loss"].backward()
        optimiser.step()
    assert losses["of_still"] < (0.4 if form == "modulation" else 0.7)


@pytest.mark.parametrize("form", FORMS)
def test_a_checkpoint_holds_no_encoder_and_encodes_as_before(form: str, tmp_path: Path) -> None:
    model = make_model(form)
    models.save(model, "dinowm", tmp_path, {}, half_precision=True)
    stored = load_file(tmp_path / "model.safetensors")
    assert not any("encoder" in name or tuple(value.shape) == (8, 3, 4, 4) for name, value in stored.items())
    loaded = models.load(tmp_path, encoder=make_encoder())
    assert isinstance(loaded, DinoWorldModel)
    assert (loaded.config, loaded.encoder_fingerprint) == (model.config, model.encoder_fingerprint)
    assert torch.equal(loaded.encode(images(3)), model.encode(images(3)))


def test_another_encoder_or_another_projection_has_another_fingerprint() -> None:
    model, other = make_model("modulation"), make_model("modulation")
    assert model.encoder_fingerprint == other.encoder_fingerprint
    model.fit_encoder(lambda count: images(50))
    assert model.encoder_fingerprint != other.encoder_fingerprint
    encoder = PatchEncoder(ENCODER, Patches(8, 4).apply(lambda m: m.weight.mul_(2)))
    assert DinoWorldModel(TILED, SCALER, encoder).encoder_fingerprint != make_model("tiled").encoder_fingerprint


def test_a_checkpoint_of_another_encoder_is_refused(tmp_path: Path) -> None:
    models.save(make_model("tiled"), "dinowm", tmp_path, {})
    encoder = PatchEncoder(ENCODER, Patches(8, 4).apply(lambda m: m.weight.mul_(2)))
    with pytest.raises(CheckpointError, match=r"trained with weights .* of 'stand-in'"):
        models.load(tmp_path, encoder=encoder)


def test_paper_preset_on_a_stand_in_for_dinov2() -> None:
    config = dinowm.paper(4)
    encoder = PatchEncoder(config.encoder, Patches(384, 14))
    model = models.build("dinowm", "paper", SCALER, encoder=encoder).eval().requires_grad_(False)
    assert isinstance(model, DinoWorldModel)
    block = model.dynamics.predictor.blocks[0]
    assert (len(model.dynamics.predictor.blocks), block.attention.qkv.weight.shape) == (6, (3 * 16 * 64, 394))
    latent = model.encode(torch.zeros(1, 224, 224, 3, dtype=torch.uint8))
    assert latent.shape == (1, 196, 384)
    assert model.rollout(latent, torch.zeros(1, 1, 1, 4)).shape == (1, 1, 1, 196, 384)


def test_lite_preset_with_its_real_encoder_reloads_by_name(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = models.build("dinowm", "lite", SCALER).eval()
    assert isinstance(model, DinoWorldModel)
    models.save(model, "dinowm", tmp_path, {}, half_precision=True)
    assert (tmp_path / "model.safetensors").stat().st_size < 5 * 2**20
    loaded = models.load(tmp_path)
    pixels = torch.randint(256, (1, 192, 192, 3), dtype=torch.uint8)
    assert torch.equal(loaded.encode(pixels), model.encode(pixels))
    assert loaded.encode(pixels).shape == (1, 36, 64)


def test_wrong_shapes_are_refused() -> None:
    model = make_model("tiled")
    with pytest.raises(ShapeError, match=r"actions of size 4, got \[1, 2, 3, 5\]"):
        model.rollout(torch.zeros(1, 16, 8), torch.zeros(1, 2, 3, 5))
    with pytest.raises(ShapeError, match=r"latents must be \[1, 16, 8\], got \[1, 15, 8\]"):
        model.rollout(torch.zeros(1, 15, 8), torch.zeros(1, 2, 3, 4))
    with pytest.raises(ShapeError, match="predictor of width 13, got 14"):
        DinoWorldModel(replace(TILED, action_width=5), SCALER, make_encoder())
    with pytest.raises(ShapeError, match="tokens of 8 numbers, the configuration says latent_size 9"):
        DinoWorldModel(replace(TILED, latent_size=9), SCALER, make_encoder())


def test_it_can_be_planned_with() -> None:
    model = make_model("modulation")
    size = TransformerSize(width=12, depth=1, heads=2)
    verifier = Verifier(FlowConfig(5, 4, 4, size, merge=True), SCALER).ready()
    planner = Planner(model, acid_cost(verifier, 1.0, reduction="mean"), CEM(8, 2, 3), horizon=1)
    plan = planner.plan(images(2), images(2).flip(0))
    assert plan.actions.shape == (2, 1, 4)
