"""`acid demo`, `acid plan`, `acid eval` and `acid results`: planning with a trained cell."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro

from acid.cli.progress import bar
from acid.errors import look_up

LAMBDAS = (0.02, 0.07, 0.2, 0.5, 1.0)


@dataclass(frozen=True)
class Search:
    """The size of the search: N candidates, J iterations, K elites; as published for the task where nothing is said."""

    method: str = "cem"
    samples: int | None = None
    iterations: int | None = None
    elites: int | None = None

    def build(self, task: str) -> Any:
        from acid import planning
        from acid.experiments.setups import setup

        published: Any = setup(task).search
        samples, iterations = self.samples or published.samples, self.iterations or published.iterations
        elites = self.elites or published.elites
        methods: dict[str, Callable[[], Any]] = {
            "cem": lambda: planning.CEM(samples, iterations, elites),
            "icem": lambda: planning.ICEM(samples, iterations, elites),
            "mppi": lambda: planning.MPPI(samples, iterations),
            "gradient": lambda: planning.Gradient(samples, iterations),
            "shooting": lambda: planning.Shooting(samples * iterations),
        }
        return look_up(methods, self.method, "search method")()


@dataclass(frozen=True)
class Demo:
    """The same problems planned with the goal cost alone and with ACID: a table, plots and videos."""

    task: Annotated[str, tyro.conf.Positional] = "reacher"
    model: str = "lewm"
    episodes: int = 40
    out: Path = Path("out/demo")
    processes: int = 2

    def run(self) -> None:
        from acid.experiments import demo

        with bar("plan and execute", "episode") as progress:
            text = demo.run(self.task, self.model, self.episodes, self.out, self.processes, progress)
        print(text)


@dataclass(frozen=True)
class PlanOne:
    """Plan one held-out problem and show the plan."""

    task: Annotated[str, tyro.conf.Positional] = "reacher"
    model: str = "lewm"
    problem: int = 0
    lam: float | None = None
    """Consistency weight λ; default: the one chosen for the shipped weights. 0 plans with the goal cost alone."""
    search: tyro.conf.OmitArgPrefixes[Search] = field(default_factory=Search)
    seed: int = 0
    folder: Path | None = None
    out: Path | None = None
    """Write a picture of the imagined and the executed rollout here."""

    def run(self) -> None:
        from acid.experiments import show

        torch.set_num_threads(1)
        print(
            show.plan_one(
                self.task,
                self.model,
                self.problem,
                lam=self.lam,
                search=self.search.build(self.task),
                seed=self.seed,
                folder=self.folder,
                out=self.out,
            )
        )


@dataclass(frozen=True)
class Evaluate:
    """Evaluate a cell on held-out, paired episodes; continues where an earlier run stopped."""

    task: Annotated[str, tyro.conf.Positional] = "reacher"
    model: str = "lewm"
    conditions: tuple[str, ...] = ("original", "acid", "control", "policy", "random", "noop")
    lambdas: tuple[float, ...] = LAMBDAS
    """λ of ACID and of the control, one condition each."""
    search: tyro.conf.OmitArgPrefixes[Search] = field(default_factory=Search)
    episodes: int = 200
    split: Literal["test", "select"] = "test"
    """λ is chosen on "select", and remembered beside the checkpoints, and reported on "test"."""
    seed: int = 0
    folder: Path | None = None
    """Checkpoints of your own; default: the shipped ones."""
    data: Path | None = None
    """Draw the instances from this dataset instead of using the shipped ones."""
    results: Path = Path("results")
    processes: int = 2
    batch: int = 8
    fresh: bool = False
    """Replace earlier results of these conditions."""

    def run(self) -> None:
        from acid.experiments.cell import Cell
        from acid.experiments.evaluate import draw, evaluate, jobs, remember_lambdas

        cell = Cell(self.task, self.model, self.folder)
        protocol = cell.setup.protocol(seed=self.seed, episodes=self.episodes, split=self.split)
        if self.data:
            drawn = draw(cell, self.data, protocol)
            print(f"drew {len(drawn.unsolved)} instances; {drawn.share_solved:.1%} of the draws were solved already")
        work = jobs(
            cell,
            self.conditions,
            self.search.build(self.task),
            self.lambdas,
            protocol,
            self.results,
            batch=self.batch,
            fresh=self.fresh,
        )
        with bar(f"evaluate {self.task}", "episode") as progress:
            evaluate(work, processes=self.processes, progress=progress)
        Results(self.results, split=self.split).run()
        if self.split == "select" and "acid" in self.conditions:
            print(remember_lambdas(cell, self.results))


@dataclass(frozen=True)
class Results:
    """Summarise everything in a results folder, each condition against Original on the same episodes."""

    results: Annotated[Path, tyro.conf.Positional] = Path("results")
    split: Literal["test", "select"] = "test"
    metric: str | None = None
    """Another column of the rows, e.g. final_error."""
    starts: Literal["strict", "paper"] = "strict"
    """Which episodes count: those not solved at the start, or as many of the first draws (as published work does)."""
    json: bool = False
    figures: Path | None = None
    """Also draw success against budget and the λ sweeps into this folder."""

    def run(self) -> None:
        from acid.evaluation import summarise, table

        summaries = summarise(self.results, split=self.split, metric=self.metric, starts=self.starts)
        if self.json:
            print(json.dumps([summary.as_dict() for summary in summaries], indent=2, ensure_ascii=False))
        else:
            print(table(summaries))
        if self.figures:
            from acid.experiments import figures

            for path in figures.draw(self.results, self.figures):
                print(f"wrote {path}", file=sys.stderr)
