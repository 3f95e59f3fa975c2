"""Train a CompACT tokenizer on the frames of a dataset."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from acid.data import Episodes, split
from acid.errors import look_up
from acid.loop import LoopConfig, Progress, train
from acid.models.compact import (
    PRESETS,
    CompactLoss,
    CompactLossConfig,
    CompactTokenizer,
    Perceptual,
    to_image,
)

VALIDATION_FRAMES = 512
PERCEIVED_AT_ONCE = 128  # images whose perceptual distance is taken at once


@dataclass(frozen=True)
class TokenizerRecipe:
    """How a tokenizer is trained, apart from the data and the perceptual distance."""

    preset: str = "lite"
    objective: CompactLossConfig = field(default_factory=CompactLossConfig)
    mirror: bool = True  # show every frame as often mirrored left to right
    held_out: float = 0.1  # share of the episodes kept for evaluation
    half_precision: bool = False  # of the stored weights
    loop: LoopConfig = field(default_factory=LoopConfig)


RECIPES = {
    "paper": TokenizerRecipe(
        "paper", loop=LoopConfig(steps=200_000, batch_size=256, learning_rate=1e-4, weight_decay=1e-2)
    ),
    "lite": TokenizerRecipe(
        objective=CompactLossConfig(perceptual=0.1),
        held_out=0.2,
        half_precision=True,
        loop=LoopConfig(steps=6_000, batch_size=32, learning_rate=1.5e-3, weight_decay=1e-3, warmup=0.03),
    ),
}


def recipe(name: str, *, steps: int | None = None, seed: int = 0, perceptual: float | None = None) -> TokenizerRecipe:
    """A recipe by name, with the settings that are most often changed; a perceptual weight of 0 needs no distance."""
    chosen = look_up(RECIPES, name, "recipe")
    objective = chosen.objective if perceptual is None else replace(chosen.objective, perceptual=perceptual)
    loop = replace(chosen.loop, steps=steps or chosen.loop.steps, seed=seed)
    return replace(chosen, objective=objective, loop=loop)


def train_tokenizer(
    episodes: Episodes,
    out: Path,
    recipe: TokenizerRecipe,
    *,
    perceptual: Perceptual | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> CompactTokenizer:
    """Train, validate and save to `out`; an interrupted run continues from `out`/run.

    perceptual: images [M, 3, S, S] in 0..1, twice, to distances [M], e.g. LPIPS; for a recipe that weighs it.
    options: those of the tokenizer, i.e. `encoder` and `codec`.
    What is returned is what was stored, so that tokens made now are those that the checkpoint makes later.
    """
    parts = split(len(episodes), recipe.held_out)
    rows = episodes.rows_of(parts.train)
    torch.manual_seed(recipe.loop.seed)
    tokenizer = CompactTokenizer(look_up(PRESETS, recipe.preset, "preset")(), **options)
    objective = CompactLoss(recipe.objective, perceptual)

    def batches(start: int) -> Generator[Tensor, None, None]:
        step = start
        while True:
            generator = np.random.default_rng([recipe.loop.seed, step])
            pixels = torch.from_numpy(
                episodes.read("pixels", rows[generator.integers(len(rows), size=recipe.loop.batch_size)])
            )
            mirrored = torch.from_numpy(generator.random(len(pixels)) < 0.5)
            yield torch.where(mirrored.view(-1, 1, 1, 1), pixels.flip(2), pixels) if recipe.mirror else pixels
            step += 1

    clock = time.process_time()
    train(tokenizer, lambda pixels: objective(tokenizer, pixels), batches, recipe.loop, out / "run", progress=progress)
    metadata = {
        "recipe": asdict(recipe),
        "data": episodes.attributes,
        "cpu_seconds": round(time.process_time() - clock),
        "validation": validate(tokenizer.eval(), episodes, rows, episodes.rows_of(parts.held_out), perceptual),
    }
    tokenizer.save(out, metadata, half_precision=recipe.half_precision)
    return CompactTokenizer.load(out, **options)


@torch.no_grad()
def validate(
    tokenizer: CompactTokenizer,
    episodes: Episodes,
    train_rows: np.ndarray,
    rows: np.ndarray,
    perceptual: Perceptual | None = None,
) -> dict[str, float]:
    """On held-out frames: how far the drawn frames, and the mean training frame, are from them.

    Peak signal-to-noise ratios are in dB. `codes_used` is the number of different tokens in these frames as a share of
    all tokens in them.
    """
    pixels, seen = (
        torch.from_numpy(episodes.read("pixels", _spread(chosen, VALIDATION_FRAMES))) for chosen in (rows, train_rows)
    )
    latents = tokenizer.encode(pixels)
    images = to_image(pixels).permute(0, 2, 3, 1)
    mean = to_image(seen).mean(0).permute(1, 2, 0)
    codes = tokenizer.quantiser.to_indices(latents)
    found = {"codes_used": len(codes.unique()) / codes.numel()}
    for name, shown in {"": tokenizer.decode(latents), "_mean_image": mean.expand_as(images)}.items():
        found[f"psnr{name}"] = float(psnr(shown, images).mean())
        if perceptual is not None:
            found[f"perceptual{name}"] = float(perceived(perceptual, shown, images).mean())
    return found


def perceived(distance: Perceptual, images: Tensor, others: Tensor) -> Tensor:
    """A perceptual distance between images [..., S, S, 3] with values in 0..1: [...]."""
    pairs = zip(*(_planes(side).split(PERCEIVED_AT_ONCE) for side in (images, others)), strict=True)
    return torch.cat([distance(*pair) for pair in pairs]).reshape(images.shape[:-3])


def _planes(images: Tensor) -> Tensor:
    """[..., S, S, 3] to [M, 3, S, S]."""
    return images.reshape(-1, *images.shape[-3:]).permute(0, 3, 1, 2)


def psnr(images: Tensor, others: Tensor) -> Tensor:
    """Peak signal-to-noise ratio in dB between images [..., S, S, 3] with values in 0..1: [...]."""
    return -10 * (images - others).square().mean((-3, -2, -1)).clamp(min=1e-10).log10()


def _spread(rows: np.ndarray, count: int) -> np.ndarray:
    """At most so many of the rows, evenly."""
    return rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(np.int64)]
