"""Where the time of a plan goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


class Stopwatch:
    """Adds up seconds by name, of the wall clock or another. A GPU's work counts where it is waited for."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.seconds: dict[str, float] = {}

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        began = self.clock()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + self.clock() - began

    def wait(self, device: torch.device) -> None:
        """Let the device finish, so that what is being measured includes its work."""
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
