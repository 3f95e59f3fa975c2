"""What the diagnosis measures is what happens: on shipped cells, with few problems."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from acid import tasks
from acid.evaluation import Bench, Cell, Protocol, SearchSpec, bootstrap_mean, condition
from acid.views import diagnosis
from acid.views.diagnosis import Diagnosis, diagnose

TINY = SearchSpec("cem", 24, 2, 4)
REACHER = Cell("reacher", "lewm")


@pytest.fixture(scope="module")
def found() -> Diagnosis:
    return diagnose(REACHER, problems=4, spec=TINY)


def check_shares(found: Diagnosis) -> None:
    for measured in found.problems:
        for value in (measured.goal_cost, measured.consistency, measured.consistency_of_steps):
            assert -1 <= value <= 1
        assert measured.gap > 0
        assert set(measured.imagined) == set(measured.executed) == {"original", "acid"}
        assert min(measured.ratios) > 0
    assert 1 <= found.dimensions <= found.latent_size
    assert 0 <= found.identified <= found.action_size


def test_a_trained_model_orders_candidates_by_where_they_end(found: Diagnosis):
    assert bootstrap_mean([measured.goal_cost for measured in found.problems]).mean > 0.2


def test_everything_is_a_share_or_a_correlation(found: Diagnosis):
    check_shares(found)
    assert found.identified >= 1
    assert (found.action_size, found.lam, len(found.problems)) == (10, 0.2, 4)


def test_the_same_problem_gives_the_same_numbers_whatever_the_others(found: Diagnosis):
    assert list(diagnose(REACHER, problems=1, spec=TINY).problems) == list(found.problems)[:1]


def test_the_table_names_what_it_measures(found: Diagnosis):
    text = found.text()
    assert text.startswith("| reacher lewm, λ 0.2, problems: 4")
    for title in ("linear probe of shoulder", "verifier: error", "rank correlation: goal cost", "σ_g / σ_a"):
        assert title in text


def test_every_kind_of_cell_can_be_diagnosed(navigation_folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(diagnosis, "CANDIDATES", 4)
    told: list[tuple[int, int]] = []
    pusht = diagnose(
        Cell("pusht", "lewm"), problems=1, spec=TINY, progress=lambda done, total: told.append((done, total))
    )
    assert told == [(1, 1)]
    check_shares(pusht)
    spec = SearchSpec("cem", 6, 1, 2, 8, "arc", 2)
    paths = diagnose(Cell("navigation", "nwm", navigation_folder), problems=1, spec=spec)
    assert (paths.action_size, paths.latent_size, paths.probes) == (3, 3, {})
    assert "navigation nwm, λ 0.5, problems: 1" in paths.text()
    assert set(paths.problems[0].executed) == {"original", "acid"}


def test_a_model_whose_imagination_is_the_truth_has_no_gap():
    """With the executed latents in place of the imagined ones, ‖z − ẑ‖² of the plans vanishes."""
    bench = Bench(REACHER, TINY, Protocol(episodes=1, split="select"))
    (instance,) = REACHER.instances(bench.protocol)[:1]
    planner = bench.planner(condition("acid"), 0.2)
    with closing(tasks.make("reacher")) as task:
        task.set_state(instance.start_state)
        start = torch.from_numpy(task.render())[None]
        plan = planner.plan(start, start)
        true, _ = diagnosis._execute(task, bench, instance, plan.actions)
        honest = replace(plan, imagined=torch.cat([plan.imagined[:, :1], true[None]], 1))
        assert diagnosis._gap(task, bench, instance, honest) < 1e-6
        assert diagnosis._gap(task, bench, instance, plan) > 1e-3


def test_dimensions_in_use():
    generator = torch.Generator().manual_seed(0)
    round_cloud = torch.randn(4000, 1, 8, generator=generator)
    assert diagnosis._dimensions(round_cloud) == pytest.approx(8, abs=0.2)
    flat = round_cloud * torch.tensor([1.0, 1, 0, 0, 0, 0, 0, 0])
    assert diagnosis._dimensions(flat) == pytest.approx(2, abs=0.1)
