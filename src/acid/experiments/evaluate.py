"""Evaluate a cell: every condition on the same instances, several conditions side by side, rows to disk."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

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
    search_name,
    summarise,
)
from acid.evaluation.conditions import PLANNERS
from acid.experiments.cell import Cell, agent
from acid.planning import Search

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Job:
    """One condition of one cell; small enough to be sent to another process."""

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
    """One job per condition; ACID and the control once per λ."""
    load_instances(cell.instances_file(protocol.split), protocol, cell.task)  # complain before the work begins
    found = []
    for name in names:
        searches = search_name(search) if name in PLANNERS else "-"
        for lam in lambdas if name in ("acid", "control") else [None]:
            condition = Condition(cell.task, cell.model, name, searches, lam)
            found.append(Job(cell, condition, search, protocol, results, batch, fresh))
    return found


def evaluate(work: Sequence[Job], *, processes: int = 1, progress: Progress | None = None) -> None:
    """Run the jobs, one thread each; what is already in the result files is not run again."""
    report = progress or (lambda done, total: None)
    total = sum(job.protocol.episodes for job in work)
    if processes == 1:
        _one_after_another(work, total, report)
        return
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = [pool.submit(run_job, job) for job in work]
        while not all(future.done() for future in futures):
            report(sum(min(_lines(job.file), job.protocol.episodes) for job in work), total)
            time.sleep(1)
        for future in futures:
            future.result()
    report(total, total)


def _one_after_another(work: Sequence[Job], total: int, report: Progress) -> None:
    before = 0
    for job in work:
        run_job(job, lambda done, _, before=before: report(before + done, total))
        before += job.protocol.episodes


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def run_job(job: Job, progress: Progress | None = None) -> None:
    import torch

    torch.set_num_threads(1)  # candidates fill one core; parallel conditions are worth more than parallel matrices
    who, provenance = agent(job.cell, job.condition, job.search, job.protocol)
    instances = load_instances(job.cell.instances_file(job.protocol.split), job.protocol, job.cell.task)
    size = job.cell.world_model().config.encoder.image_size
    with RowFile(job.file, same_in_a_file(job.protocol, provenance), fresh=job.fresh) as writer:
        run(
            lambda: tasks.make(job.cell.task, size=size),
            who,
            instances,
            protocol=job.protocol,
            condition=job.condition,
            provenance=provenance,
            writer=writer,
            batch=job.batch,
            progress=progress,
        )


def draw(cell: Cell, data: Path, protocol: Protocol) -> Instances:
    """Draw instances from the episodes that the cell's world model never saw, and keep them for everyone."""
    episodes = Episodes(data, require=("action", "state"))
    held_out = checkpoint.load(cell.root / "model").metadata["recipe"]["held_out"]
    instances = draw_instances(
        episodes, split(len(episodes), held_out).held_out.tolist(), tasks.make(cell.task), protocol
    )
    save_instances(cell.instances_file(protocol.split), instances, protocol, cell.task)
    return instances


def remember_lambda(cell: Cell, results: Path) -> str:
    """Choose ACID's λ on the "select" episodes and keep it beside the checkpoints; returns what was found."""
    summaries = summarise(results, split="select")
    best = choose_lambda(summaries, cell.task, cell.model)
    tried = [s for s in summaries if (s.task, s.model, s.condition) == (cell.task, cell.model, "acid")]
    told = "; ".join(f"λ {s.lam:g} {s.search}: {s.mean:.1%} of {s.n}" for s in tried)
    return f"chose λ = {best:g}, wrote {cell.choose_lambda(best, f'{tried[0].metric} on other episodes: {told}')}"
