"""From rows on disk to one summary per condition, each compared with Original on the same episodes."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from acid.errors import DataError
from acid.evaluation.conditions import BASELINES, NO_SEARCH, PLANNERS
from acid.evaluation.rows import SAME_IN_A_FILE, Row, key, read_rows
from acid.evaluation.statistics import Interval, Paired, bootstrap_mean, paired, wilson

Starts = Literal["strict", "paper"]

_GROUP = ("task", "model", "condition", "search", "lambda", "split")
_SAME_BASELINE = ("task", "model", "split")
_RULES = tuple(name for name in SAME_IN_A_FILE if name != "checkpoints")


@dataclass(frozen=True)
class Summary:
    """One condition over its n episodes; `difference` is its mean minus that of `against` on the shared ones."""

    task: str
    model: str
    condition: str
    search: str
    lam: float | None  # "lambda" in JSON
    split: str
    starts: str  # "strict" or "paper": which episodes count
    metric: str
    higher_is_better: bool
    n: int
    mean: float
    low: float
    high: float
    against: str | None = None  # e.g. "original cem-n300-j30-k30"
    pairs: int = 0  # shared episodes
    difference: float | None = None
    difference_low: float | None = None
    difference_high: float | None = None
    p: float | None = None
    test: str | None = None  # where p comes from
    final_error: float | None = None  # mean
    plan_seconds: float | None = None  # mean CPU seconds per episode

    def as_dict(self) -> dict[str, Any]:
        return {("lambda" if name == "lam" else name): value for name, value in asdict(self).items()}


def summarise(
    folder: str | Path, *, split: str | None = "test", metric: str | None = None, starts: Starts = "strict"
) -> list[Summary]:
    """One summary per condition below `folder`, by default of the split that λ was not chosen on.

    `starts` says which episodes count: "strict" those whose start was not solved already, "paper" as many of the first
    draws whatever their start.

    The metric is the task's own unless another column of the rows is named (`final_error`, `imagined_error`, ...);
    conditions without that column are left out.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"no results: {folder} is not a folder")
    rows = read_rows(sorted(folder.rglob("*.jsonl")))
    groups = _grouped(row for row in rows if split is None or row["split"] == split)
    groups = {name: kept for name, group in groups.items() if (kept := counted(group, starts))}
    if metric is not None:
        groups = {name: group for name, group in groups.items() if all(_is_number(row.get(metric)) for row in group)}
    summaries = [_summary(group, _reference(name, groups), metric, starts) for name, group in groups.items()]
    return sorted(summaries, key=_order)


def choose_lambda(
    summaries: Iterable[Summary],
    model: str,
    condition: str = "acid",
    *,
    task: str | None = None,
    search: str | None = None,
) -> float:
    """The best λ on the "select" split; ties go to the smaller final error.

    One λ serves a world model: unless a task or a search is named, it is judged by its average over all those it was
    tried with, and only if it was tried with all of them.
    """
    candidates: dict[float, list[Summary]] = defaultdict(list)
    for s in summaries:
        wanted = (s.model, s.condition, s.split) == (model, condition, "select")
        if wanted and s.lam is not None and task in (None, s.task) and search in (None, s.search):
            candidates[s.lam].append(s)
    if not candidates:
        where = f"{model} on {task}" if task else model
        raise DataError(f'no "select" results of {condition} for {where}: run those first to choose λ')
    tried = max(len(found) for found in candidates.values())

    def badness(lam: float) -> tuple[float, float]:
        found = candidates[lam]
        sign = -1 if found[0].higher_is_better else 1
        # errors of different tasks have different units: average their logarithms, i.e. compare ratios
        return sign * _mean([s.mean for s in found]), _mean([math.log(max(s.final_error or 0, 1e-12)) for s in found])

    return min(sorted(lam for lam, found in candidates.items() if len(found) == tried), key=badness)


def search_budget(search: str) -> int:
    """Rollouts per plan as its name tells it: cem-n300-j30-k30 is 9000."""
    sizes = {letter: int(number) for letter, number in re.findall(r"-([nj])(\d+)", search)}
    return sizes.get("n", 0) * sizes.get("j", 1)


Group = list[dict[str, Any]]


def counted(rows: Group, starts: Starts) -> Group:
    """The rows of one condition that count by a protocol; see `Instances` for what was run."""
    lacking = [name for name in ("draw", "solved_at_start") if name not in rows[0]]
    if lacking:
        first = rows[0]
        raise DataError(
            f"the rows of {first['condition']} for {first['task']}, {first['model']} have no column {lacking[0]!r}: "
            "they were written by an older version; run them again with --fresh"
        )
    strict = [row for row in rows if not row["solved_at_start"]]
    return strict if starts == "strict" else [row for row in rows if row["draw"] < len(strict)]


