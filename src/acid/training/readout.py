"""Fit a readout to the frames of a dataset: which points the latent of a frame shows."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from acid import tasks
from acid.errors import look_up
from acid.loop import LoopConfig, Progress, train
from acid.models.readout import Readout, ReadoutConfig, chamfer
from acid.training.latents import LatentDataset

CHECKED = 2_000  # held-out frames, at most


@dataclass(frozen=True)
class ReadoutRecipe:
    points: int = 40
    width: int = 256
    held_out: float = 0.1  # share of the frames, from the end of the data, so that whole episodes are kept apart
    loop: LoopConfig = field(
        default_factory=lambda: LoopConfig(
            steps=6_000, batch_size=64, learning_rate=1e-3, weight_decay=1e-2, warmup=0.05
        )
    )


RECIPES = {"lite": ReadoutRecipe(), "paper": ReadoutRecipe(points=100, width=1024)}


def recipe(name: str, *, steps: int | None = None, seed: int = 0) -> ReadoutRecipe:
    chosen = look_up(RECIPES, name, "recipe")
    return replace(chosen, loop=replace(chosen.loop, steps=steps or chosen.loop.steps, seed=seed))


def train_readout(
    dataset: LatentDataset, out: Path, task_name: str, recipe: ReadoutRecipe, *, progress: Progress | None = None
) -> Readout:
    """Chamfer distance between the points that are told and those that are there; continues from `out`/run."""
    torch.manual_seed(recipe.loop.seed)
    task = tasks.make(task_name)
    _, tokens, size = dataset.latents.shape
    readout = Readout(ReadoutConfig(tokens, size, recipe.points, recipe.width))
    kept = round(len(dataset.rows) * (1 - recipe.held_out))

    def look(chosen: np.ndarray) -> tuple[Tensor, Tensor]:
        states = dataset.episodes.read("state", dataset.rows[chosen])
        there = np.stack([task.pose(state) for state in states]).astype(np.float32)
        return dataset.latents[torch.from_numpy(chosen)].float(), torch.from_numpy(there)

    def loss(batch: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
        return {"loss": chamfer(readout(batch[0]), batch[1]).mean()}

    def batches(start: int) -> Generator[tuple[Tensor, Tensor], None, None]:
        step = start
        while True:
            yield look(np.random.default_rng([recipe.loop.seed, step]).integers(kept, size=recipe.loop.batch_size))
            step += 1

    clock = time.process_time()
    train(readout, loss, batches, recipe.loop, out / "run", progress=progress)
    with torch.no_grad():
        rest = np.linspace(kept, len(dataset.rows) - 1, min(CHECKED, len(dataset.rows) - kept)).astype(np.int64)
        latents, there = look(rest)
        error = float(chamfer(readout.eval()(latents), there).mean())
    readout.save(out, {"recipe": asdict(recipe), "cpu_seconds": round(time.process_time() - clock), "chamfer": error})
    return readout
