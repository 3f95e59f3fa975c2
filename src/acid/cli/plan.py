"""`acid demo`, `acid plan`, `acid diagnose` and `acid card`: look at a cell."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from acid.cli.extras import need
from acid.cli.options import Cells, Compute, On, PlanningCompute, PlansOn, Search, SearchOptions, Where
from acid.cli.progress import bar


@dataclass(frozen=True)
class Demo:
    """Plan the same problems with the goal cost alone, with ACID, and from a policy: a table, pictures and a film.

    The pictures show one problem; the rule by which it was chosen is printed.
    """

    where: Cells = field(default_factory=lambda: Where(task="pusht"))
    episodes: int | None = None
    """Number of problems; default: 40, or 5 where planning is slow (rope, granular, navigation)."""
    data: Path | None = None
    """Draw the problems from the held-out episodes of this dataset instead of using the shipped ones."""
    out: Path = Path("out/demo")
    """Folder for the pictures, the film and the rows."""
    processes: int = 2
    """Processes at a time."""
    compute: On = field(default_factory=Compute)

    def run(self) -> None:
        from acid.views import demo

        with bar("plan and execute", "episode") as progress:
            text = demo.run(
                self.where.cell(preferred=demo.MODEL),
                self.episodes,
                self.out,
                data=self.data,
                processes=self.processes,
                progress=progress,
                **self.compute.options(),
            )
        print(text)


@dataclass(frozen=True)
class Plan:
    """Plan one held-out problem and show the plan."""

    where: Cells = field(default_factory=Where)
    problem: int = 0
    """Number of the problem, counted from 0."""
    data: Path | None = None
    """Draw the problems from the held-out episodes of this dataset instead of using the shipped ones."""
    lam: float | None = None
    """Consistency weight λ; default: the one that was chosen. 0 plans with the goal cost alone."""
    search: Search = field(default_factory=SearchOptions)
    seed: int = 0
    out: Path | None = None
    """Write a picture of the imagined and the executed steps here."""
    rerun: Path | None = None
    """Record the search, the imagined and the executed steps into this .rrd file, for the rerun viewer."""
    compute: PlansOn = field(default_factory=PlanningCompute)

    def run(self) -> None:
        import torch

        from acid.views.show import show_plan

        if self.out is not None:
            need("a picture of the plan", "report")
        torch.set_num_threads(1)
        cell = self.where.cell()
        print(
            show_plan(
                cell,
                self.problem,
                self.search.spec(cell),
                lam=self.lam,
                data=self.data,
                seed=self.seed,
                out=self.out,
                **self.compute.options(),
                rerun=self.rerun,
            )
        )


@dataclass(frozen=True)
class Diagnose:
    """Find out why ACID helps in a cell, or why not: execute candidates and plans, and compare what happens with what
    was imagined."""

    where: Cells = field(default_factory=Where)
    problems: int = 24
    """Number of problems to measure."""
    data: Path | None = None
    """Draw the problems from the held-out episodes of this dataset instead of using the shipped ones."""
    lam: float | None = None
    """Consistency weight λ of ACID's plans; default: the one that was chosen."""
    json: bool = False
    """Print JSON instead of a table."""
    compute: On = field(default_factory=Compute)

    def run(self) -> None:
        import torch

        from acid.views.diagnosis import diagnose

        torch.set_num_threads(1)
        with bar(f"diagnose {self.where.task}", "problem") as progress:
            found = diagnose(
                self.where.cell(),
                problems=self.problems,
                lam=self.lam,
                data=self.data,
                progress=progress,
                **self.compute.options(),
            )
        print(json.dumps(found.as_dict(), indent=2, ensure_ascii=False) if self.json else found.text())


@dataclass(frozen=True)
class Card:
    """Write the model card of a cell: how it was made, what its latents and its verifier know."""

    where: Cells = field(default_factory=Where)
    data: Path | None = None
    """Probe the latents on this dataset; without it the last probe is kept."""
    out: Path | None = None
    """A folder; default: that of your own cell, or RESULTS/TASK/MODEL for a shipped one."""

    def run(self) -> None:
        import torch

        from acid.views.card import write_card

        torch.set_num_threads(1)
        print(f"wrote {write_card(self.where.cell(), self.data, self.out)}")
