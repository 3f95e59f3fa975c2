"""A dataset as training sees it: the actions between frames, and latents of frames that are encoded once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from acid import checkpoint
from acid.data import Episodes, Partition, Windows, cached_latents, encode_episodes, partition
from acid.data.poses import SCALER, displacements
from acid.errors import CheckpointError
from acid.loop import SettingError, moved
from acid.models import Batch, FrozenEncoderModel, LearnedWorldModel
from acid.training.part import Job
from acid.types import ActionScaler

MIRROR = (1.0, -1.0, -1.0)  # what a mirror does to a displacement


def partition_of(folder: Path, episodes: Episodes, *, any_data: bool = False) -> Partition:
    """The partition that a checkpoint was trained on, if this is its dataset; else, with `any_data`, one like it."""
    recorded = checkpoint.load(folder).metadata.get("partition")
    if recorded is None:
        raise CheckpointError(f"{folder} does not tell which episodes it was trained on; train it again")
    found = partition(episodes, held_out=recorded["held_out"], frameskip=recorded["frameskip"])
    if not any_data:
        found.check(recorded, str(folder))
    return found


class Actions(NamedTuple):
    """What was done in each row of a dataset."""

    table: Tensor  # float32 [rows, a] in environment units; may be NaN where an episode ends
    scaler: ActionScaler
    mirror: tuple[float, ...] | None  # what a mirror does to an action, where that is known

    def at(self, rows: Tensor, mirrored: Tensor | None = None) -> Tensor:
        """Rows [B, ...] to actions [B, ..., a] in environment units, mirrored where [B] says so."""
        found = self.table[rows]
        return found if mirrored is None else self.mirrored(found, mirrored)

    def mirrored(self, actions: Tensor, mirrored: Tensor) -> Tensor:
        """Actions [B, ..., a], mirrored where [B] says so."""
        if self.mirror is None:
            return actions
        sign = torch.where(mirrored[:, None], self.table.new_tensor(self.mirror), 1.0)
        return actions * sign.view(len(actions), *[1] * (actions.dim() - 2), -1)


def actions_of(job: Job) -> Actions:
    """As the kind of world model wants them: the recorded ones, or the steps between poses."""
    if job.kind.actions == "displacements":
        if job.partition.frameskip != 1:
            raise SettingError(
                f"a {job.recipe.model} sees every frame; its frameskip is 1, not {job.partition.frameskip}"
            )
        return Actions(torch.from_numpy(steps_between(job.episodes)), SCALER, MIRROR)
    if getattr(job.recipe, "mirror", False):
        raise SettingError(f"mirror=True: it is not known what a mirror does to the actions of a {job.recipe.model}")
    table = job.episodes.read("action", np.arange(job.episodes.rows)).astype(np.float32, copy=False)
    return Actions(torch.from_numpy(table), job.partition.scaler, None)


def steps_between(episodes: Episodes) -> np.ndarray:
    """Displacements (m, m, rad) from each frame to the next, float32 [rows, 3]; NaN where an episode ends."""
    poses = episodes.read("pose", np.arange(episodes.rows))
    steps = np.pad(displacements(poses).astype(np.float32), ((0, 1), (0, 0)))
    steps[episodes.offsets + episodes.lengths - 1] = np.nan
    return steps


def encode_rows(job: Job, model: LearnedWorldModel, *, mirror: bool) -> Tensor:
    """Latents [rows, V, P, D] of frames, as they are and (V = 2) mirrored left to right, kept beside the dataset.

    A frozen encoder's are float16, of all frames, and belong to the encoder, whatever is trained on them. Others are
    those of the cell's finished model, of training episodes only; the other rows are NaN.
    """

    if mirror and model.columns:
        raise SettingError(f"mirror=True: it is not known what a mirror does to {', '.join(model.columns)}")

    def encode(seen: Any) -> Tensor:
        if model.columns:
            return model.encode(moved(seen, job.device))
        pixels = seen.to(job.device)
        return torch.cat([model.encode(view) for view in ((pixels, pixels.flip(2)) if mirror else (pixels,))], 1)

    known, data = job.partition.fingerprint, Path(job.episodes.path)
    if isinstance(model, FrozenEncoderModel):
        encoder, ids, batch, dtype = model.encoder_fingerprint, None, 64, torch.float16
    else:
        encoder, ids, batch, dtype = checkpoint.fingerprint(job.cell / "model"), job.partition.train, 512, torch.float32
        known += f" {job.partition.held_out_share} {job.partition.seed}"
    name = f"{data.stem}.{encoder}{'.mirrored' if mirror else ''}.latents.safetensors"
    latents = cached_latents(
        data.with_name(name),
        f"{encoder} {known}",
        lambda: encode_episodes(
            job.episodes, encode, ids=ids, columns=model.columns, batch=batch, dtype=dtype, progress=job.encoding
        ),
    )
    return latents.unflatten(1, (2 if mirror else 1, -1))


@dataclass(frozen=True)
class WindowReader:
    """Batches of windows: of pixels, or of latents where there are some."""

    windows: Windows
    episodes: Episodes
    actions: Actions
    latents: Tensor | None = None  # [rows, V, P, D]

    def read(self, indices: np.ndarray, mirrored: Tensor | None = None) -> Batch:
        """The windows with these numbers [B], mirrored where [B] says so."""
        rows = self.windows.frame_rows(indices)
        if self.latents is None:
            frames = torch.from_numpy(self.episodes.read("pixels", rows))
        else:
            frames = self.latents_at(rows, mirrored)
        acted = self.actions.at(torch.from_numpy(self.windows.action_rows(indices)), mirrored)
        return Batch(frames, self.actions.scaler.normalise(acted))

    def latents_at(self, rows: np.ndarray, mirrored: Tensor | None = None) -> Tensor:
        """Latents [B, T, P, D] of rows [B, T], mirrored where [B] says so."""
        if self.latents is None:
            raise SettingError("goals are frames of a frozen encoder's latents, which this world model does not have")
        view = torch.zeros(len(rows), dtype=torch.long) if mirrored is None else mirrored.long()
        return self.latents[torch.from_numpy(rows), view[:, None]].float()


@dataclass(frozen=True)
class LatentDataset:
    """The training frames as the cell's world model sees them, episode by episode."""

    model: LearnedWorldModel
    rows: np.ndarray  # [M] of the dataset
    latents: Tensor  # [M, P, D]
    actions: Tensor  # [M, A] blocks in environment units; NaN where a block would leave the episode
    ids: Tensor  # [M] episode numbers


