"""Table 1 from rows on disk: the right numbers in the right cells, and a run that resumes."""

import json

import pytest

from acid.evaluation import Condition, search_name
from acid.experiments import planning
from acid.experiments.cell import Cell
from acid.experiments.planning import PlanningTable
from acid.planning import CEM

TINY = CEM(samples=8, iterations=2, elites=2)
SHARED = {
    **{"split": "test", "seed": 0, "metric": "success", "higher_is_better": True, "final_error": 0.1},
    **{"plan_seconds": 0.2, "checkpoints": {}, "goal_offset": 25, "budget": 50},
}


@pytest.fixture(autouse=True)
def chosen(monkeypatch):
    monkeypatch.setattr(Cell, "lambdas", {"acid": 0.2, "control": 0.5})
    monkeypatch.setattr(Cell, "__post_init__", lambda self: None)  # the cells of a test need no weights
    every = [f"{task}/{model}" for task in planning.TASKS for model in planning.MODELS]
    monkeypatch.setattr(planning, "shipped", lambda: every)


def write(folder, task, model, name, wins, lam=None, solved=0, split="test", search=planning.SEARCH):
    """Ten unsolved episodes of which `wins` succeed, after some that were solved at the start and succeed."""
    condition = Condition(task, model, name, search_name(search), lam)
    path = condition.file(folder, split)
    path.parent.mkdir(parents=True, exist_ok=True)
    outcomes = [(True, True)] * solved + [(False, k < wins) for k in range(10)]
    rows = [
        {**SHARED, **condition.columns(), "split": split}
        | {"instance": f"{task}{k}", "draw": k, "solved_at_start": s, "success": won}
        for k, (s, won) in enumerate(outcomes)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def table(tmp_path):
    for task, original, acid in (("cube", 2, 5), ("reacher", 4, 6)):
        write(tmp_path, task, "lewm", "original", original, solved=3)
        write(tmp_path, task, "lewm", "acid", acid, 0.2, solved=3)
        write(tmp_path, task, "lewm", "acid", 10, 0.02, solved=3)  # better, but not the λ that was chosen
        write(tmp_path, task, "lewm", "control", original, 0.5, solved=3)
    return PlanningTable(tmp_path, tasks=("cube", "reacher"), models=("lewm",))


def tables(text):
    """The cells of the overview and of the table with a line per condition, without headings."""
    blocks = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    return [[[cell.strip() for cell in line.split("|")[1:-1]] for line in block[2:]] for block in blocks]


def test_cells_show_the_chosen_lambda_both_protocols_and_the_published_number(table):
    _, lines = tables(table.write())
    found = {(row[1], row[2]): row for row in lines}
    assert len(found) == 6
    assert found["cube", "original"][4].startswith("20.0% [")
    assert found["cube", "acid"][4].startswith("50.0% [")
    assert found["cube", "acid"][5].startswith("+30.0% [")
    assert found["cube", "original"][7:] == ["50.0%", "70.0%"]  # 3 solved and 2 of 7 among the first ten draws
    assert found["reacher", "acid"][8] == "88.0%"
    assert found["reacher", "control"][8] == "-"


def test_differences_can_be_over_the_episodes_of_several_tasks(table):
    found = table.compared("lewm", "acid", "original", ("cube", "reacher"))
    assert (found.n, found.difference) == (20, pytest.approx(5 / 20))
    assert table.compared("lewm", "control", "original", ("cube",)).difference == 0
    assert table.compared("lewm", "acid", "control", ("cube",)).difference == pytest.approx(3 / 10)


def test_the_overview_has_a_line_per_cell_and_one_for_all(table):
    overview, _ = tables(table.write())
    assert [row[:5] for row in overview] == [
        ["lewm", "cube", "10", "20.0%", "50.0%"],
        ["lewm", "reacher", "10", "40.0%", "60.0%"],
        ["lewm", "all", "20", "30.0%", "55.0%"],
    ]
    assert [row[5].split()[0] for row in overview] == ["+30.0%", "+20.0%", "+25.0%"]
    assert [row[7].split()[0] for row in overview] == ["+0.0%"] * 3
    assert [row[8].split()[0] for row in overview] == ["+30.0%", "+20.0%", "+25.0%"]
    assert [row[9] for row in overview] == ["70.0% → 74.0%", "76.0% → 88.0%", "73.0% → 81.0%"]


def test_a_table_that_is_not_complete_is_shown_without_pooling(table):
    next(table.results.glob("cube/lewm/test/acid*0.2.jsonl")).unlink()
    next(table.results.glob("reacher/lewm/test/control*.jsonl")).unlink()
    overview, _ = tables(table.write())
    assert [row[1] for row in overview] == ["reacher"]
    assert overview[0][7:9] == ["-", "-"]
    assert table.compared("lewm", "acid", "original", ("cube", "reacher")) is None


def test_the_numbers_behind_it_are_written_too(table):
    table.write()
    stored = json.loads((table.results / "planning.json").read_text())
    assert {(s["starts"], s["condition"]) for s in stored} == {
        (starts, name) for starts in ("strict", "paper") for name in ("original", "acid", "control")
    }
    assert (table.results / "planning.md").read_text().startswith("| model")


@pytest.mark.slow
def test_it_runs_what_is_missing_and_resumes(tmp_path, monkeypatch):
    monkeypatch.setattr(planning, "SEARCH", TINY)
    table = PlanningTable(tmp_path, tasks=("reacher",), models=("lewm",), episodes=2)
    table.run()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.jsonl")}
    assert len(before) == len(planning.CONDITIONS)
    table.run()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.jsonl")} == before
    assert "reacher" in table.write()


def test_cells_without_weights_are_named_and_left_out(table, monkeypatch):
    monkeypatch.setattr(planning, "shipped", lambda: ["reacher/lewm"])
    text = table.write()
    assert "left out, because no weights are shipped: lewm on cube" in text
    assert table.compared("lewm", "acid", "original", ("cube",)) is None


def test_cells_without_results_are_named_and_left_out(table, monkeypatch):
    monkeypatch.setattr(Cell, "lambdas", property(lambda self: {} if self.model == "pldm" else {"acid": 0.2}))
    text = PlanningTable(table.results, table.tasks, ("lewm", "pldm")).write()
    assert "left out, not evaluated yet: pldm on cube, pldm on reacher" in text


def test_a_lambda_is_chosen_before_it_is_needed(table, monkeypatch):
    done = []
    monkeypatch.setattr(Cell, "lambdas", {"acid": 0.2})  # none for the control
    monkeypatch.setattr(PlanningTable, "choose", lambda self, **_: done.append("choose"))
    monkeypatch.setattr(PlanningTable, "_jobs", lambda *_: done.append("jobs") or [])
    table.run()
    assert done == ["choose", "jobs", "jobs"]


def test_one_lambda_serves_all_tasks_and_other_searches_do_not_count(table, monkeypatch):
    monkeypatch.setattr(planning, "evaluate", lambda work, **_: None)
    monkeypatch.setattr(Cell, "choice_file", table.results / "lambda.json")
    for lam, wins in ((0.07, (9, 1)), (0.2, (7, 8)), (0.5, (6, 2))):
        for task, won in zip(("cube", "reacher"), wins, strict=True):
            write(table.results, task, "lewm", "acid", won, lam, split="select", search=planning.CHOOSING)
        write(table.results, "reacher", "lewm", "acid", 10 if lam == 0.5 else 0, lam, split="select", search=TINY)
    assert "λ = 0.2 for acid" in table.choose()
    assert json.loads((table.results / "lambda.json").read_text())["acid"] == 0.2
