"""Training as NWM is published: goals some way ahead or behind, weights that are averaged, latents of a VAE."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import training_toys as toys
from tiny_vae import write_vae
from training_toys import SMALL, Difference, small

from acid import checkpoint, models
from acid.data import Episodes, Windows
from acid.data.poses import SCALER, normalise, to_local
from acid.errors import AcidError
from acid.loop import LoopConfig, SettingError, learning_rate
from acid.models import DiffusionWorldModel
from acid.models.cdit import CDiTConfig
from acid.models.nwm import NWMConfig
from acid.models.nwm_diffusion import NWMDiffusionConfig
from acid.models.vae import VAEConfig
from acid.training import fit, recipe
from acid.training.dataset import Actions, WindowReader, steps_between
from acid.training.goals import GoalReader
from acid.training.model import ModelRecipe
from acid.training.views import MIRRORED
from acid.verifier import Verifier

LENGTH, CONTEXT = 14, 3  # frames of an episode of drives


@pytest.fixture
def reader(drives: Path) -> GoalReader:
    episodes = Episodes(drives)
    latents = torch.randn(episodes.rows, 2, 4, 3).half()
    actions = Actions(torch.from_numpy(steps_between(episodes)), SCALER, MIRRORED)
    return GoalReader(WindowReader(Windows(episodes, [1, 2], CONTEXT), episodes, actions, latents), reach=5)


def test_goals_are_in_reach_and_inside_the_episode(reader: GoalReader) -> None:
    shown = len(reader.contexts.windows)
    everything = np.repeat(np.arange(shown), 50)
    places = np.random.default_rng(0).random((len(everything), 4))
    found = reader.read(everything, places).elapsed
    assert found is not None
    offsets = found.numpy().reshape(shown, -1)
    for number, own in enumerate(offsets):
        now = number % (LENGTH - CONTEXT + 1) + CONTEXT - 1
        wanted = set(range(max(-5, -now), min(5, LENGTH - 1 - now) + 1))
        assert set(own) == wanted


def test_a_goal_is_reached_by_one_motion(reader: GoalReader) -> None:
    windows, latents, poses = reader.contexts.windows, reader.contexts.latents, reader.poses
    assert latents is not None
    batch = reader.read(np.array([0, 5]), np.array([[0.0, 0.999999], [0.5, 0.1]]), torch.tensor([0, 1]))
    assert batch.frames.shape == (2, CONTEXT + 2, 4, 3)
    assert batch.elapsed is not None
    for row, (number, mirrored) in enumerate(((0, False), (5, True))):
        seen = windows.frame_rows([number])[0]
        assert torch.equal(batch.frames[row, :CONTEXT], latents[seen, int(mirrored)].float())
        for place in range(2):
            goal = seen[-1] + int(batch.elapsed[row, place])
            assert torch.equal(batch.frames[row, CONTEXT + place], latents[goal, int(mirrored)].float())
            step = to_local(poses[goal], poses[seen[-1]]) * (np.array([1, -1, -1]) if mirrored else 1)
            torch.testing.assert_close(batch.actions[row, place], torch.from_numpy(normalise(step)).float())
    assert batch.elapsed[0].tolist() == [-2, 5]  # the first and the last that may be


@pytest.fixture
def network(tmp_path: Path) -> NWMDiffusionConfig:
    vae = VAEConfig(image_size=toys.SIDE, source=str(write_vae(tmp_path / "vae")))
    return NWMDiffusionConfig(0, vae, CDiTConfig(16, 1, 2, 16), context=2, patch=1, waves=4, steps=2)


def published(network: NWMDiffusionConfig, **changes: Any) -> ModelRecipe:
    """The paper's recipe for three steps of a network that is as small as it can be."""
    found = recipe("model", "nwm-diffusion", "paper")
    loop = replace(found.loop, steps=3, batch_size=4, log_every=1, save_every=2)
    made = replace(found, network=network, loop=loop, **changes)
    assert isinstance(made, ModelRecipe)
    return made


