"""Where the time of a plan goes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Stopwatch:
    """Adds up wall-clock seconds by name. A GPU works in the background: its work counts where it is waited for."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began

    def wait(self, device: torch.device) -> None:
        """Let the device finish, so that what is being measured includes its work."""
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
