from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from acid.errors import AcidError
from acid.evaluation import statistics
from acid.evaluation.statistics import (
    bootstrap_mean,
    bootstrap_rank_correlation,
    mcnemar,
    paired,
    rank_correlation,
    share_or_mean,
    sign_flip,
    wilson,
)


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    # Newcombe (1998), Statistics in Medicine 17, Table I, method 3.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_matches_published_intervals(successes, n, low, high):
    interval = wilson(successes, n)
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=5e-5)
    assert interval.mean == successes / n


def test_wilson_names_impossible_counts():
    with pytest.raises(AcidError, match="5 of 4"):
        wilson(5, 4)


@pytest.mark.parametrize(("a", "b", "p"), [(0, 0, 1.0), (5, 5, 1.0), (0, 6, 0.03125), (1, 8, 0.0390625)])
def test_mcnemar_by_hand(a, b, p):
    assert mcnemar(a, b) == pytest.approx(p)


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_a_binomial_test_of_the_discordant_pairs(a, b):
    expected = stats.binomtest(a, a + b).pvalue if a + b else 1.0
    assert mcnemar(a, b) == pytest.approx(expected)
    assert mcnemar(a, b) == mcnemar(b, a)


def test_bootstrap_covers_the_true_mean_about_as_often_as_it_says(monkeypatch):
    monkeypatch.setattr(statistics, "RESAMPLES", 1000)
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(300):
        interval = bootstrap_mean(rng.exponential(size=60))
        hits += interval.low <= 1.0 <= interval.high
    assert 0.87 < hits / 300 < 0.98


def test_bootstrap_is_seeded_and_agrees_with_the_normal_interval():
    values = np.random.default_rng(1).normal(3.0, 2.0, 400)
    interval = bootstrap_mean(values)
    assert interval == bootstrap_mean(values)
    half = 1.96 * values.std() / np.sqrt(400)
    assert (interval.low, interval.high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.02)


def test_bootstrap_in_chunks_is_the_same_kind_of_interval(monkeypatch):
    values = np.random.default_rng(4).normal(size=50)
    whole = bootstrap_mean(values)
    monkeypatch.setattr(statistics, "_CHUNK", 333)
    chunked = bootstrap_mean(values)
    assert (chunked.low, chunked.high) == pytest.approx((whole.low, whole.high), abs=0.02)


@pytest.mark.parametrize("values", [[2.5], [2.5] * 7])
def test_what_does_not_vary_has_no_width(values):
    found = bootstrap_mean(values)
    assert (found.n, found.mean, found.low, found.high) == (len(values), 2.5, 2.5, 2.5)


def test_shares_have_wilsons_interval_and_other_numbers_a_bootstrap():
    assert share_or_mean([1.0, 0.0, 1.0]) == wilson(2, 3)
    assert share_or_mean([1.0, 0.0, 2.0]) == bootstrap_mean([1.0, 0.0, 2.0])


def test_sign_flip_exact_by_hand():
    # |sum| >= 6 for all-plus and all-minus only: 2 of 8 patterns.
    assert sign_flip(np.array([1.0, 2.0, 3.0])) == (0.25, "sign-flip-exact")
    assert sign_flip(np.zeros(5)) == (1.0, "sign-flip-exact")


def test_sign_flip_permutation_agrees_with_scipy():
    differences = np.random.default_rng(2).normal(0.35, 1.0, 40)
    p, test = sign_flip(differences)
    expected = stats.permutation_test(
        (differences,), np.mean, permutation_type="samples", n_resamples=20_000, rng=np.random.default_rng(0)
    ).pvalue
    assert test == "sign-flip-permutation"
    assert p == pytest.approx(expected, abs=0.01)


def test_only_shared_episodes_count_and_their_order_does_not():
    a = {"x": 1, "y": 1, "z": 0, "only a": 0}
    b = {"only b": 1, "z": 0, "y": 0, "x": 1}
    result = paired(a, b)
    assert (result.n, result.difference, result.test) == (3, pytest.approx(1 / 3), "mcnemar-exact")
    assert result == paired(dict(reversed(a.items())), dict(reversed(b.items())))


NUMBERS = st.dictionaries(st.integers(0, 30), st.integers(-3, 3).map(float), min_size=1, max_size=12)


