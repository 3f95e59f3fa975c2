"""The progress of a fit as at most ten lines, where the caller passes no progress function."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping


class ProgressLines:
    """Called with every logged step; writes a line to stderr after every tenth of the steps."""

    def __init__(self, title: str, steps: int) -> None:
        self._title, self._steps = title, steps
        self._next = 1  # tenth
        self._began = time.monotonic()

    def __call__(self, step: int, losses: Mapping[str, float]) -> None:
        if 10 * step < self._next * self._steps:
            return
        self._next = 10 * step // self._steps + 1
        left = (time.monotonic() - self._began) * (self._steps - step) / step
        loss = losses["loss"]
        sys.stderr.write(f"{self._title}: step {step} of {self._steps}, loss {loss:.4f}, about {left:.0f} s left\n")
