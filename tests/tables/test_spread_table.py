"""Spreads over a search: what is measured, kept, resumed and concluded."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from table_rows import cells

from acid.errors import DataError
from acid.tables import Findings, Options, write
from acid.tables.spread import (
    SPREAD,
    Spreads,
    _recorded,
    charts,
    file_of,
    judge_iterations,
    judge_models,
    judge_tasks,
    load,
    measure,
)

SMALL = {"samples": 6, "iterations": 3, "elites": 2}
TINY = replace(SPREAD, studies=tuple(replace(s, sizes=SMALL) for s in SPREAD.studies if s.task == "reacher"))


def quiet(done: int, total: int) -> None:
    pass


def keep(findings: Findings, level: dict[str, float], drift: dict[str, float]) -> None:
    """Twelve pools of every cell; a task's level is its model's times its place."""
    rng = np.random.default_rng(0)
    for place, study in enumerate(findings.studies, start=1):
        base = level[study.model] * (1 + place % 3) * rng.uniform(0.95, 1.05, (12, 3))
        goal = base * np.array([1.0, drift[study.model] ** 0.5, drift[study.model]])
        pools = [
            {"instance": f"i{k}", "plan": 0, "goal": goal[k].tolist(), "consistency": [1.0] * 3} for k in range(12)
        ]
        path = file_of(findings, study)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**_recorded(findings, study), "pools": pools}))


@pytest.fixture
def findings(tmp_path: Path) -> Findings:
    return Findings(SPREAD, Options(tmp_path))


def test_the_three_statements_are_tested_on_the_data(findings: Findings):
    judges = (judge_models, judge_tasks, judge_iterations)
    assert [judge(findings) for judge in judges] == [None] * 3
    keep(findings, {"lewm": 1, "pldm": 2, "dinowm": 100}, {"lewm": 8, "pldm": 0.1, "dinowm": 1.5})
    assert [str(judge(findings)).split(" at ")[0] for judge in judges] == ["confirmed"] * 3
    keep(findings, {"lewm": 1, "pldm": 2, "dinowm": 3}, {"lewm": 1.1, "pldm": 1.1, "dinowm": 5})
    assert str(judge_models(findings)).startswith("contradicted")
    assert str(judge_iterations(findings)).startswith("contradicted")


def test_medians_and_drift_are_told_and_drawn(findings: Findings):
    assert charts(findings) == []
    keep(findings, {"lewm": 1, "pldm": 2, "dinowm": 100}, {"lewm": 4, "pldm": 1, "dinowm": 1})
    rows = cells(write(findings))
    assert rows[0][:3] == ["lewm", "cube", "12"]
    assert rows[0][-1].startswith("4.")
    drawn = charts(findings)
    assert [[panel.title for panel in chart.panels] for chart in drawn] == [["Le-WM", "PLDM", "DINO-WM"]] * 3
    assert drawn[2].panels[0].levels[0].y == 1.0


def test_pools_without_spread_do_not_count():
    goal = np.array([[1.0, 2.0], [1.0, 2.0], [0.0, 0.0]])
    found = Spreads(goal, np.array([[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]])).drift()
    assert (found.mean, found.low, found.high) == pytest.approx((2, 2, 2))


@pytest.mark.slow
def test_it_searches_once_resumes_and_notices_other_weights(tmp_path: Path):
    one = Findings(TINY, Options(tmp_path, models=("lewm",), episodes=1))
    (study,) = one.studies
    measure(one, quiet)
    found = load(one, study)
    assert found is not None
    assert found.goal.shape[1] == found.consistency.shape[1] == 3
    assert (found.goal > 0).all()
    before = file_of(one, study).read_bytes()
    measure(one, quiet)
    assert file_of(one, study).read_bytes() == before
    more = Findings(TINY, Options(tmp_path, models=("lewm",), episodes=2))
    measure(more, quiet)
    longer = load(more, study)
    assert longer is not None
    assert np.array_equal(longer.goal[: len(found.goal)], found.goal)
    assert len(longer.goal) > len(found.goal)
    content = json.loads(file_of(one, study).read_text())
    file_of(one, study).write_text(json.dumps({**content, "checkpoints": {"model": "another"}}))
    assert load(one, study) is None
    file_of(one, study).write_text("{")
    with pytest.raises(DataError, match=r"spreads.json .* run `acid reproduce spread` again"):
        load(one, study)
