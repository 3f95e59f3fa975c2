"""What a table still has to run, and about how long that takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from acid.evaluation import CellContender, Job, SearchSpec
from acid.tables.table import Findings

IDLE_SECONDS = 0.5  # of an episode without a search


@dataclass(frozen=True)
class Outlook:
    """Episodes that are missing, and CPU seconds; None where no run tells how long one takes."""

    episodes: int
    cpu_seconds: float | None
    searches: int | None = None  # episodes that are searched, where several conditions rank the same candidates

    def __str__(self) -> str:
        if not self.episodes:
            return "nothing to evaluate"
        shared = "" if self.searches in (None, self.episodes) else f" of {self.searches} searches"
        if self.cpu_seconds is None:
            return f"{self.episodes} episodes{shared}, time unknown"
        return f"{self.episodes} episodes{shared}, about {self.cpu_seconds / 3600:.1f} CPU hours"


def outlook(findings: Findings, *, choose: bool = False) -> Outlook:
    """Estimated from the time that candidates of the same cell took in earlier rows.

    λ that has to be chosen first is counted, or chosen again if asked; what is run with it afterwards is not known yet.
    """
    choosing = choose or bool(findings.missing_lambdas())
    jobs = findings.choosing_jobs() if choosing else findings.jobs()
    episodes, searches, seconds = 0, 0, 0.0
    known = True
    for job in jobs:
        missing = [max(0, len(job.instances) - _present(path)) for path in job.files]
        episodes += sum(missing)
        seconds += IDLE_SECONDS * sum(missing)
        for contender, search, count in _searching(job, missing):
            searches += count
            rate = _seconds_per_candidate(findings, contender)
            known = known and rate is not None
            seconds += count * (rate or 0.0) * search.budget * search.repeats
    return Outlook(episodes, seconds if known else None, searches)


def _present(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.is_file() else 0


def _searching(job: Job, missing: Sequence[int]) -> list[tuple[CellContender, SearchSpec, int]]:
    """Contenders with the episodes that they search. Those that share their candidates search once for all."""
    found = [
        (contender, contender.search, count)
        for contender, count in zip(job.contenders, missing, strict=True)
        if count and isinstance(contender, CellContender) and contender.search is not None
    ]
    if found and all(contender.pooled for contender, _, _ in found):
        return [max(found, key=lambda one: one[2])]
    return found


def _seconds_per_candidate(findings: Findings, contender: CellContender) -> float | None:
    """Of an episode, by the first file of rows of the same cell."""
    folder = findings.options.results / contender.cell.task_class.name / contender.model
    for path in sorted(folder.glob("*/*.jsonl")):
        rows = [row for row in findings.read(path) if row.search is not None]
        taken = [(row.plan_cpu_seconds or row.plan_wall_seconds or 0.0) / (row.search.budget * row.search.repeats)
                 for row in rows[:50] if row.search is not None]  # fmt: skip
        if any(taken):
            return fmean(taken)
    return None
