"""`acid reproduce NAME`: the paper's tables and figures, a subcommand each with only the options that it honours."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Union

import tyro

from acid.cli.extras import need
from acid.cli.options import By, Compute, On, Workers
from acid.cli.progress import bar
from acid.tables import TABLES, Findings, Options, Table, choose, reproduce, write


@dataclass(frozen=True)
class _Reproduce:
    """Options of every table."""

    table: ClassVar[Table]

    folder: Path | None = None
    """Checkpoints of your own: the folder of a cell, or one that holds TASK/MODEL; default: the shipped ones."""
    episodes: int | None = None
    """Default: as many as the table has."""
    results: Path = Path("results")
    choose: bool = False
    """Choose λ again, on episodes that are not reported, instead of planning with the one that was chosen."""
    evaluate: bool = True
    """Run what is missing; otherwise the table is made of the rows that are there."""
    figures: Path | None = None
    """Also draw the figures of the table into this folder."""
    workers: By = field(default_factory=Workers)
    compute: On = field(default_factory=Compute)

    def run(self) -> None:
        if self.figures is not None:
            need("--figures", "report")
        options = Options(
            results=self.results,
            folder=self.folder,
            episodes=self.episodes,
            tasks=tuple(getattr(self, "tasks", ())),
            models=tuple(getattr(self, "models", ())),
            device=self.compute.resolved,
            precision=self.compute.planning_precision,
        )
        findings, engine = Findings(self.table, options), self.workers.make()
        if self.choose:
            with bar("choose λ", "episode") as progress:
                print(choose(findings, engine, progress))
        if self.evaluate:
            with bar(f"reproduce {self.table.name}", "episode") as progress:
                reproduce(findings, engine, progress, say=print)
        print(write(findings))
        if self.figures:
            for path in self.table.draw(findings, self.figures):
                print(f"wrote {path}", file=sys.stderr)


def _command(table: Table) -> Any:
    """A command for one table, with a choice of tasks and models only where it has several."""
    choices = {kind: sorted({getattr(study, kind[:-1]) for study in table.studies}) for kind in ("tasks", "models")}
    several = [
        (kind, Annotated[tuple[str, ...], tyro.conf.arg(help=f"Of {', '.join(found)}; default: all.")], ())
        for kind, found in choices.items()
        if len(found) > 1
    ]
    made = make_dataclass(f"Reproduce{table.name.title()}", several, bases=(_Reproduce,), frozen=True)
    made.table = table  # type: ignore[attr-defined]
    made.__doc__ = f"{table.title}. Runs what is missing and prints it beside the published numbers."
    return Annotated[made, tyro.conf.subcommand(table.name)]


Tables: Any = Union[tuple(_command(table) for table in TABLES.values())]  # noqa: UP007


@dataclass(frozen=True)
class Reproduce:
    """Run or resume a table of the paper."""

    table: tyro.conf.OmitSubcommandPrefixes[tyro.conf.OmitArgPrefixes[Tables]]  # pyright: ignore
    """Which one."""

    def run(self) -> None:
        self.table.run()
