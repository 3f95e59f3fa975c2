"""The episode with the median gain, and its film as a picture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from acid.evaluation import Local
from acid.report.reel import Curve, Reel, Track
from acid.tables import Column, Findings, Options, Study, Table, reproduce, sheets
from acid.tables.sheets import draw_film, instance_of, median_gain, replayed
from acid.views.episodes import replay

STUDY = Study("reacher", "lewm", ("original", "acid"), {"samples": 6, "iterations": 2, "elites": 2}, budget=25)
TABLE = Table("tiny", "Tiny", (STUDY,), 3, (Column("n", lambda line: str(line.n)),), 0, (), ("final_error",))


@pytest.fixture
def findings(tmp_path: Path) -> Findings:
    made = Findings(TABLE, Options(tmp_path))
    reproduce(made, Local(), lambda done, total: None)
    return made


def test_the_median_gain_is_found_and_played_again_as_it_was_scored(findings: Findings):
    rows = median_gain(findings, STUDY)
    errors = [{row.instance: row.final_error for row in findings.rows(STUDY, name)} for name in STUDY.conditions]
    gains = sorted(errors[0], key=lambda instance: (errors[1][instance] - errors[0][instance], instance))
    assert {row.instance for row in rows.values()} == {gains[1]}
    episode = replay(findings.bench(STUDY), "acid", 0.2, instance_of(findings, STUDY, rows["acid"]))
    assert replayed(episode, rows["acid"]) == ""
    other = replace(rows["acid"], final_error=rows["acid"].final_error + 1)
    assert replayed(episode, other).startswith(" (ACID when played again: ")
    assert replayed(episode, other).endswith(f" rad instead of {other.final_error:.2f} rad)")


def test_a_film_is_drawn_after_every_model_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    frames = np.arange(6 * 8 * 8 * 3, dtype=np.uint8).reshape(6, 8, 8, 3)
    notes = [f"{k} m from the goal" for k in range(6)]
    reel = Reel("A film", "The rule. " * 20, [
        Track("ACID", "imagined", "#0072b2", frames[:4], [0, 1, 1, 2, 2, 3], ["seen"] + ["residual 1"] * 5),
        Track("ACID", "executed", "#0072b2", frames, range(6), notes),
        Track("goal", "", "#222222", frames[5:], [0] * 6),
    ], [Curve("ACID", "#0072b2", [1.0])], "residual", ticks_per_step=2)  # fmt: skip
    drawn = []
    real = sheets.sheet
    monkeypatch.setattr(
        sheets, "sheet", lambda path, rows, **options: (drawn.append((rows, options)), real(path, rows, **options))
    )
    assert np.asarray(Image.open(draw_film(reel, tmp_path / "film.png"))).std() > 0
    (((imagined, executed), options),) = drawn
    assert (imagined.kind, executed.kind) == ("imagined", "executed")
    assert np.array_equal(imagined.frames, frames[[1, 2, 3]])
    assert np.array_equal(executed.frames, frames[[2, 4, 5]])  # the last step ended early
    assert executed.notes == ["2 m", "4 m", "5 m"]
    assert np.array_equal(options["goal"], frames[5])
    assert np.array_equal(options["start"], frames[0])
    assert options["heading"].startswith("A film\nThe rule.")
    assert len(options["heading"].splitlines()) > 2
