"""Progress bars for everything that takes a while."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm


def _tqdm(**options: Any) -> Any:
    """A bar for a person, but not for a mistake that is told at once; a line now and then for a log file."""
    interval, delay = (0.2, 0.5) if sys.stderr.isatty() else (60, 0)
    return tqdm(dynamic_ncols=True, mininterval=interval, maxinterval=interval, delay=delay, **options)


@contextmanager
def bar(title: str, unit: str) -> Any:
    """A progress bar driven by (done, total)."""
    with _tqdm(desc=title, unit=unit) as shown:

        def update(done: int, total: int) -> None:
            shown.total = total
            shown.update(done - shown.n)

        yield update


@contextmanager
def training_bar(title: str, steps: int) -> Any:
    """A progress bar that shows the losses beside the time left."""
    with _tqdm(desc=title, unit="step", total=steps) as shown:

        def update(step: int, losses: Any) -> None:
            if shown.n == 0:
                shown.unpause()  # whatever came before the first step does not count
            shown.update(step - shown.n)
            values = losses if isinstance(losses, dict) else {"loss": losses}
            shown.set_postfix({name: f"{float(value):.4f}" for name, value in values.items()}, refresh=False)

        yield update
