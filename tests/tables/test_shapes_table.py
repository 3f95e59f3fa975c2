"""Two world models of one task in one table: each line is compared with Original of the usual one."""

from __future__ import annotations

from pathlib import Path

from table_rows import cells, write_rows

from acid.tables import Findings, Options, write
from acid.tables.shapes import SHAPES, SHAPES_TABLE, USUAL, judge_acid, judge_model

N = 40


def fill(findings: Findings, wins: dict[str, int]) -> None:
    for study in findings.studies:
        for name in study.conditions:
            write_rows(findings, study, name, [{"success": k < wins[study.model]} for k in range(N)])


def test_all_ways_of_planning_are_compared_between_the_models(tmp_path: Path) -> None:
    findings = Findings(SHAPES_TABLE, Options(tmp_path))
    assert judge_model(findings) is None
    fill(findings, {USUAL: 10, SHAPES: 30})
    assert str(judge_model(findings)).startswith("confirmed")
    assert "not confirmed" in str(judge_acid(findings))
    rows = {(row[0], row[1], row[2]): row for row in cells(write(findings))}
    assert rows[USUAL, "original", "5"][7] == "-"
    assert rows[SHAPES, "original", "5"][7].startswith("+50.0%")
    assert rows[SHAPES, "proposal", "1"][7].startswith("+50.0%")
    assert rows[USUAL, "proposal", "1"][7].startswith("+0.0%")


def test_nothing_is_judged_without_the_other_model(tmp_path: Path) -> None:
    model = tmp_path / "cells" / "pusht" / USUAL / "model"
    model.mkdir(parents=True)
    findings = Findings(SHAPES_TABLE, Options(tmp_path, folder=tmp_path / "cells"))
    assert judge_model(findings) is None
    assert judge_acid(findings) is None
