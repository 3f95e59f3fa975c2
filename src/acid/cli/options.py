"""Options that several commands share, so that the same thing is set the same way everywhere."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from acid.errors import AcidError, did_you_mean

if TYPE_CHECKING:
    from acid.evaluation import Cell, Engine, SearchSpec
    from acid.evaluation.clusters import Cluster


def usual_results(folder: Path | None) -> Path:
    """Where rows and tables are: those of one's own checkpoints are kept beside them."""
    return Path("results") if folder is None else folder / "results"


@dataclass(frozen=True)
class Device:
    """Where networks run."""

    device: str = "auto"
    """auto (the GPU if there is one), cpu, cuda, cuda:1 or mps."""

    @property
    def resolved(self) -> str:
        """The device that is used."""
        from acid.device import resolve_device

        return str(resolve_device(self.device))


@dataclass(frozen=True)
class Compute(Device):
    """Where the networks of a planner run, and how precisely."""

    precision: Literal["auto", "float32", "bfloat16", "mixed"] = "auto"
    """auto: float32. mixed: the world model in float32, the verifier in bfloat16."""

    def options(self) -> dict[str, Any]:
        """As keywords of what plans."""
        return {"device": self.resolved, "precision": "float32" if self.precision == "auto" else self.precision}


@dataclass(frozen=True)
class PlanningCompute(Compute):
    """Where the networks of a planner run, how precisely, and whether torch compiles them."""

    compile: bool = False
    """Let torch compile rollout and verifier, which takes a minute or two the first time and makes long runs faster."""

    def options(self) -> dict[str, Any]:
        return {**super().options(), "compile": self.compile}


@dataclass(frozen=True)
class Where:
    """Which cell: a task with a world model."""

    task: Annotated[str, tyro.conf.Positional] = "reacher"
    """reacher, pusht, cube, rope, granular, navigation, package.module:Class, or reacher-published, pusht-published,
    cube-published: with frames and steps like those of published datasets."""
    model: str | None = None
    """lewm or pldm (reacher, pusht, cube), lewm-shapes (pusht, cube), pldm-shapes (pusht), dinowm or dinowm-symmetric
    (rope, granular), nwm or nwm-diffusion (navigation); default: that of --folder, or the first shipped (of the demo of
    pusht: lewm-shapes)."""
    folder: Path | None = None
    """The folder of your own cell, with subfolders model and verifier; default: the shipped cell."""
    results: Path = Path("results")
    """Folder for rows, and for a λ or instances that you choose yourself for a shipped cell."""

    def cell(self, preferred: str | None = None) -> Cell:
        """preferred: the world model by default, where it is shipped."""
        from acid import checkpoint
        from acid.evaluation import Cell, shipped

        known = [model for task, model in (name.split("/") for name in shipped()) if task == self.task]
        if self.folder is not None:
            if not (self.folder / "model").is_dir():
                raise AcidError(f"{self.folder} is not the folder of a cell: it has no subfolder 'model'")
            known = [checkpoint.load(self.folder / "model").metadata.get("model", *known[:1] or ["model"])]
        if self.model is None and not known:
            close = did_you_mean(self.task, {name.split("/")[0] for name in shipped()})
            raise AcidError(f"no weights are shipped for the task {self.task!r}: pass --folder{close}")
        if preferred is not None and preferred in known:
            known.insert(0, preferred)
        return Cell(self.task, self.model or known[0], self.folder, self.results)


@dataclass(frozen=True)
class SearchOptions:
    """The search. By default all is as published for the task."""

    method: str = "cem"
    """cem, icem, mppi, gradient or shooting."""
    samples: int | None = None
    """N, candidates per iteration."""
    iterations: int | None = None
    """J, iterations."""
    elites: int | None = None
    """K, best candidates that the next iteration is fitted to; default: the published share of the samples."""
    std: float | None = None
    """Standard deviation of the first candidates, as a multiple of that of the data's actions; default: 1."""
    near: float | None = None
    """Go on around the best of the first candidates with this standard deviation, not around the elites; cem only."""
    horizon: int | None = None
    """Model steps in a plan."""
    candidates: str | None = None
    """Family of candidates, for navigation: arc, line or nwm."""
    execute: int | None = None
    """Model steps of a plan to execute before planning again; default: all of them."""
    shrink: bool = False
    """Make plans shorter as the goal comes nearer, instead of always planning a whole horizon; needs --execute."""

    @property
    def given(self) -> bool:
        """Whether anything was asked for."""
        return self != SearchOptions()

    def spec(self, cell: Cell) -> SearchSpec:
        from acid.errors import look_up
        from acid.evaluation import SearchSpec
        from acid.evaluation.kits import kit_of
        from acid.planning import SEARCHES

        kit, setup, elites = kit_of(cell.model), cell.task_class.setup, self.elites
        has = {option.name for option in fields(look_up(SEARCHES, self.method, "search method"))}
        family = self.candidates or kit.candidates[0]
        look_up(dict.fromkeys(kit.candidates), family, "family of candidates")
        if elites is None and self.samples is not None and "elites" in has:
            elites = max(1, round(self.samples * setup.elites / setup.samples))
        return SearchSpec.usual(
            setup,
            method=self.method,
            samples=self.samples,
            iterations=self.iterations,
            elites=elites,
            std_init=self.std,
            near=self.near,
            horizon=self.horizon,
            candidates=family,
            repeats=kit.repeats,
            execute=self.execute,
            shrinks=self.shrink,
        )


@dataclass(frozen=True)
class Workers:
    """Where the work is done."""

    processes: int = 2
    """Processes at a time on this machine, or jobs in Slurm's queue. A Ray cluster with an address uses all of its
    processors."""
    engine: Literal["local", "ray", "slurm"] = "local"
    """Processes of this machine, a Ray cluster, or Slurm (whose nodes must see this folder)."""
    address: str | None = None
    """Address of a Ray cluster: auto, HOST:PORT or ray://HOST:PORT. Default: start one on this machine."""
    slurm: tuple[str, ...] = ()
    """Settings of submitit, NAME=VALUE, e.g. slurm_partition=cpu timeout_min=120."""

    def cluster(self) -> Cluster | None:
        """The chosen one; None for this machine."""
        from acid.evaluation.clusters import Ray, Slurm

        if self.address is not None and self.engine != "ray":
            raise AcidError(f"--address needs --engine ray, or leave out {self.address!r}")
        if self.slurm and self.engine != "slurm":
            raise AcidError(f"--slurm needs --engine slurm, or leave out {self.slurm[0]!r}")
        if self.processes < 1:
            raise AcidError(f"processes must be at least 1, got {self.processes}")
        made = {"ray": Ray(self.address, self.processes), "slurm": Slurm(self.processes, settings=self._settings())}
        return made.get(self.engine)

    def make(self) -> Engine:
        from acid.evaluation import Local

        return self.cluster() or Local(self.processes)

    def _settings(self) -> dict[str, str | int]:
        pairs = [setting.partition("=") for setting in self.slurm]
        if wrong := [name for name, equals, _ in pairs if not equals]:
            raise AcidError(f"a setting of Slurm is NAME=VALUE, got {wrong[0]!r}")
        return {name: int(value) if value.isdigit() else value for name, _, value in pairs}


Cells = tyro.conf.OmitArgPrefixes[Where]
Search = tyro.conf.OmitArgPrefixes[SearchOptions]
OnDevice = tyro.conf.OmitArgPrefixes[Device]
On = tyro.conf.OmitArgPrefixes[Compute]
PlansOn = tyro.conf.OmitArgPrefixes[PlanningCompute]
By = tyro.conf.OmitArgPrefixes[Workers]
