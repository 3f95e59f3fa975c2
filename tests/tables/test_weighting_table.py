"""Table 4 from rows on disk: constant weights beside the adaptive one."""

from __future__ import annotations

from pathlib import Path

import pytest
from table_rows import cells, write_rows

from acid.evaluation import Bench, Cell, condition
from acid.planning import Adaptive, Constant
from acid.tables import Findings, Options, Study, write
from acid.tables.weighting import (
    PUBLISHED,
    TASKS,
    WEIGHTING,
    WEIGHTS,
    _study,
    charts,
    judge_adaptive,
    judge_best_differs,
    judge_constants,
)

N = 40


def add(findings: Findings, study: Study, wins: int) -> None:
    episodes = [{"success": k < wins, "instance": f"{study.task}{k}"} for k in range(N)]
    write_rows(findings, study, study.conditions[0], episodes)


@pytest.fixture
def findings(tmp_path: Path) -> Findings:
    """Original wins 10 of 40, each constant 10 on Cube and 20 elsewhere, the adaptive weight 30."""
    made = Findings(WEIGHTING, Options(tmp_path))
    for task in TASKS:
        add(made, Study(task, "lewm", ("original",)), 10)
        add(made, _study(task, None), 30)
        for weight in WEIGHTS:
            add(made, _study(task, weight), 10 if task == "cube" else 20)
    return made


def test_the_overview_has_the_papers_form_with_its_total(findings: Findings):
    rows = {row[0]: row[1:] for row in cells(write(findings)) if len(row) == 7}
    assert rows["cube"] == ["+0.0 (+0)", "+0.0 (-2)", "+0.0 (+0)", "+0.0 (+0)", "+0.0 (+2)", "+50.0 (+4)"]
    assert rows["total Δ"] == ["+50.0 (+14)", "+50.0 (+6)", "+50.0 (-4)", "+50.0 (+4)", "+50.0 (+10)", "+150.0 (+20)"]


def test_no_constant_improves_all_until_one_does(findings: Findings):
    found = judge_constants(findings)
    assert found is not None
    assert found.kind == "confirmed"
    add(findings, _study("cube", 10.0), 12)
    assert str(judge_constants(findings)).startswith(
        "not confirmed at this scale. Here w 10 has higher means on all three"
    )
    add(findings, _study("cube", 10.0), 30)
    assert str(judge_constants(findings)).startswith("contradicted")


def test_the_page_says_that_the_papers_table_contradicts_its_sentence(findings: Findings):
    """+2, +2 and +6 with w 10, whether ours has been run or not."""
    claim = WEIGHTING.claims[0]
    assert all(PUBLISHED[task][WEIGHTS.index(10.0)] > 0 for task in TASKS)
    assert "w 10 improves Cube, Push-T and Reacher by +2, +2 and +6 points" in claim.paper
    for options in (findings.options, Options(findings.options.results / "new")):
        assert claim.paper in write(Findings(WEIGHTING, options))


def test_the_best_constant_differs_if_that_of_another_task_is_certainly_worse(findings: Findings):
    found = judge_best_differs(findings)
    assert found is not None
    assert found.kind == "not confirmed"
    add(findings, _study("cube", 5.0), 40)
    assert str(judge_best_differs(findings)).startswith("confirmed")
    assert judge_best_differs(Findings(WEIGHTING, Options(findings.options.results / "new"))) is None


def test_the_adaptive_weight_is_compared_with_each_constant(findings: Findings):
    assert str(judge_adaptive(findings)).startswith("confirmed")
    for task in TASKS:
        add(findings, _study(task, 3.0), 40)
    found = judge_adaptive(findings)
    assert found is not None
    assert found.kind == "contradicted"
    assert "over w 3 is worse than a constant for certain." in found.reason
    assert "over w 3 -25.0 [" in found.numbers
    assert judge_adaptive(Findings(WEIGHTING, Options(findings.options.results / "new"))) is None


def test_a_constant_weight_is_what_the_search_uses(tmp_path: Path):
    study = _study("reacher", 3.0)
    bench = Bench(Cell("reacher", "lewm"), study.spec(), study.protocol(1))
    term = bench.cost(condition("constant"), 3.0).terms[1]
    assert term.weight == Constant(3.0)
    assert bench.cost(condition("acid"), 3.0).terms[1].weight == Adaptive(3.0)


def test_charts_have_a_panel_per_task(findings: Findings):
    (chart,) = charts(findings)
    assert [panel.title for panel in chart.panels] == ["Cube", "Reacher", "Push-T"]
    assert [p.y for p in chart.panels[1].series[0].points] == [25.0] * 5
