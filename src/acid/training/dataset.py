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
from acid.training.views import Views, views_of
from acid.types import ActionScaler


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
    views: Views | None = None  # in which frames are shown besides the recorded one

    def at(self, rows: Tensor, view: Tensor | None = None) -> Tensor:
        """Rows [B, ...] to actions [B, ..., a] in environment units, as they are in these views [B]."""
        found = self.table[rows]
        return found if view is None else self.seen(found, view)

    def seen(self, actions: Tensor, view: Tensor) -> Tensor:
        """Recorded actions [B, ..., a] as they are in these views [B]."""
        return actions if self.views is None else torch.einsum("bij,b...j->b...i", self.views.actions[view], actions)


def actions_of(job: Job) -> Actions:
    """As the kind of world model wants them: the recorded ones, or the steps between poses."""
    if job.kind.actions == "displacements":
        if job.partition.frameskip != 1:
            raise SettingError(
                f"a {job.recipe.model} sees every frame; its frameskip is 1, not {job.partition.frameskip}"
            )
        table, scaler = torch.from_numpy(steps_between(job.episodes)), SCALER
    else:
        recorded = job.episodes.read("action", np.arange(job.episodes.rows)).astype(np.float32, copy=False)
        table, scaler = torch.from_numpy(recorded), job.partition.scaler
    return Actions(table, scaler, views_of(job, table.shape[1]))


def steps_between(episodes: Episodes) -> np.ndarray:
    """Displacements (m, m, rad) from each frame to the next, float32 [rows, 3]; NaN where an episode ends."""
    poses = episodes.read("pose", np.arange(episodes.rows))
    steps = np.pad(displacements(poses).astype(np.float32), ((0, 1), (0, 0)))
    steps[episodes.offsets + episodes.lengths - 1] = np.nan
    return steps


def encode_rows(job: Job, model: LearnedWorldModel, views: Views | None = None) -> Tensor:
    """Latents [rows, V, P, D] of every view of the frames, kept beside the dataset.

    A frozen encoder's are float16, of all frames, and belong to the encoder, whatever is trained on them. Others are
    those of the cell's finished model, of training episodes only; the other rows are NaN.
    """
    if views is not None and model.columns:
        raise SettingError(f"views={views.name}: nobody knows how {', '.join(model.columns)} would be in other views")

    def encode(seen: Any) -> Tensor:
        if views is None:
            return model.encode(moved(seen, job.device))
        return torch.cat([model.encode(pixels.to(job.device)) for pixels in views.show(seen)], 1)

    known, data = job.partition.fingerprint, Path(job.episodes.path)
    if isinstance(model, FrozenEncoderModel):
        encoder, ids, batch, dtype = model.encoder_fingerprint, None, 64, torch.float16
    else:
        encoder, ids, batch, dtype = checkpoint.fingerprint(job.cell / "model"), job.partition.train, 512, torch.float32
        known += f" {job.partition.held_out_share} {job.partition.seed}"
    known += "" if views is None else f" {views.fingerprint}"
    name = f"{data.stem}.{encoder}{'' if views is None else f'.{views.name}'}.latents.safetensors"
    columns = model.columns if views is None else views.columns
    latents = cached_latents(
        data.with_name(name),
        f"{encoder} {known}",
        lambda: encode_episodes(
            job.episodes, encode, ids=ids, columns=columns, batch=batch, dtype=dtype, progress=job.encoding
        ),
    )
    return latents.unflatten(1, (1 if views is None else len(views), -1))


@dataclass(frozen=True)
class WindowReader:
    """Batches of windows: of pixels, or of latents where there are some."""

    windows: Windows
    episodes: Episodes
    actions: Actions
    latents: Tensor | None = None  # [rows, V, P, D]

    def read(self, indices: np.ndarray, view: Tensor | None = None) -> Batch:
        """The windows with these numbers [B], in these views [B]."""
        rows = self.windows.frame_rows(indices)
        if self.latents is None:
            frames = torch.from_numpy(self.episodes.read("pixels", rows))
        else:
            frames = self.latents_at(rows, view)
        acted = self.actions.at(torch.from_numpy(self.windows.action_rows(indices)), view)
        return Batch(frames, self.actions.scaler.normalise(acted))

    def latents_at(self, rows: np.ndarray, view: Tensor | None = None) -> Tensor:
        """Latents [B, T, P, D] of rows [B, T], in these views [B]."""
        if self.latents is None:
            raise SettingError("goals are frames of a frozen encoder's latents, which this world model does not have")
        chosen = torch.zeros(len(rows), dtype=torch.long) if view is None else view
        return self.latents[torch.from_numpy(rows), chosen[:, None]].float()


@dataclass(frozen=True)
class LatentDataset:
    """The training frames as the cell's world model sees them, episode by episode, each in every view."""

    model: LearnedWorldModel
    rows: np.ndarray  # [M] of the dataset
    latents: Tensor  # [M, P, D]
    actions: Tensor  # [M, A] blocks in environment units; NaN where a block would leave the episode
    ids: Tensor  # [M] episode numbers, so that all views of an episode are held out together
    walks: Tensor  # [M] a number for every view of every episode: frames of one walk follow each other


def load_latents(job: Job, *, answers: int = 1) -> LatentDataset:
    """Of every training episode in the views of the recipe, with `answers` model steps in each block of actions."""
    model, actions = job.world_model(), actions_of(job)
    ids, frameskip = job.partition.train, model.scaler.frameskip
    count = 1 if actions.views is None else len(actions.views)
    pieces = [(job.episodes.rows_of([episode]), view) for episode in ids for view in range(count)]
    rows, view = (torch.from_numpy(np.concatenate(parts)) for parts in zip(
        *((own, np.full(len(own), view)) for own, view in pieces), strict=True))  # fmt: skip
    acted = (actions.at(torch.from_numpy(own), torch.full((len(own),), view)) for own, view in pieces)
    lengths = torch.tensor([len(own) for own, _ in pieces])
    return LatentDataset(
        model=model,
        rows=rows.numpy(),
        latents=encode_rows(job, model, actions.views)[rows, view],
        actions=torch.cat([_blocks(taken, answers * frameskip) for taken in acted]),
        ids=torch.from_numpy(np.repeat(ids, count)).repeat_interleave(lengths),
        walks=torch.arange(len(pieces)).repeat_interleave(lengths),
    )


def _blocks(actions: Tensor, size: int) -> Tensor:
    """The `size` actions of an episode [T, a] from each row on, side by side: [T, size·a], NaN near the end."""
    padded = torch.cat([actions, actions.new_full((size - 1, actions.shape[1]), torch.nan)])
    return torch.cat([padded[k : k + len(actions)] for k in range(size)], 1)
