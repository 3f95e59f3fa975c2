"""Success against budget and the λ sweeps, from the same summaries as the tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from acid.evaluation import BASELINE, CONDITIONS, Summary, choose_lambda, condition, summarise
from acid.report import Look, Measured, success_against_budget
from acid.report.chart import Chart, Level, Panel, Point, Series
from acid.report.figures import draw_chart
from acid.tables.names import called
from acid.tables.table import Findings

SWEPT = ("acid", "control")  # conditions that the figures show at their chosen λ


def draw_budgets(findings: Findings, out: Path) -> list[Path]:
    return draw_results(findings.options.results, out)


def draw_results(results: Path, out: Path) -> list[Path]:
    """One figure of success against budget per cell, and one of the λ sweep per cell and search.

    Only of tasks that are judged by success.
    """
    chosen_on = summarise(results, split="select")
    found = [s for s in summarise(results) if s.metric == "success"]
    paths = []
    for (task, model), group in groupby(sorted(found, key=_cell), key=_cell):
        cell = list(group)
        lambdas = {}
        for name in SWEPT:
            if ran := {s.lam for s in cell if s.condition == name and s.lam is not None}:
                lambdas[name] = ran.pop() if len(ran) == 1 else choose_lambda(chosen_on, model, name)
        paths.append(_draw_budgets(cell, lambdas, out / f"{task}-{model}-budget.png"))
        searches = {s.search for s in cell if s.condition == "acid" and s.search is not None}
        for search in sorted(searches, key=lambda spec: spec.budget):
            sweep = [s for s in cell if (s.search, s.condition) == (search, "acid") and s.lam]  # the axis has no 0
            if len(sweep) > 1:
                reference = next((s for s in cell if (s.search, s.condition) == (search, BASELINE)), None)
                paths.append(_draw_sweep(sweep, reference, out / f"{task}-{model}-{search.label}-lambda.png"))
    return paths


def _cell(summary: Summary) -> tuple[str, str]:
    return summary.task, summary.model


def measured(summary: Summary) -> Measured:
    return Measured(summary.mean, summary.low, summary.high)


def look_of(name: str) -> Look | str:
    """How a condition is shown; other names as they are."""
    return CONDITIONS[name].look if name in CONDITIONS else name


def _draw_budgets(cell: Sequence[Summary], lambdas: dict[str, float], path: Path) -> Path:
    """Candidates per iteration along the axis; conditions with a weight at the λ chosen for them.

    Searches that differ from the largest in more than the number of candidates are left out.
    """
    searches = [s.search for s in cell if s.search is not None]
    usual = max(searches, key=lambda spec: spec.budget, default=None)
    planners: dict[Look | str, dict[int, Measured]] = {}
    for s in cell:
        alike = usual and s.search and replace(s.search, samples=usual.samples, elites=usual.elites) == usual
        if s.search and alike and s.lam == lambdas.get(s.condition):
            planners.setdefault(look_of(s.condition), {})[s.search.samples] = measured(s)
    baselines = {look_of(s.condition): measured(s) for s in cell if s.search is None}
    told = ", ".join(f"{CONDITIONS[name].look.label} λ {lam:g}" for name, lam in lambdas.items())
    success_against_budget(
        path, planners, baselines=baselines, title=f"{called(cell[0].task)}, {called(cell[0].model)}: {told}"
    )
    return path


def _draw_sweep(sweep: Sequence[Summary], reference: Summary | None, path: Path) -> Path:
    first = sweep[0]
    points = [Point(s.lam, 100 * s.mean, 100 * s.low, 100 * s.high) for s in sweep if s.lam]
    levels = [] if reference is None else [Level(100 * reference.mean, condition(BASELINE).look)]
    panel = Panel(
        f"{called(first.task)}, {called(first.model)}, {first.searched}",
        [Series(look_of(first.condition), points)],
        levels,
    )
    ticks = {point.x: f"{point.x:g}" for point in points}
    return draw_chart(path, Chart("", "", [panel], "λ", "success (%)", ticks=ticks, log_x=True))
