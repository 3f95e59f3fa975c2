"""Train a decoder on the latents of a frozen world model, so that imagined rollouts can be seen."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from acid.errors import look_up
from acid.loop import LoopConfig, Progress, train
from acid.models.decoder import PRESETS, Decoder
from acid.training.latents import LatentDataset


@dataclass(frozen=True)
class DecoderRecipe:
    preset: str = "lite"
    loop: LoopConfig = field(
        default_factory=lambda: LoopConfig(
            steps=2_500, batch_size=64, learning_rate=1e-3, weight_decay=1e-4, warmup=0.05
        )
    )


RECIPES = {
    "paper": DecoderRecipe("paper", LoopConfig(steps=100_000, batch_size=128, learning_rate=3e-4, weight_decay=1e-4)),
    "lite": DecoderRecipe(),
}


def recipe(name: str, *, steps: int | None = None, seed: int = 0) -> DecoderRecipe:
    chosen = look_up(RECIPES, name, "recipe")
    return replace(chosen, loop=replace(chosen.loop, steps=steps or chosen.loop.steps, seed=seed))


def train_decoder(
    dataset: LatentDataset, out: Path, recipe: DecoderRecipe, *, progress: Progress | None = None
) -> Decoder:
    """Mean squared error from latents to pixels; continues an interrupted run from `out`/run."""
    torch.manual_seed(recipe.loop.seed)
    decoder = Decoder(look_up(PRESETS, recipe.preset, "preset")(dataset.model.config.latent_size))

    def loss(batch: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
        latents, pixels = batch
        return {"loss": (decoder(latents) - pixels.float() / 255).square().mean()}

    def batches(start: int) -> Generator[tuple[Tensor, Tensor], None, None]:
        step = start
        while True:
            chosen = np.random.default_rng([recipe.loop.seed, step]).integers(
                len(dataset.rows), size=recipe.loop.batch_size
            )
            pixels = dataset.episodes.read("pixels", dataset.rows[chosen])
            yield dataset.latents[torch.from_numpy(chosen), 0], torch.from_numpy(pixels)
            step += 1

    clock = time.process_time()
    train(decoder, loss, batches, recipe.loop, out / "run", progress=progress)
    decoder.save(out, {"recipe": asdict(recipe), "cpu_seconds": round(time.process_time() - clock)})
    return decoder.eval()
