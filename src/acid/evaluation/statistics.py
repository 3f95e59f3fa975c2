"""Intervals and paired tests for per-episode results."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from acid.errors import AcidError

RESAMPLES = 10_000
EXACT_SIGN_FLIPS = 16  # 2**16 sign patterns are enumerated; above that a random sample of them is drawn
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


def wilson(successes: int, n: int, *, confidence: float = 0.95) -> Interval:
    """Wilson's score interval for a proportion: honest at 0, at 1 and for small n."""
    if n < 1 or not 0 <= successes <= n:
        raise AcidError(f"a proportion needs 0 <= successes <= n and n >= 1, got {successes} of {n}")
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share = successes / n
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return Interval(n, share, max(0.0, centre - half), min(1.0, centre + half))


def bootstrap_mean(
    values: Sequence[float] | np.ndarray, *, confidence: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Percentile bootstrap interval for the mean over episodes."""
    values = _finite(values)
    rng = np.random.default_rng(seed)
    rows = max(1, _CHUNK // len(values))
    chunks = [min(rows, resamples - done) for done in range(0, resamples, rows)]
    means = np.concatenate([values[rng.integers(len(values), size=(c, len(values)))].mean(axis=1) for c in chunks])
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(len(values), float(values.mean()), float(low), float(high))


def paired(a: Mapping[Hashable, float], b: Mapping[Hashable, float], *, seed: int = 0) -> Paired:
    """a against b on the episodes that both have: bootstrap over episodes for the interval, an exact test for p.

    Binary values are tested with McNemar's exact test, others by flipping the signs of the differences: over every
    sign pattern when at most 16 differences are not zero, over a random sample of patterns otherwise.
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
    n, fewer = only_a + only_b, min(only_a, only_b)
    return min(1.0, 2 * sum(math.comb(n, i) for i in range(fewer + 1)) / 2**n)


def sign_flip(differences: np.ndarray, *, resamples: int = RESAMPLES, seed: int = 0) -> tuple[float, str]:
    """Two-sided p for "the mean difference is zero", and the name of the variant used."""
    moving = np.abs(differences[differences != 0])
    observed = abs(differences.sum())
    tolerance = 1e-9 * moving.sum()  # patterns that tie with the observed one must count despite rounding
    if len(moving) <= EXACT_SIGN_FLIPS:
        patterns = np.arange(2 ** len(moving))[:, None] >> np.arange(len(moving)) & 1
        return float((np.abs((2 * patterns - 1) @ moving) >= observed - tolerance).mean()), "sign-flip-exact"
    rng = np.random.default_rng(seed)
    rows = max(1, _CHUNK // len(moving))
    extreme = 0
    for done in range(0, resamples, rows):
        signs = 2 * rng.integers(2, size=(min(rows, resamples - done), len(moving))) - 1
        extreme += int((np.abs(signs @ moving) >= observed - tolerance).sum())
    return (extreme + 1) / (resamples + 1), "sign-flip-permutation"


def rank_correlation(a: Sequence[float] | np.ndarray, b: Sequence[float] | np.ndarray) -> float:
    """Spearman's: 1 if both order n things alike, −1 if the other way around; 0 where one of them is constant."""
    first, second = _ranks(_finite(a)), _ranks(_finite(b))
    if len(first) != len(second):
        raise AcidError(f"a rank correlation needs two lists of the same length, got {len(first)} and {len(second)}")
    spread = first.std() * second.std()
    return float(((first - first.mean()) * (second - second.mean())).mean() / spread) if spread else 0.0


def bootstrap_rank_correlation(
    a: np.ndarray,
    b: np.ndarray,
    *,
    within: bool = False,
    given: np.ndarray | None = None,
    confidence: float = 0.95,
    resamples: int = 1_000,
    seed: int = 0,
) -> Interval:
    """Spearman's between two tables [n, k] of k values of each of n independent things, which are resampled whole.

    Over all values together, or `within` each of the k columns and then averaged.
    given: a third table; then the partial correlation, what remains of it where the third is the same.
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
    low, high = np.quantile(found[1:], [(1 - confidence) / 2, (1 + confidence) / 2])
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
    """Rank correlations [R] of values [m] that are each there `counts` [R, m] times; 0 where nothing varies."""
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


def _ranks(values: np.ndarray) -> np.ndarray:
    """Each value's place in the order; equal ones share the mean of theirs."""
    _, where, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[where]


def _finite(values: Sequence[float] | np.ndarray) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not len(array) or not np.isfinite(array).all():
        raise AcidError(f"statistics need a non-empty list of finite numbers, got shape {list(array.shape)}")
    return array
