"""The tables in `results/` are what their rows say, and the rows are of the weights that are shipped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from acid.evaluation import Cell, read_rows, shipped
from acid.tables import TABLES, Findings, Options, write
from acid.tables.rollouts import Rollouts, rollouts_file

RESULTS = Path(__file__).resolve().parents[2] / "results"


NAMES = (
    "planning",
    "deformable",
    "proposals",
    "compute",
    "parts",
    "shapes",
    "symmetries",
    "confirmation",
    "robustness",
    "weighting",
)
SLOW = pytest.param("navigation", marks=pytest.mark.slow)


@pytest.mark.parametrize("name", [*NAMES, SLOW])
def test_a_committed_table_is_written_again_from_its_rows(name: str, tmp_path: Path):
    for folder in filter(Path.is_dir, RESULTS.iterdir()):  # a claim may be about the rows of other tables too
        (tmp_path / folder.name).symlink_to(folder)
    text = write(Findings(TABLES[name], Options(tmp_path)))
    assert text + "\n" == (RESULTS / f"{name}.md").read_text()
    assert json.loads((tmp_path / f"{name}.json").read_text()) == json.loads((RESULTS / f"{name}.json").read_text())


@pytest.mark.parametrize("name", TABLES)
def test_every_condition_of_a_table_was_run_on_the_shipped_weights(name: str):
    findings = Findings(TABLES[name], Options(RESULTS))
    for study in findings.studies:
        ours = findings.cell(study).fingerprints(["model", "verifier"])
        for condition in study.conditions:
            for row in findings.rows(study, condition)[:1]:
                recorded = {part: found for part, found in row.checkpoints.items() if part in ours}
                assert recorded == {part: ours[part] for part in recorded}, (study, condition)


@pytest.mark.parametrize("cell", shipped())
def test_committed_rows_are_of_shipped_instances(cell: str):
    task, model = cell.split("/")
    known = Cell(task, model)
    for split in ("test", "select", "confirm"):
        path = Path(known.task_class.name) / model / split
        file = RESULTS.parent / "src" / "acid" / "assets" / task / f"instances-{split}.jsonl"
        lines = file.read_text().splitlines()[1:] if file.exists() else []
        ids = {json.loads(line)["id"] for line in lines}
        for rows in map(read_rows, ([found] for found in sorted((RESULTS / path).glob("*.jsonl"))[:3])):
            assert {row.instance for row in rows} <= ids


def test_committed_rollouts_are_of_the_shipped_weights():
    cell = Cell("navigation", "nwm")
    kept = Rollouts.load(rollouts_file(cell, RESULTS))
    assert dict(kept.checkpoints) == cell.fingerprints(["model", "verifier"])
    assert kept.residual.shape == (200, 8, 3)
