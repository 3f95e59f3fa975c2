"""`acid reproduce NAME`: the paper's tables and figures, each a subcommand with only the options that apply."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Union

import tyro

from acid.cli.extras import need
from acid.cli.options import By, Compute, On, Workers, usual_results
from acid.cli.progress import bar
from acid.errors import AcidError
from acid.tables import TABLES, Findings, Options, Table, choose, reproduce, write

Scale = Literal["lite", "paper"]


@dataclass(frozen=True)
class _Asked:
    """Options of every table, and of all together."""

    folder: Path | None = None
    """Your own checkpoints: a folder that holds TASK/MODEL, or that of one cell; default: the shipped ones."""
    results: Path | None = None
    """Folder for rows and tables. Default: results, or FOLDER/results with --folder, as rows of other checkpoints are
    kept apart; for the scale paper: results/paper."""
    dry_run: bool = False
    """Only say what would run, and about how long it would take."""
    scale: Scale = "lite"
    """paper: world models of the published size. They are not shipped: pass --folder."""
    workers: By = field(default_factory=Workers)
    compute: On = field(default_factory=Compute)


@dataclass(frozen=True)
class _Reproduce(_Asked):
    """Options of one table."""

    table: ClassVar[Table]

    episodes: int | None = None
    """Episodes of each condition; default: as many as the table has."""
    choose: bool = False
    """Choose λ again, on episodes that are not reported, instead of planning with the one that was chosen."""
    evaluate: bool = True
    """Run what is missing; with --no-evaluate the table shows only what was run before."""
    figures: Path | None = None
    """Also draw the figures of the table into this folder."""

    def run(self) -> None:
        if self.figures is not None:
            need("--figures", "report")
        options = _options(
            self,
            episodes=self.episodes,
            tasks=tuple(getattr(self, "tasks", ())),
            models=tuple(getattr(self, "models", ())),
        )
        findings, engine = Findings(self.table, options), self.workers.make()
        if self.choose and all(study.choice is None for study in findings.studies):
            raise AcidError(f"no λ is chosen for the table {self.table.name!r}: leave --choose out")
        if self.dry_run and not self.evaluate:
            raise AcidError("--dry-run tells what would be evaluated: leave --no-evaluate out")
        if self.dry_run:
            return _announce(findings, choose=self.choose)
        if self.choose:
            with bar("choose λ", "episode") as progress:
                print(choose(findings, engine, progress))
        if self.evaluate:
            with bar(f"reproduce {self.table.name}", "episode") as progress:
                reproduce(findings, engine, progress, say=print)
        print(write(findings))
        print(f"wrote {findings.file}.md", file=sys.stderr)
        if self.figures:
            drawn = self.table.draw(findings, self.figures)
            if not drawn:
                raise AcidError(f"the table {self.table.name!r} has no figures, or lacks the rows that they show")
            for path in drawn:
                print(f"wrote {path}", file=sys.stderr)


def _announce(findings: Findings, *, choose: bool = False) -> None:
    """Say what would run."""
    from acid.tables.outlook import outlook

    print(f"{findings.table.name:12s} {outlook(findings, choose=choose)}", flush=True)


def _command(table: Table) -> Any:
    """A command for one table, with a choice of tasks and models only where it has several."""
    choices = {kind: sorted({getattr(study, kind[:-1]) for study in table.studies}) for kind in ("tasks", "models")}
    several = [
        (kind, Annotated[tuple[str, ...], tyro.conf.arg(help=f"Any of {', '.join(found)}; default: all.")], ())
        for kind, found in choices.items()
        if len(found) > 1
    ]
    made = make_dataclass(f"Reproduce{table.name.title()}", several, bases=(_Reproduce,), frozen=True)
    made.table = table  # type: ignore[attr-defined]
    made.__doc__ = f"{table.title}."
    return Annotated[made, tyro.conf.subcommand(table.name)]


def _options(asked: Any, **more: Any) -> Options:
    """What tables are made of; weights of the published size are never mixed with others."""
    if asked.scale == "paper" and asked.folder is None:
        raise AcidError(
            "weights of the published size are not shipped: train them with `acid train ... --scale paper`, then pass "
            "--folder FOLDER, which holds TASK/MODEL"
        )
    usual = Path("results/paper") if asked.scale == "paper" else usual_results(asked.folder)
    return Options(
        results=asked.results or usual,
        folder=asked.folder,
        scale=None if asked.scale == "lite" else asked.scale,
        **asked.compute.options(),
        **more,
    )


@dataclass(frozen=True)
class ReproduceAll(_Asked):
    """Every table and figure, one after the other. Says first what will run and how long it takes; may be resumed."""

    def run(self) -> None:
        from acid.tables.table import with_cells

        options = _options(self)
        every = with_cells(TABLES.values(), options)
        for findings in every:
            _announce(findings)
        for name in [name for name in TABLES if name not in {findings.table.name for findings in every}]:
            print(f"{name:12s} left out: no cell of it is below {self.folder}", flush=True)
        if self.dry_run:
            return
        for findings in every:
            name = findings.table.name
            with bar(f"reproduce {name}", "episode") as progress:
                reproduce(findings, self.workers.make(), progress, say=print)
            write(findings)
            print(f"wrote {findings.file}.md", flush=True)


_EVERY = (*(_command(table) for table in TABLES.values()), Annotated[ReproduceAll, tyro.conf.subcommand("all")])
Tables: Any = Union[_EVERY]  # noqa: UP007


@dataclass(frozen=True)
class Reproduce:
    """Run what is missing of a table of the paper, and print it beside the published numbers."""

    table: tyro.conf.OmitSubcommandPrefixes[tyro.conf.OmitArgPrefixes[Tables]]  # pyright: ignore
    """Which one."""

    def run(self) -> None:
        self.table.run()
