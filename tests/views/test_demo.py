"""`acid demo`: a table, plots, pictures and films of the same problems under two planners."""

from __future__ import annotations

from pathlib import Path

import imageio.v2 as imageio
import numpy as np
import pytest
from fake_rows import row
from PIL import Image

from acid.errors import AcidError
from acid.evaluation import Cell, read_rows
from acid.tasks.navigation import Navigation
from acid.views import demo


def looked_at(text: str) -> list[Path]:
    """The files that a reader is told to look at."""
    paths = [Path(line.strip()) for line in text.split("come first):\n")[1].splitlines()]
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
    assert told[-1] == (6, 6)  # three conditions on two problems
    for shown in ("| original ", "| acid ", "| noop ", "2 held-out problems", "cem-n6-j2-k2, λ = 0.2"):
        assert shown in text
    paths = looked_at(text)
    assert [path.name for path in paths] == [
        "problem-0.png",
        "problem-0.mp4",
        "problem-1.png",
        "problem-1.mp4",
        "success.png",
        "consistency.png",
        "spreads.png",
    ]
    rows = read_rows(sorted(tmp_path.glob("rows/*/*/*/*.jsonl")))
    assert sorted(row.condition for row in rows) == ["acid", "acid", "noop", "noop", "original", "original"]
    assert not (tmp_path / "films").exists()
    longest = max(row.steps for row in rows if row.instance == rows[0].instance and row.condition != "noop")
    assert len(imageio.mimread(paths[1])) in {longest + 1, 51}


def test_navigation_is_drawn_by_its_error(navigation_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from dataclasses import replace

    monkeypatch.setattr(Navigation, "setup", replace(Navigation.setup, samples=6, elites=2))
    text = demo.run(Cell("navigation", "nwm", navigation_folder), 2, tmp_path, processes=1)
    names = [path.name for path in looked_at(text)]
    assert "error.png" in names
    assert "success.png" not in names
    assert {"problem-0.png", "problem-1.mp4", "consistency.png", "spreads.png"} <= set(names)
    assert "ate_waypoints" in text


def test_the_number_of_problems_must_make_sense(tmp_path: Path):
    with pytest.raises(AcidError, match="episodes must be at least 1, got 0"):
        demo.run(Cell("reacher", "lewm"), 0, tmp_path)


def test_problems_on_which_the_two_differ_come_first():
    original = [row(k, success=k in (1, 2), final_error=1.0) for k in range(5)]
    acid = [row(k, success=k in (2, 3), final_error=0.5 if k == 4 else 1.0) for k in range(5)]
    # only ACID solves 3, only Original solves 1; of the others 4 gains the most
    assert demo._telling(original, acid, 4) == ["i3", "i1", "i4", "i0"]
