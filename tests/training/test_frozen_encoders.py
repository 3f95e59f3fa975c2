"""World models of a frozen encoder's latents: every frame is encoded once; DINO-WM and NWM with their other parts."""

from __future__ import annotations

import io
import shutil
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
import training_toys as toys
from PIL import Image
from training_toys import SMALL, Difference, Patches, small

from acid import checkpoint, models
from acid.data import Episodes, Windows, partition
from acid.data.poses import SCALER, displacements, normalise
from acid.errors import CheckpointError
from acid.loop import SettingError
from acid.models import DinoWorldModel, NavigationWorldModel
from acid.models.compact import CompactLossConfig, CompactTokenizer
from acid.training import fit
from acid.training.dataset import Actions, WindowReader, encode_rows, load_latents, steps_between
from acid.training.part import Job
from acid.training.pictures import HORIZON, validate_pictures
from acid.training.views import MIRRORED
from acid.verifier import Policy, Verifier

ROWS = toys.EPISODES * 8


def job(part: str, model: str, cell: Path, data: Path) -> Job:
    episodes = Episodes(data)
    return Job(small(part, model), "toy", cell, episodes, partition(episodes), torch.device("cpu"), None)


def test_every_frame_is_encoded_once(patches: Patches, noise: Path, tmp_path: Path, points: None) -> None:
    told: list[tuple[str, int, int]] = []
    fit(small("model", "dinowm"), noise, tmp_path, progress=lambda *now: told.append(now[:3]))
    assert ("encode", ROWS, ROWS) in told
    assert ("train", 3, 3) in told
    assert {"loss", "of_still", "imagined_1_of_still"} == set(
        checkpoint.load(tmp_path / "model").metadata["validation"]
    )
    dataset = load_latents(job("verifier", "dinowm", tmp_path, noise))
    loaded = dataset.model
    assert isinstance(loaded, DinoWorldModel)
    assert (dataset.latents.dtype, dataset.latents.shape[1:]) == (torch.float16, (4, 64))
    fitted, probed = len(dataset.rows), 2  # frames that the projection saw; a black one to size each model's map
    assert patches.seen == ROWS + fitted + probed

    pixels = torch.from_numpy(Episodes(noise).read("pixels", dataset.rows[:5]))
    torch.testing.assert_close(loaded.encode(pixels), dataset.latents[:5].float(), rtol=1e-2, atol=1e-2)
    fit(small("verifier", "dinowm", network=SMALL), noise, tmp_path)
    fitted_verifier = Verifier.load(tmp_path / "verifier")
    assert (fitted_verifier.config.tokens, fitted_verifier.config.channels) == (4, (64, 96))
    fit(small("readout", "dinowm"), noise, tmp_path)
    assert checkpoint.load(tmp_path / "readout").metadata["validation"]["chamfer"] > 0


def test_a_readout_needs_frames_to_be_tested_on(patches: Patches, noise: Path, tmp_path: Path, points: None) -> None:
    fit(small("model", "dinowm"), noise, tmp_path)
    with pytest.raises(SettingError, match="tested must be a share"):
        fit(small("readout", "dinowm", tested=0.0), noise, tmp_path)


def test_a_tokenizer_is_trained_resumed_and_measured(drives: Path, tmp_path: Path, difference: Difference) -> None:
    loss = CompactLossConfig(perceptual=0.1, perceptual_frames=3)
    recipe = small("tokenizer", "nwm", loss=loss, half_precision=False)
    whole = checkpoint.load(fit(recipe, drives, tmp_path / "a"))
    held_out = 2 * 14  # frames of two episodes, drawn and as the mean image
    assert difference.asked == [3] * 3 + [held_out] * 2
    found = whole.metadata["validation"]
    assert set(found) == {"psnr", "psnr_mean_image", "perceptual", "perceptual_mean_image", "codes_used"}
    assert 0 < found["codes_used"] <= 1

    def stop(stage: str, done: int, total: int, losses: object) -> None:
        if done == 3:
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        fit(recipe, drives, tmp_path / "b", progress=stop)
    difference.asked.clear()
    resumed = checkpoint.load(fit(recipe, drives, tmp_path / "b"))
    assert difference.asked == [3] + [held_out] * 2
    assert all(torch.equal(resumed.state[name], value) for name, value in whole.state.items())


