from __future__ import annotations

import sys

import numpy as np
import pytest
from PIL import Image

from acid.errors import AcidError, ShapeError
from acid.report import (
    Look,
    Measured,
    consistency_per_step,
    error_over_steps,
    followed_steps,
    inferred_against_found,
    success_against_budget,
)
from acid.report.style import ALARM, look

HALF = Measured(0.5, 0.4, 0.6)
ORIGINAL, ACID, POLICY = Look("Original", "#6e6e6e", "s"), Look("ACID", "#0072b2"), Look("Policy", "#009e73", "D")


def check(path, size):
    image = np.asarray(Image.open(path).convert("RGB"))
    assert image.shape[:2][::-1] == size
    assert image.std() > 5  # something is drawn
    return image


def holds(image: np.ndarray, name: Look | str) -> bool:
    rgb = np.array([int(look(name).colour[i : i + 2], 16) for i in (1, 3, 5)])
    return bool((np.abs(image.astype(int) - rgb).max(-1) < 4).any())


def test_success_against_budget_shows_every_condition(tmp_path):
    path = tmp_path / "new" / "budget.png"
    planners = {ORIGINAL: {30: HALF, 300: HALF}, ACID: {30: HALF, 300: Measured(0.9, 0.8, 1.0)}, "mine": {30: HALF}}
    success_against_budget(path, planners, baselines={POLICY: Measured(0.2, 0.1, 0.3)}, title="Reacher")
    image = check(path, (1040, 600))
    assert all(holds(image, name) for name in (ORIGINAL, ACID, POLICY, "mine"))


def test_consistency_per_step_takes_a_single_plan(tmp_path):
    consistency_per_step(tmp_path / "c.png", {ORIGINAL: np.ones((1, 5)), ACID: np.ones((9, 5)) / 2})
    check(tmp_path / "c.png", (840, 600))
    with pytest.raises(ShapeError, match="values of 'ACID' must be a non-empty matrix"):
        consistency_per_step(tmp_path / "c.png", {ACID: np.ones(5)})


def test_inferred_against_found_shows_a_dot_for_each(tmp_path):
    x = np.linspace(0.1, 1, 30)
    inferred_against_found(tmp_path / "i.png", {"all": (x, x), "few": (x[:3], x[:3])}, inferred="a", found="b")
    image = check(tmp_path / "i.png", (1190, 600)).astype(int)
    coloured = np.ptp(image, axis=-1) > 60  # text and lines are grey
    many, few = coloured[:, :595].sum(), coloured[:, 595:].sum()
    assert many > 5 * few > 0
    with pytest.raises(ShapeError, match="'none'"):
        inferred_against_found(tmp_path / "i.png", {"none": (x[:0], x[:0])}, inferred="a", found="b")


def test_steps_that_are_not_followed_are_marked(tmp_path):
    alarm = np.array([int(ALARM[i : i + 2], 16) for i in (1, 3, 5)])
    true = np.full(4, 0.1)
    for name, imagined in {"fine": true * 2, "lost": np.array([0.1, 0.2, 3.0, 4.0])}.items():
        path = tmp_path / f"{name}.png"
        followed_steps(path, {"case 1": (true, imagined)}, threshold=0.5)
        image = np.asarray(Image.open(path).convert("RGB"))
        assert (image == alarm).all(-1).any() == (name == "lost")
    with pytest.raises(ValueError, match="same shape"):
        followed_steps(tmp_path / "x.png", {"case 1": (true, true[:2])}, threshold=0.5)


def test_vector_formats_follow_the_ending(tmp_path):
    consistency_per_step(tmp_path / "x.svg", {ACID: np.ones((9, 5))})
    assert "<svg" in (tmp_path / "x.svg").read_text()


def test_a_plain_name_is_shown_as_it_is_and_always_in_the_same_colour():
    assert look("some task").label == "some task"
    assert look("some task") == look("some task")
    assert look(ACID) is ACID
    assert len({look(name).colour for name in ("abcd"[k] for k in range(4))}) == 4


def test_a_curve_that_ends_early_goes_on_as_a_level_line(tmp_path):
    long, short = [Measured(v, v, v) for v in (3.0, 2.0, 1.0, 1.0)], [Measured(v, v, v) for v in (3.0, 2.0, 1.0)]
    for name, curve in (("a", long), ("b", short)):
        panels = {"rope": {ORIGINAL: long, ACID: curve}}
        error_over_steps(tmp_path / f"{name}.png", panels, error="m", step="pushes")
    image = check(tmp_path / "a.png", (830, 600))
    assert (image == check(tmp_path / "b.png", (830, 600))).all()
    assert holds(image, ACID)


def test_a_missing_matplotlib_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(AcidError, match=r"acid-planning\[report\]"):
        consistency_per_step(tmp_path / "x.png", {ACID: np.ones((9, 5))})
