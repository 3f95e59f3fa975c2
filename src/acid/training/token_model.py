"""Train a world model whose encoder is frozen (DINO-WM), on frames that are encoded once and kept on disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from acid import models
from acid.data import Episodes, Windows, fit_scaler, split
from acid.data.windows import Shuffle
from acid.errors import AcidError, look_up
from acid.loop import LoopConfig, Progress, train
from acid.models import DinoWMLossConfig, DinoWorldModel
from acid.models.patch_encoders import PatchEncoder
from acid.training.latents import encode_all
from acid.types import ActionScaler

KINDS = ("dinowm",)  # the world models that are trained here rather than on pixels
VALIDATION_WINDOWS = 512
PROJECTION_FRAMES = 2_000  # at most, spread over the training episodes


@dataclass(frozen=True)
class TokenModelRecipe:
    """How a predictor of tokens is trained, apart from the data."""

    kind: str = "dinowm"
    preset: str = "lite"  # of the network's sizes
    frameskip: int = 1  # environment steps per model step
    held_out: float = 0.2  # share of the episodes kept for evaluation
    half_precision: bool = False  # of the stored weights
    loop: LoopConfig = field(default_factory=LoopConfig)


RECIPES = {
    "paper": TokenModelRecipe(
        preset="paper",
        held_out=0.1,
        loop=LoopConfig(steps=60_000, batch_size=32, learning_rate=5e-4, weight_decay=1e-2),
    ),
    "lite": TokenModelRecipe(
        half_precision=True,
        loop=LoopConfig(steps=6_000, batch_size=64, learning_rate=1e-3, weight_decay=1e-2, warmup=0.03),
    ),
}


def recipe(name: str, *, steps: int | None = None, seed: int = 0) -> TokenModelRecipe:
    """A recipe by name, with the two settings that are most often changed."""
    chosen = look_up(RECIPES, name, "recipe")
    return replace(chosen, loop=replace(chosen.loop, steps=steps or chosen.loop.steps, seed=seed))


def train_token_model(
    data: Path,
    out: Path,
    recipe: TokenModelRecipe,
    *,
    encoder: PatchEncoder | None = None,
    progress: Progress | None = None,
    encoding: Callable[[int, int], None] | None = None,
) -> DinoWorldModel:
    """Encode, train, validate and save to `out`; an interrupted run continues from `out`/run.

    `encoder` takes the place of the one that the preset names. `encoding` is told (frames encoded, frames in all).
    """
    episodes = Episodes(data, require=("pixels", "action"))
    parts = split(len(episodes), recipe.held_out)
    scaler = fit_scaler(episodes, parts.train, recipe.frameskip)
    model = _fresh(recipe, scaler, episodes, parts.train, encoder)
    tokens = encode_all(model, episodes, progress=encoding)
    objective = models.objective(recipe.kind, DinoWMLossConfig(), model)
    windows = Windows(episodes, parts.train, model.config.history + 1, recipe.frameskip)
    order = Shuffle(len(windows), recipe.loop.batch_size, recipe.loop.seed)

    def batches(start: int) -> Generator[np.ndarray, None, None]:
        step = start
        while True:
            yield order.indices(step)
            step += 1

    def loss(indices: np.ndarray) -> dict[str, Tensor]:
        return objective(model, *_look(tokens, windows, indices, scaler))

    clock = time.process_time()
    train(model, loss, batches, recipe.loop, out / "run", progress=progress)
    windows_held_out = Windows(episodes, parts.held_out, model.config.history + 1, recipe.frameskip)
    metadata = {
        "recipe": asdict(recipe),
        "data": episodes.attributes,
        "cpu_seconds": round(time.process_time() - clock),
        "validation": validate(model, tokens, windows_held_out),
    }
    models.save(model, recipe.kind, out, metadata, half_precision=recipe.half_precision)
    return model


@torch.no_grad()
def validate(model: DinoWorldModel, tokens: Tensor, windows: Windows) -> dict[str, float]:
    """On held-out windows: the error of imagining from one frame, step by step, alone and against not moving."""
    chosen = np.random.default_rng(0).choice(len(windows), min(VALIDATION_WINDOWS, len(windows)), replace=False)
    frames, actions = _look(tokens, windows, chosen, model.scaler)
    imagined = model.eval().rollout(frames[:, 0], actions[:, None])[:, 0]
    error = (imagined - frames[:, 1:]).square().mean((0, 2, 3))
    still = (frames[:, :1] - frames[:, 1:]).square().mean((0, 2, 3))
    ratios = {f"imagined_{t + 1}_of_still": float(e / s) for t, (e, s) in enumerate(zip(error, still, strict=True))}
    return {"prediction": float(error[0])} | ratios


def _look(tokens: Tensor, windows: Windows, indices: np.ndarray, scaler: ActionScaler) -> tuple[Tensor, Tensor]:
    """Windows of tokens float32 [B, T+1, P, D] and normalised actions [B, T, A]."""
    actions = windows.episodes.read("action", windows.action_rows(indices)).astype(np.float32, copy=False)
    frames = tokens[torch.from_numpy(windows.frame_rows(indices))].float()
    return frames, scaler.normalise(torch.from_numpy(actions))


def _fresh(
    recipe: TokenModelRecipe, scaler: ActionScaler, episodes: Episodes, ids: np.ndarray, encoder: PatchEncoder | None
) -> DinoWorldModel:
    """A model with its projection fitted to frames of the training episodes; the same every time."""
    torch.manual_seed(recipe.loop.seed)
    options = {} if encoder is None else {"encoder": encoder}
    model = models.build(recipe.kind, recipe.preset, scaler, **options)
    if not isinstance(model, DinoWorldModel):
        raise AcidError(f"a {recipe.kind!r} learns its encoder from pixels: use training.world_model")
    if model.projection is not None:
        rows = episodes.rows_of(ids)
        spread = np.linspace(0, len(rows) - 1, min(PROJECTION_FRAMES, len(rows))).astype(np.int64)
        model.fit_projection(torch.from_numpy(episodes.read("pixels", rows[spread])))
    return model
