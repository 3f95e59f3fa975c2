"""The verifier learns what two frames tell about an action, and nothing else."""

from __future__ import annotations

import dataclasses
import json
import warnings

import pytest
import torch
from torch import Tensor

from acid.errors import AcidWarning, CheckpointError, ShapeError
from acid.loop import SettingError
from acid.planning import acid_cost
from acid.types import ActionScaler, InverseDynamics
from acid.verifier import LITE, FitConfig, FlowConfig, FlowReport, Policy, TransformerSize, Verifier
from acid.verifier import SMALL as SMALL_DEFAULT

SMALL = TransformerSize(width=32, depth=2, heads=2, mlp_ratio=2)
QUICK = FitConfig(
    steps=800, batch_size=128, learning_rate=3e-3, warmup=0.06
)  # R² > 0.95 for each of three seeds; 500 is too few


def drifting_episodes(*, tokens: int = 1, hidden: int = 0, count: int = 200, length: int = 10) -> tuple[Tensor, ...]:
    """Points moved by their actions and seen through a random linear map.

    Latents [M, tokens, 8], actions [M, 2 + hidden] and ids [M]; the last `hidden` numbers of an action move nothing.
    """
    generator = torch.Generator().manual_seed(7)
    actions = torch.randn(count, length, 2 + hidden, generator=generator)
    place = torch.randn(count, 1, 2, generator=generator) + 0.5 * (actions[..., :2].cumsum(1) - actions[..., :2])
    latents = (place @ torch.randn(2, tokens * 8, generator=generator)).reshape(-1, tokens, 8)
    scale = torch.tensor([2.0, 0.1] + [5.0] * hidden)
    return latents, (actions * scale + 1).flatten(0, 1), torch.arange(count).repeat_interleave(length)


@pytest.fixture(scope="module")
def verifier(one_thread: None) -> Verifier:
    return Verifier.fit(*drifting_episodes(), size=SMALL, training=QUICK)


def test_recovers_a_known_action_map(verifier):
    assert isinstance(verifier, InverseDynamics)
    assert min(verifier.report.r2) > 0.95
    latents, actions, _ = drifting_episodes()
    inferred = verifier.scaler.denormalise(verifier.infer(latents[:9], latents[1:10]))
    torch.testing.assert_close(inferred[:, 0], actions[:9, 0], atol=2.0, rtol=0)
    assert torch.corrcoef(torch.stack([inferred[:, 1], actions[:9, 1]]))[0, 1] > 0.97


def test_recovers_it_from_several_tokens():
    verifier = Verifier.fit(*drifting_episodes(tokens=3), size=SMALL, training=QUICK)
    assert verifier.config.tokens == 3
    assert min(verifier.report.r2) > 0.95


def test_one_step_estimates_the_mean_and_ten_steps_sample():
    """What the frames do not show has error 1 (its variance) as a mean and 2 as a draw."""
    report = Verifier.fit(*drifting_episodes(hidden=1), size=SMALL, training=QUICK).report
    assert report is not None
    assert report.one_step[2] == pytest.approx(1.0, abs=0.25)
    assert report.ten_steps[2] == pytest.approx(2.0, abs=0.5)
    assert max(report.one_step[:2]) < 0.1
    assert max(report.ten_steps[:2]) < 0.2


def test_scaler_comes_from_the_training_transitions_or_from_the_caller(verifier):
    assert verifier.scaler.mean == pytest.approx((1, 1), abs=0.2)
    assert verifier.scaler.std == pytest.approx((2, 0.1), rel=0.1)
    latents, actions, episodes = drifting_episodes()
    given = ActionScaler(mean=(1.0,), std=(2.0,), frameskip=2)
    once = FitConfig(steps=1)
    assert Verifier.fit(latents, actions, episodes, size=SMALL, training=once, scaler=given).scaler == given
    with pytest.raises(ShapeError, match="3 × 1 = 3 numbers, but actions have 2"):
        Verifier.fit(latents, actions, episodes, training=once, scaler=dataclasses.replace(given, frameskip=3))


def test_same_seed_same_weights_whatever_the_global_generator_did():
    def fitted(seed: int) -> Verifier:
        torch.rand(seed + 3)
        return Verifier.fit(*drifting_episodes(), size=SMALL, training=FitConfig(steps=5, seed=seed))

    one, again, other = fitted(1).state_dict(), fitted(1).state_dict(), fitted(2).state_dict()
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not torch.equal(one["flow.embed_latent.weight"], other["flow.embed_latent.weight"])


def test_fitting_leaves_the_global_generator_alone():
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    Verifier.fit(*drifting_episodes(), size=SMALL, training=FitConfig(steps=1))
    assert torch.equal(torch.rand(1), expected)


def test_saved_and_loaded_is_the_same_bit_for_bit(verifier, tmp_path):
    verifier.save(tmp_path / "v", metadata={"task": "drift"})
    loaded = Verifier.load(tmp_path / "v")
    latents = torch.randn(7, 2, 1, 8)
    assert torch.equal(loaded.infer(*latents.unbind(1)), verifier.infer(*latents.unbind(1)))
    assert (loaded.config, loaded.scaler, loaded.report) == (verifier.config, verifier.scaler, verifier.report)
    assert not any(parameter.requires_grad for parameter in loaded.parameters())


def test_a_checkpoint_of_something_else_is_refused(verifier, tmp_path):
    verifier.save(tmp_path / "v")
    with pytest.raises(CheckpointError, match="'verifier' checkpoint, not a 'policy'"):
        Policy.load(tmp_path / "v")
    Verifier(FlowConfig(8, 1, 2, SMALL)).save(tmp_path / "bare")
    with pytest.raises(CheckpointError, match="holds no action statistics"):
        Verifier.load(tmp_path / "bare")


