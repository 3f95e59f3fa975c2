"""The figures of a results folder, drawn from the same summaries as the table."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from acid.evaluation import Summary
from acid.evaluation.conditions import BASELINES
from acid.evaluation.results import search_budget
from acid.experiments.cell import Cell
from acid.report import Measured, lambda_sweep, success_against_budget


def draw(summaries: Sequence[Summary], out: Path) -> list[Path]:
    """One figure of success against budget per cell, and one of the λ sweep per cell and search."""
    paths = []
    for (task, model), found in groupby(sorted(summaries, key=_cell), key=_cell):
        cell = list(found)
        paths.append(_draw_budgets(cell, Cell(task, model).chosen_lambda(), out / f"{task}-{model}-budget.png"))
        for search in sorted({s.search for s in cell if s.condition == "acid"}, key=search_budget):
            paths.append(_draw_sweep(cell, search, out / f"{task}-{model}-{search}-lambda.png"))
    return paths


def _cell(summary: Summary) -> tuple[str, str]:
    return summary.task, summary.model


def _measured(summary: Summary) -> Measured:
    return Measured(summary.mean, summary.low, summary.high)


def _draw_budgets(cell: Sequence[Summary], lam: float, path: Path) -> Path:
    """Candidates per iteration along the axis; ACID and the control at the λ that was chosen elsewhere."""
    planners: dict[str, dict[int, Measured]] = {}
    for s in cell:
        if s.condition not in BASELINES and s.lam in (None, lam):
            planners.setdefault(s.condition, {})[_samples(s.search)] = _measured(s)
    baselines = {s.condition: _measured(s) for s in cell if s.condition in BASELINES}
    title = f"{cell[0].task}, {cell[0].model}, λ = {lam:g}, n = {cell[0].n}"
    success_against_budget(path, planners, baselines=baselines, title=title)
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
