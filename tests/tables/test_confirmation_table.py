"""Findings tried once more: their rows are of problems of their own, each cell and all together."""

from __future__ import annotations

from pathlib import Path

import pytest
from table_rows import cells, write_rows

from acid.evaluation import Cell, Protocol
from acid.tables import Findings, Options, write
from acid.tables.confirmation import CELLS, CONFIRMATION, NAMES, gain, over_all

N = 40
WINS = {"original": 10, "acid": 10, "told": 30, "policy": 20, "proposal": 36, "proposal-acid": 36}


@pytest.fixture
def findings(tmp_path: Path) -> Findings:
    return Findings(CONFIRMATION, Options(tmp_path))


def fill(findings: Findings) -> None:
    """So many successes of N under each condition; a λ that was not chosen yet is."""
    for study in findings.studies:
        if "told" not in findings.cell(study).lambdas:
            findings.cell(study).choose_lambdas({"told": 0.2}, "a test")
        for name in study.conditions:
            write_rows(findings, study, name, [{"success": k < WINS[name]} for k in range(N)], split="confirm")


def test_every_finding_is_judged_in_each_cell_and_over_all(findings: Findings) -> None:
    few, search, acid, told = (claim.judge for claim in CONFIRMATION.claims)
    assert few(findings) is search(findings) is acid(findings) is told(findings) is None
    fill(findings)
    assert str(few(findings)).startswith("confirmed")
    assert str(search(findings)).startswith("confirmed")
    assert "not confirmed" in str(acid(findings))
    assert str(told(findings)).startswith("confirmed")
    pooled = over_all(findings, NAMES[0])
    assert pooled is not None
    assert (pooled.n, pooled.difference) == (N * 3, 0)  # a problem counts once, although two models were tested on it
    text = write(findings)
    assert {row[0] for row in cells(text)} >= set(NAMES)
    (forest,) = CONFIRMATION.show(findings)
    assert [bar.label for bar in forest.bars] == list(NAMES)


def test_a_cell_that_is_missing_leaves_no_verdict_over_all(findings: Findings, tmp_path: Path) -> None:
    fill(findings)
    one = Findings(CONFIRMATION, Options(tmp_path, tasks=("cube",)))
    assert gain(one, CELLS[0], NAMES[0]) is not None
    assert gain(one, ("reacher", "lewm"), NAMES[0]) is None
    assert over_all(one, NAMES[0]) is None


@pytest.mark.parametrize(("task", "model"), CELLS)
def test_new_problems_are_shipped_and_are_no_others(task: str, model: str) -> None:
    cell = Cell(task, model)
    found = {split: cell.instances(Protocol(episodes=100, split=split)) for split in ("confirm", "test", "select")}
    assert len(found["confirm"]) == 100
    starts = [{i.start_state.tobytes() for i in some} for some in found.values()]
    assert not starts[0] & (starts[1] | starts[2])
