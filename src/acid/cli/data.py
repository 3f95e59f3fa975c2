"""`acid collect` and `acid import`: what training and planning start from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from acid.cli.progress import bar
from acid.errors import look_up


@dataclass(frozen=True)
class Collect:
    """Collect episodes of a task; continues an interrupted run. The same seed gives the same data."""

    task: Annotated[str, tyro.conf.Positional] = "reacher"
    episodes: int = 2400
    out: Path | None = None
    """Default: data/TASK.h5"""
    size: int = 64
    """Pixels along each side of an image."""
    seed: int = 0
    processes: int = 2

    def run(self) -> None:
        from acid.tasks import TASKS
        from acid.tasks.collect import Collection, collect

        look_up(TASKS, self.task, "task")
        out = self.out or Path("data") / f"{self.task}.h5"
        with bar(f"collect {self.task}", "episode") as progress:
            collect(
                Collection(self.task, self.episodes, self.size, self.seed),
                out,
                processes=self.processes,
                progress=progress,
            )
        print(f"wrote {out}")


@dataclass(frozen=True)
class Import:
    """Turn a Le-WM or PLDM published by stable-worldmodel into a checkpoint of this library."""

    published: Annotated[Path, tyro.conf.Positional]
    """A folder with config.json and weights.pt."""
    data: Path
    """The dataset it was trained on, for the action statistics."""
    out: Path
    held_out: float = 0.0
    """Share of that dataset's episodes that its training did not see."""
    weights: str | None = None
    """Which file of weights, where the folder has several."""

    def run(self) -> None:
        from acid.integrations.published import convert

        convert(self.published, self.data, self.out, held_out=self.held_out, weights=self.weights)
        print(f"wrote {self.out}")
