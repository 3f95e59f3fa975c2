"""Table 1 from rows on disk: the right numbers in the right cells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from table_rows import cells, file_of, write_rows

from acid.tables import Findings, Options, write
from acid.tables.planning import PLANNING, PUBLISHED, judge_all_tasks, judge_everywhere, pooled_gain


def add(findings: Findings, task: str, model: str, name: str, wins: int, *, solved: int = 0, **options: Any) -> None:
    """Ten unsolved episodes of which `wins` succeed, after some that were solved at the start and succeed."""
    study = next(s for s in PLANNING.studies if (s.task, s.model) == (task, model))
    outcomes = [(True, True)] * solved + [(False, k < wins) for k in range(10)]
    episodes = [{"instance": f"{task}{k}", "solved_at_start": s, "success": won} for k, (s, won) in enumerate(outcomes)]
    write_rows(findings, study, name, episodes, **options)


@pytest.fixture
def findings(tmp_path: Path) -> Findings:
    made = Findings(PLANNING, Options(tmp_path, tasks=("cube", "reacher"), models=("lewm",)))
    for task, original, acid in (("cube", 2, 5), ("reacher", 4, 6)):
        add(made, task, "lewm", "original", original, solved=3)
        add(made, task, "lewm", "acid", acid, solved=3)
        add(made, task, "lewm", "acid", 10, lam=0.02, solved=3)  # better, but not the λ that was chosen
        add(made, task, "lewm", "control", original, solved=3)
    return made


def tables(findings: Findings) -> tuple[list[list[str]], dict[tuple[str, str], list[str]]]:
    """The overview, and the table with a line per condition by task and condition."""
    rows = cells(write(findings))
    overview = [row for row in rows if len(row) == 10]
    return overview, {(row[1], row[2]): row for row in rows if len(row) == 9}


def test_cells_show_the_chosen_lambda_both_protocols_and_the_published_number(findings: Findings):
    _, found = tables(findings)
    assert len(found) == 6
    assert found["cube", "original"][4].startswith("20.0% [")
    assert found["cube", "acid"][4].startswith("50.0% [")
    assert found["cube", "acid"][5].startswith("+30.0% [")
    assert found["cube", "original"][7:] == ["50.0%", "70.0%"]  # 3 solved and 2 of 7 among the first ten draws
    assert found["reacher", "acid"][8] == "88.0%"
    assert found["reacher", "control"][8] == "-"


def test_differences_can_be_over_the_episodes_of_several_tasks(findings: Findings):
    def difference(name: str, other: str, *tasks: str) -> float:
        found = pooled_gain(findings, "lewm", name, other, tasks)
        assert found is not None
        assert found.n == 10 * len(tasks)
        return found.difference

    assert difference("acid", "original", "cube", "reacher") == pytest.approx(5 / 20)
    assert difference("control", "original", "cube") == 0
    assert difference("acid", "control", "cube") == pytest.approx(3 / 10)


def test_the_overview_has_a_line_per_cell_and_one_for_all(findings: Findings):
    overview, _ = tables(findings)
    assert [row[:5] for row in overview] == [
        ["lewm", "cube", "10", "20.0%", "50.0%"],
        ["lewm", "reacher", "10", "40.0%", "60.0%"],
        ["lewm", "all", "20", "30.0%", "55.0%"],
    ]
    assert [row[5].split()[0] for row in overview] == ["+30.0%", "+20.0%", "+25.0%"]
    assert [row[7].split()[0] for row in overview] == ["+0.0%"] * 3
    assert [row[8].split()[0] for row in overview] == ["+30.0%", "+20.0%", "+25.0%"]
    assert [row[9] for row in overview] == ["70.0% → 74.0%", "76.0% → 88.0%", "73.0% → 81.0%"]


def test_a_table_that_is_not_complete_is_shown_without_pooling(findings: Findings):
    cube, reacher = findings.studies
    file_of(findings, cube, "acid", 0.2).unlink()
    file_of(findings, reacher, "control", 0.2).unlink()
    overview, _ = tables(findings)
    assert [row[1] for row in overview] == ["reacher"]
    assert overview[0][7:9] == ["-", "-"]
    assert pooled_gain(findings, "lewm", "acid", "original", ("cube", "reacher")) is None


def test_the_numbers_behind_it_are_written_too(findings: Findings):
    text = write(findings)
    stored = json.loads(findings.file.with_suffix(".json").read_text())["lines"]
    assert {(s["task"], s["condition"]) for s in stored} == {
        (task, name) for task in ("cube", "reacher") for name in ("original", "acid", "control")
    }
    assert text.startswith("| model")
    assert "Claim" not in text  # two of six cells tell nothing about all


@pytest.mark.parametrize(("gain", "verdict"), [(8, "confirmed"), (1, "not confirmed")])
def test_the_claim_is_about_every_cell_and_every_interval(tmp_path: Path, gain: int, verdict: str):
    findings = Findings(PLANNING, Options(tmp_path))
    for model, task in PUBLISHED:
        add(findings, task, model, "original", 1)
        add(findings, task, model, "acid", 1 + (gain if task == "cube" else 8))
    found = judge_everywhere(findings)
    assert found is not None
    assert found.kind == verdict
    assert found.reason.startswith(
        "All 6 gain for certain." if gain == 8 else "4 of 6 gain for certain (Le-WM Reacher,"
    )
    assert ("too few to tell (2 of 2 means are gains)" in found.reason) == (gain == 1)
    assert judge_all_tasks(findings) is None  # Rope, Granular and navigation have not been run
    next(iter(tmp_path.rglob("acid*.jsonl"))).unlink()
    assert judge_everywhere(findings) is None
