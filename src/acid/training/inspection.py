"""What looks at latents for people: the decoder draws them, the readout tells which points they show."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from acid import models, tasks
from acid.errors import ShapeError, look_up
from acid.loop import LoopConfig, SettingError, moved
from acid.models import decoder, token_decoder
from acid.models.decoder import Decoder, DecoderConfig
from acid.models.readout import Readout, ReadoutConfig, chamfer
from acid.models.token_decoder import TokenDecoder
from acid.training.dataset import LatentDataset, load_latents
from acid.training.part import Job, Part, Recipe, Trainable, sized, spread

DRAWN, READ = 512, 2_000  # held-out frames, at most, that a decoder and a readout are measured on


DECODER_LOOPS = {
    "paper": LoopConfig(steps=100_000, batch_size=128, learning_rate=3e-4, weight_decay=1e-4),
    "lite": LoopConfig(steps=2_500, batch_size=64, learning_rate=1e-3, weight_decay=1e-4, warmup=0.05),
}
TOKEN_DECODER_LOOPS = {  # larger pictures from more numbers
    "paper": LoopConfig(steps=100_000, batch_size=32, learning_rate=3e-4, weight_decay=1e-4),
    "lite": LoopConfig(steps=1_500, batch_size=16, learning_rate=2e-3, weight_decay=1e-4),
}
READOUT_LOOP = LoopConfig(steps=6_000, batch_size=64, learning_rate=1e-3, weight_decay=1e-2, warmup=0.05)
READOUTS = {"paper": ReadoutConfig(0, 0, points=100, width=1024), "lite": ReadoutConfig(0, 0)}


def decoder_recipe(model: str, scale: str) -> Recipe:
    known = "paper" if scale == "paper" else "lite"
    if look_up(models.KINDS, model, "world model").is_map:
        network, loop = token_decoder.PRESETS[known](0, 0), TOKEN_DECODER_LOOPS[known]
    else:
        network, loop = decoder.PRESETS[known](0), DECODER_LOOPS[known]
    return Recipe("decoder", model, scale, network, None, loop, half_precision=True)


def prepare_decoder(job: Job) -> Trainable:
    """Mean squared error from latents to pixels."""
    dataset = load_latents(job)
    _, tokens, size = dataset.latents.shape
    made: Decoder | TokenDecoder
    if isinstance(job.recipe.network, DecoderConfig):
        if tokens != 1:
            raise ShapeError(f"this decoder draws one vector a frame, and the world model has {tokens}")
        if job.recipe.network.image_size != dataset.model.observation_size:
            raise SettingError(
                f"the world model sees {dataset.model.observation_size} px; set network.image_size to that"
            )
        made = job.build(Decoder, sized(job.recipe.network, latent_size=size))
    else:
        grid = math.isqrt(tokens)
        if grid * grid != tokens:
            raise ShapeError(f"only tokens that lie in a square can be drawn, got {tokens} a frame")
        made = job.build(TokenDecoder, sized(job.recipe.network, latent_size=size, grid=grid))

    def read(step: int) -> tuple[Tensor, Tensor]:
        chosen = job.draw(len(dataset.rows), step)
        return _latents(dataset, chosen), job.pixels(dataset.rows[chosen])

    @torch.no_grad()
    def measure() -> dict[str, Any]:
        pixels = job.pixels(spread(job.episodes.rows_of(job.partition.held_out), DRAWN)).to(job.device)
        if not len(pixels):
            return {"validation": {}}
        return {"validation": {"error": float(made.error(dataset.model.encode(pixels), pixels))}}

    def loss(batch: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
        return {"loss": made.error(*batch)}

    return Trainable(made, loss, read, len(dataset.rows), measure, made.save, job.micro_batch)


@dataclass(frozen=True)
class ReadoutRecipe(Recipe):
    tested: float = 0.1  # share of the training frames, from the end of the data, that it is measured on instead


def readout_recipe(model: str, scale: str) -> ReadoutRecipe:
    return ReadoutRecipe(
        "readout", model, scale, READOUTS.get(scale, READOUTS["lite"]), None, READOUT_LOOP, half_precision=True
    )


def prepare_readout(job: Job) -> Trainable:
    """Chamfer distance between the points that are told and those that are there."""
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


DECODER = Part(decoder_recipe, prepare_decoder, needs="model")
READOUT = Part(readout_recipe, prepare_readout, needs="model")
