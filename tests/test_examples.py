"""The examples run as a reader would run them, and stay short."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def run(name: str, folder: Path) -> list[str]:
    """The lines an example prints, run from a folder that is not its own."""
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(EXAMPLES / name)]
    done = subprocess.run(command, capture_output=True, text=True, env=one_thread, cwd=folder, timeout=1800)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_own_world_model_plans_to_its_goal(tmp_path):
    *report, moves, costs = run("own_world_model.py", tmp_path)
    (mean,) = (line for line in report if line.split()[0] == "mean")
    assert float(mean.split()[-1]) > 0.95  # R² of the verifier
    plan = ast.literal_eval(moves.removeprefix("moves "))
    reached = [sum(move[axis] for move in plan) for axis in range(2)]
    assert abs(reached[0] - 1) < 0.1
    assert abs(reached[1] + 1) < 0.1
    assert set(ast.literal_eval(costs)) == {"goal", "consistency"}


def test_own_world_model_takes_fewer_than_fifty_lines():
    assert len((EXAMPLES / "own_world_model.py").read_text().splitlines()) < 50


@pytest.mark.slow
def test_two_rooms_shows_what_is_seen_and_what_is_not(tmp_path):
    *_, world, exaggerates, ignores = (line.split() for line in run("two_rooms.py", tmp_path))
    assert int(world[-2]) >= 17  # of 20 are reached with a model that is right
    right, wrong, _, goal_cost, acid = (float(word.rstrip("%")) for word in exaggerates[-5:])
    assert wrong > 4 * right
    assert acid >= goal_cost + 5
    right, wrong, _, _, acid = (float(word.rstrip("%")) for word in ignores[-5:])
    assert wrong < 0.2  # looks like any step
    assert acid <= 12