def test_report_reads_as_a_table_and_as_json(verifier):
    lines = str(verifier.report).splitlines()
    assert "1620 transitions trained on, 180 held out" in lines[0]
    assert [line.split()[0] for line in lines[1:-2]] == ["dimension", "0", "1", "mean"]
    assert lines[-2:] == [verifier.report.verdict, f"In directions: {verifier.report.directions}."]
    assert json.loads(json.dumps(dataclasses.asdict(verifier.report)))["one_step"] == list(verifier.report.one_step)


def test_a_real_network_may_be_passed_as_it_encodes():
    """No no_grad, no detach: the latents still belong to the encoder's graph."""
    latents, actions, episodes = drifting_episodes()
    encoder = torch.nn.Linear(8, 8)
    fitted = Verifier.fit(encoder(latents), actions, episodes, training=FitConfig(steps=3))
    assert encoder.weight.grad is None
    again = Verifier.fit(
        encoder(latents).detach().double().numpy(), actions.double(), episodes.numpy(), training=FitConfig(steps=3)
    )
    assert fitted.report is not None
    assert again.report is not None
    assert again.report.one_step == pytest.approx(fitted.report.one_step, rel=1e-4)


def test_latents_of_other_precisions_are_inferred_from(verifier):
    latents = torch.randn(5, 2, 1, 8)
    first, second = latents.unbind(1)
    expected = verifier.infer(first, second)
    assert torch.equal(verifier.infer(first.double(), second.double()), expected)
    torch.testing.assert_close(verifier.infer(first.half(), second.half()), expected, atol=0.05, rtol=0.05)


def test_one_vector_a_frame_gets_a_small_network_by_default():
    once = FitConfig(steps=1)
    assert Verifier.fit(*drifting_episodes(), training=once).config.size == SMALL_DEFAULT
    assert Verifier.fit(*drifting_episodes(tokens=3), training=once).config.size == LITE


def test_the_verdict_says_what_can_be_checked(verifier):
    assert "it can check that the model imagines what an action does" in verifier.report.verdict
    partly = FlowReport((0.1, 1.0), (0.2, 2.0), train=1000, held_out=100)
    assert partly.tells
    assert "tell 45% of how actions vary" in partly.verdict
    assert "It cannot check dimension 1" in partly.verdict


def test_a_verifier_that_tells_nothing_says_so_when_fitted_and_when_planned_with():
    latents, actions, episodes = drifting_episodes()
    shuffled = actions[torch.randperm(len(actions), generator=torch.Generator().manual_seed(0))]
    with pytest.warns(AcidWarning, match="tells nothing. Two frames tell it nothing about the action"):
        useless = Verifier.fit(latents, shuffled, episodes, size=SMALL, training=FitConfig(steps=200))
    assert useless.report is not None
    assert not useless.report.tells
    with pytest.warns(AcidWarning, match="cost term 'consistency' tells nothing about actions"):
        acid_cost(useless)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        acid_cost(useless, lam=0)  # only reported


def test_a_fit_tells_how_it_goes_unless_it_is_told_otherwise(capsys):
    training = FitConfig(steps=40, log_every=1)
    Verifier.fit(*drifting_episodes(), size=SMALL, training=training)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 10
    assert lines[0].startswith("fitting a verifier: step 4 of 40, loss ")
    assert lines[-1].endswith("about 0 s left")
    Verifier.fit(*drifting_episodes(), size=SMALL, training=training, progress=lambda *_: None)
    assert capsys.readouterr().err == ""


def test_progress_hears_the_loss():
    heard = []
    training = FitConfig(steps=3, log_every=1)
    Verifier.fit(*drifting_episodes(), size=SMALL, training=training, progress=lambda *said: heard.append(said))
    assert [step for step, _ in heard] == [1, 2, 3]
    assert all(losses["loss"] > 0 for _, losses in heard)


def test_an_interrupted_fit_continues_from_its_folder(tmp_path):
    training = FitConfig(steps=6, save_every=2)
    whole = Verifier.fit(*drifting_episodes(), size=SMALL, training=training)

    def stop(step, losses):
        raise KeyboardInterrupt

    interrupted = dataclasses.replace(training, log_every=50)
    with pytest.raises(KeyboardInterrupt):
        Verifier.fit(*drifting_episodes(), size=SMALL, training=interrupted, folder=tmp_path, progress=stop)
    again = Verifier.fit(*drifting_episodes(), size=SMALL, training=interrupted, folder=tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), again.parameters(), strict=True))


def test_impossible_fits_are_named():
    with pytest.raises(SettingError, match="steps=0"):
        FitConfig(steps=0)
    with pytest.raises(SettingError, match=r"inside \(0, 1\), or None, got ema=nan"):
        FitConfig(ema=float("nan"))
    with pytest.raises(SettingError, match=r"held_out must be a share inside \(0, 1\), got held_out=1"):
        FitConfig(held_out=1.0)


def test_a_folder_of_other_data_is_refused(tmp_path):
    latents, actions, episodes = drifting_episodes()
    options = {"size": SMALL, "training": FitConfig(steps=2, batch_size=8), "folder": tmp_path}
    first = Verifier.fit(latents, actions, episodes, **options)
    assert (
        Verifier.fit(latents, actions, episodes, **options).scaler == first.scaler
    )  # a finished run is taken as it is
    with pytest.raises(CheckpointError, match="holds another run: its data is"):
        Verifier.fit(latents, 100 * actions, episodes, **options)
    with pytest.raises(CheckpointError, match="holds another run: its data is"):
        Verifier.fit(latents + 1, actions, episodes, **options)
