"""`acid collect`, `acid import` and `acid convert`: what training and planning start from."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from acid.cli.options import By, Workers
from acid.cli.progress import bar


@dataclass(frozen=True)
class Collect:
    """Collect episodes of a task; continues an interrupted run. The same seed gives the same data."""

    task: Annotated[str, tyro.conf.Positional] = "reacher"
    """reacher, pusht, cube, rope, granular, navigation, package.module:Class, or reacher-published, pusht-published,
    cube-published: with frames and steps like those of published datasets."""
    episodes: int = 2400
    out: Path | None = None
    """Default: data/TASK.h5"""
    size: int = 64
    """Pixels along each side of an image."""
    seed: int = 0
    workers: By = field(default_factory=Workers)

    def run(self) -> None:
        from acid.tasks import task_class
        from acid.tasks.collect import Collection, collect

        out = self.out or Path("data") / f"{task_class(self.task).name}.h5"
        with bar(f"collect {self.task}", "episode") as progress:
            wanted = Collection(self.task, self.episodes, self.size, self.seed)
            collect(wanted, out, processes=self.workers.processes, cluster=self.workers.cluster(), progress=progress)
        print(f"wrote {out}")


@dataclass(frozen=True)
class Import:
    """Turn a dataset of another format into a dataset of this library."""

    path: Annotated[Path, tyro.conf.Positional]
    """A file or a folder, also packed: NAME.h5.zst, NAME.tar.zst."""
    format: str
    """hdf5 or lance (stable-worldmodel's layouts), lerobot (a robot's data, version 3), recon (a folder of
    trajectories), nwm (the same as NWM processes them) or dinowm (rope, granular)."""
    out: Path
    size: int | None = None
    """Pixels along each side of a frame, for formats whose frames are decoded. Default: 64 (lance: as they are)"""
    camera: str | None = None
    """Which camera of a lerobot dataset, or several with commas: the first becomes pixels, others pixels_NAME."""
    names: Path | None = None
    """Of an nwm dataset: a file with the names of the trajectories to take, e.g. the traj_names.txt of a split."""

    def run(self) -> None:
        from acid.data import import_episodes

        with bar("import", "episode") as progress:
            chosen = {"size": self.size, "camera": self.camera, "names": self.names}
            found = import_episodes(self.path, self.out, self.format, **chosen, progress=progress)
        left_out = found.attributes.get("left_out")
        print(f"wrote {self.out}: {len(found)} episodes" + (f", without the columns {left_out}" if left_out else ""))


@dataclass(frozen=True)
class Convert:
    """Turn a published Le-WM, PLDM or DINO-WM into a checkpoint of this library."""

    published: Annotated[Path, tyro.conf.Positional]
    """A folder with config.json and weights.pt, NAME_weight.ckpt or NAME_object.ckpt, or checkpoints/model_*.pth."""
    data: Path
    """The dataset it was trained on, for the action statistics."""
    out: Path
    """The checkpoint, e.g. runs/TASK/lewm/model, so that the cell's other parts can be trained."""
    task: str | None = None
    """What it was trained for, if that is a task of this library."""
    held_out: float = 0.0
    """Share of that dataset's episodes that verifiers shall not see."""
    weights: str | None = None
    """Which file of weights, where the folder has several."""
    encoder: str | None = None
    """Of a DINO-WM: a folder with DINOv2 ViT-S/14; default: facebook/dinov2-small, if it is in the cache."""

    def run(self) -> None:
        from acid.integrations.published import convert

        convert(
            self.published,
            self.data,
            self.out,
            task=self.task,
            held_out=self.held_out,
            weights=self.weights,
            encoder=self.encoder,
        )
        print(f"wrote {self.out}")
