"""Films of the scored episode, and the two figures that need no rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from acid.evaluation import Cell, Local
from acid.report.reel import Reel
from acid.tables import Findings, Options, Study, reproduce, write
from acid.tables.env import ENV
from acid.tables.idm import IDM, mask
from acid.tables.imagination import COMPARED, IMAGINATION, file_of, show

SMALL = {"samples": 6, "iterations": 2, "elites": 2}


def quiet(done: int, total: int) -> None:
    pass


@pytest.mark.slow
def test_the_episode_of_the_median_gain_is_filmed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    there = Cell.has
    monkeypatch.setattr(Cell, "has", lambda cell, part: (cell.model, part) != ("pldm", "decoder") and there(cell, part))
    studies = tuple(Study("reacher", model, COMPARED, SMALL, budget=25) for model in ("lewm", "pldm"))
    findings = Findings(replace(IMAGINATION, studies=studies), Options(tmp_path, episodes=1))
    told: list[str] = []
    reproduce(findings, Local(), quiet, say=told.append)
    (missing,) = told
    assert missing.startswith("only what happened is shown: reacher with pldm has no decoder")
    assert "acid train decoder pldm --task reacher" in missing
    lewm, more = Reel.load(file_of(findings, studies[0]))
    row = findings.rows(studies[0], "acid")[0]
    assert more["instance"] == row.instance
    assert [(track.label, track.kind) for track in lewm.tracks] == [
        ("Original", "imagined"),
        ("Original", "executed"),
        ("ACID", "imagined"),
        ("ACID", "executed"),
        ("goal", ""),
    ]
    executed = lewm.tracks[3]
    assert len(executed.frames) == row.steps + 1
    assert executed.notes[-1] == f"{row.final_error:.2f} rad from the goal"
    assert lewm.ticks_per_step == 5
    assert [track.kind for track in Reel.load(file_of(findings, studies[1]))[0].tracks] == ["executed", "executed", ""]
    before = file_of(findings, studies[0]).stat().st_mtime_ns
    reproduce(findings, Local(), quiet)
    assert file_of(findings, studies[0]).stat().st_mtime_ns == before
    assert [reel.title for reel in show(findings)] == ["Reacher, Le-WM", "Reacher, PLDM"]
    lewm.save(file_of(findings, studies[0]), **{**more, "lambda": 9.0})
    assert [reel.title for reel in show(findings)] == ["Reacher, PLDM"]  # a film of another λ is not shown


def test_the_mask_is_the_papers():
    """The prefix attends only to itself, the suffix to everything."""
    assert mask() == [[True, True, False], [True, True, False], [True, True, True]]


def test_the_verifier_is_told_and_shown(tmp_path: Path):
    findings = Findings(IDM, Options(tmp_path))
    assert "| noisy action | yes | yes   | yes          |" in write(findings)
    (shown,) = IDM.show(findings)
    assert "4 layers, 3 heads and width 192" in " ".join(shown.steps)  # type: ignore[union-attr]


@pytest.mark.slow
def test_the_six_tasks_are_drawn_once(tmp_path: Path):
    findings = Findings(ENV, Options(tmp_path))
    assert ENV.show(findings) == []
    reproduce(findings, Local(), quiet)
    (picture,) = ENV.show(findings)
    assert len(picture.frames) == 6  # type: ignore[union-attr]
    assert all(np.std(frame) > 1 for frame in picture.frames)  # type: ignore[union-attr]
    paths = sorted((tmp_path / "env").iterdir())
    before = [path.stat().st_mtime_ns for path in paths]
    reproduce(findings, Local(), quiet)
    assert [path.stat().st_mtime_ns for path in paths] == before
    assert ENV.draw(findings, tmp_path / "figures") == [tmp_path / "figures" / "env.png"]
