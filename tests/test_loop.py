"""The training loop: resuming to the exact step, schedule, averaging, metrics, bad losses and settings, Ctrl-C."""

import json
import signal
import sys
from dataclasses import dataclass, replace
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from acid import loop
from acid.errors import AcidError, CheckpointError
from acid.loop import LoopConfig, SettingError, TrainingError, cpu_seconds, learning_rate, train

CONFIG = LoopConfig(steps=20, learning_rate=0.05, log_every=5, save_every=5, warmup=0.1)
TRUTH = torch.tensor([[1.0], [-2.0], [0.5]])


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 1))


def stream(start):
    step = start
    while True:
        x = torch.randn(16, 3, generator=torch.Generator().manual_seed(step))
        yield x, x @ TRUTH
        step += 1


def fit(folder, config=CONFIG, stop_at=None, seen=None):
    module = build()

    def loss(batch):
        x, y = batch
        if seen is not None:
            seen.append(1)
        if stop_at is not None and len(seen) > stop_at:
            raise KeyboardInterrupt
        return {"loss": (module(x) - y).square().mean()}

    return train(module, loss, stream, config, folder)


def weights(module):
    return torch.cat([p.flatten() for p in module.state_dict().values()])


@pytest.mark.parametrize("ema", [None, 0.9])
def test_a_killed_run_ends_with_the_same_weights(tmp_path, ema):
    config = replace(CONFIG, ema=ema)
    whole = fit(tmp_path / "whole", config)
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "parts", config, stop_at=13, seen=[])
    continued = fit(tmp_path / "parts", config)
    assert torch.equal(weights(whole), weights(continued))
    steps = [json.loads(line)["step"] for line in (tmp_path / "parts" / "metrics.jsonl").read_text().splitlines()]
    assert steps == [5, 10, 15, 20]


