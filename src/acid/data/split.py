"""Which episodes are trained on, and the action statistics of those."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from acid.data.episodes import Episodes
from acid.errors import DataError, is_number
from acid.types import ActionScaler


@dataclass(frozen=True)
class Split:
    """Episode numbers, each in exactly one of the two."""

    train: np.ndarray
    held_out: np.ndarray


def split(n_episodes: int, held_out: float = 0.1, seed: int = 0) -> Split:
    """Hold out a fraction of the episodes, chosen by the seed alone."""
    if not is_number(n_episodes, whole=True) or not is_number(seed, whole=True) or seed < 0:
        raise DataError(f"a split needs a number of episodes and a seed of at least 0, got {n_episodes!r} and {seed!r}")
    if not is_number(held_out) or not 0 <= held_out < 1:
        raise DataError(f"held_out must be a fraction from 0 up to but not including 1, got {held_out}")
    count = max(1, round(n_episodes * held_out)) if held_out else 0
    if n_episodes - count < 1:
        raise DataError(f"{n_episodes} episodes cannot be split into a training and a held-out part; collect more")
    order = np.random.default_rng(seed).permutation(n_episodes)
    return Split(train=np.sort(order[count:]), held_out=np.sort(order[:count]))


def fit_scaler(
    episodes: Episodes, ids: Sequence[int] | np.ndarray, frameskip: int = 1, *, column: str = "action"
) -> ActionScaler:
    """Mean and standard deviation of the actions of the given episodes; pass the training split.

    column: of other numbers per step, e.g. "proprio", whose statistics a model may need too.
    """
    chosen = episodes.check_ids(ids)
    if not len(chosen):
        raise DataError(f"{column} statistics of {episodes.path} need at least one episode, got none")
    rows = episodes.rows_of(chosen)
    values = episodes.read(column, rows).astype(np.float64)
    finite = np.isfinite(values).all(axis=1)
    last = np.isin(rows, episodes.offsets + episodes.lengths - 1)  # nothing follows it, so files may leave it NaN
    if not (finite | last).all():
        row = rows[np.argmin(finite | last)]
        raise DataError(f"the {column} in row {row} of {episodes.path} is not finite; only an episode's last may be")
    usable = values[finite]
    if not len(usable):
        raise DataError(f"the {len(chosen)} given episodes of {episodes.path} hold no finite {column}")
    return ActionScaler(tuple(usable.mean(axis=0).tolist()), tuple(usable.std(axis=0).tolist()), frameskip)