def test_the_recipes_are_the_published_ones() -> None:
    found = recipe("model", "nwm-diffusion", "paper")
    assert isinstance(found, ModelRecipe)
    assert (found.goals, found.reach, found.mirror) == (4, 64, False)
    loop = found.loop
    assert (loop.learning_rate, loop.weight_decay, loop.ema, loop.clip) == (8e-5, 0, 0.9999, 10)
    assert {learning_rate(step, loop) for step in (0, 1, 5_000, loop.steps - 1)} == {8e-5}
    tokens = recipe("model", "nwm", "paper")
    assert isinstance(tokens, ModelRecipe)
    assert (tokens.goals, tokens.reach, tokens.loop.ema, tokens.loop.clip) == (4, 64, 0.9999, 2)
    assert {learning_rate(step, tokens.loop) for step in (0, tokens.loop.steps - 1)} == {1e-4}
    with pytest.raises(SettingError, match="schedule must be cosine or constant, got schedule='flat'"):
        LoopConfig(schedule="flat")  # type: ignore[arg-type]


def test_a_cell_with_a_vae_is_trained_resumed_and_measured(
    network: NWMDiffusionConfig, drives: Path, tmp_path: Path, difference: Difference
) -> None:
    whole = checkpoint.load(fit(published(network), drives, tmp_path / "a"))
    found = whole.metadata["validation"]
    assert {"error", "error_copied", "error_shuffled_actions", "psnr_imagined_8", "perceptual_copied_1"} <= set(found)
    assert (whole.metadata["recipe"]["goals"], whole.metadata["recipe"]["reach"]) == (4, 64)
    assert all(name.startswith("dynamics.") for name in whole.state)

    def stop(stage: str, done: int, total: int, losses: object) -> None:
        if stage == "train" and done == 3:
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        fit(published(network), drives, tmp_path / "b", progress=stop)
    resumed = checkpoint.load(fit(published(network), drives, tmp_path / "b"))
    assert all(torch.equal(resumed.state[name], value) for name, value in whole.state.items())

    model = models.load(tmp_path / "a" / "model")
    assert isinstance(model, DiffusionWorldModel)
    assert model.scaler == SCALER
    fit(small("verifier", "nwm-diffusion", network=SMALL, channels=(8,)), drives, tmp_path / "a")
    verifier = Verifier.load(tmp_path / "a" / "verifier")
    assert (verifier.config.steps, verifier.config.tokens, verifier.config.latent_size) == (10, 4, 4)
    assert verifier.scaler != SCALER


def test_mirrored_goals_in_parts(
    network: NWMDiffusionConfig, drives: Path, tmp_path: Path, difference: Difference
) -> None:
    losses: list[float] = []
    fit(
        published(network, mirror=True),
        drives,
        tmp_path,
        micro_batch=2,
        progress=lambda stage, done, total, told: losses.extend(told.values()),
    )
    assert len(losses) == 3 * 3
    assert np.isfinite(losses).all()


@pytest.mark.parametrize("form", [toys.NWM, replace(toys.NWM, factorised=False, published=True)])
def test_tokens_learn_goals_too(form: NWMConfig, drives: Path, tmp_path: Path, difference: Difference) -> None:
    fit(small("tokenizer", "nwm"), drives, tmp_path)
    loop = replace(small("model", "nwm").loop, ema=0.9, schedule="constant")
    fit(small("model", "nwm", network=form, loop=loop, goals=2, reach=4), drives, tmp_path)
    assert checkpoint.load(tmp_path / "model").metadata["recipe"]["goals"] == 2


@pytest.mark.parametrize(("goals", "reach"), [(-1, 64), (4, 0)])
def test_goals_that_cannot_be(goals: int, reach: int) -> None:
    with pytest.raises(SettingError, match=f"goals must be at least 0 and reach at least 1, got {goals} and {reach}"):
        replace(recipe("model", "nwm"), goals=goals, reach=reach)


def test_goals_are_for_models_of_motions(blobs: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="goals=2: a lewm predicts what follows at once; leave goals at 0"):
        fit(small("model", "lewm", goals=2), blobs, tmp_path)


def test_a_vae_that_is_not_named_is_asked_for(drives: Path, tmp_path: Path) -> None:
    with pytest.raises(AcidError, match="'sd-vae' is not downloaded by itself: fetch it once"):
        fit(small("model", "nwm-diffusion"), drives, tmp_path)


def test_a_reach_without_goals_is_not_ignored() -> None:
    with pytest.raises(SettingError, match="reach=32 is for goals: set goals too, or leave it out"):
        replace(recipe("model", "nwm"), reach=32)
