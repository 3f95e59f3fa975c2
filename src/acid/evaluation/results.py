"""From rows to one summary per condition, each compared with a baseline on the same episodes."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, get_args

from acid.errors import DataError, did_you_mean, look_up
from acid.evaluation.conditions import BASELINE, CONDITIONS, condition
from acid.evaluation.protocol import Split
from acid.evaluation.rows import SAME_IN_A_FILE, Key, Row, read_rows
from acid.evaluation.searches import SearchSpec
from acid.evaluation.statistics import Paired, paired, share_or_mean

Starts = Literal["strict", "paper"]
Group = list[Row]
_RULES = tuple(name for name in SAME_IN_A_FILE if name != "checkpoints")


@dataclass(frozen=True)
class Summary:
    """One condition over its n episodes; `comparison` is with the baseline on the shared ones."""

    task: str
    model: str
    condition: str
    search: SearchSpec | None
    lam: float | None
    split: str
    starts: str  # "strict" or "paper": which episodes count
    metric: str
    higher_is_better: bool
    n: int
    mean: float
    low: float
    high: float
    final_error: float  # mean
    plan_seconds: float | None  # mean per episode: CPU time, or wall time where only that is known
    revisions: tuple[str, ...]  # of the code that made the rows
    against: str | None = None  # the baseline and its search
    comparison: Paired | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def searched(self) -> str:
        return "-" if self.search is None else self.search.label


def summarise(
    folder: str | Path, *, split: str | None = "test", metric: str | None = None, starts: Starts = "strict"
) -> list[Summary]:
    """One summary per condition below a folder of results, by default of the split that λ was not chosen on.

    `starts` says which episodes count: "strict" those whose start was not solved already, "paper" as many of the first
    draws whatever their start. The metric is the task's own unless another number of the rows is named; conditions
    that do not have it are left out.
    """
    if split is not None:
        look_up(dict.fromkeys(get_args(Split)), split, "split")
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"no results: {folder} is not a folder")
    rows = [r for r in read_rows(_row_files(folder)) if split is None or r.split == split]
    return summarise_rows(rows, metric=metric, starts=starts)


def summarise_rows(
    rows: Sequence[Row], *, metric: str | None = None, starts: Starts = "strict", against: str | None = None
) -> list[Summary]:
    """The same for rows in memory.

    against: compare all with this one, whatever its search and world model; by default with "original" of their own.
    """
    look_up(dict.fromkeys(get_args(Starts)), starts, "rule of which starts count")
    groups = {name: kept for name, group in grouped(rows).items() if (kept := counted(group, starts))}
    if metric is not None and groups:
        having = {n: group for n, group in groups.items() if all(row.value(metric) is not None for row in group)}
        if not having:
            known = {name for row in rows for name in row.numbers}
            raise DataError(f"no rows have a number called {metric!r}{did_you_mean(metric, known)}")
        groups = having
    found = [_summary(group, _reference(group, groups, against), metric, starts) for group in groups.values()]
    return sorted(found, key=_order)


def choose_lambda(summaries: Iterable[Summary], model: str, name: str, *, task: str | None = None) -> float:
    """The best λ on the "select" split; ties go to the smaller final error.

    One λ serves a world model: unless a task is named, it is judged by its average over all tasks and searches it was
    tried with, and only if it was tried with all of them.
    """
    tried: dict[float, list[Summary]] = defaultdict(list)
    for s in summaries:
        if (s.model, s.condition, s.split) == (model, name, "select") and s.lam is not None and task in (None, s.task):
            tried[s.lam].append(s)
    if not tried:
        where = f"{model} on {task}" if task else model
        raise DataError(f'no "select" results of {name} for {where}: run those first to choose λ')
    most = max(len(found) for found in tried.values())

    def badness(lam: float) -> tuple[float, float]:
        found = tried[lam]
        sign = -1 if found[0].higher_is_better else 1
        # errors of different tasks have different units: average their logarithms, i.e. compare ratios
        return sign * fmean(s.mean for s in found), fmean(math.log(max(s.final_error, 1e-12)) for s in found)

    return min(sorted(lam for lam, found in tried.items() if len(found) == most), key=badness)


def counted(rows: Group, starts: Starts) -> Group:
    """The rows of one condition that count by a protocol."""
    strict = [row for row in rows if not row.solved_at_start]
    if starts == "strict":
        return strict
    if other := {row.split for row in rows} - {"test"}:
        raise DataError(f"starts that are solved already are not kept for the split {min(other)!r}; count strict ones")
    first = Counter(row.seed for row in strict)  # of every seed's draws
    return [row for row in rows if row.draw < first[row.seed]]


def grouped(rows: Iterable[Row]) -> dict[Key, Group]:
    """Rows by condition; one that is there twice is an error."""
    groups: dict[Key, dict[Key, Row]] = defaultdict(dict)
    for row in rows:
        if row.key in groups[row.group]:
            raise DataError(f"instance {row.instance} of {row.condition} for {row.task} is in the results twice")
        groups[row.group][row.key] = row
    return {name: list(group.values()) for name, group in groups.items()}


def values_of(rows: Iterable[Row], metric: str) -> dict[tuple[int, str], float]:
    """A number of every row, by what rows are paired by."""
    found: dict[tuple[int, str], float] = {}
    for row in rows:
        value = row.value(metric)
        if value is None:
            close = did_you_mean(metric, row.numbers)
            raise DataError(f"{row.condition} has no number called {metric!r} for instance {row.instance}{close}")
        found[row.pair] = value
    return found


def check_comparable(row: Row, other: Row) -> None:
    """A DataError for rows of different weights or rules, whose difference is not an effect of the condition."""
    for name in SAME_IN_A_FILE:
        mine, theirs = getattr(row, name), getattr(other, name)
        if name == "checkpoints":  # some have no verifier, the no-op no model at all, and models may be compared
            shared = mine.keys() & theirs.keys() if row.model == other.model else ()
            mine, theirs = ({part: c[part] for part in shared} for c in (mine, theirs))
        if mine != theirs:
            raise DataError(
                f"{row.condition} and {other.condition} of {row.task}, {row.model} cannot be compared: "
                f"{name} {mine} against {theirs}; run one of them again"
            )


def mixed_revisions(rows: Iterable[Row]) -> list[str]:
    """A line for each condition whose rows were made by several revisions of the code or by uncommitted code."""
    lines = []
    for group in grouped(rows).values():
        found = sorted({row.revision for row in group})
        dirty = sum(row.revision.endswith("-dirty") for row in group)
        if len(found) > 1 or dirty:
            first = group[0]
            name = " ".join([first.task, first.model, first.condition, *([first.search.label] if first.search else [])])
            name += f" λ {first.lam:g}" if first.lam else ""
            told = f"{dirty} of {len(group)} rows by uncommitted code" if dirty else f"{len(group)} rows"
            lines.append(f"{name}, {first.split}: {told}, {len(found)} revisions")
    return sorted(lines)


def _row_files(folder: Path) -> list[Path]:
    """task/model/split/*.jsonl"""
    return sorted(folder.glob("*/*/*/*.jsonl"))


def _reference(group: Group, groups: Mapping[Key, Group], against: str | None) -> Group | None:
    """The baseline with the same search; for agents that do not search, the one with the largest budget, among those
    that were tested by the same rules if there are any."""
    mine = group[0]
    if mine.condition == (against or BASELINE):
        return None
    if against is not None:
        return next((g for g in groups.values() if g[0].condition == against), None)
    same = [g for g in groups.values() if g[0].condition == BASELINE
            and (g[0].task, g[0].model, g[0].split) == (mine.task, mine.model, mine.split)]  # fmt: skip
    if mine.condition in CONDITIONS and not condition(mine.condition).searches:
        fair = [g for g in same if all(getattr(g[0], rule) == getattr(mine, rule) for rule in _RULES)]
        return max(fair or same, key=lambda g: _budget(g[0]), default=None)
    if mine.condition not in CONDITIONS:  # an agent of the user's own, whatever its search
        return same[0] if same else None
    return next((g for g in same if g[0].search == mine.search), None)


def _summary(rows: Group, reference: Group | None, metric: str | None, starts: Starts) -> Summary:
    first = rows[0]
    name = metric or first.metric
    values = values_of(rows, name)
    interval = share_or_mean(list(values.values()))
    comparison = None
    if reference is not None and {row.pair for row in reference} & values.keys():
        check_comparable(first, reference[0])
        comparison = paired(values, values_of(reference, name))
    known = [row.plan_wall_seconds if row.plan_cpu_seconds is None else row.plan_cpu_seconds for row in rows]
    seconds = [value for value in known if value is not None]
    return Summary(
        task=first.task,
        model=first.model,
        condition=first.condition,
        search=first.search,
        lam=first.lam,
        split=first.split,
        starts=starts,
        metric=name,
        higher_is_better=first.higher_is_better if name == first.metric else name == "success",
        n=interval.n,
        mean=interval.mean,
        low=interval.low,
        high=interval.high,
        final_error=fmean(row.final_error for row in rows),
        plan_seconds=fmean(seconds) if seconds else None,
        revisions=tuple(sorted({row.revision for row in rows})),
        against=f"{reference[0].condition} {_searched(reference[0])}" if comparison and reference else None,
        comparison=comparison,
    )


def _searched(row: Row) -> str:
    return "-" if row.search is None else row.search.label


def _budget(row: Row) -> tuple[int, str]:
    return (0, "") if row.search is None else (row.search.budget, row.search.name)


def _order(s: Summary) -> tuple[Any, ...]:
    names = list(CONDITIONS)
    rank = names.index(s.condition) if s.condition in names else len(names)
    budget = 0 if s.search is None else s.search.budget
    return s.task, s.model, s.split, s.search is None, -budget, s.searched, rank, s.lam or 0.0
