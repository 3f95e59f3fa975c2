"""Table 2 left from rows on disk: the right numbers, the plateau, the figure."""

import json

import numpy as np
import pytest

from acid.evaluation import Condition, search_name
from acid.experiments import deformable
from acid.experiments.cell import Cell
from acid.experiments.deformable import DeformableTable
from acid.experiments.setups import setup
from acid.report import Measured

LAMBDAS = {"acid": 1.0, "control": 0.3, "change": 0.1}
SHARED = {
    **{"split": "test", "seed": 0, "metric": "chamfer", "higher_is_better": False, "steps": 4, "success": False},
    **{"plan_seconds": 0.2, "checkpoints": {}, "goal_offset": None, "budget": 4, "solved_at_start": False},
}


@pytest.fixture(autouse=True)
def chosen(monkeypatch):
    monkeypatch.setattr(Cell, "lambdas", LAMBDAS)
    monkeypatch.setattr(Cell, "__post_init__", lambda self: None)  # the cells of a test need no weights


def write(folder, name, curve, lam=None, misses=0, imagined=(), ahead=""):
    """Eight instances whose errors follow the curve, each a little higher than the one before."""
    search = "-" if name in ("noop", "random") else search_name(setup("rope").search) + ahead
    condition = Condition("rope", "dinowm", name, search, lam)
    path = condition.file(folder, "test")
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = []
    for k in range(8):
        first, *later = (np.array(curve) + 0.1 * k).tolist()
        errors = {"initial_error": first, "errors": later, "final_error": later[-1]}
        told = {"instance": f"i{k}", "draw": k, "misses": misses, "imagined_errors": list(imagined)}
        rows.append(SHARED | condition.columns() | told | errors)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def table(tmp_path):
    write(tmp_path, "original", [2.0, 1.9, 1.7, 1.5, 1.5], misses=2, imagined=[0.4] * 4)
    write(tmp_path, "acid", [2.0, 1.4, 1.0, 0.8, 0.7], lam=1.0, misses=1, imagined=[0.9] * 4)
    write(tmp_path, "acid", [2.0, 0.1, 0.1, 0.1, 0.1], lam=0.3)  # better, but not the λ that was chosen
    write(tmp_path, "noop", [2.0] * 5)
    return DeformableTable(tmp_path, tasks=("rope",))


def test_lines_compare_with_original_on_the_same_instances(table):
    lines = {line.condition: line for line in table.lines()}
    assert lines.keys() == {"original", "acid", "noop"}
    acid = lines["acid"]
    assert (acid.n, acid.lam, acid.missed, acid.imagined) == (8, 1.0, 0.25, pytest.approx(0.9))
    assert acid.final == pytest.approx(1.05)
    assert [acid.difference, acid.difference_low, acid.difference_high] == pytest.approx([-0.8] * 3)
    assert acid.better == 1.0
    assert acid.executed == pytest.approx(np.mean([1.4, 1.0, 0.8, 0.7]) + 0.35)
    assert lines["original"].difference is None
    assert lines["noop"].imagined is None


def test_the_plateau_of_original_is_reached_sooner(table):
    assert deformable.plateau(table.lines()) == (
        "rope, one push at a time: Original's lowest mean, 1.850, is reached (within 2 %) by Original after 3 pushes; "
        "ACID after 1. ACID against Original after each push: -0.500 [-0.500, -0.500]; -0.700 [-0.700, -0.700]; "
        "-0.700 [-0.700, -0.700]; -0.800 [-0.800, -0.800]"
    )


def test_longer_plans_are_compared_among_themselves(table):
    write(table.results, "original", [2.0, 1.9, 1.9], ahead="-h5")
    write(table.results, "acid", [2.0, 1.2, 1.1], lam=1.0, ahead="-h5")
    lines = {(line.horizon, line.condition): line for line in table.lines()}
    assert [key for key in lines if key[0] == 5] == [(5, "original"), (5, "acid")]
    assert lines[5, "acid"].difference == pytest.approx(-0.8)
    assert lines[1, "acid"].difference == pytest.approx(-0.8)
    assert "rope, 5 pushes a plan: Original's lowest mean, 2.250, is reached" in table.write()


def test_a_plateau_that_is_never_reached_is_told(table):
    write(table.results, "acid", [2.0, 1.9, 1.9, 1.9, 1.9], lam=1.0)
    assert deformable.plateau(table.lines()).startswith("rope, one push at a time: Original's lowest mean")
    assert "ACID never gets there" in deformable.plateau(table.lines())


def test_the_table_is_written_with_the_published_numbers_beside(table):
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.write().splitlines() if "|" in line]
    found = {row[2]: row for row in lines[2:]}
    assert found["acid"][1:5] == ["1", "acid", "1", "8"]
    assert found["acid"][6].startswith("-0.800 [")
    assert found["acid"][8:10] == ["100%", "25%"]
    assert [found[name][-1] for name in ("original", "acid", "noop")] == ["1.38", "0.56", "-"]
    assert {entry["condition"] for entry in json.loads((table.results / "deformable.json").read_text())} == found.keys()


def test_a_curve_starts_before_the_first_push_and_has_intervals(table):
    path = Condition("rope", "dinowm", "noop").file(table.results, "test")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    start, *_, end = deformable._curve(rows)
    assert isinstance(start, Measured)
    assert start.mean == end.mean == pytest.approx(2.35)
    assert start.low < start.mean < start.high


def test_a_lambda_that_is_missing_is_chosen_before_anything_runs(table, monkeypatch):
    done = []
    monkeypatch.setattr(Cell, "lambdas", {"acid": 1.0})

    def choose(self, **options):
        done.append("choose")
        monkeypatch.setattr(Cell, "lambdas", LAMBDAS)

    monkeypatch.setattr(DeformableTable, "choose", choose)
    monkeypatch.setattr(deformable, "jobs", lambda cell, names, *rest, **options: list(names))
    monkeypatch.setattr(deformable, "evaluate", lambda work, **options: done.append(tuple(work)))
    table.run()
    table.run()
    everything = (*deformable.CONDITIONS, *deformable.CONDITIONS_AHEAD)
    assert done == ["choose", everything, everything]
