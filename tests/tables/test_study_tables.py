"""Sentences of the paper as studies: what they compare, and when they are confirmed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from table_rows import cells, write_rows

from acid.tables import Findings, Options, write
from acid.tables.navigation import NAVIGATION
from acid.tables.outlook import outlook
from acid.tables.studies import (
    EULER,
    EULER_TABLE,
    LIMITS,
    ONE_LAMBDA,
    SWAP,
    TRANSFER,
    judge_one_step,
    judge_transfer,
    judge_weakens,
)

N = 40


def add(findings: Findings, study, name: str, wins: int) -> None:
    write_rows(findings, study, name, [{"success": k < wins} for k in range(N)])


def test_one_step_suffices_unless_another_way_is_better(tmp_path: Path):
    findings = Findings(EULER_TABLE, Options(tmp_path))
    assert judge_one_step(findings) is None
    for study in findings.studies:
        for name in study.conditions:
            add(findings, study, name, 30)
    assert str(judge_one_step(findings)).startswith("confirmed")
    add(findings, findings.studies[0], EULER[2], 40)
    found = judge_one_step(findings)
    assert found is not None
    assert found.kind == "contradicted"
    assert found.reason == "10-steps, Le-WM Reacher: better than one step for certain."
    assert "10-steps, Le-WM Reacher +25.0 [" in found.numbers


def test_disturbed_conditions_are_compared_with_a_disturbed_baseline(tmp_path: Path):
    findings = Findings(LIMITS, Options(tmp_path))
    masked = findings.studies[0]
    add(findings, masked, "original-masked", 10)
    add(findings, masked, "acid-masked", 30)
    rows = {row[2]: row for row in cells(write(findings))}
    assert rows["original-masked"][6] == "-"
    assert rows["acid-masked"][6].startswith("+50.0%")
    assert [claim.judge(findings) for claim in LIMITS.claims] == [None] * 3  # other cells are missing


def test_a_borrowed_verifier_has_to_gain_over_original(tmp_path: Path):
    findings = Findings(SWAP, Options(tmp_path))
    assert {study.task for study in findings.studies} == {"cube", "pusht"}  # on Reacher no other verifier fits
    assert SWAP.claims[0].judge(findings) is None
    for study in findings.studies:
        for name, wins in (("original", 20), ("acid", 30), ("acid-swapped", 2)):
            add(findings, study, name, wins)
    assert str(SWAP.claims[0].judge(findings)).startswith("contradicted")
    assert str(SWAP.claims[1].judge(findings)).startswith("confirmed")
    assert "less the cell's own, 6 cells, 80 problems: -70.0%" in write(findings)


@pytest.fixture
def tried(tmp_path: Path) -> Findings:
    """λ 1 has the lowest product of both tasks' errors, although each task has a better one of its own."""
    findings = Findings(ONE_LAMBDA, Options(tmp_path))
    errors = {"rope": {0.3: 1.0, 1.0: 0.5, 3.0: 0.4}, "granular": {0.3: 0.4, 1.0: 0.5, 3.0: 1.0}}
    for study in findings.studies:
        for lam, error in errors[study.task].items():
            episodes = [
                {"final_error": error, "metric": "chamfer", "instance": f"s{k}"} for k in range(TRANSFER.episodes)
            ]
            write_rows(findings, study, "acid", episodes, lam=lam, split="select")
    return findings


def test_a_disturbance_weakens_acid_if_its_gain_is_smaller_than_without(tmp_path: Path):
    """ACID gains 20 of 40 undisturbed, and 4 under every disturbance."""
    findings = Findings(LIMITS, Options(tmp_path))
    assert judge_weakens(findings) is None
    for study in findings.studies:
        for name, wins in zip(study.conditions, (10, 14), strict=True):
            add(findings, study, name, wins)
        plain = replace(study, conditions=("original", "acid"), baseline="original")
        for name, wins in zip(plain.conditions, (10, 30), strict=True):
            add(findings, plain, name, wins)
    found = judge_weakens(findings)
    assert found is not None
    assert found.kind == "confirmed"
    assert "Le-WM Reacher masked -40.0 [" in found.numbers
    add(findings, findings.studies[0], "acid-masked", 30)
    assert str(judge_weakens(findings)).startswith("not confirmed")


def test_one_lambda_serves_both_tasks(tried: Findings):
    assert [tried.lam(study, "acid") for study in tried.studies] == [1.0, 1.0]
    assert tried.missing_lambdas() == []
    for study in tried.studies:
        for name, error in (("original", 1.0), ("acid", 0.6)):
            episodes = [{"metrics": {"chamfer": error}, "metric": "chamfer", "final_error": error}] * N
            numbered = [{**episode, "instance": f"i{k}"} for k, episode in enumerate(episodes)]
            write_rows(tried, study, name, numbered)
    assert str(judge_transfer(tried)).startswith("confirmed")


def test_one_lambda_waits_for_enough_episodes_and_is_counted_as_work(tmp_path: Path):
    findings = Findings(ONE_LAMBDA, Options(tmp_path))
    assert findings.missing_lambdas() == ["acid of dinowm on rope", "acid of dinowm on granular"]
    left = outlook(findings)
    assert left.episodes == 2 * 3 * TRANSFER.episodes == 240
    assert left.cpu_seconds is None  # no row tells how long it takes
    assert str(left) == "240 episodes, time unknown"


def test_the_outlook_counts_what_is_missing_and_knows_the_time(tmp_path: Path):
    findings = Findings(SWAP, Options(tmp_path, episodes=4))
    before = outlook(findings)
    first = findings.studies[0]
    rows = [{"success": True, "plan_cpu_seconds": 9.0}] * 4
    write_rows(findings, first, "original", rows)
    after = outlook(findings)
    assert before.episodes - after.episodes == 4
    assert after.cpu_seconds is None  # of the other cells
    only = outlook(Findings(SWAP, Options(tmp_path, tasks=("cube",), models=("lewm",), episodes=4)))
    assert only.cpu_seconds == pytest.approx(only.episodes * 9.5)


def test_conditions_that_rank_the_same_candidates_are_counted_as_one_search(tmp_path: Path):
    """NWM's rollouts are imagined once for all conditions of a family, so its many rows cost few searches."""
    line = [study for study in NAVIGATION.studies if study.spec().candidates == "line"]
    findings = Findings(replace(NAVIGATION, studies=tuple(line)), Options(tmp_path, episodes=4))
    first = outlook(findings)
    assert first.searches == 4
    assert first.episodes == 4 * len(line[0].conditions)
    write_rows(findings, line[0], "original", [{"plan_cpu_seconds": 9.0}] * 3)
    left = outlook(findings)
    assert (left.episodes, left.searches) == (first.episodes - 3, 4)  # the others still need all four
    assert left.cpu_seconds == pytest.approx(left.episodes * 0.5 + 4 * 9.0)
    assert str(left) == f"{left.episodes} episodes of 4 searches, about 0.0 CPU hours"