@pytest.fixture
def cell(drives: Path, tmp_path: Path, difference: Difference) -> Path:
    for part in ("tokenizer", "model", "verifier"):
        fit(small(part, "nwm"), drives, tmp_path / "cell")
    return tmp_path / "cell"


def test_a_cell_of_navigation(cell: Path, drives: Path) -> None:
    tokenizer, model = CompactTokenizer.load(cell / "tokenizer"), models.load(cell / "model")
    verifier, told = Verifier.load(cell / "verifier"), checkpoint.load(cell / "verifier").metadata
    assert isinstance(model, NavigationWorldModel)
    assert model.tokenizer.fingerprint == tokenizer.fingerprint == told["tokenizer"]  # 16 bits hold the whole of it
    assert told["built_on"] == {"model": checkpoint.fingerprint(cell / "model")}
    made = checkpoint.load(cell / "model").metadata
    assert (made["tokenizer"], model.scaler) == (tokenizer.fingerprint, SCALER)
    assert {"accuracy", "accuracy_shuffled_actions", "psnr_imagined_8", "perceptual_copied_1"} <= set(
        made["validation"]
    )
    assert (verifier.config.steps, verifier.config.tokens, verifier.config.latent_size) == (10, 4, 48)
    assert verifier.scaler is not None
    assert verifier.scaler != SCALER  # units of its own,
    assert verifier.scaler.mean[1:] == pytest.approx((0, 0), abs=1e-6)  # and mirrored copies are as many


def test_a_policy_of_navigation_answers_with_the_whole_path(cell: Path, drives: Path) -> None:
    policy = Policy.load(fit(small("policy", "nwm"), drives, cell))
    assert policy.scaler is not None
    assert (policy.horizon, policy.scaler.frameskip, policy.config.steps) == (8, 8, 1)
    assert policy.scaler.mean == pytest.approx(Verifier.load(cell / "verifier").scaler.mean, abs=0.05)  # in metres
    seen = torch.randn(2, policy.config.tokens, policy.config.latent_size)
    assert policy.scaler.denormalise(policy.act(seen, -seen, 8)[:, None]).shape == (2, 8, 3)
    shutil.rmtree(cell / "policy")
    near = Policy.load(fit(small("policy", "nwm", answers=1), drives, cell))  # a goal never lies in a mirrored copy
    assert near.scaler is not None
    assert (near.horizon, near.scaler.frameskip) == (8, 1)


def test_a_tokenizer_of_another_run_or_other_settings_is_refused(cell: Path, drives: Path) -> None:
    other = replace(toys.TOKENS, levels=(5, 5, 5))
    with pytest.raises(SettingError, match=r"leave out settings of network\.tokenizer"):
        fit(small("model", "nwm", network=replace(toys.NWM, tokenizer=other)), drives, cell)
    recipe = small("tokenizer", "nwm")
    fit(replace(recipe, loop=replace(recipe.loop, seed=1)), drives, cell.with_name("other"))
    (cell / "tokenizer").rename(cell / "before")
    (cell.with_name("other") / "tokenizer").rename(cell / "tokenizer")
    with pytest.raises(CheckpointError, match="trained with another tokenizer than the one beside it"):
        fit(small("verifier", "nwm"), drives, cell)


