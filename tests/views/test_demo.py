"""`acid demo`: a table, a picture and a film of the clearest of the problems that two planners solved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import imageio.v2 as imageio
import numpy as np
import pytest
from fake_rows import row
from PIL import Image

from acid.errors import AcidError
from acid.evaluation import Cell, read_rows
from acid.tasks.navigation import Navigation
from acid.tasks.reacher import Reacher
from acid.views import demo


def looked_at(text: str) -> list[Path]:
    """The files that a reader is told to look at."""
    paths = [Path(line.strip()) for line in text.split("Look at:\n")[1].splitlines()]
    for path in paths:
        if path.suffix == ".png":
            assert np.asarray(Image.open(path)).std() > 0
    return paths


def test_reacher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(demo, "SMALL", {"samples": 6, "iterations": 2, "elites": 2})
    told: list[tuple[int, int]] = []
    text = demo.run(
        Cell("reacher", "lewm"), 2, tmp_path, processes=1, progress=lambda done, total: told.append((done, total))
    )
    assert told[-1] == (8, 8)  # four conditions on two problems
    names = ("| original ", "| acid ", "| proposal-acid ", "| noop ")
    for shown in (*names, "Held-out problems: 2,", "λ = 0.2", "acid: cem-n6-j2-k2; proposal-acid: cem-n30-j5-k5-x1s"):
        assert shown in text
    assert [path.name for path in looked_at(text)] == ["demo.png", "demo.gif", "demo.mp4", "success.png"]
    rows = read_rows(sorted(tmp_path.glob("rows/*/*/*/*.jsonl")))
    assert sorted({row.condition for row in rows}) == ["acid", "noop", "original", "proposal-acid"]
    assert any(f"Shown is problem {row.instance}: " in text for row in rows)
    assert not (tmp_path / "films").exists()
    film = imageio.get_reader(tmp_path / "demo.mp4").get_meta_data()
    assert film["duration"] >= 6  # long enough to be looked at
    with Image.open(tmp_path / "demo.gif") as looped:
        assert looped.info["loop"] == 0  # without end


def test_navigation_is_drawn_by_its_error(navigation_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Navigation, "setup", replace(Navigation.setup, samples=6, elites=2))
    text = demo.run(Cell("navigation", "nwm", navigation_folder), 2, tmp_path, processes=1)
    assert [path.name for path in looked_at(text)] == ["demo.png", "demo.gif", "demo.mp4", "error.png"]
    assert "ate_waypoints" in text


def test_the_number_of_problems_must_make_sense(tmp_path: Path):
    with pytest.raises(AcidError, match="episodes must be at least 1, got 0"):
        demo.run(Cell("reacher", "lewm"), 0, tmp_path)


def test_the_clearest_problem_is_shown_and_the_rule_is_told():
    original = [row(k, success=k == 2, final_error=1.0) for k in range(5)]
    acid = [row(k, success=k in (0, 3), final_error=(0.5, 0.1, 1.0, 0.2, 0.05)[k]) for k in range(5)]
    instance, rule = demo.clearest("ACID", original, acid)
    assert instance == "i3"  # reached by ACID alone, with the smaller error
    assert rule.startswith("of the 2 that only ACID reached (1 only Original), it has the smallest")
    assert demo.clearest("ACID", original, original)[1].startswith("of all, because ACID reached none")
    judged = [[replace(row, metric="chamfer") for row in rows] for rows in (original, acid)]
    instance, rule = demo.clearest("ACID", *judged)
    assert instance == "i4"  # success does not count there
    assert rule.startswith("of all 5 (ACID ends nearer to the goal on 4)")


def test_a_verdict_names_threshold_and_step():
    reached = demo.judge(row(0, success=True, steps=27, final_error=0.04), Reacher)  # type: ignore[arg-type]
    assert (reached.word, reached.good) == ("REACHED", True)
    assert reached.details == ["at step 27: 0.04 rad", "must be below 0.05"]
    missed = demo.judge(row(0, success=False, steps=50, best_error=0.31), Reacher)  # type: ignore[arg-type]
    assert (missed.word, missed.good) == ("MISSED", False)
    assert missed.details == ["nearest in 50 steps: 0.31 rad", "must be below 0.05"]
    far = demo.judge(row(0, initial_error=2.0, final_error=1.5), Navigation)  # type: ignore[arg-type]
    assert (far.word, far.good) == ("1.50 m OFF", False)


def test_the_goal_shines_through():
    frames, goal = np.zeros((2, 4, 4, 3), np.uint8), np.full((4, 4, 3), 200, np.uint8)
    assert (demo.ghost(frames, goal) == 70).all()
