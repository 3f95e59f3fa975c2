"""Networks for inspection only: the decoder draws a latent, the readout finds the points that it shows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from acid import models, tasks
from acid.data import read_observation
from acid.errors import ShapeError, look_up
from acid.loop import LoopConfig, SettingError, moved
from acid.models import token_decoder
from acid.models.decoder import Decoder, DecoderConfig, VectorDecoder
from acid.models.keypoint_decoder import KeypointDecoder, KeypointDecoderConfig
from acid.models.readout import Readout, ReadoutConfig, chamfer
from acid.models.token_decoder import TokenDecoder
from acid.training.dataset import LatentDataset, load_latents
from acid.training.part import Job, Part, Recipe, Trainable, sized, spread

DRAWN, READ = 512, 2_000  # held-out frames, at most, that a decoder and a readout are measured on


DECODER_LOOPS = {
    "paper": LoopConfig(steps=100_000, batch_size=128, learning_rate=3e-4, weight_decay=1e-4),
    "lite": LoopConfig(steps=2_500, batch_size=24, learning_rate=2e-3, weight_decay=1e-4, warmup=0.05),
}
TOKEN_DECODER_LOOPS = {  # larger pictures from more numbers
    "paper": LoopConfig(steps=100_000, batch_size=32, learning_rate=3e-4, weight_decay=1e-4),
    "lite": LoopConfig(steps=1_500, batch_size=16, learning_rate=2e-3, weight_decay=1e-4),
}
READOUT_LOOP = LoopConfig(steps=6_000, batch_size=64, learning_rate=1e-3, weight_decay=1e-2, warmup=0.05)
READOUTS = {"paper": ReadoutConfig(0, 0, points=100, width=1024), "lite": ReadoutConfig(0, 0)}


@dataclass(frozen=True)
class DrawingLossConfig:
    """Squared error, in which what is small and moves counts beside a large background."""

    focus: float = 10.0  # weight, besides 1, of a pixel that differs from the background by the whole range


def decoder_recipe(model: str, scale: str) -> Recipe:
    known = "paper" if scale == "paper" else "lite"
    if look_up(models.KINDS, model, "world model").is_map:
        network, loss, loop = token_decoder.PRESETS[known](0, 0), None, TOKEN_DECODER_LOOPS[known]
    elif known == "paper":
        network, loss, loop = DecoderConfig(0), None, DECODER_LOOPS[known]
    else:
        network, loss, loop = KeypointDecoderConfig(0), DrawingLossConfig(), DECODER_LOOPS[known]
    return Recipe("decoder", model, scale, network, loss, loop, half_precision=True)


def prepare_decoder(job: Job) -> Trainable:
    """Squared error from latents to pixels."""
    dataset = load_latents(job)
    _, tokens, size = dataset.latents.shape
    made: VectorDecoder | TokenDecoder
    if isinstance(job.recipe.network, DecoderConfig | KeypointDecoderConfig):
        if tokens != 1:
            raise ShapeError(f"this decoder draws one vector a frame, and the world model has {tokens}")
        if job.recipe.network.image_size != dataset.model.observation_size:
            raise SettingError(
                f"the world model sees {dataset.model.observation_size} px; set network.image_size to that"
            )
        network = Decoder if isinstance(job.recipe.network, DecoderConfig) else KeypointDecoder
        made = job.build(network, sized(job.recipe.network, latent_size=size))
    else:
        grid = math.isqrt(tokens)
        if grid * grid != tokens:
            raise ShapeError(f"only tokens that lie in a square can be drawn, got {tokens} a frame")
        made = job.build(TokenDecoder, sized(job.recipe.network, latent_size=size, grid=grid))

    some = job.pixels(spread(dataset.rows, DRAWN)).to(job.device)
    mean, background = some.float().mean(0), some.median(0).values.float()

    def read(step: int) -> tuple[Tensor, Tensor]:
        chosen = job.draw(len(dataset.rows), step)
        return _latents(dataset, chosen), job.pixels(dataset.rows[chosen])

    @torch.no_grad()
    def measure() -> dict[str, Any]:
        rows = spread(job.episodes.rows_of(job.partition.held_out), DRAWN)
        if not len(rows):
            return {"validation": {}}
        seen = moved(read_observation(job.episodes, rows, dataset.model.columns), job.device)
        pixels = seen["pixels"] if dataset.model.columns else seen
        found = {"error": float(made.error(dataset.model.encode(seen), pixels))}
        if isinstance(made, VectorDecoder):
            found["error_of_mean_picture"] = float((mean - pixels).square().mean()) / 255**2
        return {"validation": found}

    def loss(batch: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
        if not isinstance(made, VectorDecoder) or job.recipe.loss is None:
            return {"loss": made.error(*batch)}
        away = (batch[1] - background).abs().amax(-1, keepdim=True) / 255
        return {"loss": made.error(*batch, 1 + job.recipe.loss.focus * away)}

    return Trainable(made, loss, read, len(dataset.rows), measure, made.save, job.micro_batch)


@dataclass(frozen=True)
class ReadoutRecipe(Recipe):
    tested: float = 0.1  # share of the training frames, from the end of the data, that it is measured on instead


def readout_recipe(model: str, scale: str) -> ReadoutRecipe:
    return ReadoutRecipe(
        "readout", model, scale, READOUTS.get(scale, READOUTS["lite"]), None, READOUT_LOOP, half_precision=True
    )


def prepare_readout(job: Job) -> Trainable:
    """Chamfer distance between the points that are read and the true ones."""
    task, dataset = tasks.make(job.task), load_latents(job)
    _, tokens, size = dataset.latents.shape
    made = job.build(Readout, sized(job.recipe.network, tokens=tokens, latent_size=size))
    kept = round(len(dataset.rows) * (1 - job.recipe.tested))
    if not 0 < kept < len(dataset.rows):
        raise SettingError(f"tested must be a share of the {len(dataset.rows)} frames, got tested={job.recipe.tested}")

    def look(chosen: np.ndarray) -> tuple[Tensor, Tensor]:
        states = job.episodes.read("state", dataset.rows[chosen])
        there = np.stack([task.pose(state) for state in states]).astype(np.float32)
        return _latents(dataset, chosen), torch.from_numpy(there)

    def loss(batch: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
        return {"loss": chamfer(made(batch[0]), batch[1]).mean()}

    @torch.no_grad()
    def measure() -> dict[str, Any]:
        batch = look(spread(np.arange(kept, len(dataset.rows)), READ))
        return {"validation": {"chamfer": float(loss(moved(batch, job.device))["loss"])}}

    def read(step: int) -> tuple[Tensor, Tensor]:
        return look(job.draw(kept, step))

    return Trainable(made, loss, read, kept, measure, made.save, job.micro_batch)


def _latents(dataset: LatentDataset, chosen: np.ndarray) -> Tensor:
    return dataset.latents[torch.from_numpy(chosen)].float()


DECODER = Part(decoder_recipe, prepare_decoder, needs="model", any_data=True)
READOUT = Part(readout_recipe, prepare_readout, needs="model")
