from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acid.data import Episodes, fit_scaler, split
from acid.errors import DataError


@given(n=st.integers(2, 400), fraction=st.floats(0.01, 0.9), seed=st.integers(0, 2**32))
def test_every_episode_is_in_exactly_one_part(n: int, fraction: float, seed: int) -> None:
    try:
        parts = split(n, fraction, seed)
    except DataError:
        assert round(n * fraction) >= n
        return
    assert sorted([*parts.train, *parts.held_out]) == list(range(n))
    assert len(parts.held_out) == max(1, round(n * fraction))


def test_the_seed_alone_decides() -> None:
    first, again, other = split(100, seed=1), split(100, seed=1), split(100, seed=2)
    np.testing.assert_array_equal(first.held_out, again.held_out)
    assert first.held_out.tolist() != other.held_out.tolist()


def test_nothing_may_be_held_out_but_something_must_be_trained_on() -> None:
    assert len(split(3, held_out=0).held_out) == 0
    with pytest.raises(DataError, match="1 episodes cannot be split"):
        split(1)
    with pytest.raises(DataError, match=r"fraction.*got 1\.5"):
        split(10, held_out=1.5)


def actions(write: Callable[..., Path], values: np.ndarray) -> Episodes:
    """Three episodes of four steps with these actions [12, 2]."""
    path = write((4, 4, 4))
    with h5py.File(path, "r+") as file:
        file["action"][:] = values
    return Episodes(path)


def test_statistics_come_from_the_given_episodes_only(write: Callable[..., Path]) -> None:
    values = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32)
    values[8:] = 1e6
    scaler = fit_scaler(actions(write, values), [0, 1], frameskip=5)
    np.testing.assert_allclose(scaler.mean, values[:8].astype(float).mean(axis=0))
    np.testing.assert_allclose(scaler.std, values[:8].astype(float).std(axis=0))
    assert scaler.frameskip == 5


def test_large_offsets_do_not_swallow_the_spread(write: Callable[..., Path]) -> None:
    values = np.tile(np.array([[1e6], [1e6 + 1]], np.float32), (6, 2))
    np.testing.assert_allclose(fit_scaler(actions(write, values), [0, 1, 2], frameskip=1).std, 0.5)


def test_a_last_action_may_be_nan_but_no_other(write: Callable[..., Path]) -> None:
    values = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32)
    values[[3, 7]] = np.nan
    episodes = actions(write, values)
    np.testing.assert_allclose(fit_scaler(episodes, [0], frameskip=1).mean, values[:3].astype(float).mean(axis=0))
    values[5] = np.nan
    with pytest.raises(DataError, match="action in row 5"):
        fit_scaler(actions(write, values), [0, 1], frameskip=1)


def test_constant_actions_and_empty_splits_are_errors(write: Callable[..., Path]) -> None:
    episodes = actions(write, np.tile([1.0, 2.0], (12, 1)))
    with pytest.raises(DataError, match="dimension 0 has standard deviation 0"):
        fit_scaler(episodes, [0], frameskip=1)
    with pytest.raises(DataError, match="at least one episode"):
        fit_scaler(episodes, [], frameskip=1)
