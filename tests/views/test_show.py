"""`acid plan`: one plan as text and as a picture."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from acid.errors import AcidError, DataError
from acid.evaluation import Cell, SearchSpec
from acid.evaluation.cells import ASSETS
from acid.views.show import show_plan

SPEC = SearchSpec("cem", 6, 2, 2, horizon=3)
REACHER = Cell("reacher", "lewm")


def test_a_plan_is_told_step_by_step():
    heading, titles, *steps, end = show_plan(REACHER, 0, SPEC, lam=0.5).splitlines()
    assert heading.startswith("reacher with lewm, problem 0 (e")
    assert heading.endswith("): ACID, λ 0.5")
    assert titles == "step  residual  error after it (in rad)"
    assert [line.split()[0] for line in steps] == ["1", "2", "3"]
    assert all(float(value) >= 0 for line in steps for value in line.split()[1:])
    assert "goal not reached within this plan" in end or "goal reached within this plan" in end


def without_time(text: str) -> str:
    return text.rsplit("(", 1)[0]


def test_the_seed_and_the_problem_decide_and_nothing_else():
    first = without_time(show_plan(REACHER, 1, SPEC, lam=0.5))
    assert without_time(show_plan(REACHER, 1, SPEC, lam=0.5)) == first
    assert without_time(show_plan(REACHER, 1, SPEC, lam=0.5, seed=1)).splitlines()[2:] != first.splitlines()[2:]


def test_the_weight_is_the_chosen_one_and_zero_is_the_goal_cost_alone():
    assert show_plan(REACHER, 0, SPEC).splitlines()[0].endswith("ACID, λ 0.2")
    assert show_plan(REACHER, 0, SPEC, lam=0).splitlines()[0].endswith("): Original")
    with pytest.raises(AcidError, match="must be a finite number that is not negative, got -1"):
        show_plan(REACHER, 0, SPEC, lam=-1)


def test_problems_that_are_not_there_are_refused():
    with pytest.raises(AcidError, match="problems are counted from 0, got -1"):
        show_plan(REACHER, -1, SPEC)
    with pytest.raises(DataError, match="holds fewer than the 100000 instances asked for"):
        show_plan(REACHER, 99_999, SPEC)


def test_a_picture_shows_what_was_imagined_where_that_can_be_drawn(tmp_path: Path):
    folder = shutil.copytree(ASSETS / "reacher" / "lewm", tmp_path / "cell", ignore=shutil.ignore_patterns("decoder"))
    heights = []
    for cell, hint in ((REACHER, ""), (Cell("reacher", "lewm", folder), " (no decoder, so only what was executed)")):
        out = tmp_path / "new" / "plan.png"
        assert show_plan(cell, 0, SPEC, lam=0.5, out=out).endswith(f"wrote {out}{hint}")
        heights.append(np.asarray(Image.open(out)).shape[0])
    assert heights[0] > heights[1]  # two rows, and one


def test_paths_are_shown_like_everything_else(navigation_folder: Path, tmp_path: Path):
    cell = Cell("navigation", "nwm", navigation_folder)
    text = show_plan(cell, 0, SearchSpec("cem", 6, 1, 2, 8, "arc", 2), out=tmp_path / "plan.png")
    assert text.startswith("navigation with nwm, problem 0 (")
    assert "ACID, λ 0.5" in text
    assert [line.split()[0] for line in text.splitlines()[2:10]] == [str(step) for step in range(1, 9)]
    assert (tmp_path / "plan.png").stat().st_size > 1000
    with pytest.raises(AcidError, match="plans of 4 steps cannot be compared with the paths of navigation"):
        show_plan(cell, 0, SearchSpec("cem", 6, 1, 2, 4, "arc", 2))
