"""Windows of frames and the actions between them, and an endless, resumable stream of batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from acid.data.episodes import Episodes
from acid.errors import DataError


@dataclass(frozen=True)
class Batch:
    """B windows of T frames."""

    pixels: Tensor  # uint8 [B, T, H, W, 3]
    actions: Tensor  # float32 [B, (T-1)*frameskip, a], in environment units


class Windows:
    """Every window of `frames` frames, `frameskip` steps apart, that lies inside one of the given episodes.

    Window w shows frames at rows s, s+k, ..., s+(T-1)k of its episode and the actions of the (T-1)k steps between them,
    so an episode's last action, which published files may store as NaN, is never used.
    """

    def __init__(self, episodes: Episodes, ids: Sequence[int] | np.ndarray, frames: int, frameskip: int = 1) -> None:
        if frames < 1 or frameskip < 1:
            raise DataError(f"windows need frames and frameskip of at least 1, got {frames} and {frameskip}")
        episodes.shape("pixels")
        self.episodes = episodes
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
        self._ends = np.cumsum(np.maximum(lengths - needed + 1, 0))  # windows up to and including each episode
        episodes.cache("action")  # a few bytes a step, read for every window

    def __len__(self) -> int:
        return int(self._ends[-1])

    def starts(self, indices: Sequence[int] | np.ndarray) -> np.ndarray:
        """The first row of each window: [B]."""
        wanted = np.asarray(indices, dtype=np.int64)
        if wanted.size and (wanted.min() < 0 or wanted.max() >= len(self)):
            raise DataError(f"window indices {wanted.min()} to {wanted.max()} are outside 0 to {len(self) - 1}")
        position = np.searchsorted(self._ends, wanted, side="right")
        first = np.concatenate([[0], self._ends[:-1]])[position]
        return self.episodes.offsets[self._ids[position]] + wanted - first

    def frame_rows(self, indices: Sequence[int] | np.ndarray) -> np.ndarray:
        """The rows of each window's frames: [B, T]."""
        return self.starts(indices)[:, None] + np.arange(self.frames) * self.frameskip

    def action_rows(self, indices: Sequence[int] | np.ndarray) -> np.ndarray:
        """The rows of each window's actions: [B, (T-1)*frameskip]."""
        return self.starts(indices)[:, None] + np.arange((self.frames - 1) * self.frameskip)

    def batch(self, indices: Sequence[int] | np.ndarray) -> Batch:
        """The windows with these indices."""
        actions = self.episodes.read("action", self.action_rows(indices))
        return Batch(
            pixels=torch.from_numpy(self.episodes.read("pixels", self.frame_rows(indices))),
            actions=torch.from_numpy(actions.astype(np.float32, copy=False)),
        )


def batches(
    windows: Windows, batch_size: int, seed: int, start_step: int = 0, prefetch: int = 2
) -> Generator[Batch, None, None]:
    """An endless stream of shuffled batches; batch s depends on (seed, s) only, so training resumes at any step.

    `prefetch` batches are read ahead by a background thread, which stops when the iterator is closed or dropped.
    """
    if batch_size < 1 or start_step < 0 or prefetch < 0:
        raise DataError(
            "batches need batch_size >= 1, start_step >= 0 and prefetch >= 0, "
            f"got {batch_size}, {start_step} and {prefetch}"
        )
    return _read_ahead(windows, Shuffle(len(windows), batch_size, seed), start_step, prefetch)


class Shuffle:
    """Which windows are in batch s: passes over all of them, each pass in its own random order, cut into batches."""

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


def _read_ahead(windows: Windows, shuffle: Shuffle, step: int, depth: int) -> Generator[Batch, None, None]:
    reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="acid-batches")
    pending: deque[Future[Batch]] = deque()
    try:
        while True:
            while len(pending) <= depth:
                pending.append(reader.submit(lambda s: windows.batch(shuffle.indices(s)), step))
                step += 1
            yield pending.popleft().result()
    finally:
        reader.shutdown(cancel_futures=True)
