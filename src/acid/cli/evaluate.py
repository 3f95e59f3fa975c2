"""`acid eval` and `acid results`: compare conditions on held-out episodes."""

from __future__ import annotations

import json
import sys
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from acid.cli.extras import need
from acid.cli.options import By, Cells, PlanningCompute, PlansOn, Search, SearchOptions, Where, Workers
from acid.cli.progress import bar
from acid.errors import AcidError, AcidWarning
from acid.evaluation.conditions import CONDITIONS, condition

if TYPE_CHECKING:
    from acid.evaluation import Cell, CellContender, SearchSpec
    from acid.evaluation.conditions import Condition

Split = Literal["test", "select", "confirm"]
_CONDITIONS = f"Any of {', '.join(CONDITIONS)}. Default: original, acid and the task's usual comparisons."


@dataclass(frozen=True)
class Evaluate:
    """Evaluate a cell on held-out, paired episodes; continues where an earlier run stopped."""

    where: Cells = field(default_factory=Where)
    conditions: Annotated[tuple[str, ...], tyro.conf.arg(help=_CONDITIONS)] = ()
    lambdas: tuple[float, ...] = ()
    """λ for conditions that have a weight; each value is a run of its own. Default: the λ that was chosen."""
    search: Search = field(default_factory=SearchOptions)
    episodes: int = 200
    split: Split = "test"
    """Results are reported on "test". λ is chosen on "select", and then kept in the results folder. "confirm" is for
    problems of newly collected episodes, on which nothing was chosen or looked at."""
    seed: int = 0
    data: Path | None = None
    """Draw starts and goals from the held-out episodes of this dataset, and keep them; default: the shipped ones. For
    the split confirm: from all episodes of a dataset that the world model was not trained on."""
    batch: int | None = None
    """How many episodes are planned together; default: depends on the world model."""
    fresh: bool = False
    """Replace earlier results of these conditions."""
    workers: By = field(default_factory=Workers)
    compute: PlansOn = field(default_factory=PlanningCompute)

    def run(self) -> None:
        from acid.evaluation import Protocol, evaluate
        from acid.evaluation.kits import kit_of
        from acid.tables.program import remember_lambdas

        cell = self.where.cell()
        contenders = self._contenders(cell, self.search.spec(cell))
        if self.data:
            usual = Protocol.of(cell.task_class.setup, episodes=self.episodes, split=self.split, seed=self.seed)
            drawn = cell.draw(self.data, usual)
            print(f"drew {len(drawn.unsolved)} instances; {drawn.share_solved:.1%} of the draws were solved already")
        with bar(f"evaluate {self.where.task}", "episode") as progress:
            found = evaluate(
                self.where.task,
                contenders,
                episodes=self.episodes,
                split=self.split,
                seed=self.seed,
                results=self.where.results,
                engine=self.workers.make(),
                batch=kit_of(cell.model).batch if self.batch is None else self.batch,
                fresh=self.fresh,
                progress=progress,
            )
        print(found)
        if self.split == "select" and any(contender.lam is not None for contender in contenders.values()):
            print(remember_lambdas(cell))

    def _contenders(self, cell: Cell, spec: SearchSpec) -> dict[str, CellContender]:
        from acid.evaluation import Bench, CellContender, Protocol
        from acid.planning import Adaptive

        chosen = [condition(name) for name in self.conditions] or _usual(cell, every=bool(self.lambdas))
        if self.lambdas and not any(entry.weighted for entry in chosen):
            raise AcidError("none of these conditions has a weight: leave --lambdas out")
        if self.search.given and not any(entry.searches for entry in chosen):
            raise AcidError("none of these conditions searches: leave --method, --samples and the like out")
        for lam in self.lambdas:
            Adaptive(lam)  # complains about a λ that makes no sense
        bench, found = Bench(cell, spec, Protocol.of(cell.task_class.setup)), {}
        for entry in chosen:
            entry.check_applies(bench)
            for lam in (self.lambdas or [cell.chosen_lambda(entry)]) if entry.weighted else [None]:
                name = entry.name if lam is None else f"{entry.name} λ {lam:g}"
                found[name] = CellContender(cell, entry.name, lam, spec, **self.compute.options())
        return found


def _usual(cell: Cell, *, every: bool) -> list[Condition]:
    """What is compared by default; a control whose λ was not chosen is left out, unless every one is asked for."""
    policy = ["policy"] if cell.has("policy") and cell.task_class.setup.goal_offset is not None else []
    names = ["original", "acid", "turn", *policy, "prior", "best"]
    if not cell.task_class.setup.judges_paths:
        names = ["original", "acid", "control", *policy, "random", "noop"]
    idle = [name for name in names[2:] if condition(name).weighted and name not in cell.lambdas and not every]
    if idle and "acid" in cell.lambdas:
        warnings.warn(f"{' and '.join(idle)} left out: no λ was chosen for it; --lambdas takes one", AcidWarning, 2)
    return [condition(name) for name in names if name not in idle]


@dataclass(frozen=True)
class Results:
    """Summarise everything in a results folder, each condition against Original on the same episodes."""

    results: Annotated[Path, tyro.conf.Positional] = Path("results")
    split: Split = "test"
    metric: str | None = None
    """Another number that the rows hold, e.g. final_error or ate_m."""
    starts: Literal["strict", "paper"] = "strict"
    """strict: count only episodes that are not solved at the start. paper: count the first ones, as published work
    does, even if they are."""
    json: bool = False
    """Print JSON instead of a table."""
    figures: Path | None = None
    """Also draw success against budget and the λ sweeps into this folder."""

    def run(self) -> None:
        from acid.evaluation import summarise, table

        if self.figures is not None:
            need("--figures", "report")
        summaries = summarise(self.results, split=self.split, metric=self.metric, starts=self.starts)
        if not summaries:
            raise AcidError(f"{self.results} holds no rows of the split {self.split!r}; `acid eval` makes some")
        if self.json:
            print(json.dumps([summary.as_dict() for summary in summaries], indent=2, ensure_ascii=False))
        else:
            print(table(summaries))
        if self.figures:
            from acid.tables.figures import draw_results

            for path in draw_results(self.results, self.figures):
                print(f"wrote {path}", file=sys.stderr)
