"""What the diagnosis measures is what happens: on a shipped cell, with few problems."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from acid import cli
from acid.experiments import diagnosis
from acid.experiments.cell import Cell
from acid.experiments.diagnosis import diagnose
from acid.planning import CEM

TINY = CEM(samples=24, iterations=2, elites=4)


@pytest.fixture(scope="module")
def found():
    return diagnose(Cell("reacher", "lewm"), problems=4, search=TINY)


def test_a_trained_model_orders_candidates_by_where_they_end(found):
    assert found.interval(lambda x: x.goal_cost).mean > 0.2


def test_everything_is_a_share_or_a_correlation(found):
    for looked in found.problems:
        for value in (looked.goal_cost, looked.consistency, looked.consistency_of_steps):
            assert -1 <= value <= 1
        assert looked.gap > 0
        assert set(looked.imagined) == set(looked.executed) == {"original", "acid"}
        assert min(looked.ratios) > 0
    assert 1 <= found.dimensions <= found.latent_size
    assert 1 <= found.identified <= found.action_size == 10


def test_the_same_problems_give_the_same_diagnosis(found):
    again = diagnose(Cell("reacher", "lewm"), problems=4, search=TINY)
    assert again.as_dict() == found.as_dict()


def test_a_model_whose_imagination_is_the_truth_has_no_gap(monkeypatch):
    """With the executed latents in place of the imagined ones, ‖z − ẑ‖² of the plans vanishes."""
    execute = diagnosis._execute
    cell = Cell("reacher", "lewm")
    planner = diagnosis.planner(cell, "acid", TINY, 0.2)
    task = diagnosis.tasks.make("reacher")
    instance = diagnosis._instances(cell, 1)[0]
    task.set_state(instance.start_state)
    start = torch.from_numpy(task.render())[None]
    plan = planner.plan(start, start)
    block = plan.env_actions.shape[1] // plan.actions.shape[1]
    true, _ = execute(task, planner.model, instance, plan.env_actions[0].numpy(), block)
    honest = replace(plan, imagined=torch.cat([plan.imagined[:, :1], true[None]], 1))
    assert diagnosis._executed(task, planner.model, instance, honest).abs().max() < 1e-6
    assert diagnosis._executed(task, planner.model, instance, plan).max() > 1e-3
    task.close()


def test_dimensions_in_use():
    generator = torch.Generator().manual_seed(0)
    round_cloud = torch.randn(4000, 1, 8, generator=generator)
    assert diagnosis._dimensions(round_cloud) == pytest.approx(8, abs=0.2)
    flat = round_cloud * torch.tensor([1.0, 1, 0, 0, 0, 0, 0, 0])
    assert diagnosis._dimensions(flat) == pytest.approx(2, abs=0.1)


def test_directions_of_an_action_count_even_if_no_single_number_is_known():
    generator = torch.Generator().manual_seed(0)
    actions = torch.randn(20000, 4, generator=generator)
    mean = actions.mean(1, keepdim=True).expand_as(actions)  # what two frames tell of four steps: their sum
    assert diagnosis._identified(actions, mean) == pytest.approx(1, abs=0.05)
    assert diagnosis._identified(actions, actions.clone()) == pytest.approx(4, abs=0.05)
    assert diagnosis._identified(actions, torch.zeros_like(actions)) == pytest.approx(0, abs=0.05)


def test_the_command_prints_a_table_or_json(capsys, monkeypatch):
    monkeypatch.setattr(diagnosis, "CANDIDATES", 4)
    cli.main(["diagnose", "reacher", "--problems", "2", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert len(told["problems"]) == 2
    assert np.isfinite(told["verifier_error"])


def test_the_table_names_what_it_measures(found):
    text = found.text()
    for title in ("linear probe of shoulder", "verifier: error", "rank correlation: goal cost", "σ_g / σ_a"):
        assert title in text
