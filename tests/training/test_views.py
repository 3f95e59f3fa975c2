"""Frames in several views: latents, actions and pairs agree in each of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import training_toys as toys
from training_toys import SMALL, Patches, small

from acid import checkpoint, models, tasks
from acid.data import Episodes, EpisodeWriter, partition
from acid.errors import DataError
from acid.loop import SettingError
from acid.models import patch_encoders
from acid.tasks.collect import record_episode
from acid.tasks.deformable import Rope
from acid.training import fit
from acid.training.dataset import actions_of, encode_rows, load_latents
from acid.training.part import Job
from acid.verifier import Policy, Verifier

STEPS, NAME = 7, "dinowm-symmetric"


@pytest.fixture(scope="module")
def pushes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Short episodes of Rope."""
    path, task = tmp_path_factory.mktemp("pushes") / "rope.h5", tasks.make("rope", size=toys.SIDE)
    with pytest.MonkeyPatch.context() as patch, EpisodeWriter(path) as writer:
        patch.setattr(type(task), "episode_steps", STEPS)
        for number in range(toys.EPISODES):
            writer.write(record_episode(task, 0, number))
    task.close()
    return path


@pytest.fixture(autouse=True)
def patches(monkeypatch: pytest.MonkeyPatch) -> Patches:
    network = Patches()
    monkeypatch.setitem(patch_encoders.ENCODERS, "efficientnet-lite0", lambda config: toys.stand_in(network))
    return network


def job(part: str, cell: Path, data: Path, task: str = "rope", **changes: object) -> Job:
    episodes = Episodes(data)
    return Job(small(part, NAME, **changes), task, cell, episodes, partition(episodes), torch.device("cpu"), None)


def test_latents_and_actions_of_a_view_are_those_of_the_changed_scene(pushes: Path, tmp_path: Path) -> None:
    fit(small("model", NAME), pushes, tmp_path, task="rope")
    work = job("verifier", tmp_path, pushes)
    model, actions = work.world_model(), actions_of(work)
    latents = encode_rows(work, model, actions.views)
    assert latents.shape[1] == 4
    task, row = tasks.make("rope", size=toys.SIDE), 5
    recorded = work.episodes.read("state", np.array([row]))[0]
    pushed = work.episodes.read("action", np.array([row]))[0]
    for view, symmetry in enumerate(task.symmetries, start=1):
        task.set_state(symmetry.state(recorded))
        seen = model.encode(torch.from_numpy(task.render())[None])
        torch.testing.assert_close(latents[row, view].float(), seen[0], rtol=1e-2, atol=1e-2)
        changed = actions.at(torch.tensor([row]), torch.tensor([view]))[0]
        np.testing.assert_allclose(changed, symmetry.action @ pushed, atol=1e-6)
    task.close()


def test_every_view_of_an_episode_is_learned_and_held_out_with_it(pushes: Path, tmp_path: Path) -> None:
    fit(small("model", NAME), pushes, tmp_path, task="rope")
    dataset = load_latents(job("policy", tmp_path, pushes))
    episodes = len(partition(Episodes(pushes)).train)
    assert len(dataset.walks.unique()) == 4 * episodes
    assert len(dataset.ids.unique()) == episodes
    assert len(dataset.rows) == len(dataset.latents) == 4 * STEPS * episodes
    for number in dataset.walks.unique():
        assert len(dataset.ids[dataset.walks == number].unique()) == 1
    for part, kind in (("verifier", Verifier), ("policy", Policy)):
        kind.load(fit(small(part, NAME, network=SMALL, channels=(8,)), pushes, tmp_path, task="rope"))
        assert checkpoint.load(tmp_path / part).metadata["recipe"]["symmetries"]


def test_training_sees_every_view(pushes: Path, tmp_path: Path) -> None:
    """Weights differ from those of the recorded view alone, and frames are encoded once."""
    turned, plain = (small("model", NAME, symmetries=on) for on in (True, False))
    found = [checkpoint.load(fit(one, pushes, tmp_path / str(n), task="rope")) for n, one in enumerate((turned, plain))]
    assert any(not torch.equal(found[0].state[name], value) for name, value in found[1].state.items())
    assert models.load(tmp_path / "0" / "model").config.action_size == 4


def test_what_cannot_be_shown_is_refused(pushes: Path, tmp_path: Path) -> None:
    work = job("model", tmp_path, pushes)
    with pytest.raises(SettingError, match="those of 'rope' are not for actions of 3 numbers"):
        actions_of(replace(work, episodes=_with_actions(tmp_path / "three.h5", 3)))
    with pytest.raises(DataError, match="no column 'state', which frames under a symmetry are drawn from"):
        actions_of(replace(work, episodes=_with_actions(tmp_path / "four.h5", 4)))
    white = _with_actions(tmp_path / "other.h5", 4, {"state": work.episodes.read("state", np.arange(3))})
    with pytest.raises(DataError, match=r"row 0 of .*other\.h5 is not what the task draws of its state"):
        actions_of(replace(work, episodes=white))


def test_states_of_other_frames_are_noticed(pushes: Path, tmp_path: Path) -> None:
    """A column that is one row late differs from what is drawn by few pixels."""
    found, shifted = Episodes(pushes), tmp_path / "late.h5"
    with EpisodeWriter(shifted) as writer:
        for number in range(len(found)):
            episode = {name: found.episode(number)[name] for name in ("pixels", "action", "state")}
            writer.write({**episode, "state": np.roll(episode["state"], 1, axis=0)})
    with pytest.raises(DataError, match="is not what the task draws of its state"):
        actions_of(replace(job("model", tmp_path, pushes), episodes=Episodes(shifted)))


def test_other_symmetries_are_encoded_anew(pushes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fit(small("model", NAME), pushes, tmp_path, task="rope")
    work = job("verifier", tmp_path, pushes)
    model = work.world_model()
    before = encode_rows(work, model, actions_of(work).views)
    monkeypatch.setattr(Rope, "symmetries", Rope.symmetries[1:])
    after = encode_rows(work, model, actions_of(work).views)
    assert after.shape[1] == 3
    assert torch.equal(after, before[:, [0, 2, 3]])


def _with_actions(path: Path, size: int, more: dict[str, np.ndarray] | None = None) -> Episodes:
    """One episode of white frames."""
    with EpisodeWriter(path) as writer:
        frames = np.full((3, toys.SIDE, toys.SIDE, 3), 255, np.uint8)
        writer.write({"pixels": frames, "action": np.zeros((3, size), np.float32), **(more or {})})
    return Episodes(path)
