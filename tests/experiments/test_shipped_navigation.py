"""The shipped navigation cell works from a clean checkout: weights, cases, and imagination that follows the actions."""

from contextlib import closing

import numpy as np
import pytest
import torch

from acid import cli, tasks
from acid.evaluation.path_cases import load_cases
from acid.experiments.cell import Cell
from acid.experiments.navigation_planning import Parts
from acid.experiments.navigation_poses import Locator
from acid.experiments.navigation_rollouts import imagine, measure

CASES = 6


@pytest.fixture(scope="module")
def cell():
    return Cell("navigation", "nwm")


@pytest.fixture(scope="module")
def imagined(cell):
    """Some held-out cases, imagined under the actions that were taken, and what was measured."""
    parts = Parts.load(cell)
    cases = load_cases(cell.cases_file("test"), cell.setup.protocol(episodes=CASES), cell.task)
    with closing(tasks.make(cell.task, size=parts.model.observation_size)) as task:
        rollouts = [imagine(parts, case, 0, task) for case in cases]
        generator = torch.Generator().manual_seed(0)
        locators = [Locator(parts, task, case.world, generator) for case in cases]
        return rollouts, [measure(parts, *pair) for pair in zip(rollouts, locators, strict=True)]


def test_files_are_small_enough_to_ship(cell):
    """The world model is the largest, because it carries its tokenizer: one folder is all that planning needs."""
    assert max(path.stat().st_size for path in cell.root.rglob("*") if path.is_file()) < 7 * 2**20


def test_cases_of_the_two_splits_do_not_overlap(cell):
    episodes = {
        split: {
            c.episode
            for c in load_cases(cell.cases_file(split), cell.setup.protocol(episodes=n, split=split), cell.task)
        }
        for split, n in (("test", 200), ("select", 100))
    }
    assert not episodes["test"] & episodes["select"]


def test_imagined_frames_are_nearer_to_the_true_ones_than_the_last_frame_is(imagined):
    def error(frames: torch.Tensor, true: torch.Tensor) -> float:
        return float((frames.float() - true.float()).square().mean())

    rollouts, measured = imagined
    ahead = 4  # steps: what is drawn of a frame is blurred, so that the next one is hardly better than the last
    copied = np.mean([error(rollout.true[0], rollout.true[ahead]) / 255**2 for rollout in rollouts])
    drawn = np.mean([10 ** (-found["psnr"][ahead - 1] / 10) for found in measured])
    assert drawn < copied


def test_true_frames_are_found_where_they_were_seen_and_imagined_ones_elsewhere(imagined):
    _, measured = imagined
    assert np.mean([found["place_floor"] for found in measured]) < 0.06
    assert np.mean([found["place"] for found in measured]) > 0.1


def test_true_steps_are_more_consistent_than_imagined_ones(imagined):
    _, measured = imagined
    for kind in ("residual", "strayed"):
        true, model = (np.mean([found[name] for found in measured]) for name in (f"{kind}_true", kind))
        assert true < model


@pytest.mark.parametrize("command", ["plan", "eval", "demo", "diagnose"])
def test_other_commands_say_which_one_plans_paths(command, capsys):
    with pytest.raises(SystemExit):
        cli.main([command, "navigation", "--model", "nwm"])
    assert "use `acid reproduce navigation`" in capsys.readouterr().err
