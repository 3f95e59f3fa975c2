"""The paper's first table: Le-WM and PLDM on Cube, Reacher and Push-T, the goal cost alone against ACID."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from acid.evaluation import Condition, Paired, Protocol, Summary, paired, read_rows, search_name, summarise
from acid.evaluation.results import Starts, counted
from acid.evaluation.table import markdown, p_value, percent
from acid.experiments import figures
from acid.experiments.cell import Cell, shipped
from acid.experiments.evaluate import Job, Progress, evaluate, jobs, remember_lambdas
from acid.planning import CEM

TASKS = ("cube", "reacher", "pusht")
MODELS = ("lewm", "pldm")
SEARCH = CEM(samples=300, iterations=30, elites=30)
LAMBDAS = {"acid": (0.07, 0.2, 0.5), "control": (0.02, 0.07, 0.2, 0.5)}  # to choose from
CHOOSING = CEM(samples=100, iterations=30, elites=10)  # λ is chosen with a third of the candidates
CHOOSING_EPISODES = 80
CONDITIONS = ("original", "acid", "control", "policy", "random", "noop")
PUBLISHED = {  # success in %, Original and ACID
    ("lewm", "cube"): (70.0, 74.0),
    ("lewm", "reacher"): (76.0, 88.0),
    ("lewm", "pusht"): (96.0, 100.0),
    ("pldm", "cube"): (58.0, 68.0),
    ("pldm", "reacher"): (76.0, 90.0),
    ("pldm", "pusht"): (72.0, 76.0),
}


@dataclass(frozen=True)
class PlanningTable:
    """Which part of the table to run, and where its rows are."""

    results: Path = Path("results")
    tasks: Sequence[str] = TASKS
    models: Sequence[str] = MODELS
    episodes: int = 200

    def choose(self, *, processes: int = 1, progress: Progress | None = None) -> str:
        """Choose one λ per world model, for ACID and for the control, on episodes that are not reported."""
        protocol = Protocol(episodes=CHOOSING_EPISODES, split="select")
        work = [
            job
            for cell in self._cells()
            for name, lambdas in LAMBDAS.items()
            for job in jobs(cell, [name], CHOOSING, lambdas, protocol, self.results, batch=16)
        ]
        evaluate(work, processes=processes, progress=progress)
        named = search_name(CHOOSING)
        return "\n".join(remember_lambdas(cell, self.results, search=named) for cell in self._one_each())

    def run(self, *, processes: int = 1, progress: Progress | None = None) -> None:
        """Every condition of every cell; what is in the results already is not run again.

        A λ that was not chosen yet is chosen first.
        """
        if not all(cell.lambdas.keys() >= LAMBDAS.keys() for cell in self._one_each()):
            self.choose(processes=processes, progress=progress)
        protocol = Protocol(episodes=self.episodes)
        evaluate(
            [job for cell in self._cells() for job in self._jobs(cell, protocol)],
            processes=processes,
            progress=progress,
        )

    def write(self) -> str:
        """The table as Markdown, also written to the results folder, with the numbers behind it as JSON."""
        lines = [asdict(line) for line in self._lines()]
        tables = [markdown(*self._overview(), texts=2), markdown(*self._table(lines), texts=3)]
        told = [self._missing(lines), _legend(self.episodes)]
        text = "\n\n".join([*tables, *("\n".join(block) for block in told if block)])
        (self.results / "planning.md").write_text(text + "\n")
        (self.results / "planning.json").write_text(json.dumps(lines, indent=2, ensure_ascii=False) + "\n")
        return text

    def draw(self, folder: Path) -> list[Path]:
        """Success against budget and the λ sweeps."""
        return figures.draw(self.results, folder)

    def _cells(self) -> Iterator[Cell]:
        """Those that have weights."""
        for model in self.models:
            for task in self.tasks:
                if f"{task}/{model}" in shipped():
                    yield Cell(task, model)

    def _one_each(self) -> Iterable[Cell]:
        """A cell of every world model: they share λ."""
        return {cell.model: cell for cell in self._cells()}.values()

    def _missing(self, lines: Sequence[dict[str, Any]]) -> list[str]:
        weights = {(cell.model, cell.task) for cell in self._cells()}
        results = {(line["model"], line["task"]) for line in lines}
        wanted = {(model, task): f"{model} on {task}" for model in self.models for task in self.tasks}
        reasons = {
            "because no weights are shipped": [told for cell, told in wanted.items() if cell not in weights],
            "not evaluated yet": [told for cell, told in wanted.items() if cell in weights - results],
        }
        return [f"left out, {reason}: {', '.join(names)}" for reason, names in reasons.items() if names]

    def _jobs(self, cell: Cell, protocol: Protocol) -> Iterator[Job]:
        for name in CONDITIONS:
            lambdas = [cell.chosen_lambda(name)] if name in LAMBDAS else []
            yield from jobs(cell, [name], SEARCH, lambdas, protocol, self.results)

    def _lines(self) -> list[Summary]:
        """Strict and paper summaries of the table's conditions, at the chosen λ."""
        chosen = {(cell.model, name): cell.lambdas.get(name) for cell in self._one_each() for name in LAMBDAS}
        return [
            s
            for starts in ("strict", "paper")
            for s in summarise(self.results, starts=starts)
            if s.task in self.tasks
            and s.model in self.models
            and s.search in (search_name(SEARCH), "-")
            and s.lam == chosen.get((s.model, s.condition))
        ]

    def _table(self, lines: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
        by = {(s["model"], s["task"], s["condition"], s["starts"]): s for s in lines}
        heading = ["model", "task", "condition", "n", "success", "against Original", "p"]
        heading += ["all starts kept", "published"]
        rows = []
        for model in self.models:
            for task in self.tasks:
                for name in CONDITIONS:
                    strict, paper = by.get((model, task, name, "strict")), by.get((model, task, name, "paper"))
                    if strict is not None and paper is not None:
                        rows.append([model, task, name, *_cells(strict, paper, _published(model, task, name))])
        return heading, rows

    def _overview(self) -> tuple[list[str], list[list[str]]]:
        """The paper's own form: a line per cell, and one per world model on all tasks together."""
        heading = ["model", "task", "n", "Original", "ACID", "ACID − Original", "p", "control − Original"]
        heading += ["ACID − control", "published"]
        groups = [(task,) for task in self.tasks] + ([tuple(self.tasks)] if len(self.tasks) > 1 else [])
        rows = []
        for model in self.models:
            for group in groups:
                found = [self.successes(model, name, group) for name in ("original", "acid")]
                gain = self.compared(model, "acid", "original", group)
                if gain is None:
                    continue
                against = [
                    self.compared(model, *pair, group) for pair in (("control", "original"), ("acid", "control"))
                ]
                rows.append(
                    [model, group[0] if len(group) == 1 else "all", str(gain.n)]
                    + [percent(fmean(values.values())) for values in found if values]
                    + [_difference(gain), p_value(gain.p)]
                    + ["-" if other is None else _difference(other) for other in against]
                    + [_published_gain(model, group)]
                )
        return heading, rows

    def compared(
        self, model: str, name: str, other: str, tasks: Sequence[str], starts: Starts = "strict"
    ) -> Paired | None:
        """One condition against another on the episodes of some tasks together; None while some of them are missing."""
        mine, theirs = (self.successes(model, condition, tasks, starts) for condition in (name, other))
        return paired(mine, theirs) if mine and theirs else None

    def successes(
        self, model: str, name: str, tasks: Sequence[str], starts: Starts = "strict"
    ) -> dict[Hashable, float] | None:
        """Of a condition at the chosen λ, by task, seed and instance; None while a task is missing."""
        cells = {cell.task: cell for cell in self._cells() if cell.model == model}
        values: dict[Hashable, float] = {}
        for task in tasks:
            if (cell := cells.get(task)) is None:
                return None
            condition = Condition(task, model, name, search_name(SEARCH), cell.lambdas.get(name))
            path = condition.file(self.results, "test")
            if not path.exists():
                return None
            rows = counted(read_rows([path]), starts)
            values.update({(task, row["seed"], row["instance"]): float(row["success"]) for row in rows})
        return values


def _published(model: str, task: str, name: str) -> str:
    numbers = dict(zip(("original", "acid"), PUBLISHED[model, task], strict=True))
    return f"{numbers[name]:.1f}%" if name in numbers else "-"


def _cells(strict: dict[str, Any], paper: dict[str, Any], published: str) -> list[str]:
    result = f"{percent(strict['mean'])} [{percent(strict['low'])}, {percent(strict['high'])}]"
    difference, p = "-", "-"
    if strict["difference"] is not None:
        ends = (percent(strict[f"difference_{end}"], sign=True) for end in ("low", "high"))
        difference = f"{percent(strict['difference'], sign=True)} [{', '.join(ends)}]"
        p = p_value(strict["p"])
    return [str(strict["n"]), result, difference, p, percent(paper["mean"]), published]


def _difference(found: Paired) -> str:
    low, high = percent(found.low, sign=True), percent(found.high, sign=True)
    return f"{percent(found.difference, sign=True)} [{low}, {high}]"


def _published_gain(model: str, tasks: Sequence[str]) -> str:
    before, after = (fmean(numbers) for numbers in zip(*(PUBLISHED[model, task] for task in tasks), strict=True))
    return f"{before:.1f}% → {after:.1f}%"


def _legend(episodes: int) -> list[str]:
    return [
        f"CEM, N 300, J 30, K 30; {episodes} paired held-out episodes a cell; 95 % intervals, McNemar test.",
        "success: starts that already pass the test are dropped. all starts kept: the published protocol, same runs.",
        "published: the paper's numbers, models of full size, its own data, 50 episodes.",
    ]
