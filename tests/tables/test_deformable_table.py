"""Table 2 left from rows on disk: the right numbers, the plateau, the figure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from table_rows import cells, write_rows

from acid.report import Measured
from acid.tables import Findings, Options, write
from acid.tables import deformable as table_module
from acid.tables.deformable import (
    DEFORMABLE,
    TASKS,
    curve,
    judge_both,
    judge_proposal,
    judge_pushes,
    judge_tracking,
    plateaus,
)
from acid.tables.table import Line

NEAR, SMALL, _, FAR, GRAINS = DEFORMABLE.studies[:5]  # rope: one push at a time, from a proposal (twice), five


def add(findings: Findings, name: str, means: Sequence[float], study=NEAR, missed=0, imagined=(), **options: Any):
    """Eight instances whose errors follow the curve, each a little higher than the one before."""
    episodes = []
    for k in range(8):
        first, *later = (np.array(means) + 0.1 * k).tolist()
        errors = {"initial_error": first, "errors": tuple(later), "final_error": later[-1]}
        episodes.append(errors | {"metrics": {"chamfer": later[-1]}, "steps": len(later)})
    shared = {"metric": "chamfer", "higher_is_better": False, "success": False, "missed_steps": missed}
    write_rows(findings, study, name, episodes, imagined_errors=tuple(imagined), **shared, **options)


@pytest.fixture
def findings(tmp_path: Path) -> Findings:
    made = Findings(DEFORMABLE, Options(tmp_path, tasks=("rope",)))
    add(made, "original", [2.0, 1.9, 1.7, 1.5, 1.5], missed=2, imagined=[0.4] * 4)
    add(made, "acid", [2.0, 1.4, 1.0, 0.8, 0.7], missed=1, imagined=[0.9] * 4)
    add(made, "acid", [2.0, 0.1, 0.1, 0.1, 0.1], lam=0.3)  # better, but not the λ that was chosen
    add(made, "noop", [2.0] * 5)
    return made


def lines(findings: Findings) -> dict[tuple[int, str], Line]:
    return {(line.study.spec().horizon, line.condition): line for line in findings.lines()}


def test_lines_compare_with_original_on_the_same_instances(findings: Findings):
    found = lines(findings)
    assert found.keys() == {(1, name) for name in ("original", "acid", "noop")}
    acid = found[1, "acid"]
    assert (acid.n, acid.lam) == (8, 1.0)
    assert acid.mean("chamfer").mean == pytest.approx(1.05)
    difference = acid.difference("chamfer")
    assert difference is not None
    assert (difference.difference, difference.low, difference.high) == pytest.approx((-0.8, -0.8, -0.8))


def test_the_table_is_written_with_the_published_numbers_beside(findings: Findings):
    found = {row[2]: row for row in cells(write(findings))}
    assert found["acid"][:6] == ["rope", "1", "acid", "1", "2000", "8"]
    assert found["acid"][7].startswith("-0.800 [")
    assert found["acid"][9:13] == ["100%", "25%", "0.900", f"{np.mean([1.4, 1.0, 0.8, 0.7]) + 0.35:.3f}"]
    assert found["original"][9:12] == ["-", "50%", "0.400"]
    assert found["noop"][11] == "-"
    assert [found[name][-1] for name in ("original", "acid", "noop")] == ["1.38", "0.56", "-"]
    content = json.loads(findings.file.with_suffix(".json").read_text())
    assert {entry["condition"] for entry in content["lines"]} == found.keys()
    over = {entry["condition"]: entry for entry in content["over_pushes"]}
    assert over["acid"]["means"] == pytest.approx([2.35, 1.75, 1.35, 1.15, 1.05])
    assert [one["difference"] for one in over["acid"]["differences"]] == pytest.approx([-0.5, -0.7, -0.7, -0.8])


def test_the_plateau_of_original_is_reached_sooner(findings: Findings):
    assert plateaus(findings) == [
        "Rope, one push at a time: Original's lowest mean, 1.850, is reached (within 2 %) by Original after 3 pushes; "
        "ACID after 1. ACID against Original after each push: -0.500 [-0.500, -0.500]; -0.700 [-0.700, -0.700]; "
        "-0.700 [-0.700, -0.700]; -0.800 [-0.800, -0.800]"
    ]


def test_longer_plans_are_compared_among_themselves(findings: Findings):
    add(findings, "original", [2.0, 1.9, 1.9], FAR)
    add(findings, "acid", [2.0, 1.2, 1.1], FAR)
    found = lines(findings)
    assert [key for key in found if key[0] == 5] == [(5, "original"), (5, "acid")]
    for horizon in (1, 5):
        difference = found[horizon, "acid"].difference("chamfer")
        assert difference is not None
        assert difference.difference == pytest.approx(-0.8)
    assert "Rope, 5 pushes a plan: Original's lowest mean, 2.250, is reached" in write(findings)


def test_a_plateau_that_is_never_reached_is_told(findings: Findings):
    add(findings, "acid", [2.0, 1.9, 1.9, 1.9, 1.9])
    (told,) = plateaus(findings)
    assert "ACID never gets there" in told


def test_a_curve_starts_before_the_first_push_and_has_intervals(findings: Findings):
    start, *_, end = curve(findings.rows(NEAR, "noop"))
    assert isinstance(start, Measured)
    assert start.mean == end.mean == pytest.approx(2.35)
    assert start.low < start.mean < start.high


def test_the_claim_is_about_both_tasks(tmp_path: Path):
    both = Findings(DEFORMABLE, Options(tmp_path))
    granular = GRAINS
    for study in (NEAR, granular):
        assert judge_both(both) is None
        add(both, "original", [2.0, 1.9], study)
        add(both, "acid", [2.0, 1.2], study)
    told = str(judge_both(both))
    assert told.startswith("confirmed at this scale. Both gain for certain.")
    assert told.endswith("(10 cm): Rope -0.7 [-0.7, -0.7]; Granular -0.7 [-0.7, -0.7].")
    add(both, "acid", [2.0, 1.9], granular)
    found = judge_both(both)
    assert found is not None
    assert found.kind == "not confirmed"
    assert "Granular is equal to Original in every episode." in found.reason


def test_claims_about_pushes_and_about_what_is_imagined(tmp_path: Path):
    """ACID is where Original ends after one push, and imagines what happens; Original imagines too much."""
    both = Findings(DEFORMABLE, Options(tmp_path))
    assert (judge_tracking(both), judge_pushes(both, TASKS, 1)) == (None, None)
    for study in (NEAR, GRAINS):
        add(both, "original", [2.0, 1.9, 1.5, 1.5], study, imagined=(1.0, 1.0, 1.0))
        add(both, "acid", [2.0, 1.4, 1.4, 1.4], study, imagined=(1.4, 1.4, 1.4))
    assert str(judge_tracking(both)).startswith("confirmed")
    found = judge_pushes(both, TASKS, 1)
    assert found is not None
    assert found.kind == "confirmed"
    assert "after 1 of 3 pushes on Rope (95 % interval 1 to 1)" in found.reason
    add(both, "acid", [2.0, 1.6, 1.4, 1.4], NEAR, imagined=(9.0, 9.0, 9.0))
    assert str(judge_tracking(both)).startswith("contradicted")
    assert [str(judge_pushes(both, TASKS, most)).split(" at ")[0] for most in (1, 2)] == ["contradicted", "confirmed"]
    add(both, "acid", [2.0, 1.9, 1.9, 1.9], NEAR)
    assert "never on Rope" in str(judge_pushes(both, TASKS, 3))


def test_a_small_search_from_a_proposal_is_compared_with_all_of_acids(findings: Findings):
    assert judge_proposal(findings) is None
    add(findings, "proposal-acid", [2.0, 1.9, 1.9, 1.9, 1.9], SMALL)
    assert str(judge_proposal(findings)) == (
        "contradicted at this scale. Rope is worse than ACID's usual search for certain. "
        "Differences in Chamfer distance (10 cm): Rope +1.2 [+1.2, +1.2]."
    )


def test_the_figure_has_a_panel_per_setting_that_was_run(findings: Findings, tmp_path: Path, monkeypatch):
    drawn: list[Any] = []
    monkeypatch.setattr(table_module, "error_over_steps", lambda path, panels, **_: drawn.append((path, panels)))
    paths = DEFORMABLE.draw(findings, tmp_path)
    assert [path.name for path in paths] == ["deformable-chamfer.png"]
    ((_, panels),) = drawn
    assert list(panels) == ["Rope, one push at a time"]
    assert [look.label for look in panels["Rope, one push at a time"]] == ["Original", "ACID", "No-op"]
