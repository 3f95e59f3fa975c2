"""A dataset as a frozen world model sees it: one latent per frame and the action block that starts there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from acid import checkpoint, models
from acid.data import Episodes, cached_latents, encode_episodes, split
from acid.models import AnyWorldModel, DinoWorldModel

CACHE = "latents.safetensors"


@dataclass(frozen=True)
class LatentDataset:
    """The training episodes of a world model, frame by frame (rows of an episode are consecutive)."""

    model: AnyWorldModel
    episodes: Episodes
    rows: np.ndarray  # [M] rows of the dataset
    latents: Tensor  # [M, P, D], float16 where there are many tokens
    actions: Tensor  # [M, A] blocks in environment units; NaN where the block would leave the episode
    ids: Tensor  # [M] episode numbers

    @property
    def frameskip(self) -> int:
        return self.model.scaler.frameskip


def load_latents(
    model_folder: Path, data: Path, *, progress: Callable[[int, int], None] | None = None
) -> LatentDataset:
    """Encode the frames that the world model was trained on; kept beside the dataset for the next time."""
    model = models.load(model_folder)
    held_out = checkpoint.load(model_folder).metadata["recipe"]["held_out"]
    episodes = Episodes(data, require=("pixels", "action"))
    train = split(len(episodes), held_out).train
    if isinstance(model, DinoWorldModel):
        latents = encode_all(model, episodes, progress=progress)
    else:
        latents = _cached(
            checkpoint.fingerprint(model_folder),
            episodes,
            lambda: encode_episodes(episodes, model.encode, ids=train, progress=progress),
        )
    rows = episodes.rows_of(train)
    return LatentDataset(
        model=model,
        episodes=episodes,
        rows=rows,
        latents=latents[torch.from_numpy(rows)],
        actions=torch.from_numpy(action_blocks(episodes, train, model.scaler.frameskip)),
        ids=torch.from_numpy(np.repeat(train, episodes.lengths[train])),
    )


def encode_all(
    model: DinoWorldModel, episodes: Episodes, *, progress: Callable[[int, int], None] | None = None
) -> Tensor:
    """Tokens float16 [rows, P, D] of every frame, encoded once for the predictor, the verifier and all that follows.

    The cache belongs to the frozen encoder with its projection, whatever predictor is trained on it.
    """
    return _cached(
        model.encoder_fingerprint,
        episodes,
        lambda: encode_episodes(episodes, model.encode, batch=64, dtype=torch.float16, progress=progress),
    )


def _cached(encoder: str, episodes: Episodes, compute: Callable[[], Tensor]) -> Tensor:
    """Latents kept beside their dataset, in a file named after what encoded them."""
    data = Path(episodes.path)
    fingerprint = f"{encoder} {len(episodes)} {episodes.rows} {episodes.attributes}"
    return cached_latents(data.with_name(f"{data.stem}.{encoder}.{CACHE}"), fingerprint, compute)


def action_blocks(episodes: Episodes, ids: np.ndarray, block: int) -> np.ndarray:
    """The `block` actions from each row on, side by side: float32 [M, block·a], NaN near an episode's end."""
    blocks = []
    for episode in ids:
        actions = episodes.episode(episode, ["action"])["action"].astype(np.float32)
        padded = np.concatenate([actions, np.full((block - 1, actions.shape[1]), np.nan, np.float32)])
        blocks.append(np.concatenate([padded[k : k + len(actions)] for k in range(block)], 1))
    return np.concatenate(blocks)
