"""The training loop: resuming to the exact step, schedule, averaging, metrics, bad losses."""

import json
import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn

from acid.errors import AcidError, CheckpointError
from acid.loop import LoopConfig, TrainingError, learning_rate, train

CONFIG = LoopConfig(steps=20, learning_rate=0.05, log_every=5, save_every=5, warmup=0.1)
TRUTH = torch.tensor([[1.0], [-2.0], [0.5]])


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.2), nn.Linear(8, 1))


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


def test_it_learns_and_ends_in_evaluation_mode(tmp_path):
    module = fit(None, replace(CONFIG, steps=300))
    x, y = next(stream(999))
    assert (module(x) - y).square().mean() < 0.05 * y.square().mean()
    assert not module.training


def test_the_average_lags_behind_the_weights():
    plain, averaged = fit(None), fit(None, replace(CONFIG, ema=0.999))
    start = weights(build())
    assert (weights(averaged) - start).norm() < 0.1 * (weights(plain) - start).norm()


def test_warm_up_then_cosine():
    rates = [learning_rate(step, CONFIG) for step in range(CONFIG.steps)]
    assert rates[0] == pytest.approx(CONFIG.learning_rate / 2)
    assert max(rates) == rates[1] == rates[2] == CONFIG.learning_rate
    assert rates[2:] == sorted(rates[2:], reverse=True)
    assert rates[-1] < 0.02 * CONFIG.learning_rate


def test_another_configuration_and_damaged_state_are_refused(tmp_path):
    fit(tmp_path)
    with pytest.raises(CheckpointError, match="another configuration"):
        fit(tmp_path, replace(CONFIG, steps=30))
    (tmp_path / "state.pt").write_bytes(b"not a checkpoint")
    with pytest.raises(CheckpointError, match=r"state\.pt cannot be read"):
        fit(tmp_path)


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