@settings(max_examples=20, deadline=None)
@given(NUMBERS, NUMBERS, st.randoms(use_true_random=False))
def test_the_order_of_episodes_does_not_matter(a, b, random):
    if not a.keys() & b.keys():
        return
    shuffled = [dict(random.sample(list(side.items()), len(side))) for side in (a, b)]
    result = paired(a, b)
    assert paired(*shuffled) == result
    assert result.n == len(a.keys() & b.keys())
    assert result.low <= result.difference + 1e-12
    assert result.difference <= result.high + 1e-12


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=12))
def test_swapping_the_sides_turns_the_sign_and_keeps_p(values):
    a, b = dict(enumerate(values)), dict.fromkeys(range(len(values)), 0.0)
    there, back = paired(a, b), paired(b, a)
    assert back.difference == pytest.approx(-there.difference)
    assert (back.p, back.test) == (there.p, there.test)
    assert paired(a, a).p == 1.0


def test_pairing_removes_what_the_episodes_have_in_common():
    rng = np.random.default_rng(3)
    difficulty = rng.normal(0, 10, 100)
    a = dict(enumerate(difficulty - 0.5 + rng.normal(0, 0.5, 100)))
    b = dict(enumerate(difficulty))
    result = paired(a, b)
    assert result.low < -0.5 < result.high < 0
    assert result.p < 0.001
    assert result.test == "sign-flip-permutation"


def test_nothing_shared_is_an_error():
    with pytest.raises(AcidError, match="same instances"):
        paired({"x": 1}, {"y": 1})


def test_values_that_are_not_finite_are_refused():
    with pytest.raises(AcidError, match="finite"):
        bootstrap_mean([1.0, float("nan")])


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=3, max_size=40))
def test_rank_correlation_is_spearmans_ties_included(pairs):
    a, b = np.array(pairs, float).T
    if a.std() == 0 or b.std() == 0:
        assert rank_correlation(a, b) == 0
    else:
        assert rank_correlation(a, b) == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-9)


def test_rank_correlation_needs_pairs():
    with pytest.raises(AcidError, match="got 2 and 3"):
        rank_correlation([1, 2], [1, 2, 3])


def test_a_resampled_rank_correlation_is_that_of_the_resample():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 4, (9, 3)).astype(float), rng.normal(size=(9, 3))
    b += a
    counts = np.random.default_rng(5).multinomial(9, np.full(9, 1 / 9), size=50)
    taken = [np.repeat(np.arange(9), count) for count in counts]
    for within in (False, True):
        found = bootstrap_rank_correlation(a, b, within=within, resamples=50, seed=5)
        columns = [(a[:, j], b[:, j]) for j in range(3)]
        by_hand = [
            np.mean([rank_correlation(x[i], y[i]) for x, y in columns])
            if within
            else rank_correlation(a[i].ravel(), b[i].ravel())
            for i in (np.arange(9), *taken)
        ]
        assert found.mean == pytest.approx(by_hand[0])
        assert (found.low, found.high) == pytest.approx(tuple(np.quantile(by_hand[1:], [0.025, 0.975])))


def test_things_are_resampled_whole():
    """Copies of the same thing tell nothing new: the interval does not shrink with them."""
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 40, 1))
    once, copied = (bootstrap_rank_correlation(a.repeat(k, 1), b.repeat(k, 1)) for k in (1, 20))
    assert copied.high - copied.low == pytest.approx(once.high - once.low, rel=0.05)
    with pytest.raises(AcidError, match="need tables"):
        bootstrap_rank_correlation(a, b[:3])
    with pytest.raises(AcidError, match="need tables"):
        bootstrap_rank_correlation(a, b, given=b[:3])


@pytest.mark.parametrize("within", [False, True])
def test_a_partial_correlation_is_that_of_what_the_third_leaves_open(within):
    rng = np.random.default_rng(2)
    common, own, other = rng.normal(size=(3, 300, 2))
    assert bootstrap_rank_correlation(common + own, common + other, within=within).low > 0.3
    alone = bootstrap_rank_correlation(common + own, common + other, given=common, within=within)
    assert alone.low < 0 < alone.high
    beyond = bootstrap_rank_correlation(common + own, 3 * common + own, given=common, within=within)
    assert beyond.low > 0.5
    assert bootstrap_rank_correlation(common, own, given=common, within=within).mean == 0  # nothing is left of it


def test_a_partial_correlation_is_that_of_residuals_from_the_third():
    rng = np.random.default_rng(3)
    a, b, c = rng.normal(size=(3, 50, 1)) + rng.normal(size=(1, 50, 1))
    ranks = [stats.rankdata(table[:, 0]) for table in (a, b, c)]
    left = [rank - np.polyval(np.polyfit(ranks[2], rank, 1), ranks[2]) for rank in ranks[:2]]
    found = bootstrap_rank_correlation(a, b, given=c)
    assert found.mean == pytest.approx(np.corrcoef(*left)[0, 1])
