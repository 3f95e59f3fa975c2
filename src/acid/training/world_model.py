"""Train a world model on a dataset of episodes."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from acid import models
from acid.data import Batch, Episodes, Split, Windows, batches, fit_scaler, split
from acid.errors import look_up
from acid.loop import LoopConfig, Progress, train
from acid.models import JepaWorldModel, LeWMObjective

VALIDATION_WINDOWS = 512


@dataclass(frozen=True)
class WorldModelRecipe:
    """How a world model is trained, apart from the data."""

    preset: str = "lite"  # of the network's sizes
    frameskip: int = 5  # environment steps per model step
    held_out: float = 0.2  # share of the episodes kept for evaluation
    sigreg_weight: float = 0.09
    projections: int = 1024
    half_precision: bool = False  # of the stored weights
    loop: LoopConfig = field(default_factory=LoopConfig)


PAPER = WorldModelRecipe(
    preset="paper",
    held_out=0.1,
    loop=LoopConfig(steps=150_000, batch_size=128, learning_rate=5e-5, weight_decay=1e-3),
)
LITE = WorldModelRecipe(
    projections=256,
    half_precision=True,
    loop=LoopConfig(steps=6_500, batch_size=48, learning_rate=1e-3, weight_decay=1e-3, warmup=0.03),
)
RECIPES = {"paper": PAPER, "lite": LITE}


def recipe(name: str, *, steps: int | None = None, seed: int = 0) -> WorldModelRecipe:
    """A recipe by name, with the two settings that are most often changed."""
    chosen = look_up(RECIPES, name, "recipe")
    return replace(chosen, loop=replace(chosen.loop, steps=steps or chosen.loop.steps, seed=seed))


def train_world_model(
    kind: str, data: Path, out: Path, recipe: WorldModelRecipe, *, progress: Progress | None = None
) -> JepaWorldModel:
    """Train, validate and save to `out`; an interrupted run continues from `out`/run."""
    episodes = Episodes(data, require=("pixels", "action"))
    parts = split(len(episodes), recipe.held_out)
    scaler = fit_scaler(episodes, parts.train, recipe.frameskip)
    torch.manual_seed(recipe.loop.seed)
    model = models.build(kind, recipe.preset, scaler)
    objective = LeWMObjective(sigreg_weight=recipe.sigreg_weight, projections=recipe.projections)
    frames = model.config.history + 1
    windows = Windows(episodes, parts.train, frames, recipe.frameskip)

    def loss(batch: Batch) -> dict[str, torch.Tensor]:
        return objective(model, batch.pixels, scaler.normalise(batch.actions))

    def stream(start: int) -> Any:
        return batches(windows, recipe.loop.batch_size, recipe.loop.seed, start)

    clock = time.process_time()
    train(model, loss, stream, recipe.loop, out / "run", progress=progress)
    metadata = {
        "recipe": asdict(recipe),
        "data": episodes.attributes,
        "cpu_seconds": round(time.process_time() - clock),
        "validation": validate(model, objective, episodes, parts, recipe.frameskip),
    }
    models.save(model, kind, out, metadata, half_precision=recipe.half_precision)
    return model


@torch.no_grad()
def validate(
    model: JepaWorldModel, objective: LeWMObjective, episodes: Episodes, parts: Split, frameskip: int
) -> dict[str, float]:
    """Losses on held-out windows, and the error of imagining from one frame, step by step, against not moving."""
    windows = Windows(episodes, parts.held_out, model.config.history + 1, frameskip)
    chosen = np.random.default_rng(0).choice(len(windows), min(VALIDATION_WINDOWS, len(windows)), replace=False)
    batch = windows.batch(chosen)
    actions = model.scaler.normalise(batch.actions)
    torch.manual_seed(0)
    losses = objective(model, batch.pixels, actions)
    latents = model.embed(batch.pixels)
    imagined = model.rollout(latents[:, :1], actions[:, None])[:, 0, :, 0]
    error = (imagined - latents[:, 1:]).square().mean((0, 2))
    still = (latents[:, :1] - latents[:, 1:]).square().mean((0, 2))
    steps = {f"imagined_{t + 1}_of_still": float(e / s) for t, (e, s) in enumerate(zip(error, still, strict=True))}
    return {name: float(value) for name, value in losses.items()} | steps
