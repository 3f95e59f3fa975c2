"""From episodes on disk to checkpoints that plan, with tiny numbers on the real simulator's frames."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from acid import checkpoint, models, tasks
from acid.data import Episodes, EpisodeWriter, split
from acid.errors import AcidError, UnknownNameError
from acid.experiments.cell import ASSETS
from acid.loop import LoopConfig
from acid.models import LeWMLossConfig, PLDMLossConfig
from acid.models.decoder import Decoder
from acid.planning import CEM, Planner, acid_cost
from acid.tasks.collect import record_episode
from acid.training import decoder, inverse, world_model
from acid.training.latents import action_blocks, load_latents
from acid.training.probe import probe
from acid.verifier import FitConfig, Policy, TransformerSize, Verifier

LITE = world_model.recipe("lewm", "lite")
LOOP = LoopConfig(steps=4, batch_size=4, log_every=2, save_every=2)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "reacher.h5"
    task = tasks.make("reacher")
    task.episode_steps = 40  # type: ignore[misc]
    with EpisodeWriter(path) as writer:
        for index in range(12):
            writer.write(record_episode(task, 0, index))
    task.close()
    return path


@pytest.fixture(scope="module")
def cell(data, tmp_path_factory):
    """A whole cell, trained for a moment."""
    out = tmp_path_factory.mktemp("cell")
    recipe = replace(LITE, objective=LeWMLossConfig(projections=16), loop=LOOP)
    world_model.train_world_model(data, out / "model", recipe)
    dataset = load_latents(out / "model", data)
    small = inverse.InverseRecipe(TransformerSize(width=24, depth=1, heads=3), FitConfig(steps=5, batch_size=16))
    inverse.train_verifier(dataset, out / "verifier", small)
    inverse.train_policy(dataset, out / "policy", small)
    decoder.train_decoder(dataset, out / "decoder", replace(decoder.RECIPES["lite"], loop=LOOP))
    return out


def test_what_was_trained_plans(cell, data):
    model, verifier = models.load(cell / "model"), Verifier.load(cell / "verifier")
    pixels = torch.from_numpy(Episodes(data).episode(0)["pixels"][[0, 25]])
    planner = Planner(model, acid_cost(verifier, 0.5), CEM(16, 2, 4), horizon=5)
    plan = planner.plan(pixels[:1], pixels[1:])
    assert plan.env_actions is not None
    assert plan.env_actions.shape == (1, 25, 2)
    assert plan.consistency is not None
    assert Decoder.load(cell / "decoder").pixels(plan.imagined[0]).shape == (6, 64, 64, 3)
    left = Policy.load(cell / "policy").act(plan.imagined[:, 0], plan.imagined[:, -1], 5)
    assert left.shape == (1, model.scaler.size)


def test_statistics_come_from_the_training_split_and_travel_with_the_checkpoints(cell, data):
    episodes = Episodes(data)
    train = split(len(episodes), LITE.held_out).train
    actions = np.concatenate([episodes.episode(i, ["action"])["action"] for i in train])
    scaler = models.load(cell / "model").scaler
    np.testing.assert_allclose(scaler.mean, actions.mean(0), rtol=1e-4)
    assert scaler.frameskip == 5
    assert Verifier.load(cell / "verifier").scaler == scaler


def test_checkpoints_tell_how_they_were_made(cell):
    metadata = checkpoint.load(cell / "model").metadata
    assert metadata["recipe"]["loop"]["steps"] == 4
    assert {"prediction", "imagined_5_of_still"} <= metadata["validation"].keys()
    assert checkpoint.load(cell / "verifier").metadata["report"]["one_step"]


def test_verifier_and_policy_never_see_held_out_episodes(cell, data):
    dataset = load_latents(cell / "model", data)
    held_out = split(12, LITE.held_out).held_out
    assert not set(dataset.ids.tolist()) & set(held_out.tolist())


def test_action_blocks_stay_inside_the_episode(data):
    episodes = Episodes(data)
    blocks = action_blocks(episodes, np.array([3]), 5)
    actions = episodes.episode(3, ["action"])["action"]
    np.testing.assert_array_equal(blocks[7], actions[7:12].ravel())
    assert np.isnan(blocks[-4:]).any(1).all()
    assert not np.isnan(blocks[:-4]).any()


def test_pldm_trains_with_an_action_head_that_planning_never_sees(data, tmp_path):
    recipe = replace(world_model.recipe("pldm", "lite"), objective=PLDMLossConfig(inverse=1.0), loop=LOOP)
    trained = world_model.train_world_model(data, tmp_path / "model", recipe)
    stored = checkpoint.load(tmp_path / "model")
    assert stored.kind == "pldm"
    assert {"variance", "covariance", "alignment", "inverse"} <= stored.metadata["validation"].keys()
    loaded = models.load(tmp_path / "model").state_dict()
    assert loaded.keys() == trained.state_dict().keys()
    resumed = torch.load(tmp_path / "model" / "run" / "state.pt", weights_only=True)["module"]
    assert any(name.startswith("objective.inverse") for name in resumed)


def test_an_objective_of_another_model_is_refused(data, tmp_path):
    with pytest.raises(AcidError, match="objective of 'pldm' is set by a PLDMLossConfig"):
        world_model.train_world_model(data, tmp_path, replace(LITE, kind="pldm", loop=LOOP))


@pytest.mark.parametrize("named", [partial(world_model.recipe, "lewm"), inverse.recipe, decoder.recipe])
def test_recipes_by_name(named):
    assert named("paper") != named("lite", steps=7, seed=3)
    with pytest.raises(UnknownNameError, match="did you mean 'lite'"):
        named("light")


def test_world_models_by_name():
    assert world_model.recipe("pldm", "paper").preset == "paper"
    with pytest.raises(UnknownNameError, match="did you mean 'lewm'"):
        world_model.recipe("le-wm", "lite")


def test_settings_can_be_changed_by_name():
    changed = world_model.recipe("lewm", "lite", changes={"objective.sigreg": 0.09, "objective.pooled": 0})
    assert changed.objective == replace(LITE.objective, sigreg=0.09, pooled=False)
    assert world_model.recipe("pldm", "lite", changes={"encoder.keypoints": 4}).encoder == {"keypoints": 4}
    assert world_model.recipe("pldm", "lite", changes={"network.latent_size": 16}).network["latent_size"] == 16
    with pytest.raises(UnknownNameError, match=r"setting of a pldm 'objective.sigreg'"):
        world_model.recipe("pldm", "lite", changes={"objective.sigreg": 0.09})
    with pytest.raises(UnknownNameError, match=r"network.action_size"):  # the data's
        world_model.recipe("pldm", "lite", changes={"network.action_size": 3})


def test_a_checkpoint_tells_which_settings_were_changed(data, tmp_path):
    changes = {
        "objective.sigreg": 0.5,
        "objective.projections": 16,
        "network.latent_size": 16,
        "network.standardise": False,
        "encoder.keypoints": 3,
        "encoder.normalise": False,
    }
    recipe = replace(world_model.recipe("lewm", "lite", changes=changes), loop=LOOP)
    model = world_model.train_world_model(data, tmp_path, recipe)
    assert model.config.encoder.keypoints == 3
    assert model.config.latent_size == 16
    stored = checkpoint.load(tmp_path)
    assert world_model.changed_settings(stored.metadata["recipe"], stored.config) == changes


def test_checkpoints_older_than_a_setting_had_its_default():
    stored = checkpoint.load(ASSETS / "reacher" / "lewm" / "model")
    assert "pooled" not in stored.metadata["recipe"]["objective"]
    changed = world_model.changed_settings(stored.metadata["recipe"], stored.config)
    assert changed["objective.pooled"] is False
    assert changed["encoder.keypoints"] == 0


def test_probes_name_what_the_latent_knows(cell, data):
    found = probe(cell / "model", data, "reacher")
    assert set(found) == {"shoulder", "wrist", "speed"}
    assert all(value <= 1 for value in found.values())
