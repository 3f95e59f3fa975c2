"""What a table still has to run, and about how long that takes."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from acid.evaluation import CellContender
from acid.tables.table import Findings

IDLE_SECONDS = 0.5  # of an episode without a search


@dataclass(frozen=True)
class Outlook:
    """Episodes that are missing, and CPU seconds; None where no run tells how long one takes."""

    episodes: int
    cpu_seconds: float | None

    def __str__(self) -> str:
        if not self.episodes:
            return "nothing to evaluate"
        if self.cpu_seconds is None:
            return f"{self.episodes} episodes, time unknown"
        return f"{self.episodes} episodes, about {self.cpu_seconds / 3600:.1f} CPU hours"


def outlook(findings: Findings) -> Outlook:
    """Judged by what candidates of the same cell took in the rows that are there.

    λ that has to be chosen first is counted, what is run with it afterwards is not known yet.
    """
    choosing = bool(findings.missing_lambdas())
    jobs = findings.choosing_jobs() if choosing else findings.jobs()
    episodes, seconds = 0, 0.0
    known = True
    for job in jobs:
        for contender, path in zip(job.contenders, job.files, strict=True):
            present = path.read_bytes().count(b"\n") if path.is_file() else 0
            missing = max(0, len(job.instances) - present)
            episodes += missing
            if missing and isinstance(contender, CellContender):
                rate = _seconds_per_candidate(findings, contender) if contender.search else 0.0
                known = known and rate is not None
                budget = contender.search.budget * contender.search.repeats if contender.search else 0
                seconds += missing * (IDLE_SECONDS + (rate or 0.0) * budget)
    return Outlook(episodes, seconds if known else None)


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
