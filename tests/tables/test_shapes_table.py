"""Two world models of one task in one table: each line is compared with Original of the usual one."""

from __future__ import annotations

from pathlib import Path

from table_rows import cells, write_rows

from acid.tables import Findings, Options, write
from acid.tables.shapes import CELLS, SHAPES_TABLE

N = 40


def fill(findings: Findings, *, usual: int, shapes: int) -> None:
    """So many successes of N in every cell."""
    for study in findings.studies:
        wins = shapes if study.model.endswith("-shapes") else usual
        for name in study.conditions:
            write_rows(findings, study, name, [{"success": k < wins} for k in range(N)])


def test_all_ways_of_planning_are_compared_between_the_models(tmp_path: Path) -> None:
    findings = Findings(SHAPES_TABLE, Options(tmp_path))
    published, proposed, acid = (claim.judge for claim in SHAPES_TABLE.claims)
    assert published(findings) is proposed(findings) is acid(findings) is None
    fill(findings, usual=10, shapes=30)
    assert str(published(findings)).startswith("confirmed")
    assert str(proposed(findings)).startswith("confirmed")
    assert "not confirmed" in str(acid(findings))
    rows = {tuple(row[:4]): row for row in cells(write(findings))}
    for task, usual in CELLS:
        assert rows[task, usual, "original", "5"][8] == "-"
        assert rows[task, f"{usual}-shapes", "original", "5"][8].startswith("+50.0%")
        assert rows[task, f"{usual}-shapes", "proposal", "1"][8].startswith("+50.0%")
        assert rows[task, usual, "proposal", "1"][8].startswith("+0.0%")


def test_nothing_is_judged_without_the_other_model(tmp_path: Path) -> None:
    task, usual = CELLS[0]
    (tmp_path / "cells" / task / usual / "model").mkdir(parents=True)
    findings = Findings(SHAPES_TABLE, Options(tmp_path, folder=tmp_path / "cells"))
    assert all(claim.judge(findings) is None for claim in SHAPES_TABLE.claims)
