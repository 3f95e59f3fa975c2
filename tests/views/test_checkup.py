"""Inspection of a world model and a verifier with recorded episodes alone."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from acid import checkpoint, cli, tasks
from acid.data import EpisodeWriter
from acid.errors import AcidError, DataError
from acid.evaluation import Interval
from acid.evaluation.cells import ASSETS
from acid.evaluation.kits import Kit
from acid.planning import ActionConsistency
from acid.tasks.collect import Collection, record_episode
from acid.types import ActionScaler
from acid.verifier import Directions, Verifier
from acid.views.checkup import LAMBDAS, Checkup, Encoded, _measure, _unseen, check_up, keep_directions, suggest

SCALER = ActionScaler((0.0, 0.0), (1.0, 1.0))


class World:
    """A point on a line moves by the first number of an action; the second does nothing. Its error grows by `bias`."""

    scaler, context = SCALER, 1

    def __init__(self, bias: float = 0.0) -> None:
        self.bias = bias

    def rollout(self, latent, actions):
        return (latent[:, None] + (actions[..., :1] + self.bias).cumsum(2))[..., None]


class Inverse:
    """Finds the first number, and the data's mean for the second."""

    scaler = SCALER

    def __init__(self, blind: bool = False) -> None:
        self.blind = blind

    def infer(self, latent, next_latent):
        moved = (next_latent - latent)[..., 0, :]
        return torch.cat([torch.zeros_like(moved) if self.blind else moved, torch.zeros_like(moved)], -1)


class Line(Kit):
    def consistency(self, weight, part="all"):
        return ActionConsistency(self.verifier, weight)


def found(bias: float = 0.0, *, blind: bool = False) -> Checkup:
    actions = torch.randn(40, 5, 2, generator=torch.Generator().manual_seed(0))
    latents = torch.cat([torch.zeros(40, 1, 1), actions[..., :1].cumsum(1)], 1)[..., None]
    seen = Encoded(latents[:, 0], latents, actions)
    kit = Line(World(bias), Inverse(blind), {})
    return _measure(kit, seen, pool=16, title=("line", "toy", "all"), progress=lambda done, total: None)


def test_a_right_model_and_what_its_verifier_can_tell():
    checkup = found()
    assert checkup.directions.told == 1
    assert checkup.directions.shares[1] == pytest.approx(1.0, abs=0.05)
    assert [step.mean for step in checkup.drift] == pytest.approx([0] * 5, abs=1e-9)
    assert checkup.real.mean == pytest.approx(checkup.imagined.mean)
    assert checkup.real.mean < checkup.swapped.mean
    assert checkup.told_apart > 0.6
    assert checkup.static_believed == 0
    said = " ".join(checkup.findings())
    assert "Two frames tell 1 of 2 directions" in said
    assert "Every imagined step is closer" in said


def test_a_model_that_drifts_is_found_out():
    checkup = found(bias=1.0)
    means = [step.mean for step in checkup.drift]
    assert means == sorted(means)
    assert "From step" in " ".join(checkup.findings())
    assert checkup.imagined.low > checkup.real.high  # the verifier sees it
    assert checkup.error_seen == checkup.error_seen  # a number


def test_a_verifier_that_sees_nothing_is_called_so():
    checkup = found(blind=True)
    assert checkup.directions.told == 0
    assert checkup.told_apart == pytest.approx(0.5, abs=0.15)
    assert checkup.static.mean == pytest.approx(checkup.real.mean)
    assert "ACID cannot check this imagination" in " ".join(checkup.findings())


