"""A CompACT tokenizer, from the frames of a dataset."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from acid import distributed
from acid.errors import look_up
from acid.loop import LoopConfig
from acid.models import compact
from acid.models.compact import CompactLoss, CompactLossConfig, CompactTokenizer, to_image
from acid.nn.pictures import Perceptual, perceived, psnr
from acid.training.part import Job, Part, SplittingRecipe, Trainable, spread
from acid.training.pictures import perceptual_distance

VALIDATION_FRAMES = 512


@dataclass(frozen=True)
class TokenizerRecipe(SplittingRecipe):
    mirror: bool = True  # show every frame as often mirrored left to right


RECIPES: dict[str, dict[str, Any]] = {
    "paper": {"loop": LoopConfig(steps=200_000, batch_size=256, learning_rate=1e-4, weight_decay=1e-2)},
    "lite": {
        "loss": CompactLossConfig(perceptual=0.1),
        "loop": LoopConfig(steps=6_000, batch_size=32, learning_rate=1.5e-3, weight_decay=1e-3, warmup=0.03),
        "half_precision": True,
        "held_out": 0.2,
    },
}


def recipe(model: str, scale: str) -> TokenizerRecipe:
    network = look_up(compact.PRESETS, scale, "scale")()
    usual = TokenizerRecipe("tokenizer", model, scale, network, CompactLossConfig(), LoopConfig())
    return replace(usual, **RECIPES.get(scale, {}))


def prepare(job: Job) -> Trainable:
    recipe = job.recipe
    shown, held_out = (job.episodes.rows_of(ids) for ids in (job.partition.train, job.partition.held_out))
    tokenizer = job.build(CompactTokenizer, recipe.network)
    distance = perceptual_distance(job.device, needed=bool(recipe.loss.perceptual))
    loss = CompactLoss(recipe.loss, distance)

    def read(step: int) -> Tensor:
        generator = np.random.default_rng([recipe.loop.seed, step])
        rows = shown[generator.integers(len(shown), size=recipe.loop.batch_size)]
        mirrored = torch.from_numpy(distributed.share(generator.random(len(rows)) < 0.5))
        pixels = job.pixels(distributed.share(rows))
        return torch.where(mirrored.view(-1, 1, 1, 1), pixels.flip(2), pixels) if recipe.mirror else pixels

    def measure() -> dict[str, Any]:
        pixels, seen = (job.pixels(spread(rows, VALIDATION_FRAMES)).to(job.device) for rows in (held_out, shown))
        return {"validation": validate(tokenizer, pixels, seen, distance)}

    return Trainable(tokenizer, partial(loss, tokenizer), read, len(shown), measure, tokenizer.save, job.micro_batch)


@torch.no_grad()
def validate(
    tokenizer: CompactTokenizer, pixels: Tensor, seen: Tensor, distance: Perceptual | None
) -> dict[str, float]:
    """How far the drawn frames, and the mean training frame, are from held-out frames; uint8 [M, S, S, 3] both.

    Peak signal-to-noise ratios are in dB. `codes_used` is the number of different tokens in these frames as a share of
    all tokens in them.
    """
    latents = tokenizer.encode(pixels)
    images = to_image(pixels).permute(0, 2, 3, 1)
    mean = to_image(seen).mean(0).permute(1, 2, 0)
    codes = tokenizer.quantiser.to_indices(latents)
    found = {"codes_used": len(codes.unique()) / codes.numel()}
    for name, shown in {"": tokenizer.decode(latents), "_mean_image": mean.expand_as(images)}.items():
        found[f"psnr{name}"] = float(psnr(shown, images).mean())
        if distance is not None:
            found[f"perceptual{name}"] = float(perceived(distance, shown, images).mean())
    return found


PART = Part(recipe, prepare)
