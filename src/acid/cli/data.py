"""`acid collect`, `acid import` and `acid convert`: get datasets and published world models."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from acid.cli.options import By, Workers
from acid.cli.progress import bar
from acid.errors import DataError, plain


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
    """For nwm: a file that lists the trajectories to import, such as the traj_names.txt of a split."""

    def run(self) -> None:
        from acid.data import import_episodes

        with bar("import", "episode") as progress:
            chosen = {"size": self.size, "camera": self.camera, "names": self.names}
            found = import_episodes(self.path, self.out, self.format, **chosen, progress=progress)
        left_out = found.attributes.get("left_out")
        print(
            f"wrote {self.out}: {len(found)} episodes"
            + (f", without the columns {plain(left_out)}" if left_out else "")
        )


@dataclass(frozen=True)
class Convert:
    """Turn a published world model into a checkpoint of this library. The formats are:

    Le-WM, PLDM: a folder with config.json and weights.pt, as stable-worldmodel writes it

    PLDM: NAME_weight.ckpt or NAME_object.ckpt

    DINO-WM: checkpoints/model_latest.pth or model_EPOCH.pth

    NWM on the tokens of CompACT: checkpoints/latest.pth.tar or STEP.pth.tar, with --tokenizer

    CompACT's tokenizer: checkpoints/NAME.ckpt, without --data

    NWM's own CDiT (S, B, L, XL): checkpoints/latest.pth.tar or STEP.pth.tar, with the VAE as --encoder
    """

    published: Annotated[Path, tyro.conf.Positional]
    """The folder with the published files."""
    out: Path
    """Where to write the checkpoint, e.g. runs/TASK/lewm/model, so that the cell's other parts can be trained."""
    data: Path | None = None
    """The dataset it was trained on, for the action statistics; a tokenizer needs none."""
    task: str | None = None
    """The task it was trained for, if this library has that task."""
    held_out: float = 0.0
    """Share of the dataset's episodes on which no verifier may be trained."""
    weights: str | None = None
    """Which file of weights, if the folder has several."""
    encoder: str | None = None
    """For a DINO-WM: a folder with DINOv2 ViT-S/14; default: facebook/dinov2-small from the local cache. For a
    tokenizer: a folder with DINOv3 ViT-B/16; default: facebook/dinov3-vitb16-pretrain-lvd1689m. For NWM's own CDiT: a
    folder with Stable Diffusion's VAE (stabilityai/sd-vae-ft-ema)."""
    tokenizer: Path | None = None
    """For an NWM on tokens: the checkpoint of its tokenizer, which is converted first."""
    image_size: int | None = None
    """For a tokenizer: pixels along each side of the images given to DINOv3; default: as in its own training."""
    denoising_steps: int | None = None
    """For NWM's own CDiT: in how many steps, 2 to 1000, an imagined frame is denoised; default: 250, as published."""

    def run(self) -> None:
        from acid.integrations.published import convert, convert_tokenizer

        chosen: dict[str, Any] = {"task": self.task, "weights": self.weights, "encoder": self.encoder}
        if self.data is None:
            if self.denoising_steps is not None:
                raise DataError("--denoising-steps is for a world model, which needs --data too")
            if self.tokenizer is not None or self.held_out:
                raise DataError("--tokenizer and --held-out are for a world model, which needs --data too")
            convert_tokenizer(self.published, self.out, image_size=self.image_size, **chosen)
        else:
            if self.image_size is not None:
                raise DataError(f"--image-size {self.image_size} is for a tokenizer, which needs no --data")
            chosen |= {"held_out": self.held_out, "tokenizer": self.tokenizer, "denoising_steps": self.denoising_steps}
            convert(self.published, self.data, self.out, **chosen)
        print(f"wrote {self.out}")
