from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acid.data import Batch, Episodes, Windows, batches
from acid.errors import DataError

from .conftest import LENGTHS

SHARED = [HealthCheck.function_scoped_fixture]


def threads() -> int:
    return sum(thread.name.startswith("acid-batches") for thread in threading.enumerate())


def same(left: Batch, right: Batch) -> bool:
    return torch.equal(left.pixels, right.pixels) and torch.equal(left.actions, right.actions)


@pytest.fixture
def episodes(write: Callable[..., Path]) -> Episodes:
    return Episodes(write())


@settings(max_examples=40, deadline=None, suppress_health_check=SHARED)
@given(
    frames=st.integers(1, 4),
    frameskip=st.integers(1, 5),
    ids=st.lists(st.integers(0, len(LENGTHS) - 1), min_size=1, unique=True),
)
def test_windows_are_all_that_fit_and_never_cross_episodes(
    episodes: Episodes, frames: int, frameskip: int, ids: list[int]
) -> None:
    span = (frames - 1) * frameskip
    expected = {(i, start) for i in ids for start in range(LENGTHS[i] - span)}
    if not expected:
        with pytest.raises(DataError, match=f"need episodes of {span + 1} steps"):
            Windows(episodes, ids, frames, frameskip)
        return
    windows = Windows(episodes, ids, frames, frameskip)
    batch = windows.batch(np.arange(len(windows)))
    numbers, steps = batch.pixels[..., 0, 0, 0].long(), batch.pixels[..., 0, 0, 1].long()
    starts = steps[:, :1]
    assert {(int(i), int(s)) for i, s in zip(numbers[:, 0], starts[:, 0], strict=True)} == expected
    assert len(windows) == len(expected)
    assert (numbers == numbers[:, :1]).all()
    assert torch.equal(steps, starts + torch.arange(frames) * frameskip)
    assert batch.actions.shape == (len(windows), span, 2)
    assert torch.equal(batch.actions[..., 0].long(), numbers[:, :1].expand(-1, span))
    assert torch.equal(batch.actions[..., 1].long(), starts + torch.arange(span))


def test_dtypes_and_shapes(episodes: Episodes) -> None:
    batch = Windows(episodes, [0, 2], frames=3, frameskip=2).batch([4, 0, 4])
    assert (batch.pixels.shape, batch.pixels.dtype) == ((3, 3, 6, 5, 3), torch.uint8)
    assert (batch.actions.shape, batch.actions.dtype) == ((3, 4, 2), torch.float32)


def test_impossible_windows_name_what_is_needed_and_what_there_is(episodes: Episodes) -> None:
    with pytest.raises(DataError, match=r"need episodes of 21 steps, but the longest of the 5 .* has 20"):
        Windows(episodes, range(5), frames=5, frameskip=5)
    with pytest.raises(DataError, match="the longest of the 0 given"):
        Windows(episodes, [], frames=2)
    with pytest.raises(DataError, match="at least 1, got 0 and 1"):
        Windows(episodes, [0], frames=0)
    with pytest.raises(DataError, match="indices 0 to 99"):
        Windows(episodes, [0], frames=2).batch([0, 99])


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_a_batch_depends_on_seed_and_step_only(episodes: Episodes, prefetch: int) -> None:
    windows = Windows(episodes, range(5), frames=3, frameskip=2)
    whole = list(islice(batches(windows, 7, seed=3), 20))
    for start in (0, 1, 13):
        resumed = batches(windows, 7, seed=3, start_step=start, prefetch=prefetch)
        assert all(same(a, b) for a, b in zip(whole[start:], resumed, strict=False))
        resumed.close()
    other = list(islice(batches(windows, 7, seed=4), 20))
    assert not all(same(a, b) for a, b in zip(whole, other, strict=True))


def test_every_window_is_seen_once_per_pass(episodes: Episodes) -> None:
    windows = Windows(episodes, range(5), frames=2, frameskip=3)
    size = 4
    count = -(-2 * len(windows) // size)
    seen = torch.cat([b.actions[:, 0] for b in islice(batches(windows, size, seed=0), count)])[: 2 * len(windows)]
    for half in seen.split(len(windows)):
        assert len(torch.unique(half, dim=0)) == len(windows)
    assert not torch.equal(*seen.split(len(windows)))


def test_batches_larger_than_the_dataset_repeat_it(episodes: Episodes) -> None:
    windows = Windows(episodes, [1], frames=2)
    assert len(next(batches(windows, 50, seed=0)).pixels) == 50


def test_closing_the_iterator_stops_its_thread(episodes: Episodes) -> None:
    before = threads()
    stream = batches(Windows(episodes, [0], frames=2), 4, seed=0)
    next(stream)
    assert threads() == before + 1
    stream.close()
    assert threads() == before


def test_an_error_while_reading_ahead_surfaces(episodes: Episodes) -> None:
    class Broken(Windows):
        def batch(self, indices: np.ndarray) -> Batch:
            raise DataError("the disk is gone")

    before = threads()
    with pytest.raises(DataError, match="the disk is gone"):
        next(batches(Broken(episodes, [0], frames=2), 4, seed=0))
    assert threads() == before


def test_bad_options_are_refused_at_the_call(episodes: Episodes) -> None:
    with pytest.raises(DataError, match="got 0, 0 and 2"):
        batches(Windows(episodes, [0], frames=2), 0, seed=0)
