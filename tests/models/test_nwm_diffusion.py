"""NWM with diffusion: latents of a VAE in squares, rollouts that belong to a seed, and a loss over goals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_vae import tiny_vae
from torch import Tensor

from acid import models
from acid.data.poses import SCALER
from acid.errors import CheckpointError, ShapeError
from acid.models import Batch, DiffusionWorldModel
from acid.models.cdit import CDiTConfig
from acid.models.nwm_diffusion import NWMDiffusionConfig, NWMDiffusionLoss, NWMDiffusionLossConfig, lite, paper
from acid.models.patch_encoders import EncoderError
from acid.models.vae import ImageVAE, VAEConfig
from acid.nn.diffusion import Diffusion

SIDE, CONTEXT = 32, 3
PLACES, SIZE = 4, 16  # squares of a 4 × 4 map, 2 × 2 × 4 numbers each


@pytest.fixture(scope="module")
def vae(tmp_path_factory: pytest.TempPathFactory) -> ImageVAE:
    return tiny_vae(tmp_path_factory.mktemp("vae"), SIDE)


def make(vae: ImageVAE, **changed: object) -> DiffusionWorldModel:
    """Random networks whose output is not zero, as it is at first."""
    torch.manual_seed(0)
    config = NWMDiffusionConfig(3, vae.config, CDiTConfig(24, 2, 2, 24), context=CONTEXT, waves=8, steps=3)
    model = DiffusionWorldModel(replace(config, **changed), SCALER, vae)
    for weight in (model.dynamics.head.weight, *(block.modulation.weight for block in model.dynamics.blocks)):
        torch.nn.init.normal_(weight, std=0.2)
    return model.eval().requires_grad_(False)


def contexts(model: DiffusionWorldModel, problems: int) -> Tensor:
    random = torch.Generator().manual_seed(1)
    return model.encode(torch.randint(256, (problems, CONTEXT, SIDE, SIDE, 3), dtype=torch.uint8, generator=random))


def actions(problems: int, candidates: int, horizon: int) -> Tensor:
    return torch.randn(problems, candidates, horizon, 3, generator=torch.Generator().manual_seed(2))


def test_a_latent_is_the_map_of_the_vae_in_squares(vae: ImageVAE) -> None:
    model = make(vae)
    pixels = torch.randint(256, (2, 5, SIDE, SIDE, 3), dtype=torch.uint8)
    latents = model.encode(pixels)
    assert latents.shape == (2, 5, PLACES, SIZE)
    maps = vae.encode(pixels.flatten(0, 1))
    second = maps[0, :, :2, 2:]  # above on the right
    assert torch.equal(latents[0, 0, 1], second.flatten())
    assert torch.equal(model.encode(pixels[:, 0]), latents[:, 0])
    drawn = model.decode(latents)
    assert drawn.shape == pixels.shape
    torch.testing.assert_close(drawn.flatten(0, 1).permute(0, 3, 1, 2), vae.decode(maps))
    assert model.features(latents) is latents


def test_the_same_seed_imagines_the_same_whatever_else_is_in_the_batch(vae: ImageVAE) -> None:
    model = make(vae)
    context, chosen = contexts(model, 3), actions(3, 4, 2)
    whole = model.rollout(context, chosen, seeds=[5, 6, 7])
    assert whole.shape == (3, 4, 2, PLACES, SIZE)
    torch.testing.assert_close(model.rollout(context[1:2], chosen[1:2], seeds=[6]), whole[1:2])
    torch.testing.assert_close(model.rollout(context, chosen[:, [3, 0]], seeds=[5, 6, 7]), whole[:, [3, 0]])
    assert (model.rollout(context, chosen, seeds=[8, 6, 7])[0] - whole[0]).abs().max() > 0.01
    torch.testing.assert_close(model.rollout(context, chosen), model.rollout(context, chosen, seeds=[0, 0, 0]))


def test_actions_and_context_matter_and_candidates_share_their_noise(vae: ImageVAE) -> None:
    model = make(vae)
    context, chosen = contexts(model, 1), actions(1, 2, 1)
    found = model.rollout(context, chosen)
    assert (found[:, 0] - found[:, 1]).abs().max() > 1e-3
    alike = model.rollout(context, chosen[:, :1].expand(-1, 2, -1, -1))
    torch.testing.assert_close(alike[:, 0], alike[:, 1])
    assert (model.rollout(context.flip(1), chosen) - found).abs().max() > 1e-4


def test_many_candidates_are_imagined_in_parts(vae: ImageVAE, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(vae)
    context, chosen = contexts(model, 2), actions(2, 5, 2)
    whole = model.rollout(context, chosen)
    monkeypatch.setattr(DiffusionWorldModel, "cpu_candidates", 4)
    torch.testing.assert_close(model.rollout(context, chosen), whole)


@pytest.mark.parametrize("redraw", [True, False])
def test_a_frame_follows_from_what_was_imagined_before(vae: ImageVAE, redraw: bool) -> None:
    """The second step is a first step whose context ends with the first frame, drawn and encoded again or as it is."""
    model = make(vae, redraw=redraw)
    context, chosen = contexts(model, 1), actions(1, 1, 2)
    found = model.rollout(context, chosen, seeds=[3])
    newest = found[:, :, 0]
    if redraw:
        images = vae.decode(torch.nn.functional.pixel_shuffle(newest[0].transpose(1, 2).unflatten(2, (2, 2)), 2))
        newest = torch.nn.functional.pixel_unshuffle(vae.encode_images(images), 2).flatten(2).transpose(1, 2)[None]
    generator = torch.Generator().manual_seed(3)
    dynamics, moved = model.dynamics, chosen.flatten(0, 1)
    for step, frames in enumerate((context, torch.cat([context[:, 1:], newest], 1))):
        told, seen = dynamics.condition(moved[:, step]), dynamics.look(frames)
        expected = Diffusion(3).sample(
            lambda x, level, told=told, seen=seen: dynamics(x, level, told, seen),
            lambda: torch.randn(1, PLACES, SIZE, generator=generator),
        )
        torch.testing.assert_close(found[:, 0, step], expected)


def test_a_short_context_is_filled_up_and_steps_may_be_fewer(vae: ImageVAE) -> None:
    model = make(vae)
    context, chosen = contexts(model, 1), actions(1, 2, 1)
    single = model.rollout(context[:, -1], chosen)
    torch.testing.assert_close(single, model.rollout(context[:, -1:].expand(-1, CONTEXT, -1, -1), chosen))
    found = model.rollout(context, chosen)
    model.diffusion = Diffusion(2)
    assert (model.rollout(context, chosen) - found).abs().max() > 1e-3
    with pytest.raises(ShapeError, match=r"with P, D = \(4, 16\), got"):
        model.rollout(context[..., :8], chosen)
    with pytest.raises(ShapeError, match="actions of size 3"):
        model.rollout(context, chosen[..., :2])
    with pytest.raises(ShapeError, match="one seed per problem"):
        model.rollout(context, chosen, seeds=[1, 2])


def test_goals_are_predicted_from_one_context_each(vae: ImageVAE) -> None:
    """A batch of contexts with goals costs what its goals cost, each as the last frame of a window."""
    model = make(vae)
    loss = NWMDiffusionLoss(NWMDiffusionLossConfig(), model)
    random = torch.Generator().manual_seed(4)
    frames = torch.randn(2, CONTEXT + 3, PLACES, SIZE, generator=random)
    moved, elapsed = torch.randn(2, 3, 3, generator=random), torch.tensor([[1.0, -64.0, 30.0], [1.0, 0.0, 64.0]])
    aims = Batch(frames, moved, elapsed).aims()
    assert aims.context.shape == (6, CONTEXT, PLACES, SIZE)
    for row in range(6):
        problem, goal = divmod(row, 3)
        assert torch.equal(aims.context[row], frames[problem, :CONTEXT])
        assert torch.equal(aims.target[row], frames[problem, CONTEXT + goal])
        assert torch.equal(aims.actions[row], moved[problem, goal])
    assert torch.equal(aims.elapsed, elapsed.flatten())  # type: ignore[arg-type]

    torch.manual_seed(0)
    goals = loss(model, Batch(frames[:1, : CONTEXT + 1], moved[:1, :1], elapsed[:1, :1]))
    torch.manual_seed(0)
    window = Batch(frames[:1, : CONTEXT + 1], torch.cat([torch.zeros(1, CONTEXT - 1, 3), moved[:1, :1]], 1))
    assert goals["loss"] == loss(model, window)["loss"]
    assert goals["loss"] == goals["error"] + goals["bound"]
    torch.manual_seed(0)
    other = loss(model, Batch(frames[:1, : CONTEXT + 1], moved[:1, :1], elapsed[:1, 1:2]))
    assert other["loss"] != goals["loss"]  # the time tells


def test_every_weight_learns(vae: ImageVAE) -> None:
    model = make(vae).train().requires_grad_(True)
    loss = NWMDiffusionLoss(NWMDiffusionLossConfig(), model)
    window = torch.cat([contexts(model, 4), contexts(model, 4)[:, :1]], 1)
    loss(model, Batch(window, torch.randn(4, CONTEXT, 3)))["loss"].backward()
    assert [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()] == []


def test_the_vae_is_no_part_of_a_checkpoint_but_is_checked(vae: ImageVAE, tmp_path: Path) -> None:
    model = make(vae)
    models.save(model, "nwm-diffusion", tmp_path / "model", {})
    loaded = models.load(tmp_path / "model")
    assert isinstance(loaded, DiffusionWorldModel)
    assert all(name.startswith("dynamics.") for name in loaded.state_dict())
    assert loaded.config.encoder == replace(vae.config, digest=vae.digest)
    context, chosen = contexts(model, 1), actions(1, 1, 1)
    assert torch.equal(loaded.rollout(context, chosen), model.rollout(context, chosen))
    assert loaded.encoder_fingerprint == model.encoder_fingerprint
    moved = replace(model.config, encoder=replace(model.config.encoder, source="elsewhere"))
    with pytest.raises(EncoderError, match=r"elsewhere has no config\.json"):
        DiffusionWorldModel(moved, SCALER)
    with pytest.raises(CheckpointError, match="trained with weights 0000 of 'sd-vae'"):
        DiffusionWorldModel(replace(model.config, encoder=replace(vae.config, digest="0000")), SCALER, vae)


def test_published_sizes(vae: ImageVAE) -> None:
    config = paper(3)
    assert (config.encoder.image_size, config.context, config.steps, config.redraw) == (224, 4, 250, True)
    with torch.device("meta"):
        model = DiffusionWorldModel(replace(config, encoder=VAEConfig(image_size=224)), SCALER, StandIn())
    assert model.latent_shape == (196, 16)
    # Of the published CDiT-XL/2: embeddings, 28 blocks, the output; positions of 5 frames.
    width, waves = 1152, 256
    embedding = waves * width + width + width * width + width
    third = 3 * (waves * 384 + 384 + 384 * 384 + 384)
    block = width * 3 * width * 2 + 6 * width + 2 * (width * width + width) + 2 * width
    block += 2 * 4 * width * width + 5 * width + 11 * (width * width + width)
    output = 2 * (width * width + width) + width * 32 + 32
    expected = 17 * width + 2 * embedding + third + 28 * block + output + 5 * 196 * width
    assert sum(weight.numel() for weight in model.parameters()) == expected
    small = lite(3)
    assert (small.encoder.image_size, small.steps) == (64, 10)


class StandIn:
    """For a VAE of 224 px."""

    config, digest, grid, channels = VAEConfig(), "0", 28, 4

    def check(self, config: VAEConfig) -> None:
        pass


def test_sizes_that_cannot_be(vae: ImageVAE) -> None:
    with pytest.raises(ShapeError, match="cannot be cut into squares of 3"):
        make(vae, patch=3)
    for wrong in ({"steps": 1}, {"context": 0}, {"patch": 0}):
        with pytest.raises(ShapeError, match="needs context, squares and 2 to 1000 steps"):
            make(vae, **wrong)
