from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acid.data import Episodes, Shuffle, Windows, read_ahead
from acid.errors import DataError

from .conftest import LENGTHS

SHARED = [HealthCheck.function_scoped_fixture]


def threads() -> int:
    return sum(thread.name.startswith("acid-batches") for thread in threading.enumerate())


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
    everything = np.arange(len(windows))
    shown = episodes.read("pixels", windows.frame_rows(everything))[..., 0, 0, :2].astype(int)
    numbers, steps = shown[..., 0], shown[..., 1]
    starts = steps[:, :1]
    assert {(int(i), int(s)) for i, s in zip(numbers[:, 0], starts[:, 0], strict=True)} == expected
    assert len(windows) == len(expected)
    assert (numbers == numbers[:, :1]).all()
    assert (steps == starts + np.arange(frames) * frameskip).all()
    actions = episodes.read("action", windows.action_rows(everything)).astype(int)
    assert actions.shape == (len(windows), span, 2)
    assert (actions[..., 0] == numbers[:, :1]).all()
    assert (actions[..., 1] == starts + np.arange(span)).all()


def test_a_sample_is_the_same_every_time_and_has_no_window_twice(episodes: Episodes) -> None:
    windows = Windows(episodes, range(5), frames=2)
    assert windows.sample(7).tolist() == windows.sample(7).tolist()
    assert sorted(windows.sample(10_000)) == list(range(len(windows)))


def test_impossible_windows_name_what_is_needed_and_what_there_is(episodes: Episodes) -> None:
    with pytest.raises(DataError, match=r"need episodes of 21 steps, but the longest of the 5 .* has 20"):
        Windows(episodes, range(5), frames=5, frameskip=5)
    with pytest.raises(DataError, match="the longest of the 0 given"):
        Windows(episodes, [], frames=2)
    with pytest.raises(DataError, match="at least 1, got 0 and 1"):
        Windows(episodes, [0], frames=0)
    with pytest.raises(DataError, match="indices 0 to 99"):
        Windows(episodes, [0], frames=2).frame_rows([0, 99])


def test_a_batch_depends_on_seed_and_step_only() -> None:
    whole = [Shuffle(50, 7, seed=3).indices(step).tolist() for step in range(20)]
    again, other = Shuffle(50, 7, seed=3), Shuffle(50, 7, seed=4)
    assert [again.indices(step).tolist() for step in (13, 0, 19)] == [whole[13], whole[0], whole[19]]
    assert [other.indices(step).tolist() for step in range(20)] != whole


def test_every_window_is_seen_once_per_pass() -> None:
    order = Shuffle(10, 4, seed=0)
    seen = np.concatenate([order.indices(step) for step in range(5)])
    first, second = seen.reshape(2, 10).tolist()
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second
    assert len(Shuffle(3, 50, seed=0).indices(0)) == 50  # batches larger than the dataset repeat it


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_come_in_order_from_any_step(episodes: Episodes, workers: int) -> None:
    windows = Windows(episodes, range(5), frames=3, frameskip=2)

    def read(step: int) -> tuple[int, torch.Tensor]:
        return step, torch.from_numpy(episodes.read("pixels", windows.frame_rows([step, 0])))

    torch.manual_seed(0)
    state = torch.get_rng_state()
    with closing(read_ahead(read, 4, workers=workers)) as stream:
        for step, (number, pixels) in zip(range(4, 10), stream, strict=False):
            assert number == step
            assert torch.equal(pixels, read(step)[1])
    assert torch.equal(torch.get_rng_state(), state)  # training's random numbers are not spent on reading


def test_closing_the_iterator_stops_its_thread() -> None:
    before = threads()
    stream = read_ahead(lambda step: step)
    next(stream)
    assert threads() == before + 1
    stream.close()
    assert threads() == before


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_while_reading_ahead_surfaces(workers: int) -> None:
    def read(step: int) -> int:
        raise DataError("the disk is gone")

    before = threads()
    with pytest.raises(DataError, match="the disk is gone"):
        next(read_ahead(read, workers=workers))
    assert threads() == before


def test_bad_options_are_refused_at_the_call() -> None:
    with pytest.raises(DataError, match="got 0 and -1"):
        read_ahead(lambda step: step, workers=-1)
