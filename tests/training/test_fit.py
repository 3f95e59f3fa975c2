"""From episodes on disk to a cell that plans; what does not belong together is refused."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
import training_toys as toys
from training_toys import SMALL, small

from acid import checkpoint, models, tasks
from acid.data import Episodes, EpisodeWriter, partition
from acid.errors import CheckpointError, DataError
from acid.loop import SettingError
from acid.models.lewm import LeWMLossConfig
from acid.models.pldm import PLDMLossConfig
from acid.planning import CEM, Planner, acid_cost
from acid.tasks.collect import Collection, record_episode
from acid.training import fit
from acid.training.dataset import load_latents
from acid.training.part import Job
from acid.training.probe import probe
from acid.verifier import Policy, Verifier

LEWM = small("model", "lewm", loss=LeWMLossConfig(projections=16))


@pytest.fixture(scope="module")
def reacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "reacher.h5"
    task = tasks.make("reacher")
    task.episode_steps = 40  # type: ignore[misc]
    with EpisodeWriter(path, attributes={"collection": Collection("reacher", 12).description()}) as writer:
        for index in range(12):
            writer.write(record_episode(task, 0, index))
    task.close()
    return path


@pytest.fixture(scope="module")
def cell(reacher: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole cell, trained for a moment."""
    out = tmp_path_factory.mktemp("cell")
    fit(LEWM, reacher, out)
    for part in ("verifier", "policy"):
        fit(small(part, "lewm", network=SMALL), reacher, out)
    fit(small("decoder", "lewm"), reacher, out)
    return out


def job(cell: Path, data: Path) -> Job:
    episodes = Episodes(data)
    return Job(small("verifier", "lewm"), "reacher", cell, episodes, partition(episodes), torch.device("cpu"), None)


def test_what_was_trained_plans(cell: Path, reacher: Path) -> None:
    model, verifier = models.load(cell / "model"), Verifier.load(cell / "verifier")
    pixels = torch.from_numpy(Episodes(reacher).episode(0)["pixels"][[0, 25]])
    plan = Planner(model, acid_cost(verifier, 0.5), CEM(16, 2, 4), horizon=5).plan(pixels[:1], pixels[1:])
    assert plan.env_actions is not None
    assert plan.env_actions.shape == (1, 25, 2)
    assert models.load_decoder(cell / "decoder").pixels(plan.imagined[0]).shape == (6, 64, 64, 3)
    left = Policy.load(cell / "policy").act(plan.imagined[:, 0], plan.imagined[:, -1], 5)
    assert left.shape == (1, model.scaler.size)


def test_every_part_tells_how_it_was_made(cell: Path, reacher: Path) -> None:
    found = partition(Episodes(reacher))
    for part in ("model", "verifier", "policy", "decoder"):
        stored = checkpoint.load(cell / part)
        told = stored.metadata
        assert (told["part"], told["task"], told["model"], told["scale"]) == (part, "reacher", "lewm", "lite")
        assert told["recipe"]["loop"]["steps"] == 3
        assert told["data"] == Episodes(reacher).attributes
        assert told["partition"] == found.as_dict()
        assert told["cpu_seconds"] >= 0
        assert ("report" in told) == (part in ("verifier", "policy"))
        assert ("validation" in told) == (part in ("model", "decoder"))
        expected = None if part == "model" else {"model": checkpoint.fingerprint(cell / "model")}
        assert told.get("built_on") == expected
    model = checkpoint.load(cell / "model").metadata
    assert model["recipe"]["network"]["latent_size"] == 32
    assert model["recipe"]["loss"]["projections"] == 16
    assert {"prediction", "imagined_5_of_still"} <= model["validation"].keys()


def test_statistics_come_from_the_training_part_and_travel_with_the_checkpoints(cell: Path, reacher: Path) -> None:
    episodes = Episodes(reacher)
    actions = np.concatenate([episodes.episode(i, ["action"])["action"] for i in partition(episodes).train])
    scaler = models.load(cell / "model").scaler
    np.testing.assert_allclose(scaler.mean, actions.mean(0), rtol=1e-4)
    assert scaler.frameskip == 5
    assert Verifier.load(cell / "verifier").scaler == scaler


