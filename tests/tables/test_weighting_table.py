"""Table 4 from rows on disk: constant weights beside the adaptive one."""

from __future__ import annotations

from pathlib import Path

import pytest
from table_rows import cells, write_rows

from acid.evaluation import Bench, Cell, condition
from acid.planning import Adaptive, Constant
from acid.tables import Findings, Options, Study, write
from acid.tables.weighting import TASKS, WEIGHTING, WEIGHTS, _study, charts, judge_adaptive, judge_constants

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
    assert "The paper's own w 10 improves all three" in found.reason
    add(findings, _study("cube", 10.0), 12)
    assert str(judge_constants(findings)).startswith("not confirmed at this scale; here w 10 improves all three")
    add(findings, _study("cube", 10.0), 30)
    assert str(judge_constants(findings)).startswith("contradicted")


def test_the_adaptive_weight_is_compared_with_each_constant(findings: Findings):
    assert str(judge_adaptive(findings)).startswith("confirmed")
    for task in TASKS:
        add(findings, _study(task, 3.0), 40)
    found = judge_adaptive(findings)
    assert found is not None
    assert found.kind == "contradicted"
    assert "over w 3 -25.0%" in found.reason
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
