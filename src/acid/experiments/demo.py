"""The demo: the same problems planned with the goal cost alone and with ACID, as a table, plots and films."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from acid import tasks
from acid.evaluation import Condition, Protocol, load_instances, read_rows, search_name, summarise, table
from acid.experiments.cell import Cell, planner
from acid.experiments.evaluate import Job, evaluate
from acid.experiments.show import Shown, execute_plans, sheet_rows
from acid.planning import CEM, Search
from acid.report import Measured, Panel, consistency_per_step, sheet, side_by_side, spreads, success_against_budget

SEARCH = CEM(samples=30, iterations=30, elites=3)
SHOWN = 3  # problems drawn as pictures


def run(
    task_name: str,
    model: str,
    episodes: int,
    out: Path,
    processes: int = 2,
    progress: Callable[[int, int], None] | None = None,
    search: Search = SEARCH,
) -> str:
    """Plan, execute, compare, draw; returns the text to print."""
    cell = Cell(task_name, model)
    lam = cell.chosen_lambda()
    protocol = cell.setup.protocol(episodes=episodes)
    name = search_name(search)
    conditions = [
        Condition(task_name, model, "original", name),
        Condition(task_name, model, "acid", name, lam),
        Condition(task_name, model, "noop"),
    ]
    rows = out / "rows"
    work = [Job(cell, condition, search, protocol, rows, batch=8, fresh=True) for condition in conditions]
    evaluate(work, processes=processes, progress=progress)
    pictures = _draw(cell, lam, search, protocol, out, work)
    return "\n".join(
        [
            table(summarise(rows)),
            "",
            f"{episodes} held-out problems, the same for every row; {name}, λ = {lam:g}, chosen on other episodes.",
            "Look at (problems on which the two differ come first):",
            *(f"  {path}" for path in pictures),
        ]
    )


def _draw(cell: Cell, lam: float, search: Search, protocol: Protocol, out: Path, work: list[Job]) -> list[Path]:
    instances = load_instances(cell.instances_file("test"), protocol, cell.task)
    planners = {"original": planner(cell, "original", search, None), "acid": planner(cell, "acid", search, lam)}
    task = tasks.make(cell.task, size=cell.world_model().observation_size)
    shown: dict[str, list[Shown]] = {name: [] for name in planners}
    chosen = _telling(work, SHOWN)
    for name, plans in planners.items():
        shown[name] = [execute_plans(task, cell, plans, instances[index], protocol.seed) for index in chosen]
    task.close()
    paths = []
    for place, index in enumerate(chosen):
        both = {name: shown[name][place] for name in planners}
        first = both["acid"]
        path = out / f"problem-{index:03d}.png"
        rows = [row for name, one in both.items() for row in sheet_rows(name, one)]
        titles = [f"block {t}" for t in range(1, len(first.imagined))]
        sheet(path, rows, start=first.start, goal=first.goal, titles=titles, heading=f"{cell.task}, problem {index}")
        film = path.with_suffix(".mp4")
        side_by_side(film, _panels(both))
        paths += [path, film]
    paths.append(_draw_success(work, out / "success.png", task.metric))
    residuals = {n: np.stack([one.residuals for one in many]) for n, many in shown.items()}
    consistency_per_step(out / "consistency.png", residuals, title="Residual per imagined step")
    traces = [plan.trace for one in shown["acid"] for plan in one.plans]
    goal, consistency = (np.concatenate([t.spreads[n].numpy() for t in traces], 1) for n in ("goal", "consistency"))
    weight = np.concatenate([t.weights["consistency"].numpy() for t in traces], 1)
    spreads(out / "spreads.png", {cell.task: (goal, consistency, weight)}, title="Spread of the costs while searching")
    return [*paths, out / "consistency.png", out / "spreads.png"]


def _panels(both: dict[str, Shown]) -> list[Panel]:
    panels = []
    for name, one in both.items():
        block = (len(one.film) - 1) // (len(one.imagined) - 1)
        imagined = one.imagined[np.arange(len(one.film)) // block]  # held until the next imagined frame
        panels += [Panel(name, imagined, "imagined"), Panel(name, one.film, "executed")]
    goal = next(iter(both.values())).goal
    return [*panels, Panel("goal", np.repeat(goal[None], len(panels[0].frames), 0))]


def _telling(work: list[Job], count: int) -> list[int]:
    """Problems on which the two conditions differ, first those that only ACID solves; then any others."""
    by_condition = {job.condition.name: read_rows([job.file]) for job in work}
    original, acid = by_condition["original"], by_condition["acid"]
    gain = [int(a["success"]) - int(o["success"]) for o, a in zip(original, acid, strict=True)]
    return sorted(np.argsort([-abs(g) * 2 - g for g in gain], kind="stable")[:count].tolist())


def _draw_success(work: list[Job], path: Path, metric: str) -> Path:
    measured = {s.condition: s for s in summarise(work[0].results)}
    bars = {n: Measured(s.mean, s.low, s.high) for n, s in measured.items()}
    samples = getattr(work[0].search, "samples", 0)
    planners = {n: {samples: bars[n]} for n in ("original", "acid")}
    success_against_budget(path, planners, baselines={"noop": bars["noop"]}, title=f"{metric} with 95 % intervals")
    return path
