"""Evaluate a cell: every condition on the same instances, several conditions side by side, rows to disk."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol as Interface

from acid import checkpoint, tasks
from acid.data import Episodes, split
from acid.evaluation import (
    Condition,
    Instances,
    Protocol,
    RowFile,
    choose_lambda,
    draw_instances,
    load_instances,
    run,
    same_in_a_file,
    save_instances,
    summarise,
)
from acid.evaluation.conditions import PLANNERS, WEIGHTED
from acid.evaluation.table import value
from acid.experiments.cell import Cell, agent
from acid.planning import Search

Progress = Callable[[int, int], None]


class Work(Interface):
    """Rows to be made; small enough to be sent to another process."""

    @property
    def file(self) -> Path:
        """Where the rows go."""
        ...

    @property
    def size(self) -> int:
        """How many there will be."""
        ...

    def run(self, progress: Progress | None = None) -> None:
        """Make those that are not in the file yet."""
        ...


@dataclass(frozen=True)
class Job:
    """One condition of one cell."""

    cell: Cell
    condition: Condition
    search: Search
    protocol: Protocol
    results: Path
    batch: int
    fresh: bool

    @property
    def file(self) -> Path:
        return self.condition.file(self.results, self.protocol.split)

    @property
    def instances(self) -> Instances:
        """λ is chosen by the strict protocol alone, so solved starts are not played for that."""
        found = load_instances(self.cell.instances_file(self.protocol.split), self.protocol, self.cell.task)
        return Instances(found.unsolved) if self.protocol.split == "select" else found

    @property
    def size(self) -> int:
        """Episodes to run."""
        return len(self.instances)

    def run(self, progress: Progress | None = None) -> None:
        who, provenance = agent(self.cell, self.condition, self.search, self.protocol)
        size = self.cell.world_model().observation_size
        with RowFile(self.file, same_in_a_file(self.protocol, provenance), fresh=self.fresh) as writer:
            run(
                lambda: tasks.make(self.cell.task, size=size),
                who,
                self.instances,
                protocol=self.protocol,
                condition=self.condition,
                provenance=provenance,
                writer=writer,
                batch=self.batch,
                progress=progress,
            )


def jobs(
    cell: Cell,
    names: Sequence[str],
    search: Search,
    lambdas: Sequence[float],
    protocol: Protocol,
    results: Path,
    *,
    batch: int = 8,
    fresh: bool = False,
) -> list[Job]:
    """One job per condition; those with a weight once per λ."""
    load_instances(cell.instances_file(protocol.split), protocol, cell.task)  # complain before the work begins
    found = []
    for name in names:
        searches = cell.search_name(search) if name in PLANNERS else "-"
        for lam in lambdas if name in WEIGHTED else [None]:
            condition = Condition(cell.task, cell.model, name, searches, lam)
            found.append(Job(cell, condition, search, protocol, results, batch, fresh))
    return found


def evaluate(work: Sequence[Work], *, processes: int = 1, progress: Progress | None = None) -> None:
    """Run the jobs, one thread each; what is already in the result files is not run again."""
    report = progress or (lambda done, total: None)
    sizes = [job.size for job in work]
    total = sum(sizes)
    if processes == 1:
        _one_after_another(work, sizes, report)
        return
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = [pool.submit(run_job, job) for job in work]
        while not all(future.done() for future in futures):
            report(sum(min(_lines(job.file), size) for job, size in zip(work, sizes, strict=True)), total)
            time.sleep(1)
        for future in futures:
            future.result()
    report(total, total)


def _one_after_another(work: Sequence[Work], sizes: Sequence[int], report: Progress) -> None:
    before, total = 0, sum(sizes)
    for job, size in zip(work, sizes, strict=True):
        run_job(job, lambda done, _, before=before: report(before + done, total))
        before += size


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def run_job(job: Work, progress: Progress | None = None) -> None:
    import torch

    torch.set_num_threads(1)  # candidates fill one core; parallel conditions are worth more than parallel matrices
    job.run(progress)


def draw(cell: Cell, data: Path, protocol: Protocol) -> Instances:
    """Draw instances from the episodes that the cell's world model never saw, and keep them for everyone."""
    episodes = Episodes(data, require=("action", "state"))
    held_out = checkpoint.load(cell.root / "model").metadata["recipe"]["held_out"]
    instances = draw_instances(
        episodes, split(len(episodes), held_out).held_out.tolist(), tasks.make(cell.task), protocol
    )
    save_instances(cell.instances_file(protocol.split), instances, protocol, cell.task)
    return instances


def remember_lambdas(cell: Cell, results: Path, *, search: str | None = None) -> str:
    """Choose λ on "select" episodes, of all tasks or of the cell's alone, and keep it; returns what was found.

    Every search that was tried counts, or the named one alone.
    """
    tried = [s for s in summarise(results, split="select") if s.model == cell.model and s.lam is not None]
    tried = [s for s in tried if search in (None, s.search)]
    if cell.setup.own_lambda:
        tried = [s for s in tried if s.task == cell.task]
    names = sorted({s.condition for s in tried})
    lambdas = {name: choose_lambda(tried, cell.model, name) for name in names}
    told = "; ".join(f"{s.task} {s.search} {s.condition} λ {s.lam:g}: {value(s, s.mean)} of {s.n}" for s in tried)
    path = cell.choose_lambdas(lambdas, f"{tried[0].metric} on episodes that are not reported: {told}")
    return f"chose {', '.join(f'λ = {lam:g} for {name}' for name, lam in lambdas.items())}; wrote {path}"
