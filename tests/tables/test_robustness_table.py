"""Table 3 from rows on disk: budgets, λ, and the claims about them."""

from __future__ import annotations

from pathlib import Path

import pytest
from table_rows import cells, write_rows

from acid.tables import Findings, Options, write
from acid.tables.robustness import (
    BUDGETS,
    MODELS,
    ROBUSTNESS,
    SWEPT,
    acid_at,
    charts,
    judge_band,
    judge_budgets,
    judge_few,
    original_at,
)

N = 40


def add(findings: Findings, study, wins: int) -> None:
    write_rows(findings, study, study.conditions[0], [{"success": k < wins} for k in range(N)])


@pytest.fixture
def findings(tmp_path: Path) -> Findings:
    """ACID always wins 36 of 40, Original 20; at the chosen λ of 0.2 too."""
    made = Findings(ROBUSTNESS, Options(tmp_path))
    for model in MODELS:
        for budget in BUDGETS:
            add(made, original_at(model, budget), 20)
            for lam in (0.07, None):
                add(made, acid_at(model, budget, lam), 36)
        for lam in SWEPT:
            add(made, acid_at(model, 300, lam), 36)
    return made


def test_each_budget_is_compared_with_original_of_the_same_budget(findings: Findings):
    add(findings, original_at("lewm", 50), 10)
    rows = {(row[0], row[1], row[2], row[3]): row for row in cells(write(findings))}
    assert rows["lewm", "acid", "50", "0.07"][6].startswith("+65.0%")
    assert rows["lewm", "acid", "150", "0.07"][6].startswith("+40.0%")
    assert rows["lewm", "acid", "30", "0.07"][8] == "82%"
    assert rows["lewm", "acid", "30", "0.2"][8] == "-"  # the paper did not try it
    assert rows["pldm", "acid", "300", "0.04"][8] == "92%"
    assert rows["pldm", "original", "50", "-"][8] == "66%"


def test_a_run_that_serves_two_studies_is_shown_and_run_once(findings: Findings):
    lines = [(line.study.model, line.study.spec().samples, line.lam) for line in findings.lines()]
    assert lines.count(("lewm", 300, 0.07)) == 1  # of the budgets and of the sweep
    files = [path for job in findings.jobs() for path in job.files]
    assert len(files) == len(set(files))
    assert len(files) == 2 * (3 * len(BUDGETS) + 5)  # λ 0.07 and 0.2 of the sweep are there already


def test_the_claims_are_confirmed_by_clear_gains_and_wait_for_every_run(findings: Findings):
    judges = (judge_budgets, judge_few, judge_band)
    assert [str(judge(findings)).split(" at ")[0] for judge in judges] == ["confirmed"] * 3
    empty = Findings(ROBUSTNESS, Options(findings.options.results / "new"))
    assert [judge(empty) for judge in judges] == [None] * 3


def test_a_budget_that_loses_contradicts(findings: Findings):
    add(findings, acid_at("pldm", 50, 0.07), 2)
    found = judge_budgets(findings)
    assert found is not None
    assert found.kind == "contradicted"
    assert "PLDM N 50 is worse than Original for certain." in found.reason
    assert "outside our interval for PLDM N 50 (+18)" in found.reason
    assert "PLDM N 50 -45.0 [" in found.numbers


def test_few_candidates_match_if_they_are_hardly_worse(findings: Findings):
    for model in MODELS:
        add(findings, acid_at(model, 30, 0.07), 20)
    assert str(judge_few(findings)).startswith("confirmed")
    add(findings, acid_at("lewm", 30, 0.07), 14)
    assert str(judge_few(findings)).startswith("contradicted")


def test_charts_show_ours_beside_the_papers(findings: Findings):
    budgets, sweep = charts(findings)
    lewm = {getattr(s.name, "label", s.name): s for s in budgets.panels[0].series}
    assert [p.x for p in lewm["Original"].points] == list(BUDGETS)
    assert lewm["Original"].points[0].y == 50.0
    assert [p.y for p in lewm["ACID, in the paper"].points] == [82, 76, 78, 88]
    assert sweep.panels[1].levels[0].y == 50.0