def test_verifier_and_policy_never_see_held_out_episodes(cell: Path, reacher: Path) -> None:
    dataset = load_latents(job(cell, reacher))
    assert set(dataset.ids.tolist()).isdisjoint(partition(Episodes(reacher)).held_out.tolist())
    assert dataset.latents.isfinite().all()


def test_action_blocks_stay_inside_the_episode(cell: Path, reacher: Path) -> None:
    dataset, episodes = load_latents(job(cell, reacher)), Episodes(reacher)
    second = int(partition(episodes).train[1])
    actions = episodes.episode(second, ["action"])["action"]
    blocks = dataset.actions[40:80].numpy()
    np.testing.assert_array_equal(blocks[7], actions[7:12].ravel())
    assert np.isnan(blocks[-4:]).any(1).all()
    assert not np.isnan(blocks[:-4]).any()


def test_probes_name_what_the_latent_knows(cell: Path, reacher: Path) -> None:
    found = probe(cell / "model", reacher, "reacher")
    assert set(found) == {"shoulder", "wrist", "speed"}
    assert all(value <= 1 for value in found.values())


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_that_was_stopped_ends_with_the_same_weights(blobs: Path, tmp_path: Path, workers: int) -> None:
    recipe = replace(LEWM, loop=replace(LEWM.loop, steps=5))
    whole = checkpoint.load(fit(recipe, blobs, tmp_path / "whole", workers=workers)).state

    def stop(stage: str, done: int, total: int, losses: object) -> None:
        if (stage, done) == ("train", 4):
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        fit(recipe, blobs, tmp_path / "parts", progress=stop)
    again = checkpoint.load(fit(recipe, blobs, tmp_path / "parts")).state
    assert all(torch.equal(again[name], value) for name, value in whole.items())


def test_a_run_of_something_else_is_neither_continued_nor_reused(blobs: Path, tmp_path: Path) -> None:
    fit(LEWM, blobs, tmp_path)
    with pytest.raises(CheckpointError, match=r"its recipe\.loss\.sigreg is 0\.09, not 0\.5"):
        fit(replace(LEWM, loss=replace(LEWM.loss, sigreg=0.5)), blobs, tmp_path)
    with pytest.raises(CheckpointError, match=r"its recipe\.network\.latent_size is 32, not 16"):
        fit(replace(LEWM, network=replace(LEWM.network, latent_size=16)), blobs, tmp_path)
    toys.blobs(blobs, seed=9)
    blobs.with_suffix(".split.json").unlink()
    with pytest.raises(CheckpointError, match=r"its partition\.fingerprint is"):
        fit(LEWM, blobs, tmp_path)


def test_training_in_epochs_counts_windows(blobs: Path, tmp_path: Path) -> None:
    recipe = replace(LEWM, loop=replace(LEWM.loop, batch_size=64))
    folder = fit(recipe, blobs, tmp_path, epochs=1)
    windows = len(partition(Episodes(blobs)).train) * (40 - 25)
    assert checkpoint.load(folder).metadata["recipe"]["loop"]["steps"] == round(windows / 64)
    for wrong in (0, math.inf, math.nan):
        with pytest.raises(SettingError, match=f"epochs must be a positive number, got {wrong}"):
            fit(recipe, blobs, tmp_path / "other", epochs=wrong)


def test_pldm_trains_with_an_action_head_that_planning_never_sees(blobs: Path, tmp_path: Path) -> None:
    fit(small("model", "pldm", loss=PLDMLossConfig(inverse=1.0)), blobs, tmp_path)
    stored = checkpoint.load(tmp_path / "model")
    assert stored.kind == "pldm"
    assert {"variance", "covariance", "alignment", "inverse"} <= stored.metadata["validation"].keys()
    assert not any("inverse" in name for name in stored.state)
    state = torch.load(tmp_path / "model" / "run" / "state.pt", weights_only=True)["module"]
    assert any(name.startswith("loss.inverse") for name in state)


