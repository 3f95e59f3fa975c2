"""The figures of a results folder, drawn from the same summaries as the table."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from acid.evaluation import Summary, choose_lambda, summarise
from acid.evaluation.conditions import BASELINES
from acid.evaluation.results import search_budget
from acid.report import Measured, lambda_sweep, success_against_budget


def draw(results: Path, out: Path) -> list[Path]:
    """One figure of success against budget per cell, and one of the λ sweep per cell and search.

    Only of tasks that are judged by success.
    """
    chosen_on = summarise(results, split="select")
    found = [s for s in summarise(results) if s.metric == "success"]
    paths = []
    for (task, model), group in groupby(sorted(found, key=_cell), key=_cell):
        cell = list(group)
        lambdas = {name: choose_lambda(chosen_on, model, name) for name in ("acid", "control")}
        paths.append(_draw_budgets(cell, lambdas, out / f"{task}-{model}-budget.png"))
        for search in sorted({s.search for s in cell if s.condition == "acid"}, key=search_budget):
            paths.append(_draw_sweep(cell, search, out / f"{task}-{model}-{search}-lambda.png"))
    return paths


def _cell(summary: Summary) -> tuple[str, str]:
    return summary.task, summary.model


def _measured(summary: Summary) -> Measured:
    return Measured(summary.mean, summary.low, summary.high)


def _draw_budgets(cell: Sequence[Summary], lambdas: dict[str, float], path: Path) -> Path:
    """Candidates per iteration along the axis; ACID and the control each at the λ chosen for it on other episodes."""
    planners: dict[str, dict[int, Measured]] = {}
    for s in cell:
        if s.condition not in BASELINES and s.lam == lambdas.get(s.condition):
            planners.setdefault(s.condition, {})[_samples(s.search)] = _measured(s)
    baselines = {s.condition: _measured(s) for s in cell if s.condition in BASELINES}
    told = ", ".join(f"{name} λ = {lam:g}" for name, lam in lambdas.items())
    success_against_budget(path, planners, baselines=baselines, title=f"{cell[0].task}, {cell[0].model}: {told}")
    return path


def _draw_sweep(cell: Sequence[Summary], search: str, path: Path) -> Path:
    sweep = sorted((s for s in cell if s.search == search and s.condition == "acid"), key=lambda s: s.lam or 0)
    original = [_measured(s) for s in cell if s.search == search and s.condition == "original"]
    lambda_sweep(
        path,
        [s.lam or 0 for s in sweep],
        [_measured(s) for s in sweep],
        reference=original[0] if original else None,
        title=f"{sweep[0].task}, {sweep[0].model}, {search}",
    )
    return path


def _samples(search: str) -> int:
    return int(search.split("-n")[1].split("-")[0])