def test_frames_are_tokenised_once_and_mirrored(cell: Path, drives: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = job("model", "nwm", cell, drives)
    model = work.world_model()
    monkeypatch.setattr(CompactTokenizer, "encode", None)  # nothing is encoded a second time
    latents = encode_rows(work, model, MIRRORED)
    monkeypatch.undo()
    assert latents.shape == (toys.EPISODES * 14, 2, 4, 3)
    assert isinstance(model, NavigationWorldModel)
    pixels = work.pixels(np.arange(5))
    for side, seen in enumerate((pixels, pixels.flip(2))):
        levels = (model.quantiser.to_levels(shown) for shown in (latents[:5, side].float(), model.encode(seen)))
        assert torch.equal(*levels)


def test_windows_and_their_mirror_images(drives: Path) -> None:
    episodes = Episodes(drives)
    steps = torch.from_numpy(steps_between(episodes))
    assert steps[13].isnan().all()
    assert not steps[14].isnan().any()
    latents = torch.randn(episodes.rows, 2, 4, 3).half()
    actions = Actions(steps, SCALER, MIRRORED)
    reader = WindowReader(Windows(episodes, [0], 4), episodes, actions, latents)
    batch = reader.read(np.array([0, 0]), torch.tensor([0, 1]))
    assert torch.equal(batch.frames[0], latents[:4, 0].float())
    assert torch.equal(batch.frames[1], latents[:4, 1].float())
    true = normalise(displacements(episodes.read("pose", np.arange(4))))
    torch.testing.assert_close(batch.actions[0], torch.from_numpy(true).float())
    torch.testing.assert_close(batch.actions[1], batch.actions[0] * torch.tensor([1.0, -1.0, -1.0]))


def test_copying_is_measured_against_the_true_frames(cell: Path, drives: Path) -> None:
    """Validation of a model that cannot change anything: imagined and copied frames coincide."""
    work = job("model", "nwm", cell, drives)
    model = work.world_model()
    assert isinstance(model, NavigationWorldModel)
    model.rollout = lambda latent, actions, **_: latent[:, None, -1:].expand(-1, 1, actions.shape[2], -1, -1)
    actions = Actions(torch.from_numpy(steps_between(work.episodes)), SCALER, None)
    windows = Windows(work.episodes, np.arange(toys.EPISODES), model.context + HORIZON)
    reader = WindowReader(windows, work.episodes, actions, encode_rows(work, model, MIRRORED))
    found = validate_pictures(model, reader)
    assert found["accuracy"] == found["accuracy_copied"] == found["accuracy_shuffled_actions"]
    for step in range(1, 9):
        for measure in ("psnr", "perceptual"):
            assert found[f"{measure}_imagined_{step}"] == pytest.approx(found[f"{measure}_copied_{step}"])
    assert found["perceptual_reconstructed_1"] > 0


def test_a_frameskip_that_nwm_cannot_see_is_refused(drives: Path, tmp_path: Path, difference: Difference) -> None:
    fit(small("tokenizer", "nwm", frameskip=2), drives, tmp_path)
    with pytest.raises(SettingError, match="sees every frame; its frameskip is 1, not 2"):
        fit(small("model", "nwm", frameskip=2), drives, tmp_path)


def test_a_folder_of_recons_trajectories_is_imported_once(tmp_path: Path, difference: Difference) -> None:
    random, folder = np.random.default_rng(0), tmp_path / "recon"
    folder.mkdir()
    picture = io.BytesIO()
    Image.fromarray(random.integers(256, size=(24, 32, 3), dtype=np.uint8)).save(picture, "png")
    for number in range(6):
        with h5py.File(folder / f"{number}.hdf5", "w") as file:
            file["images/rgb_left"] = np.array([picture.getvalue()] * 14, dtype=np.bytes_)
            file["jackal/position"] = random.normal(size=(14, 3)).cumsum(0)
            file["jackal/yaw"] = random.normal(size=14)
    for part in ("tokenizer", "model", "verifier"):
        fit(small(part, "nwm"), folder, tmp_path / "cell", task="navigation")
    assert Episodes(tmp_path / "recon.16px.h5").shape("pixels") == (16, 16, 3)
    assert checkpoint.load(tmp_path / "cell" / "verifier").metadata["data"]["format"] == "recon"
