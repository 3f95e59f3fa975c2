"""Where jobs run: processes of this machine. `clusters` has the engines beyond it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, wait
from pathlib import Path
from typing import Protocol

from acid.errors import AcidError
from acid.evaluation.jobs import Job, Progress
from acid.workers import worker_pool


class Engine(Protocol):
    """Runs jobs until their rows are complete; calling again continues."""

    def run(self, jobs: Sequence[Job], progress: Progress) -> None: ...


class Local:
    """Processes of this machine with one thread each: several jobs at once gain more than several threads in one."""

    def __init__(self, processes: int = 1) -> None:
        if processes < 1:
            raise AcidError(f"processes must be at least 1, got {processes}")
        self.processes = processes

    def run(self, jobs: Sequence[Job], progress: Progress) -> None:
        total, before = sum(job.size for job in jobs), 0
        if self.processes == 1 or len(jobs) < 2:
            for job in jobs:
                run_job(job, lambda done, _, before=before: progress(before + done, total))
                before += job.size
            return
        if here := [job.task for job in jobs if not isinstance(job.task, str)]:
            raise AcidError(
                f"the environment {here[0].name!r} lives in this process alone: evaluate it with Local(1), or name its "
                "task as package.module:Class"
            )
        with worker_pool(self.processes) as pool:
            futures = [pool.submit(run_job, job) for job in jobs]
            while wait(futures, timeout=0.5, return_when=FIRST_EXCEPTION).not_done:
                for failed in (future for future in futures if future.done()):
                    failed.result()
                progress(sum(min(sum(map(_lines, job.files)), job.size) for job in jobs), total)
            for future in futures:
                future.result()
        progress(total, total)


def run_job(job: Job, progress: Progress | None = None) -> None:
    import torch

    torch.set_num_threads(1)
    job.run(progress)


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0