def test_a_decoder_may_see_other_episodes_than_the_model_and_tells_which(blobs: Path, tmp_path: Path) -> None:
    other = toys.blobs(tmp_path / "other.h5", seed=1)
    fit(LEWM, blobs, tmp_path / "cell")
    told = checkpoint.load(fit(small("decoder", "lewm"), other, tmp_path / "cell")).metadata
    assert told["partition"] == partition(Episodes(other)).as_dict()
    assert told["partition"] != checkpoint.load(tmp_path / "cell" / "model").metadata["partition"]
    assert told["validation"].keys() == {"error", "error_of_mean_picture"}
    with pytest.raises(DataError, match="model was trained with fingerprint"):
        fit(small("verifier", "lewm", network=SMALL), other, tmp_path / "cell")


def test_a_decoder_draws_what_moves_bolder_with_more_focus(blobs: Path, tmp_path: Path) -> None:
    fit(LEWM, blobs, tmp_path)
    recipe = small("decoder", "lewm")
    recipe = replace(recipe, loop=replace(recipe.loop, steps=40, learning_rate=1e-2))
    brightest = []
    for focus in (0.0, 50.0):
        folder = fit(replace(recipe, loss=replace(recipe.loss, focus=focus)), blobs, tmp_path)
        frames = torch.from_numpy(Episodes(blobs).episode(0)["pixels"])
        drawn = models.load_decoder(folder).pixels(models.load(tmp_path / "model").encode(frames))
        brightest.append(float(drawn[..., 0].float().mean()))
        shutil.rmtree(folder)
    assert brightest[1] > 1.5 * brightest[0]


def test_a_replaced_dataset_of_the_same_length_uses_no_stale_latents(blobs: Path, tmp_path: Path) -> None:
    fit(LEWM, blobs, tmp_path / "a")
    before = load_latents(job(tmp_path / "a", blobs)).latents
    with h5py.File(blobs, "r+") as file:
        file["pixels"][0] = 255 - file["pixels"][0]
    blobs.with_suffix(".split.json").unlink()
    partition(Episodes(blobs), held_out=0.2, frameskip=5)
    after = load_latents(job(tmp_path / "a", blobs)).latents
    assert not torch.equal(before, after)


def test_wrong_pairings_are_refused(cell: Path, reacher: Path, blobs: Path, tmp_path: Path) -> None:
    verifier = small("verifier", "lewm")
    with pytest.raises(
        CheckpointError, match=r"a verifier is trained after the model.*run `acid train model lewm` first"
    ):
        fit(verifier, blobs, tmp_path)
    with pytest.raises(CheckpointError, match="belongs to the world model 'lewm', not to 'pldm'"):
        fit(small("verifier", "pldm"), reacher, cell)
    partition(Episodes(blobs), held_out=0.2, frameskip=5)
    with pytest.raises(DataError, match=r"model was trained with fingerprint .*, but the dataset here has"):
        fit(verifier, blobs, cell, task="reacher")
    with pytest.raises(DataError, match="is of the task 'reacher', not of 'cube'"):
        fit(verifier, reacher, cell, task="cube")
    with pytest.raises(DataError, match=r"says held_out 0\.2, not 0\.3; ask for 0\.2, or remove the file"):
        fit(replace(LEWM, held_out=0.3), reacher, tmp_path)
    bare = tmp_path / "bare"
    models.save(models.load(cell / "model"), "lewm", bare / "model", {"model": "lewm"})
    with pytest.raises(CheckpointError, match="does not tell which episodes it was trained on"):
        fit(verifier, reacher, bare)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"loss": PLDMLossConfig()}, "the loss of 'lewm' is set by a LeWMLossConfig"),
        (
            {"network": replace(LEWM.network, action_size=3)},
            r"network\.action_size follows from the data, which say 10",
        ),
        ({"frameskip": 1}, "frameskip=1, but the task 'reacher' makes 5 .* per model step: pass --frameskip 5"),
        ({"mirror": True}, "it is not known what a mirror does to the actions of a lewm"),
        ({"symmetries": True}, "the task 'reacher' has none for a lewm"),
        ({"mirror": True, "symmetries": True}, "two ways to show more of the same frames: choose one"),
    ],
)
def test_settings_that_cannot_be_honoured_are_refused(
    reacher: Path, tmp_path: Path, change: dict[str, object], reason: str
) -> None:
    with pytest.raises(SettingError, match=reason):
        fit(replace(LEWM, **change), reacher, tmp_path)


def test_a_folder_is_to_be_imported_first(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="turn it into a dataset first with `acid import`"):
        fit(LEWM, tmp_path, tmp_path / "cell")
