"""The figures of a results folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_rows import keep, row

from acid.errors import DataError
from acid.evaluation import SearchSpec, condition
from acid.tables import figures

SEARCHES = (SearchSpec("cem", 30, 5, 3), SearchSpec("cem", 300, 5, 30))


def add(
    folder: Path, split: str, name: str, search: SearchSpec | None, lam: float | None, wins: int, **changes
) -> None:
    made = [
        row(k, instance=f"{split}{k}", split=split, condition=name, search=search, lam=lam, success=k < wins, **changes)
        for k in range(10)
    ]
    keep(folder / "line" / "m" / split / f"{name}_{search and search.label}_{lam}.jsonl", made)


def test_figures_are_drawn_at_the_lambda_chosen_on_other_episodes(tmp_path: Path, monkeypatch):
    results, drawn = tmp_path / "results", []
    for search in SEARCHES:
        for split in ("select", "test"):
            add(results, split, "original", search, None, 4)
            for name in ("acid", "control"):
                add(results, split, name, search, 0.1, 9 if split == "select" else 3)
                add(results, split, name, search, 0.5, 2 if split == "select" else 8)
    add(results, "test", "noop", None, None, 0)
    add(results, "test", "acid", SEARCHES[0], 0.0, 4)  # has no place on a logarithmic axis
    add(results, "test", "original", SearchSpec("cem", 30, 2, 3), None, 9)  # other iterations, so not beside the rest
    draw = figures.success_against_budget
    monkeypatch.setattr(figures, "success_against_budget", lambda *a, **k: (drawn.append(a[1]), draw(*a, **k)))
    paths = figures.draw_results(results, tmp_path / "figures")
    assert [path.name for path in paths] == [
        "line-m-budget.png",
        "line-m-cem-n30-j5-k3-lambda.png",
        "line-m-cem-n300-j5-k30-lambda.png",
    ]
    assert all(path.stat().st_size > 1000 for path in paths)
    shown = drawn[0][condition("acid").look]
    assert {budget: round(m.mean, 1) for budget, m in shown.items()} == {30: 0.3, 300: 0.3}  # λ = 0.1
    assert {budget: m.mean for budget, m in drawn[0][condition("original").look].items()} == {30: 0.4, 300: 0.4}


def test_only_tasks_that_are_judged_by_success_are_drawn(tmp_path: Path):
    add(tmp_path, "test", "original", SEARCHES[0], None, 4, metric="final_error", higher_is_better=False)
    assert figures.draw_results(tmp_path, tmp_path / "figures") == []


def test_which_of_several_lambdas_is_shown_has_to_be_chosen(tmp_path: Path):
    add(tmp_path, "test", "original", SEARCHES[0], None, 4)
    add(tmp_path, "test", "acid", SEARCHES[0], 0.1, 4)
    assert [path.name for path in figures.draw_results(tmp_path, tmp_path / "figures")] == ["line-m-budget.png"]
    add(tmp_path, "test", "acid", SEARCHES[0], 0.5, 4)
    with pytest.raises(DataError, match='no "select" results of acid for m'):
        figures.draw_results(tmp_path, tmp_path / "figures")


def test_conditions_that_were_not_run_need_no_lambda(tmp_path: Path):
    add(tmp_path, "test", "original", SEARCHES[0], None, 4)
    assert [path.name for path in figures.draw_results(tmp_path, tmp_path / "figures")] == ["line-m-budget.png"]
