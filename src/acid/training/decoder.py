"""Train a decoder on the latents of a frozen world model, so that imagined rollouts can be seen."""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from acid.errors import ShapeError, look_up
from acid.loop import LoopConfig, Progress, train
from acid.models import decoder as frame_decoder
from acid.models import token_decoder
from acid.models.decoder import Decoder
from acid.models.token_decoder import TokenDecoder
from acid.training.latents import LatentDataset

AnyDecoder = Decoder | TokenDecoder


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
TOKEN_RECIPES = {  # larger pictures from more numbers
    "paper": DecoderRecipe("paper", LoopConfig(steps=100_000, batch_size=32, learning_rate=3e-4, weight_decay=1e-4)),
    "lite": DecoderRecipe("lite", LoopConfig(steps=1_500, batch_size=16, learning_rate=2e-3, weight_decay=1e-4)),
}


def recipe(name: str, *, tokens: int = 1, steps: int | None = None, seed: int = 0) -> DecoderRecipe:
    """By name, for latents of so many tokens."""
    chosen = look_up(RECIPES if tokens == 1 else TOKEN_RECIPES, name, "recipe")
    return replace(chosen, loop=replace(chosen.loop, steps=steps or chosen.loop.steps, seed=seed))


def train_decoder(
    dataset: LatentDataset, out: Path, recipe: DecoderRecipe, *, progress: Progress | None = None
) -> AnyDecoder:
    """Mean squared error from latents to pixels; continues an interrupted run from `out`/run."""
    torch.manual_seed(recipe.loop.seed)
    decoder = _fresh(recipe.preset, dataset)

    def loss(batch: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
        return {"loss": decoder.error(*batch)}

    def batches(start: int) -> Generator[tuple[Tensor, Tensor], None, None]:
        step = start
        while True:
            chosen = np.random.default_rng([recipe.loop.seed, step]).integers(
                len(dataset.rows), size=recipe.loop.batch_size
            )
            pixels = dataset.episodes.read("pixels", dataset.rows[chosen])
            yield dataset.latents[torch.from_numpy(chosen)].float(), torch.from_numpy(pixels)
            step += 1

    clock = time.process_time()
    train(decoder, loss, batches, recipe.loop, out / "run", progress=progress)
    decoder.save(out, {"recipe": asdict(recipe), "cpu_seconds": round(time.process_time() - clock)})
    return decoder.eval()


def _fresh(preset: str, dataset: LatentDataset) -> AnyDecoder:
    """A decoder of single vectors, or of tokens that lie in a square."""
    _, tokens, size = dataset.latents.shape
    if tokens == 1:
        return Decoder(look_up(frame_decoder.PRESETS, preset, "preset")(size))
    grid = math.isqrt(tokens)
    if grid * grid != tokens:
        raise ShapeError(f"only tokens that lie in a square can be drawn, got {tokens} a frame")
    return TokenDecoder(look_up(token_decoder.PRESETS, preset, "preset")(size, grid))
