"""Windows of frames inside episodes, the order in which training sees them, and reading them ahead of it."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from acid.data.episodes import Episodes
from acid.errors import AcidError, DataError

T = TypeVar("T")
AHEAD = 2  # batches that are read before they are needed


class Windows:
    """Every window of `frames` frames, `frameskip` steps apart, that lies inside one of the given episodes.

    Window w shows frames at rows s, s+k, ..., s+(T-1)k of its episode and the actions of the (T-1)k steps between them,
    so an episode's last action, which published files may store as NaN, is never used.
    """

    def __init__(self, episodes: Episodes, ids: Sequence[int] | np.ndarray, frames: int, frameskip: int = 1) -> None:
        if frames < 1 or frameskip < 1:
            raise DataError(f"windows need frames and frameskip of at least 1, got {frames} and {frameskip}")
        self.frames = frames
        self.frameskip = frameskip
        self._ids = episodes.check_ids(ids)
        needed = (frames - 1) * frameskip + 1
        lengths = episodes.lengths[self._ids]
        longest = int(lengths.max(initial=0))
        if longest < needed:
            raise DataError(
                f"windows of {frames} frames {frameskip} steps apart need episodes of {needed} steps, but the "
                f"longest of the {len(self._ids)} given in {episodes.path} has {longest}"
            )
        self._offsets = episodes.offsets
        self._ends = np.cumsum(np.maximum(lengths - needed + 1, 0))  # windows up to and including each episode

    def __len__(self) -> int:
        return int(self._ends[-1])

    def starts(self, indices: Sequence[int] | np.ndarray) -> np.ndarray:
        """The first row of each window: [B]."""
        wanted = np.asarray(indices, dtype=np.int64)
        if wanted.size and (wanted.min() < 0 or wanted.max() >= len(self)):
            raise DataError(f"window indices {wanted.min()} to {wanted.max()} are outside 0 to {len(self) - 1}")
        position = np.searchsorted(self._ends, wanted, side="right")
        first = np.concatenate([[0], self._ends[:-1]])[position]
        return self._offsets[self._ids[position]] + wanted - first

    def frame_rows(self, indices: Sequence[int] | np.ndarray) -> np.ndarray:
        """The rows of each window's frames: [B, T]."""
        return self.starts(indices)[:, None] + np.arange(self.frames) * self.frameskip

    def action_rows(self, indices: Sequence[int] | np.ndarray) -> np.ndarray:
        """The rows of each window's actions: [B, (T-1)*frameskip]."""
        return self.starts(indices)[:, None] + np.arange((self.frames - 1) * self.frameskip)

    def sample(self, size: int) -> np.ndarray:
        """At most `size` different windows, the same ones every time: [B]."""
        return np.random.default_rng(0).choice(len(self), min(size, len(self)), replace=False)


class Shuffle:
    """Which windows are in batch s: passes over all of them, each pass in its own random order, cut into batches.

    Batch s depends on (seed, s) only, so training resumes at any step.
    """

    def __init__(self, size: int, batch_size: int, seed: int) -> None:
        self._size, self._batch_size, self._seed = size, batch_size, seed
        self._pass, self._order = -1, np.empty(0, dtype=np.int64)

    def indices(self, step: int) -> np.ndarray:
        """The window indices of batch `step`: [B]."""
        first = step * self._batch_size
        passes, places = np.divmod(np.arange(first, first + self._batch_size), self._size)
        chosen = np.empty(self._batch_size, dtype=np.int64)
        for number in np.unique(passes):
            here = passes == number
            chosen[here] = self._order_of(int(number))[places[here]]
        return chosen

    def _order_of(self, number: int) -> np.ndarray:
        if number != self._pass:  # kept, because most batches lie inside one pass
            self._pass, self._order = number, np.random.default_rng([self._seed, number]).permutation(self._size)
        return self._order


def read_ahead(read: Callable[[int], T], start: int = 0, *, workers: int = 0) -> Generator[T, None, None]:
    """`read(start)`, `read(start + 1)`, … without end, each prepared before it is asked for.

    One thread reads ahead, or as many processes as there are workers, where decoding takes longer than a training step.
    They stop when the generator is closed or dropped.
    """
    if start < 0 or workers < 0:
        raise DataError(f"reading ahead needs start and workers of at least 0, got {start} and {workers}")
    return _by_processes(read, start, workers) if workers else _by_thread(read, start)


def _by_thread(read: Callable[[int], T], step: int) -> Generator[T, None, None]:
    reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="acid-batches")
    pending: deque[Future[T]] = deque()
    try:
        while True:
            while len(pending) <= AHEAD:
                pending.append(reader.submit(read, step))
                step += 1
            yield pending.popleft().result()
    finally:
        reader.shutdown(cancel_futures=True)


def _by_processes(read: Callable[[int], T], step: int, workers: int) -> Generator[T, None, None]:
    loader = DataLoader(
        _Steps(read),
        batch_size=None,
        sampler=count(step),  # type: ignore[arg-type]  # endless
        num_workers=workers,
        prefetch_factor=AHEAD,
        collate_fn=_as_it_is,
        multiprocessing_context="fork",
        worker_init_fn=_leave_interrupts_to_the_parent,
        generator=torch.Generator(),  # not the global one, whose numbers are the training's
    )
    try:
        for value in loader:
            if isinstance(value, _Failed):
                raise value.error
            yield value
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise DataError(
            "a process that reads batches was killed, perhaps because memory ran out: use fewer --workers. "
            "The same command continues"
        ) from error


class _Failed(NamedTuple):
    """What a reading process could not do, in its own words instead of a traceback of that process."""

    error: AcidError


class _Steps(Dataset):
    def __init__(self, read: Callable[[int], T]) -> None:
        self._read = read

    def __getitem__(self, index: int) -> object:
        try:
            return self._read(index)
        except AcidError as error:
            return _Failed(error)


def _as_it_is(value: T) -> T:
    return value


def _leave_interrupts_to_the_parent(worker: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
