"""With which share of Original's work ACID is as good as Original with all of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from acid.evaluation import Interval, Row
from acid.evaluation.statistics import percentile_interval

RESAMPLES = 2000
Share = Callable[[np.ndarray], float]  # of episodes by their numbers; infinite if ACID is never as good


def pushes(original: Sequence[Row], acid: Sequence[Row]) -> Interval | None:
    """The share of the steps after which ACID's mean error is Original's final one; None if it never is."""
    theirs, mine = (np.array([row.errors for row in rows]) for rows in _shared([original, acid]))

    def share(draw: np.ndarray) -> float:
        reached = np.flatnonzero(mine[draw].mean(0) <= theirs[draw, -1].mean())
        return (reached[0] + 1) / theirs.shape[1] if len(reached) else np.inf

    return _resampled(share, len(theirs))


def candidates(original: Sequence[Row], runs: Mapping[int, Sequence[Row]]) -> Interval | None:
    """The share of candidates with which ACID succeeds as often; runs: by candidates. None if it never does."""
    theirs, *mine = (np.array([row.success for row in rows]) for rows in _shared([original, *runs.values()]))

    def share(draw: np.ndarray) -> float:
        good = [n for n, run in zip(runs, mine, strict=True) if run[draw].mean() >= theirs[draw].mean()]
        return min(good) / max(runs) if good else np.inf

    return _resampled(share, len(theirs))


def _shared(runs: Sequence[Sequence[Row]]) -> list[list[Row]]:
    """The rows of the episodes that all runs have, in one order."""
    by = [{row.pair: row for row in rows} for rows in runs]
    shared = sorted(set.intersection(*(set(one) for one in by)))
    return [[one[pair] for pair in shared] for one in by]


def _resampled(share: Share, n: int) -> Interval | None:
    """Of all episodes, with an interval over episodes drawn again; its end is infinite if too many never get there."""
    rng = np.random.default_rng(0)
    found = np.array([share(draw) for draw in [np.arange(n), *rng.integers(n, size=(RESAMPLES, n))]])
    if not np.isfinite(found[0]):
        return None
    return percentile_interval(found, n)