def test_static_futures_and_easy_imaginations_are_warned_of():
    low, high = Interval(9, 0.1, 0.1, 0.1), Interval(9, 0.9, 0.9, 0.9)
    ranks = dict.fromkeys(LAMBDAS, high) | {0.2: low}
    told = Directions((0.1,), ((1.0,),))
    residuals = {"real": high, "imagined": low, "swapped": high, "static": low}
    shares = {"told_apart": 0.9, "told_apart_imagined": 0.9, "static_believed": 0.8, "error_seen": 0.0}
    checkup = Checkup("m", "d", "all", 9, 1, told, (low,), **residuals, **shares, ranks=ranks, suggested=0.2)
    said = " ".join(checkup.findings())
    assert "stands still looks more consistent" in said
    assert "Imagined transitions look more consistent" in said
    assert "Suggested λ: 0.2" in said


def test_a_lambda_is_suggested_only_if_it_is_certainly_better():
    random = np.random.default_rng(0)
    base = random.uniform(0.3, 0.5, 60)
    better = {0.0: base, 0.1: base - 0.2, 0.5: base - 0.1}
    assert suggest(better) == 0.1
    assert suggest({0.0: base, 0.1: base + random.normal(0, 0.2, 60)}) == 0


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four short episodes of Reacher."""
    path = tmp_path_factory.mktemp("episodes") / "reacher.h5"
    task = tasks.make("reacher", size=64)
    task.episode_steps = 40  # type: ignore[misc]
    with EpisodeWriter(path, attributes={"collection": Collection("reacher", 4, 64).description()}) as writer:
        for index in range(4):
            writer.write(record_episode(task, 7, index))
    task.close()
    return path


def test_the_command_inspects_a_shipped_cell_and_a_folder(recorded: Path, capsys):
    cli.main(["inspect", "reacher/lewm", "--data", str(recorded), "--windows", "12", "--pool", "4"])
    text = capsys.readouterr().out
    assert "| lewm, 12 windows of 5 steps, all 4 episodes (not the dataset that the model was trained on)" in text
    assert "- Two frames tell " in text
    folder = str(ASSETS / "reacher" / "lewm")
    cli.main(["inspect", folder, "--data", str(recorded), "--windows", "8", "--pool", "4", "--horizon", "2", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert len(told["drift"]) == 2
    assert told["drift"][0]["mean"] < 1
    assert told["real"]["mean"] < told["swapped"]["mean"]


def test_mistakes_are_named(recorded: Path, tmp_path: Path):
    cell = ASSETS / "reacher" / "lewm"
    with pytest.raises(AcidError, match="has no subfolder 'model'"):
        check_up(tmp_path, recorded)
    with pytest.raises(AcidError, match="windows must be at least 8, got 3"):
        check_up(cell, recorded, windows=3)
    with pytest.raises(DataError, match="need episodes of"):
        check_up(cell, recorded, horizon=50)
    with pytest.raises(AcidError, match="nowhere"):
        check_up(cell, tmp_path / "nowhere.h5")


def test_directions_that_were_found_are_kept_with_the_verifier(tmp_path: Path):
    shutil.copytree(ASSETS / "reacher" / "lewm" / "verifier", tmp_path / "verifier")
    before = checkpoint.fingerprint(tmp_path / "verifier")
    kept = found().directions
    keep_directions(tmp_path, replace(found(), directions=kept))
    assert Verifier.load(tmp_path / "verifier").directions == kept
    assert checkpoint.fingerprint(tmp_path / "verifier") == before  # more is known about it, but it is the same


def test_episodes_of_the_same_collection_are_known_to_be_held_out(tmp_path: Path):
    class Collected:
        path, attributes = tmp_path / "data.h5", {"collection": "twelve episodes"}

        def __len__(self) -> int:
            return 12

    recorded = {"partition": {"episodes": 12, "held_out": 0.25, "seed": 0, "fingerprint": None}}
    ids, told = _unseen(Collected(), recorded | {"data": {"collection": "twelve episodes"}})  # type: ignore[arg-type]
    assert len(ids) == 3
    assert "held-out" in told


def test_a_shipped_cell_is_not_written_to(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        cli.main(["inspect", "reacher/lewm", "--data", "none.h5", "--keep"])
    assert "reacher/lewm is shipped and never written to: copy its folder" in capsys.readouterr().err
