"""Options that several commands share, so that the same thing is set the same way everywhere."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from acid.errors import AcidError, did_you_mean

if TYPE_CHECKING:
    from acid.evaluation import Cell, SearchSpec


@dataclass(frozen=True)
class Compute:
    """Where networks run."""

    device: str = "auto"
    """auto (the GPU if there is one), cpu, cuda, cuda:1 or mps."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: bfloat16 when training on a GPU, else float32."""

    @property
    def resolved(self) -> str:
        """The device that is used."""
        from acid.device import resolve_device

        return str(resolve_device(self.device))

    @property
    def planning_precision(self) -> str:
        return "float32" if self.precision == "auto" else self.precision


@dataclass(frozen=True)
class Where:
    """Which cell: a task with a world model."""

    task: Annotated[str, tyro.conf.Positional] = "reacher"
    """reacher, pusht, cube, rope, granular, navigation, or package.module:Class."""
    model: str | None = None
    """lewm or pldm (reacher, pusht, cube), dinowm (rope, granular), nwm (navigation); default: the first shipped."""
    folder: Path | None = None
    """Checkpoints of your own; default: the shipped ones."""
    results: Path = Path("results")
    """Where rows are kept, and a λ or instances of your own for shipped checkpoints."""

    def cell(self) -> Cell:
        from acid.evaluation import Cell, shipped

        known = [model for task, model in (name.split("/") for name in shipped()) if task == self.task]
        if self.model is None and not known:
            close = did_you_mean(self.task, {name.split("/")[0] for name in shipped()})
            raise AcidError(f"no weights are shipped for the task {self.task!r}: pass --model and --folder{close}")
        if self.folder is not None and not (self.folder / "model").is_dir():
            raise AcidError(f"{self.folder} is not the folder of a cell: it has no subfolder 'model'")
        return Cell(self.task, self.model or known[0], self.folder, self.results)


@dataclass(frozen=True)
class SearchOptions:
    """The search; what is not given is as published for the task."""

    method: str = "cem"
    """cem, icem, mppi, gradient or shooting."""
    samples: int | None = None
    """N candidates per iteration."""
    iterations: int | None = None
    """J."""
    elites: int | None = None
    """K; default: the published share of the samples."""
    std: float | None = None
    """Standard deviation of the first candidates, in those of the data's actions; default: 1."""
    horizon: int | None = None
    """Model steps in a plan."""
    candidates: str | None = None
    """Family of candidates: arc or line for navigation."""
    execute: int | None = None
    """Model steps of a plan that are executed before the next one is made; default: all."""
    shrink: bool = False
    """Make plans shorter as the goal comes nearer, instead of always aiming a whole horizon ahead; needs --execute."""

    def spec(self, cell: Cell) -> SearchSpec:
        from acid.errors import look_up
        from acid.evaluation import SearchSpec
        from acid.evaluation.kits import kit_of
        from acid.planning import SEARCHES

        kit, setup, elites = kit_of(cell.model), cell.task_class.setup, self.elites
        has = {option.name for option in fields(look_up(SEARCHES, self.method, "search method"))}
        if elites is None and self.samples is not None and "elites" in has:
            elites = max(1, round(self.samples * setup.elites / setup.samples))
        return SearchSpec.usual(
            setup,
            method=self.method,
            samples=self.samples,
            iterations=self.iterations,
            elites=elites,
            std_init=self.std,
            horizon=self.horizon,
            candidates=self.candidates or kit.candidates[0],
            repeats=kit.repeats,
            execute=self.execute,
            shrinks=self.shrink,
        )


Cells = tyro.conf.OmitArgPrefixes[Where]
Search = tyro.conf.OmitArgPrefixes[SearchOptions]
On = tyro.conf.OmitArgPrefixes[Compute]
