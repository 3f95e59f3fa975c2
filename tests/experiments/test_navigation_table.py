"""Table 2 right from beginning to end on a small cell: λ chosen elsewhere, rows, table, resumed without work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from acid.evaluation import summarise
from acid.experiments import navigation, navigation_rollouts
from acid.experiments.navigation import LAMBDAS, NavigationTable


@pytest.fixture
def table(small_cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NavigationTable:
    monkeypatch.setattr(type(small_cell.cell), "choice_file", tmp_path / "lambda.json")
    return NavigationTable(tmp_path / "results", 3, small_cell.cell.folder, small_cell.data, select=2)


def cells(text: str) -> dict[tuple[str, ...], list[str]]:
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    return {tuple(row[:3]): row for row in rows if row[0] in ("arc", "line")}


@pytest.mark.slow
def test_everything_runs_once_and_is_told_beside_what_is_published(
    table: NavigationTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, int]] = []
    table.run(progress=lambda *now: told.append(now))
    assert table.cell.chosen_lambda("acid") in LAMBDAS
    assert table.cell.chosen_lambda("turn") in LAMBDAS
    text = table.write()
    found = cells(text)
    names = ("prior mean", "random cost", "turn penalty", "Original", "ACID", "ACID of path", "best of pool")
    assert set(found) == {(scheme, "1", name) for scheme in ("arc", "line") for name in names} | {
        ("arc", "3", name) for name in ("turn penalty", "Original", "ACID")
    }
    assert [found["arc", "1", name][4] for name in names] == ["3"] * 7
    assert found["arc", "3", "ACID"][4] == "3"
    assert found["arc", "1", "Original"][6] == "-"
    assert found["arc", "1", "ACID"][3] == f"{table.cell.chosen_lambda('acid'):g}"
    assert found["arc", "1", "Original"][-1] == "1.314 / 0.383"
    assert found["arc", "1", "prior mean"][-1] == "-"
    for told_too in (
        "goal cost with ATE",
        "consistency with ATE",
        "| ACID's ",
        "| of the path ",
        "not followed",
        "of the turn",
    ):
        assert told_too in text
    content = json.loads((table.results / "navigation.json").read_text())
    assert content["correlations"].keys() == {"arc", "line"}
    assert -1 <= content["correlations"]["arc"]["rank_goal"]["mean"] <= 1

    line = next(x for x in table.lines() if (x.candidates, x.iterations, x.condition) == ("arc", 1, "acid"))
    assert line.ate_difference is not None
    original = next(x for x in table.lines() if (x.candidates, x.iterations, x.condition) == ("arc", 1, "original"))
    assert line.ate_difference.difference == pytest.approx(line.ate.mean - original.ate.mean)

    turned = next(x for x in table.lines() if (x.candidates, x.iterations, x.condition) == ("arc", 1, "turn"))
    against_turn = table.against_turn()
    assert against_turn.keys() == {("arc", 1), ("line", 1), ("arc", 3)}
    assert against_turn["arc", 1].difference == pytest.approx(line.ate.mean - turned.ate.mean)
    assert [one["n"] for one in content["acid_against_turn"]] == [3, 3, 3]

    everyone = summarise(table.results)  # `acid results` reads these rows too
    assert {s.metric for s in everyone} == {"ate"}
    assert {s.lam for s in everyone if s.condition == "acid"} == set(LAMBDAS)

    # What was run is not run again.
    rows = {path: path.read_bytes() for path in table.results.rglob("*.jsonl")}
    assert len(rows) == 7  # two pools to choose λ, two to report, three refined searches
    fail = lambda *_, **__: pytest.fail("run again")  # noqa: E731
    monkeypatch.setattr(navigation.NavigationJob, "_plan", fail)
    monkeypatch.setattr(navigation_rollouts, "imagine", fail)
    table.run()
    assert {path: path.read_bytes() for path in table.results.rglob("*.jsonl")} == rows


def test_a_table_of_nothing_is_empty(table: NavigationTable) -> None:
    table.results.mkdir()
    assert table.lines() == []
    assert table.correlations() == {}
    assert table.against_turn() == {}
    assert cells(table.write()) == {}
