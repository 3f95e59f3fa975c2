"""The paper's second table, left: DINO-WM on Rope and Granular, and its figure of the Chamfer distance over pushes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from acid import tasks
from acid.evaluation import Condition, Paired, bootstrap_mean, load_instances, paired, read_rows
from acid.evaluation.conditions import PLANNERS, WEIGHTED
from acid.evaluation.table import markdown, p_value
from acid.experiments.cell import Cell, planner
from acid.experiments.evaluate import Job, Progress, evaluate, jobs, remember_lambdas
from acid.experiments.show import execute_plans, sheet_rows
from acid.report import Measured, error_over_steps, sheet

TASKS = ("rope", "granular")
MODEL = "dinowm"
AHEAD = 5  # pushes, planned and executed at once, beside one at a time
LAMBDAS = {"original": (), "acid": (0.3, 1.0, 3.0), "control": (0.3, 1.0), "change": (0.3, 1.0)}  # to choose from
EPISODES, CHOOSING_EPISODES = 100, 24
CONDITIONS = ("original", "acid", "control", "noop", "random", "change", "clipped", "acid-clipped")
CONDITIONS_AHEAD = ("original", "acid", "control")
FOR_INSIGHT = ("change", "clipped", "acid-clipped")
DRAWN = ("original", "acid", "noop")  # in the figure
PUBLISHED = {("rope", "original"): 1.38, ("rope", "acid"): 0.56, ("granular", "original"): 0.49}
PUBLISHED |= {("granular", "acid"): 0.30}
BATCH = 2  # instances planned at once; many candidates fill a core by themselves
NEAR = 1.02  # a curve has reached a level when it is within 2 % of it
LEGEND = (
    "plan: pushes that are planned and executed at once; six pushes in all one by one, ten in fives.",
    "Chamfer distance in task units (1 = 10 cm), lower is better; n paired held-out instances; 95 % intervals by",
    "bootstrap, sign-flip test. imagined: what a readout sees in every imagined push; executed: what then was.",
    "published: the paper's numbers, DINOv2 features, FleX, 10 instances.",
)


@dataclass(frozen=True)
class Line:
    """One condition of one task. Distances are Chamfer distances in task units (1 = 10 cm)."""

    task: str
    horizon: int  # pushes in a plan
    condition: str
    lam: float | None
    n: int
    final: float
    low: float
    high: float
    difference: float | None  # from Original, on the same instances
    difference_low: float | None
    difference_high: float | None
    p: float | None
    better: float | None  # share of the instances on which it is below Original
    missed: float | None  # share of the pushes that moved nothing
    imagined: float | None  # mean over all pushes: what the readout sees in the imagined latents
    executed: float | None  # mean over all pushes: what then was
    over_steps: list[float]  # mean before the first push and after each
    differences: list[Paired]  # from Original, after each push; none for Original itself


@dataclass(frozen=True)
class DeformableTable:
    """Which part of the table to run, and where its rows are."""

    results: Path = Path("results")
    tasks: Sequence[str] = TASKS
    episodes: int = EPISODES
    controls: int = 50  # instances for the controls that only tell what the gain is made of

    def choose(self, *, processes: int = 1, progress: Progress | None = None) -> str:
        """Choose λ for ACID and for the controls, one push at a time, on instances that are not reported."""
        work, cells = [], [Cell(task, MODEL) for task in self.tasks]
        for cell in cells:
            protocol = cell.setup.protocol(episodes=CHOOSING_EPISODES, split="select")
            for name, lambdas in LAMBDAS.items():
                work += jobs(cell, [name], cell.setup.search, lambdas, protocol, self.results, batch=BATCH)
        evaluate(work, processes=processes, progress=progress)
        return "\n".join(remember_lambdas(cell, self.results) for cell in cells)

    def run(self, *, processes: int = 1, progress: Progress | None = None) -> None:
        """Every condition of both tasks; what is in the results already is not run again.

        A λ that was not chosen yet is chosen first.
        """
        if not all(_may_run(cell, name) for cell in self._cells() for name in _conditions(cell)):
            self.choose(processes=processes, progress=progress)
        work = [job for cell in self._cells() for job in self._jobs(cell)]
        evaluate(work, processes=processes, progress=progress)

    def lines(self) -> list[Line]:
        """What the rows on disk say; conditions that were not run are left out."""
        found = []
        for cell in self._cells():
            rows = {name: rows for name in _conditions(cell) if (rows := self._rows(cell, name))}
            found += [_line(cell, self._condition(cell, name), rows[name], rows.get("original")) for name in rows]
        return found

    def _rows(self, cell: Cell, name: str) -> list[dict[str, Any]]:
        """Of the chosen λ; none if it was not run."""
        if not _may_run(cell, name):
            return []
        path = self._condition(cell, name).file(self.results, "test")
        return read_rows([path]) if path.exists() else []

    def write(self) -> str:
        """The table as Markdown, also written to the results folder, with the numbers behind it as JSON."""
        lines = self.lines()
        told = [told for _, part in groupby(lines, _setting) if (told := plateau(list(part)))]
        text = "\n".join([markdown(*_table(lines), texts=3), "", *told, "", *LEGEND])
        (self.results / "deformable.md").write_text(text + "\n")
        content = json.dumps([asdict(line) for line in lines], indent=2, ensure_ascii=False)
        (self.results / "deformable.json").write_text(content + "\n")
        return text

    def draw(self, folder: Path) -> list[Path]:
        """Mean Chamfer distance over the pushes, a panel per task, with intervals over the instances."""
        panels = {
            f"{cell.task}, {_plans(cell.setup.horizon)}": {
                name: _curve(rows) for name in DRAWN if (rows := self._rows(cell, name))
            }
            for cell in self._cells()
            if self._rows(cell, "acid")
        }
        path = folder / "deformable-chamfer.png"
        error_over_steps(path, panels, error="Chamfer distance", step="pushes")
        return [path, *(self._draw_sheet(cell, folder) for cell in self._cells() if self._rows(cell, "acid"))]

    def _draw_sheet(self, cell: Cell, folder: Path) -> Path:
        """The instance on which ACID's gain is the median one: every push, imagined and executed."""
        original, acid = (
            {row["instance"]: row["final_error"] for row in self._rows(cell, name)} for name in ("original", "acid")
        )
        shared = sorted(original.keys() & acid.keys(), key=lambda instance: acid[instance] - original[instance])
        protocol = cell.setup.protocol(episodes=self.episodes)
        instances = {i.id: i for i in load_instances(cell.instances_file("test"), protocol, cell.task)}
        instance = instances[shared[len(shared) // 2]]
        task = tasks.make(cell.task, size=cell.world_model().observation_size)
        rows, shown = [], None
        for name in ("original", "acid"):
            lam = cell.chosen_lambda() if name == "acid" else None
            plans = planner(cell, name, cell.setup.search, lam)
            count = cell.setup.budget // cell.setup.horizon
            shown = execute_plans(task, cell, plans, instance, protocol.seed, plans=count)
            rows += sheet_rows(name, shown)
        task.close()
        assert shown is not None
        path = folder / f"deformable-{cell.task}{'' if cell.horizon is None else '-ahead'}.png"
        titles = [f"push {k + 1}" for k in range(cell.setup.budget)]
        heading = f"{cell.task}, {_plans(cell.setup.horizon)}, {instance.id}: the median gain"
        sheet(path, rows, start=shown.start, goal=shown.goal, titles=titles, heading=heading, scale=1)
        return path

    def _cells(self) -> Iterator[Cell]:
        for task in self.tasks:
            yield Cell(task, MODEL)
            yield Cell(task, MODEL, horizon=AHEAD)

    def _jobs(self, cell: Cell) -> Iterator[Job]:
        for name in _conditions(cell):
            episodes = min(self.controls, self.episodes) if name in FOR_INSIGHT else self.episodes
            protocol = cell.setup.protocol(episodes=episodes)
            lam = self._condition(cell, name).lam
            lambdas = [] if lam is None else [lam]
            yield from jobs(cell, [name], cell.setup.search, lambdas, protocol, self.results, batch=BATCH)

    def _condition(self, cell: Cell, name: str) -> Condition:
        search = cell.search_name(cell.setup.search) if name in PLANNERS else "-"
        chosen = name.removesuffix("-clipped")
        return Condition(cell.task, MODEL, name, search, cell.chosen_lambda(chosen) if name in WEIGHTED else None)


def _conditions(cell: Cell) -> Sequence[str]:
    return CONDITIONS if cell.horizon is None else CONDITIONS_AHEAD


def _plans(horizon: int) -> str:
    return "one push at a time" if horizon == 1 else f"{horizon} pushes a plan"


def _setting(line: Line) -> tuple[str, int]:
    return line.task, line.horizon


def _may_run(cell: Cell, name: str) -> bool:
    """Whether its λ, if it has one, was chosen."""
    return name not in WEIGHTED or name.removesuffix("-clipped") in cell.lambdas


def _line(
    cell: Cell, condition: Condition, rows: Sequence[Mapping[str, Any]], original: Sequence[Mapping[str, Any]] | None
) -> Line:
    final = _after(rows, -1)
    interval = bootstrap_mean(list(final.values()))
    better, differences = None, []
    if original is not None and condition.name != "original":
        differences = [paired(_after(rows, push), _after(original, push)) for push in range(_pushes(rows, original))]
        other = _after(original, -1)
        better = float(np.mean([final[key] < other[key] for key in final.keys() & other.keys()]))
    compared = differences[-1] if differences else None
    steps = sum(row["steps"] for row in rows)
    imagined = [value for row in rows for value in row["imagined_errors"]]
    return Line(
        condition.task,
        cell.setup.horizon,
        condition.name,
        condition.lam,
        interval.n,
        interval.mean,
        interval.low,
        interval.high,
        compared.difference if compared else None,
        compared.low if compared else None,
        compared.high if compared else None,
        compared.p if compared else None,
        better,
        sum(row["misses"] for row in rows) / steps,
        float(np.mean(imagined)) if imagined else None,
        float(np.mean([value for row in rows for value in row["errors"]])) if imagined else None,
        [point.mean for point in _curve(rows)],
        differences,
    )


def _after(rows: Sequence[Mapping[str, Any]], push: int) -> dict[Any, float]:
    """The error after a push, by instance; −1 is the last."""
    return {(row["seed"], row["instance"]): float(row["errors"][push]) for row in rows}


def _pushes(*conditions: Sequence[Mapping[str, Any]]) -> int:
    """How many pushes every episode of all conditions has."""
    return min(len(row["errors"]) for rows in conditions for row in rows)


def _curve(rows: Sequence[Mapping[str, Any]]) -> list[Measured]:
    """Before the first push and after each."""
    values = np.array([[row["initial_error"], *row["errors"]] for row in rows])
    found = [bootstrap_mean(column) for column in values.T]
    return [Measured(point.mean, point.low, point.high) for point in found]


def plateau(lines: Sequence[Line]) -> str:
    """After how many pushes Original, and after how many ACID, is as good as Original ever gets; and ACID's difference
    after each push. Empty if unknown."""
    by = {line.condition: line for line in lines}
    if not {"original", "acid"} <= by.keys():
        return ""
    level = min(by["original"].over_steps)
    reached = {name: _reaches(by[name].over_steps, level) for name in ("original", "acid")}
    told = "never gets there" if reached["acid"] is None else f"after {reached['acid']}"
    setting = f"{lines[0].task}, {_plans(lines[0].horizon)}"
    after = "; ".join(f"{d.difference:+.3f} [{d.low:+.3f}, {d.high:+.3f}]" for d in by["acid"].differences)
    return (
        f"{setting}: Original's lowest mean, {level:.3f}, is reached (within 2 %) by Original after "
        f"{reached['original']} pushes; ACID {told}. ACID against Original after each push: {after}"
    )


def _reaches(curve: Sequence[float], level: float) -> int | None:
    return next((step for step, value in enumerate(curve) if value <= NEAR * level), None)


def _table(lines: Sequence[Line]) -> tuple[list[str], list[list[str]]]:
    heading = ["task", "plan", "condition", "λ", "n", "final Chamfer", "against Original", "p", "better on"]
    heading += ["missed pushes", "imagined", "executed", "published"]
    return heading, [_cells(line) for line in lines]


def _cells(line: Line) -> list[str]:
    difference = "-"
    if line.difference is not None:
        difference = f"{line.difference:+.3f} [{line.difference_low:+.3f}, {line.difference_high:+.3f}]"
    published = PUBLISHED.get((line.task, line.condition))
    return [
        line.task,
        str(line.horizon),
        line.condition,
        "-" if line.lam is None else f"{line.lam:g}",
        str(line.n),
        f"{line.final:.3f} [{line.low:.3f}, {line.high:.3f}]",
        difference,
        "-" if line.p is None else p_value(line.p),
        "-" if line.better is None else f"{100 * line.better:.0f}%",
        "-" if line.missed is None else f"{100 * line.missed:.0f}%",
        "-" if line.imagined is None else f"{line.imagined:.3f}",
        "-" if line.executed is None else f"{line.executed:.3f}",
        "-" if published is None else f"{published:.2f}",
    ]