def load_latents(job: Job, *, mirror: bool = False, answers: int = 1) -> LatentDataset:
    """Of every training episode, with `answers` model steps in each block of actions.

    With `mirror`, each episode is followed by its mirrored copy, which has the same number.

    Both are thus held out together, and no transition joins them, because no step leads on from the last frame.
    """
    model, actions = job.world_model(), actions_of(job)
    ids, frameskip = job.partition.train, model.scaler.frameskip
    views = (False, True) if mirror else (False,)
    pieces = [(job.episodes.rows_of([episode]), view) for episode in ids for view in views]
    rows = np.concatenate([own for own, _ in pieces])
    mirrored = torch.from_numpy(np.concatenate([np.full(len(own), view) for own, view in pieces]))
    acted = (actions.at(torch.from_numpy(own), torch.full((len(own),), view)) for own, view in pieces)
    return LatentDataset(
        model=model,
        rows=rows,
        latents=encode_rows(job, model, mirror=mirror)[torch.from_numpy(rows), mirrored.long()],
        actions=torch.cat([_blocks(taken, answers * frameskip) for taken in acted]),
        ids=torch.from_numpy(np.repeat(ids, len(views) * job.episodes.lengths[ids])),
    )


def _blocks(actions: Tensor, size: int) -> Tensor:
    """The `size` actions of an episode [T, a] from each row on, side by side: [T, size·a], NaN near the end."""
    padded = torch.cat([actions, actions.new_full((size - 1, actions.shape[1]), torch.nan)])
    return torch.cat([padded[k : k + len(actions)] for k in range(size)], 1)
