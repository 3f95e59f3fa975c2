"""From frames with poses to a tokenizer, a world model of its tokens, and a verifier of what they look like."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from acid import checkpoint, models
from acid.data import Episodes, EpisodeWriter
from acid.data.poses import displacements, integrate, normalise
from acid.errors import AcidError
from acid.loop import LoopConfig
from acid.models import compact, nwm
from acid.models.compact import (
    CompactConfig,
    CompactLossConfig,
    CompactTokenizer,
    ConvFeaturesConfig,
    PixelDecoderConfig,
    QFormerConfig,
)
from acid.models.nwm import CDiTConfig, NWMConfig
from acid.nn.unmasking import Unmasking
from acid.training import navigation, tokenizer
from acid.training.navigation import SCALER, NavigationRecipe, NavigationVerifierRecipe, TokenDataset
from acid.training.tokenizer import TokenizerRecipe, psnr
from acid.types import ActionScaler
from acid.verifier import FitConfig, TransformerSize, Verifier

SIDE = 16
TINY = CompactConfig(
    ConvFeaturesConfig(SIDE, (8, 8)),
    QFormerConfig(queries=4, width=16, depth=1, heads=2, mlp_width=16),
    PixelDecoderConfig(SIDE, 16, 1, 2, 16, (4, 4)),
    levels=(5, 4, 3),
)
LOOP = LoopConfig(steps=4, batch_size=8, log_every=2, save_every=2)


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(compact.PRESETS, "tiny", lambda: TINY)
    small = NWMConfig(3, TINY, CDiTConfig(16, 1, 2, 16), context=2, factorised=True, waves=4, unmasking=Unmasking(2))
    monkeypatch.setitem(nwm.PRESETS, "tiny", lambda action_size: small)


@pytest.fixture
def episodes(tmp_path: Path) -> Episodes:
    """A bright column that turning moves sideways."""
    generator = np.random.default_rng(0)
    path = tmp_path / "data" / "drive.h5"
    with EpisodeWriter(path) as writer:
        for _ in range(12):
            steps = np.stack([generator.uniform(0.1, 0.4, 13), np.zeros(13), generator.normal(0, 0.2, 13)], 1)
            poses = integrate(steps, np.zeros(3))
            pixels = np.zeros((14, SIDE, SIDE, 3), np.uint8)
            for frame, (_, _, yaw) in zip(pixels, poses, strict=True):
                frame[:, int(8 + 7 * np.sin(yaw))] = 255
            action = np.concatenate([normalise(steps), np.zeros((1, 3))]).astype(np.float32)
            writer.write({"pixels": pixels, "pose": poses, "action": action})
    return Episodes(path, require=("pixels", "pose"))


def tokens(episodes: Episodes, out: Path) -> tuple[CompactTokenizer, TokenDataset]:
    recipe = TokenizerRecipe("tiny", half_precision=True, loop=LOOP)
    trained = tokenizer.train_tokenizer(episodes, out / "tokenizer", recipe)
    return trained, navigation.tokenise(trained, episodes)


def test_the_scaler_is_nwms_normalisation() -> None:
    steps = np.random.default_rng(0).normal(size=(7, 3))
    ours = SCALER.normalise(torch.from_numpy(steps))
    torch.testing.assert_close(ours, torch.from_numpy(normalise(steps)))


def test_a_tokenizer_is_trained_resumed_and_measured(episodes: Episodes, tmp_path: Path) -> None:
    asked = []

    def distance(drawn: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
        asked.append(len(drawn))
        return (drawn - images).abs().mean((1, 2, 3))

    recipe = TokenizerRecipe("tiny", CompactLossConfig(perceptual=0.1, perceptual_frames=3), loop=LOOP)
    whole = tokenizer.train_tokenizer(episodes, tmp_path / "a", recipe, perceptual=distance)
    held_out = 14  # frames of the one episode, drawn and as the mean image
    assert asked == [3] * LOOP.steps + [held_out] * 2
    found = checkpoint.load(tmp_path / "a").metadata["validation"]
    assert set(found) == {"psnr", "psnr_mean_image", "perceptual", "perceptual_mean_image", "codes_used"}
    assert 0 < found["codes_used"] <= 1

    class Interrupted(Exception):
        pass

    def stop(step: int, losses: object) -> None:
        if step == 4:
            raise Interrupted

    with pytest.raises(Interrupted):
        tokenizer.train_tokenizer(episodes, tmp_path / "b", recipe, perceptual=distance, progress=stop)
    asked.clear()
    resumed = tokenizer.train_tokenizer(episodes, tmp_path / "b", recipe, perceptual=distance)
    assert asked == [3] * 2 + [held_out] * 2
    for name, value in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value), name


def test_frames_are_tokenised_once_and_mirrored(
    episodes: Episodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained, dataset = tokens(episodes, tmp_path)
    assert dataset.latents.shape == (168, 2, 4, 3)
    pixels = torch.from_numpy(episodes.read("pixels", np.arange(5)))
    quantiser = trained.quantiser
    for side, seen in enumerate((pixels, pixels.flip(2))):
        assert torch.equal(quantiser.to_levels(dataset.latents[:5, side]), quantiser.to_levels(trained.encode(seen)))
    monkeypatch.setattr(CompactTokenizer, "encode", None)  # a second time, nothing is encoded
    assert torch.equal(navigation.tokenise(trained, episodes).latents, dataset.latents)


def test_windows_and_their_mirror_images(episodes: Episodes, tmp_path: Path) -> None:
    _, dataset = tokens(episodes, tmp_path)
    rows = torch.arange(4).expand(2, 4)
    latents, actions = dataset.look(rows, torch.tensor([False, True]))
    assert torch.equal(latents[0], dataset.latents[:4, 0].float())
    assert torch.equal(latents[1], dataset.latents[:4, 1].float())
    true = normalise(displacements(episodes.read("pose", np.arange(4))))
    torch.testing.assert_close(actions[0], torch.from_numpy(true).float())
    torch.testing.assert_close(actions[1], actions[0] * torch.tensor([1.0, -1.0, -1.0]))
    assert dataset.steps[13].isnan().all()
    assert not dataset.steps[14].isnan().any()


def test_a_world_model_is_trained_and_measured(episodes: Episodes, tmp_path: Path) -> None:
    trained, dataset = tokens(episodes, tmp_path)
    recipe = NavigationRecipe(preset="tiny", half_precision=True, loop=LOOP)
    model = navigation.train_navigation(dataset, trained, tmp_path / "model", recipe)
    stored = checkpoint.load(tmp_path / "model")
    found = stored.metadata["validation"]
    assert {"accuracy", "accuracy_copied", "accuracy_shuffled_actions", "psnr_imagined_8", "psnr_copied_1"} <= set(
        found
    )
    assert stored.metadata["tokenizer"] == trained.fingerprint
    loaded = models.load(tmp_path / "model")
    assert isinstance(loaded, models.NavigationWorldModel)
    assert loaded.tokenizer.fingerprint == trained.fingerprint  # 16 bits hold what the tokenizer's checkpoint held
    assert loaded.scaler == SCALER == model.scaler
    with pytest.raises(AcidError, match="unknown recipe 'light'; did you mean 'lite'"):
        navigation.recipe("light")


def test_copying_is_measured_against_the_true_frames(episodes: Episodes, tmp_path: Path) -> None:
    """Validation of a model that cannot change anything: imagined and copied frames coincide."""
    trained, dataset = tokens(episodes, tmp_path)
    model = models.build("nwm", "tiny", SCALER, tokenizer=trained)
    assert isinstance(model, models.NavigationWorldModel)
    model.rollout = lambda latent, actions, **_: latent[:, None, -1:].expand(-1, 1, actions.shape[2], -1, -1)
    found = navigation.validate(model, dataset, np.arange(12), lambda a, b: (a - b).abs().mean((1, 2, 3)))
    assert found["accuracy"] == found["accuracy_copied"] == found["accuracy_shuffled_actions"]
    for step in range(1, 9):
        for measure in ("psnr", "perceptual"):
            assert found[f"{measure}_imagined_{step}"] == pytest.approx(found[f"{measure}_copied_{step}"])
    assert found["perceptual_reconstructed_1"] > 0


def test_a_verifier_of_pictures_in_units_of_its_own(episodes: Episodes, tmp_path: Path) -> None:
    trained, dataset = tokens(episodes, tmp_path)
    # Lateral steps are all zero here, and nothing can be learned about what never varies.
    steps = dataset.steps.clone()
    steps[:, 1] = 0.1 * steps[:, 2]
    recipe = NavigationVerifierRecipe(TransformerSize(12, 1, 2), (8,), FitConfig(steps=3, batch_size=16))
    fitted = navigation.train_navigation_verifier(replace(dataset, steps=steps), trained, tmp_path / "verifier", recipe)
    assert (fitted.config.steps, fitted.config.tokens, fitted.config.latent_size) == (10, 4, 48)
    loaded = Verifier.load(tmp_path / "verifier")
    seen = trained.features(dataset.latents[:6, 0].float())
    assert torch.equal(loaded.infer(seen[:-1], seen[1:]), fitted.infer(seen[:-1], seen[1:]))
    assert isinstance(fitted.scaler, ActionScaler)
    assert fitted.scaler.mean[1:] == pytest.approx((0, 0), abs=1e-6)  # mirrored copies are as many
    units = navigation.verifier_units(SCALER, fitted.scaler)
    expected = (steps[:5] - torch.tensor(fitted.scaler.mean)) / torch.tensor(fitted.scaler.std)
    torch.testing.assert_close(units(SCALER.normalise(steps[:5])), expected, rtol=1e-4, atol=1e-4)


def test_the_path_of_a_verifiers_actions_is_the_one_that_poses_take() -> None:
    steps = torch.randn(4, 8, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    poses = integrate(steps.numpy(), np.zeros(3))
    places = navigation.verifier_path(SCALER)(SCALER.normalise(steps))
    np.testing.assert_allclose(places.numpy(), poses[:, 1:, :2], atol=1e-6)


def test_the_ratio_is_in_decibels() -> None:
    images = torch.zeros(2, 4, 4, 3)
    torch.testing.assert_close(
        psnr(images, images + torch.tensor([0.1, 0.01]).view(2, 1, 1, 1)), torch.tensor([20.0, 40.0])
    )
