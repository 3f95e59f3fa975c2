"""Intervals and paired tests for per-episode results; the work is scipy's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from acid.errors import AcidError

RESAMPLES = 10_000
CONFIDENCE = 0.95
_CHUNK = 2_000_000  # numbers drawn at once, to bound memory


@dataclass(frozen=True)
class Interval:
    """A mean over n episodes with its confidence interval."""

    n: int
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Paired:
    """The mean of a − b over the n episodes that both have."""

    n: int
    difference: float
    low: float
    high: float
    p: float  # two-sided
    test: str  # which test p comes from


def wilson(successes: int, n: int) -> Interval:
    """Wilson's score interval for a proportion: honest at 0, at 1 and for small n."""
    if n < 1 or not 0 <= successes <= n:
        raise AcidError(f"a proportion needs 0 <= successes <= n and n >= 1, got {successes} of {n}")
    ends = stats.binomtest(successes, n).proportion_ci(CONFIDENCE, method="wilson")
    return Interval(n, successes / n, float(ends.low), float(ends.high))


def bootstrap_mean(values: Sequence[float] | np.ndarray, *, seed: int = 0) -> Interval:
    """Percentile bootstrap interval for the mean over episodes."""
    values = _finite(values)
    if np.ptp(values) == 0:  # also a single value: nothing to resample
        return Interval(len(values), float(values[0]), float(values[0]), float(values[0]))
    found = stats.bootstrap(
        (values,),
        np.mean,
        n_resamples=RESAMPLES,
        batch=max(1, _CHUNK // len(values)),
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Interval(len(values), float(values.mean()), float(found.low), float(found.high))


def share_or_mean(values: Sequence[float]) -> Interval:
    """Wilson's interval for values that are all 0 or 1, a bootstrap for others."""
    if set(values) <= {0.0, 1.0}:
        return wilson(int(sum(values)), len(values))
    return bootstrap_mean(values)


def paired(a: Mapping[Any, float], b: Mapping[Any, float], *, seed: int = 0) -> Paired:
    """a against b on the episodes that both have: bootstrap over episodes for the interval, a paired test for p.

    Binary values are tested with McNemar's exact test, others by flipping the signs of the differences: over every
    sign pattern where that is at most 2^16, over a random sample of patterns otherwise.
    """
    shared = sorted(a.keys() & b.keys(), key=repr)  # a fixed order, so that the order of rows cannot matter
    if not shared:
        raise AcidError(f"no episode in common between {len(a)} and {len(b)}: both must be run on the same instances")
    first = _finite([a[key] for key in shared])
    second = _finite([b[key] for key in shared])
    interval = bootstrap_mean(first - second, seed=seed)
    if np.isin(first, (0, 1)).all() and np.isin(second, (0, 1)).all():
        p, test = mcnemar(int((first > second).sum()), int((first < second).sum())), "mcnemar-exact"
    else:
        p, test = sign_flip(first - second, seed=seed)
    return Paired(interval.n, interval.mean, interval.low, interval.high, p, test)


def mcnemar(only_a: int, only_b: int) -> float:
    """Two-sided exact p from the discordant pairs: would a fair coin split them this unevenly?"""
    return float(stats.binomtest(only_a, only_a + only_b).pvalue) if only_a + only_b else 1.0


def sign_flip(differences: np.ndarray, *, seed: int = 0) -> tuple[float, str]:
    """Two-sided p for "the mean difference is zero", and the name of the variant used."""
    moving = differences[differences != 0]
    if len(moving) < 2:
        return 1.0, "sign-flip-exact"
    exact = len(moving) <= 16
    found = stats.permutation_test(
        (moving,),
        lambda values, axis: np.abs(values.sum(axis)),
        permutation_type="samples",
        alternative="greater",
        n_resamples=2**16 if exact else RESAMPLES,
        batch=max(1, _CHUNK // len(moving)),
        vectorized=True,
        rng=np.random.default_rng(seed),
    )
    return float(found.pvalue), "sign-flip-exact" if exact else "sign-flip-permutation"


def rank_correlation(a: Sequence[float] | np.ndarray, b: Sequence[float] | np.ndarray) -> float:
    """Spearman's: 1 if both order n things alike, −1 if the other way around; 0 where one of them is constant."""
    first, second = _finite(a), _finite(b)
    if len(first) != len(second):
        raise AcidError(f"a rank correlation needs two lists of the same length, got {len(first)} and {len(second)}")
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    return float(stats.spearmanr(first, second)[0])  # type: ignore[arg-type]


def bootstrap_rank_correlation(
    a: np.ndarray,
    b: np.ndarray,
    *,
    within: bool = False,
    given: np.ndarray | None = None,
    resamples: int = 1_000,
    seed: int = 0,
) -> Interval:
    """Spearman's between two tables [n, k] of k values of each of n independent things, which are resampled whole.

    Over all values together, or `within` each of the k columns and then averaged.
    given: a third table; then the partial correlation, i.e. what remains where the third is the same.
    """
    tables = [a, b] if given is None else [a, b, given]
    if a.ndim != 2 or not a.size or any(t.shape != a.shape or not np.isfinite(t).all() for t in tables):
        raise AcidError(f"need tables [n, k] of finite numbers, got shapes {[list(t.shape) for t in tables]}")
    n, k = a.shape
    drawn = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=resamples)
    counts = np.concatenate([np.ones((1, n), np.int64), drawn])  # how often each thing is taken; first as it is
    if within:
        found = np.mean([_counted_partial([t[:, j] for t in tables], counts) for j in range(k)], axis=0)
    else:
        found = _counted_partial([t.ravel() for t in tables], counts.repeat(k, axis=1))
    return percentile_interval(found, n)


def percentile_interval(found: np.ndarray, n: int) -> Interval:
    """Of a number found of n things, [0], and of resamples of them, [1:]."""
    ends = [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]
    low, high = np.quantile(found[1:], ends, method="linear" if np.isfinite(found).all() else "nearest")
    return Interval(n, float(found[0]), float(low), float(high))


def _counted_partial(values: Sequence[np.ndarray], counts: np.ndarray) -> np.ndarray:
    """Rank correlations [R] of the first two of the values, each [m], given the third if there is one."""
    a, b, *given = values
    found = _counted_correlation(a, b, counts)
    for known in given:
        with_a, with_b = (_counted_correlation(one, known, counts) for one in (a, b))
        scale = np.sqrt(np.clip((1 - with_a**2) * (1 - with_b**2), 0, None))
        found = np.divide(found - with_a * with_b, scale, out=np.zeros(len(counts)), where=scale > 1e-12)
    return found


def _counted_correlation(a: np.ndarray, b: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Rank correlations [R] of values [m] that are each there `counts` [R, m] times; 0 where nothing varies.

    All resamples at once: ranking each of a thousand resamples by itself takes a hundred times as long.
    """
    total = counts.sum(1, keepdims=True)
    x, y = (_counted_ranks(values, counts) - (total + 1) / 2 for values in (a, b))
    covariance, scale = (counts * x * y).sum(1), np.sqrt((counts * x * x).sum(1) * (counts * y * y).sum(1))
    return np.divide(covariance, scale, out=np.zeros(len(counts)), where=scale > 0)


def _counted_ranks(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Ranks [R, m] from 1 on of values [m] that are each there `counts` [R, m] times; equal ones share their mean."""
    order = np.argsort(values, kind="stable")
    firsts = np.flatnonzero(np.diff(values[order], prepend=-np.inf) > 0)  # of each group of equal values
    sizes = np.add.reduceat(counts[:, order], firsts, axis=1)
    group = np.empty(len(values), np.int64)
    group[order] = np.searchsorted(firsts, np.arange(len(values)), side="right") - 1
    return (np.cumsum(sizes, axis=1) - (sizes - 1) / 2)[:, group]


def _finite(values: Sequence[float] | np.ndarray) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not len(array) or not np.isfinite(array).all():
        raise AcidError(f"statistics need a non-empty list of finite numbers, got shape {list(array.shape)}")
    return array
