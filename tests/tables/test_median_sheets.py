"""The episode with the median gain is played again as it was scored, and drawn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from table_rows import file_of

from acid.evaluation import Local, RowFile
from acid.evaluation.rows import SAME_IN_A_FILE
from acid.tables import Column, Findings, Options, Study, Table, reproduce
from acid.tables.sheets import draw_median_gain

STUDY = Study("reacher", "lewm", ("original", "acid"), {"samples": 6, "iterations": 2, "elites": 2}, budget=25)
TABLE = Table("tiny", "Tiny", (STUDY,), 3, (Column("n", lambda line: str(line.n)),), 0, (), ("final_error",))


@pytest.fixture
def findings(tmp_path: Path) -> Findings:
    made = Findings(TABLE, Options(tmp_path))
    reproduce(made, Local(), lambda done, total: None)
    return made


def test_the_median_gain_is_drawn(findings: Findings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from acid.tables import sheets

    played = []
    replay = sheets.replay
    monkeypatch.setattr(sheets, "replay", lambda *a: (played.append(a[1:]), replay(*a))[1])
    path = draw_median_gain(findings, STUDY, tmp_path / "figures", "median")
    assert np.asarray(Image.open(path)).std() > 0
    errors = [{row.instance: row.final_error for row in findings.rows(STUDY, name)} for name in STUDY.conditions]
    gains = sorted(errors[0], key=lambda instance: (errors[1][instance] - errors[0][instance], instance))
    assert [(name, lam, instance.id) for name, lam, instance in played] == [
        ("original", None, gains[1]),
        ("acid", 0.2, gains[1]),
    ]


def test_a_sheet_says_when_an_episode_ended_otherwise_than_it_was_scored(
    findings: Findings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from acid.tables import sheets

    rows = findings.rows(STUDY, "acid")
    path = file_of(findings, STUDY, "acid", 0.2)
    with RowFile(path, {name: getattr(rows[0], name) for name in SAME_IN_A_FILE}, fresh=True) as file:
        file.append([replace(row, final_error=row.final_error + 1) for row in rows])
    headings = []
    monkeypatch.setattr(sheets, "sheet", lambda *a, **options: headings.append(options["heading"]))
    draw_median_gain(findings, STUDY, tmp_path / "figures", "median")
    assert "acid scored" in headings[0]
    assert "when played again" in headings[0]
    assert "original scored" not in headings[0]
