"""`acid reproduce`, `acid card` and `acid diagnose`: the evidence."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro

from acid.cli.progress import bar


@dataclass(frozen=True)
class Reproduce:
    """Run or resume a table of the paper, print it beside the published numbers and write it to the results.

    planning: Table 1, Le-WM and PLDM on Cube, Reacher and Push-T.
    deformable: Table 2 left, DINO-WM on Rope and Granular, and its figures.
    navigation: Table 2 right, NWM with CompACT; and whether consistency tells where imagination fails.
    """

    name: Annotated[Literal["planning", "deformable", "navigation"], tyro.conf.Positional]
    tasks: tuple[str, ...] = ()
    """Default: all tasks of the table."""
    models: tuple[str, ...] = ("lewm", "pldm")
    """Of the table "planning"."""
    episodes: int | None = None
    """Default: 200 (planning, navigation), 100 (deformable)."""
    results: Path = Path("results")
    processes: int = 2
    choose: bool = False
    """Choose λ again, on episodes that are not reported, instead of planning with the one that was chosen."""
    figures: Path | None = None
    """Also draw the figures of the table into this folder."""
    evaluate: bool = True
    """Run what is missing; otherwise the table is made of the rows that are there."""
    folder: Path | None = None
    """Of the table "navigation": checkpoints of your own; default: the shipped ones."""
    data: Path | None = None
    """Of the table "navigation": draw the cases from this dataset instead of using the shipped ones."""

    def run(self) -> None:
        experiment = self._experiment()
        if self.choose:
            with bar("choose λ", "episode") as progress:
                print(experiment.choose(processes=self.processes, progress=progress))
        if self.evaluate:
            with bar(f"reproduce {self.name}", "episode") as progress:
                experiment.run(processes=self.processes, progress=progress)
        print(experiment.write())
        if self.figures:
            for path in experiment.draw(self.figures):
                print(f"wrote {path}", file=sys.stderr)

    def _experiment(self) -> Any:
        from acid.experiments import deformable, navigation, planning

        if self.name == "navigation":
            return navigation.NavigationTable(self.results, self.episodes or 200, self.folder, self.data)
        if self.name == "deformable":
            chosen, episodes = self.tasks or deformable.TASKS, self.episodes or deformable.EPISODES
            return deformable.DeformableTable(self.results, chosen, episodes)
        return planning.PlanningTable(self.results, self.tasks or planning.TASKS, self.models, self.episodes or 200)


@dataclass(frozen=True)
class Card:
    """Write the model card of a cell: commands, losses, what its latents and its verifier know."""

    task: Annotated[str, tyro.conf.Positional] = "reacher"
    model: str = "lewm"
    folder: Path | None = None
    """Checkpoints of your own; default: the shipped ones."""
    data: Path | None = None
    """Probe the latents on this dataset; without it the last probe is kept."""

    def run(self) -> None:
        from acid.experiments.card import write_card
        from acid.experiments.cell import Cell

        torch.set_num_threads(1)
        print(f"wrote {write_card(Cell(self.task, self.model, self.folder), self.data)}")


@dataclass(frozen=True)
class Diagnose:
    """Why ACID helps in a cell, or not: execute candidates and plans, and compare them with what was imagined."""

    task: Annotated[str, tyro.conf.Positional] = "reacher"
    model: str = "lewm"
    folder: Path | None = None
    """Checkpoints of your own; default: the shipped ones."""
    problems: int = 24
    json: bool = False

    def run(self) -> None:
        from acid.experiments.cell import Cell
        from acid.experiments.diagnosis import diagnose

        torch.set_num_threads(1)
        with bar(f"diagnose {self.task}", "problem") as progress:
            found = diagnose(Cell(self.task, self.model, self.folder), problems=self.problems, progress=progress)
        print(json.dumps(found.as_dict(), indent=2, ensure_ascii=False) if self.json else found.text())