def _grouped(rows: Iterable[dict[str, Any]]) -> dict[tuple[Any, ...], Group]:
    groups: dict[tuple[Any, ...], dict[tuple[Any, ...], dict[str, Any]]] = defaultdict(dict)
    for row in rows:
        group = groups[tuple(row[name] for name in _GROUP)]
        if key(row) in group:
            raise DataError(f"instance {row['instance']} of {row['condition']} {row['search']} is in the results twice")
        group[key(row)] = row
    return {name: list(group.values()) for name, group in groups.items()}


def _reference(name: tuple[Any, ...], groups: Mapping[tuple[Any, ...], Group]) -> Group | None:
    """Original with the same search; for agents that do not search, Original with the largest budget, among those
    that were tested by the same rules if there are any."""
    this = dict(zip(_GROUP, name, strict=True))
    if this["condition"] == "original":
        return None
    originals = {
        other["search"]: groups[group]
        for group in groups
        if (other := dict(zip(_GROUP, group, strict=True)))["condition"] == "original"
        and all(other[column] == this[column] for column in _SAME_BASELINE)
    }
    if this["search"] != NO_SEARCH:
        return originals.get(this["search"])
    mine = groups[name][0]
    fair = {s for s, rows in originals.items() if all(rows[0][rule] == mine[rule] for rule in _RULES)}
    return originals[max(fair or originals, key=lambda s: (search_budget(s), s))] if originals else None


def _summary(rows: Group, reference: Group | None, metric: str | None, starts: Starts) -> Summary:
    first = rows[0]
    name: str = metric or first["metric"]
    interval = _interval(list(_values(rows, name).values()))
    comparison = _comparison(rows, reference, name)
    return Summary(
        **{("lam" if column == "lambda" else column): first[column] for column in _GROUP},
        starts=starts,
        metric=name,
        higher_is_better=first["higher_is_better"] if name == first["metric"] else name == "success",
        n=interval.n,
        mean=interval.mean,
        low=interval.low,
        high=interval.high,
        against=f"original {reference[0]['search']}" if comparison and reference else None,
        pairs=comparison.n if comparison else 0,
        difference=comparison.difference if comparison else None,
        difference_low=comparison.low if comparison else None,
        difference_high=comparison.high if comparison else None,
        p=comparison.p if comparison else None,
        test=comparison.test if comparison else None,
        final_error=_mean([row["final_error"] for row in rows]),
        plan_seconds=_mean([row["plan_seconds"] for row in rows]),
    )


def _comparison(rows: Group, reference: Group | None, metric: str) -> Paired | None:
    if reference is None:
        return None
    values, others = _values(rows, metric), _values(reference, metric)
    if not values.keys() & others.keys():
        return None
    _check_comparable(rows[0], reference[0])
    return paired(values, others)


def _check_comparable(row: Row, other: Row) -> None:
    """Different weights or rules would pass for an effect of the condition."""
    for name in SAME_IN_A_FILE:
        mine, theirs = row[name], other[name]
        if name == "checkpoints":  # Original has no verifier, the no-op no model at all
            mine, theirs = ({role: c[role] for role in mine.keys() & theirs.keys()} for c in (mine, theirs))
        if mine != theirs:
            raise DataError(
                f"{row['condition']} and {other['condition']} of {row['task']}, {row['model']} cannot be compared: "
                f"{name} {mine} against {theirs}; run one of them again"
            )


def _values(rows: Sequence[Row], metric: str) -> dict[Hashable, float]:
    """(seed, instance) to the metric. A task whose metric is not a column of the rows means its final error."""
    column = "final_error" if metric == rows[0]["metric"] and metric not in rows[0] else metric
    values = {(row["seed"], row["instance"]): row.get(column) for row in rows}
    missing = [instance for (_, instance), value in values.items() if not _is_number(value)]
    if missing:
        raise DataError(f"{rows[0]['condition']} has no number called {metric!r} for instance {missing[0]}")
    return {name: float(value) for name, value in values.items() if value is not None}


def _is_number(value: object) -> bool:
    return isinstance(value, (bool, int, float))


def _interval(values: list[float]) -> Interval:
    if set(values) <= {0.0, 1.0}:
        return wilson(int(sum(values)), len(values))
    return bootstrap_mean(values)


def _mean(values: Sequence[Any]) -> float:
    return float(np.mean(values))


def _order(s: Summary) -> tuple[Any, ...]:
    conditions = (*PLANNERS, *BASELINES)
    rank = conditions.index(s.condition) if s.condition in conditions else len(conditions)
    return s.task, s.model, s.split, s.search == NO_SEARCH, -search_budget(s.search), s.search, rank, s.lam or 0.0