@pytest.fixture
def listening():
    """Ctrl-C counts, also where the tests were started in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("ema", [None, 0.9])
def test_ctrl_c_waits_for_the_step_and_saves_it(tmp_path, ema, listening):
    config = replace(CONFIG, ema=ema, save_every=1000)
    whole = fit(tmp_path / "whole", config)
    module, random_state = build(), torch.get_rng_state()

    def loss(batch):
        if torch.initial_seed() == 7:  # that of step 7
            signal.raise_signal(signal.SIGINT)
        return {"loss": (module(batch[0]) - batch[1]).square().mean()}

    with pytest.raises(KeyboardInterrupt):
        train(module, loss, stream, config, tmp_path / "parts")
    assert torch.equal(torch.get_rng_state(), random_state)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert torch.load(tmp_path / "parts" / "state.pt", weights_only=True)["step"] == 8
    assert torch.equal(weights(fit(tmp_path / "parts", config)), weights(whole))


def test_parts_of_a_batch_add_up_to_its_gradient():
    def run(micro_batch):
        torch.manual_seed(0)
        module, seen = nn.Linear(3, 1), []

        def loss(batch):
            seen.append(len(batch[0]))
            return {"loss": (module(batch[0]) - batch[1]).square().mean()}

        told = []
        train(module, loss, stream, CONFIG, micro_batch=micro_batch, progress=lambda step, values: told.append(values))
        return weights(module), seen[:3], told[0]["loss"]

    (whole, _, loss), (parts, seen, loss_of_parts) = run(None), run(7)
    assert seen == [7, 7, 2]
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-6)
    assert loss_of_parts == pytest.approx(loss, rel=1e-5)


def test_the_callers_random_numbers_go_on_as_if_nothing_had_happened():
    module = build()
    before = torch.get_rng_state()
    with pytest.raises(TrainingError):
        train(module, lambda batch: {"loss": module(batch[0]).mean() * float("inf")}, stream, CONFIG)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_time_of_all_sessions_is_added_up(tmp_path):
    config = replace(CONFIG, log_every=20)
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path, config, stop_at=13, seen=[])
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    torch.save(state | {"cpu_seconds": 1000.0}, tmp_path / "state.pt")
    fit(tmp_path, config)
    assert 1000 <= cpu_seconds(tmp_path) < 1060
    fit(tmp_path, config)  # a finished run takes no more
    assert 1000 <= cpu_seconds(tmp_path) < 1060


def test_batches_of_any_form_are_moved():
    @dataclass(frozen=True)
    class Pair:
        x: Tensor
        more: tuple[Tensor, None]

    there = loop.moved({"pair": Pair(torch.zeros(2, 3), (torch.zeros(1), None)), "n": 3}, torch.device("meta"))
    pair = there["pair"]
    assert (pair.x.device.type, pair.more[0].device.type, pair.more[1], there["n"]) == ("meta", "meta", None, 3)


def test_frozen_weights_are_not_saved_and_another_network_is_refused(tmp_path):
    module = nn.ModuleDict({"frozen": nn.Linear(3, 3).requires_grad_(False), "free": nn.Linear(3, 1)})

    def run(module):
        return train(
            module, lambda b: {"loss": (module["free"](b[0]) - b[1]).square().mean()}, stream, CONFIG, tmp_path
        )

    run(module)
    assert set(torch.load(tmp_path / "state.pt", weights_only=True)["module"]) == {"free.weight", "free.bias"}
    run(module)
    with pytest.raises(CheckpointError, match="another network"):
        run(nn.ModuleDict({"free": nn.Linear(3, 1), "more": nn.Linear(3, 1)}))


def test_it_learns_and_ends_in_evaluation_mode(tmp_path):
    module = fit(None, replace(CONFIG, steps=300))
    x, y = next(stream(999))
    assert (module(x) - y).square().mean() < 0.05 * y.square().mean()
    assert not module.training


def test_the_average_lags_behind_the_weights():
    plain, averaged = fit(None), fit(None, replace(CONFIG, ema=0.999))
    start = weights(fit(None, replace(CONFIG, steps=1, warmup=0, learning_rate=CONFIG.learning_rate / 2)))
    assert (weights(averaged) - start).norm() < 0.1 * (weights(plain) - start).norm()


def test_warm_up_then_cosine():
    rates = [learning_rate(step, CONFIG) for step in range(CONFIG.steps)]
    assert rates[0] == pytest.approx(CONFIG.learning_rate / 2)
    assert max(rates) == rates[1] == rates[2] == CONFIG.learning_rate
    assert rates[2:] == sorted(rates[2:], reverse=True)
    assert rates[-1] < 0.02 * CONFIG.learning_rate


def test_another_configuration_and_damaged_state_are_refused(tmp_path):
    fit(tmp_path)
    with pytest.raises(CheckpointError, match=r"holds another run: its loop.steps is 20, not 30; choose another"):
        fit(tmp_path, replace(CONFIG, steps=30))
    module = build()
    with pytest.raises(CheckpointError, match=r"its data is None, not other"):
        train(module, lambda batch: {}, stream, CONFIG, tmp_path, description={"data": "other"})
    (tmp_path / "state.pt").write_bytes(b"not a checkpoint")
    with pytest.raises(CheckpointError, match=r"state\.pt is truncated, damaged"):
        fit(tmp_path)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *[("steps", 0), ("steps", -3), ("batch_size", 0), ("learning_rate", 0.0), ("learning_rate", float("nan"))],
        *[("weight_decay", -1.0), ("betas", (0.9, 1.0)), ("warmup", 1.5), ("clip", 0.0), ("seed", -1)],
        *[("ema", 0.0), ("ema", 1.0), ("ema", float("nan")), ("precision", "half"), ("log_every", 0)],
    ],
)
def test_settings_that_make_no_sense_are_named(setting, value):
    with pytest.raises(SettingError, match=f"{setting} must be .*, got {setting}="):
        LoopConfig(**{setting: value})


def test_tensorboard_without_a_folder_is_refused():
    with pytest.raises(SettingError, match="needs a folder"):
        fit(None, replace(CONFIG, tensorboard=True))


def test_a_loss_that_is_not_a_number_stops_training_and_names_the_step():
    module = build()
    with pytest.raises(TrainingError, match="not finite at step 0"):
        train(module, lambda batch: {"loss": module(batch[0]).mean() * float("nan")}, stream, CONFIG)


def test_tensorboard_gets_every_logged_number_when_asked(tmp_path, monkeypatch):
    board = ModuleType("torch.utils.tensorboard")
    written, closed = [], []
    board.SummaryWriter = lambda folder: SimpleNamespace(  # type: ignore[attr-defined]
        add_scalar=lambda name, value, step: written.append((name, step)), close=lambda: closed.append(folder)
    )
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", board)
    fit(tmp_path, replace(CONFIG, tensorboard=True))
    assert closed == [tmp_path]
    assert {step for name, step in written if name == "loss"} == {5, 10, 15, 20}
    assert {"gradient_norm", "learning_rate"} <= {name for name, _ in written}


def test_a_missing_tensorboard_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(AcidError, match=r"acid-planning\[tensorboard\]"):
        fit(tmp_path, replace(CONFIG, tensorboard=True))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda state: state.update(step=21), "it is at step 21 of 20"),
        (lambda state: state.update(step=-1), "it is at step -1 of 20"),
        (lambda state: state.pop("step"), "'step'"),
        (lambda state: state["module"]["0.bias"].fill_(float("nan")), "its weights are not finite"),
        (lambda state: state["module"].update({"0.bias": torch.zeros(3)}), "it belongs to another network"),
        (lambda state: state["optimizer"]["state"][0]["exp_avg"].fill_(float("inf")), "exp_avg of the optimizer"),
        (lambda state: state["optimizer"].pop("state"), "'state'"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(tmp_path, change, reason):
    fit(tmp_path)
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    change(state)
    torch.save(state, tmp_path / "state.pt")
    with pytest.raises(CheckpointError, match=f"does not fit this run .*{reason}.*remove it to start over"):
        fit(tmp_path)


def test_metrics_that_are_none_are_told(tmp_path):
    fit(tmp_path)
    (tmp_path / "metrics.jsonl").write_text('{"steps": 3}\n')
    with pytest.raises(TrainingError, match=r"metrics\.jsonl holds something else than metrics"):
        fit(tmp_path)


def test_a_training_that_fails_leaves_the_callers_random_numbers(tmp_path):
    module, before = build(), torch.get_rng_state()
    with pytest.raises(TrainingError):
        train(module, lambda batch: {"loss": torch.tensor(float("nan"))}, stream, CONFIG, tmp_path)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"los": torch.zeros(())}, "a loss must give 'loss', which is minimised, got 'los'"),
        ({"loss": torch.zeros(()), "each": torch.zeros(3)}, r"one number each, got 'each' of shape \[3\]"),
        ({"loss": 0.5}, r"a mapping of names to tensors, got .*0\.5"),
        (torch.zeros(()), "a mapping of names to tensors"),
    ],
)
def test_what_a_loss_must_give_is_told(given, complaint):
    with pytest.raises(TrainingError, match=complaint):
        train(build(), lambda batch: given, stream, CONFIG)
