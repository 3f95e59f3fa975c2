"""Recordings of a search for the rerun viewer, read back with rerun's own reader."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch

from acid import cli
from acid.errors import AcidError
from acid.planning import CEM, Iteration, Planner, goal_cost
from acid.types import ActionScaler, Problem
from acid.views.recording import STEP, Recording

SCALER = ActionScaler((0.0, 0.0), (1.0, 1.0), frameskip=2)


class Walk:
    scaler = SCALER

    def rollout(self, latent, actions):
        return latent[:, None, None] + actions.cumsum(2)[..., None, :]


def read(path: Path) -> dict[str, dict[int, list]]:
    """Every entity's values by iteration or step."""
    from rerun.chunk import RrdReader

    found: dict[str, dict[int, list]] = defaultdict(dict)
    for chunk in RrdReader(path).store().stream():
        times = {"iteration", "step"} & set(chunk.timeline_names)
        if times:
            rows = chunk.to_record_batch()
            (value,) = (n for n in rows.schema.names if n.endswith((":scalars", ":strips", "Image:buffer")))
            numbers = rows.column(times.pop()).to_pylist()
            found[chunk.entity_path] |= dict(zip(numbers, rows.column(value).to_pylist(), strict=True))
    return found


def test_every_iteration_of_every_search_is_there(tmp_path: Path):
    recording, shown = Recording(tmp_path / "new" / "search.rrd", SCALER), []

    def both(iteration: Iteration) -> None:
        shown.append(iteration)
        recording(iteration)

    planner = Planner(Walk(), goal_cost(), CEM(samples=6, iterations=3, elites=2), horizon=4, observer=both)  # type: ignore[arg-type]
    for seed in (0, 1):
        planner.solve(Problem(torch.zeros(2, 1, 4), torch.ones(2, 1, 4)), seed=seed)
    recording.close()
    found = read(tmp_path / "new" / "search.rrd")
    for problem in (0, 1):
        root = f"/problem\\ {problem}"
        best = found[f"{root}/total/best"]
        assert sorted(best) == list(range(6))  # two searches of three iterations, one after another
        assert [best[n][0] for n in range(6)] == [pytest.approx(float(i.total[problem].min())) for i in shown]
        strips = np.array(found[f"{root}/action\\ 1/candidates"][4])
        assert strips.shape == (6, 8, 2)  # candidates, environment steps, place in the picture
        assert strips[0, :, 0] == pytest.approx(STEP * np.arange(8))
        assert strips[..., 1] == pytest.approx(-shown[4].actions[problem].reshape(6, 8, 2)[..., 1].numpy())
        assert np.array(found[f"{root}/action\\ 0/elites"][0]).shape == (2, 8, 2)
        assert np.array(found[f"{root}/action\\ 0/mean"][0]).shape == (1, 8, 2)


def test_a_plan_is_recorded_with_what_became_of_it(tmp_path: Path, capsys):
    out = tmp_path / "plan.rrd"
    sizes = ["--samples", "6", "--iterations", "2", "--elites", "2", "--horizon", "2"]
    cli.main(["plan", "reacher", *sizes, "--results", str(tmp_path), "--rerun", str(out)])
    recorded = capsys.readouterr().out
    assert f"wrote {out}" in recorded
    cli.main(["plan", "reacher", *sizes, "--results", str(tmp_path)])
    without = capsys.readouterr().out
    cut = [text.split(" (")[0] for text in without.splitlines()]
    assert [line.split(" (")[0] for line in recorded.splitlines()][:-1] == cut  # the same plan, but for its seconds
    found = read(out)
    assert sorted(found["/executed"]) == [0, 1, 2]
    assert sorted(found["/imagined"]) == sorted(found["/residual"]) == [1, 2]
    assert sorted(found["/problem\\ 0/weight/consistency"]) == [0, 1]


def test_without_the_package_the_extra_is_named_before_anything_is_computed(monkeypatch, tmp_path: Path):
    monkeypatch.setitem(sys.modules, "rerun", None)
    with pytest.raises(AcidError, match=r"needs the package 'rerun-sdk'; run: pip install 'acid-planning\[rerun\]'"):
        Recording(tmp_path / "a.rrd", SCALER)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(AcidError, match=r"file/a\.rrd cannot be written"):
        Recording(tmp_path / "file" / "a.rrd", SCALER)
