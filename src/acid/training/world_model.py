"""Train a world model on a dataset of episodes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from acid import checkpoint, models
from acid.data import Batch, Episodes, Split, Windows, batches, fit_scaler, split
from acid.errors import AcidError, look_up
from acid.loop import LoopConfig, Progress, train
from acid.models import JepaConfig, JepaWorldModel, LeWMLossConfig, Objective, ObjectiveConfig, PLDMLossConfig

VALIDATION_WINDOWS = 512


@dataclass(frozen=True)
class WorldModelRecipe:
    """How a world model is trained, apart from the data."""

    kind: str = "lewm"
    preset: str = "lite"  # of the network's sizes
    network: Mapping[str, Any] = field(default_factory=dict)  # settings in which it differs from the preset's
    encoder: Mapping[str, Any] = field(default_factory=dict)  # the same for its encoder
    objective: ObjectiveConfig = field(default_factory=LeWMLossConfig)
    frameskip: int = 5  # environment steps per model step
    held_out: float = 0.2  # share of the episodes kept for evaluation
    half_precision: bool = False  # of the stored weights
    loop: LoopConfig = field(default_factory=LoopConfig)


_PAPER = WorldModelRecipe(
    preset="paper",
    held_out=0.1,
    loop=LoopConfig(steps=150_000, batch_size=128, learning_rate=5e-5, weight_decay=1e-3),
)
# Left to itself a small network fills its channels with finer and finer functions of what is easiest to predict, with
# none left for the rest. So it has few channels, and is asked for slow ones and for those that tell the action.
_ASKED_FOR = {"alignment": 1.0, "inverse": 1.0}
_LITE = WorldModelRecipe(
    half_precision=True,
    loop=LoopConfig(steps=6_000, batch_size=48, learning_rate=1e-3, weight_decay=1e-3, warmup=0.03),
)
RECIPES = {
    "lewm": {
        "paper": _PAPER,
        "lite": replace(_LITE, objective=LeWMLossConfig(sigreg=0.07, projections=256, pooled=True, **_ASKED_FOR)),
    },
    "pldm": {
        "paper": replace(_PAPER, kind="pldm", objective=PLDMLossConfig()),
        "lite": replace(_LITE, kind="pldm", objective=PLDMLossConfig(variance_in_time=0.0, pooled=True, **_ASKED_FOR)),
    },
}


def recipe(
    kind: str, scale: str, *, steps: int | None = None, seed: int = 0, changes: Mapping[str, float] | None = None
) -> WorldModelRecipe:
    """A recipe by name, with the settings that are most often changed.

    changes: other settings of the objective, the network or its encoder by name, e.g. {"objective.sigreg": 0.09}.
    """
    chosen = look_up(look_up(RECIPES, kind, "world model"), scale, "recipe")
    known = _settings(chosen)
    changed = {
        name: type(look_up(known, name, f"setting of a {kind}"))(value) for name, value in (changes or {}).items()
    }
    return replace(
        chosen,
        objective=replace(chosen.objective, **_below("objective", changed)),
        network={**chosen.network, **_below("network", changed)},
        encoder={**chosen.encoder, **_below("encoder", changed)},
        loop=replace(chosen.loop, steps=steps or chosen.loop.steps, seed=seed),
    )


def changed_settings(recorded: Mapping[str, Any], network: Mapping[str, Any]) -> dict[str, float]:
    """Where a recorded recipe and its network differ from the recipe of that name; settings that came later than the
    record had their default."""
    if recorded["kind"] not in RECIPES:  # trained on encoded frames, without such settings
        return {}
    named = recipe(recorded["kind"], recorded["preset"])
    sizes = asdict(checkpoint.config_from(JepaConfig, network))
    theirs = replace(
        named,
        objective=type(named.objective)(**recorded["objective"]),
        network=sizes,
        encoder=sizes["encoder"],
    )
    ours, found = _settings(named), _settings(theirs)
    return {name: found[name] for name, value in ours.items() if found[name] != value}


def _settings(recipe: WorldModelRecipe) -> dict[str, Any]:
    """Numbers and switches of the objective, the network and its encoder, by name."""
    network = asdict(models.configuration(recipe.kind, recipe.preset, 1)) | dict(recipe.network)
    encoder = network["encoder"] | dict(recipe.encoder)
    del network["action_size"]  # the data's
    parts = {"objective": asdict(recipe.objective), "network": network, "encoder": encoder}
    return {
        f"{part}.{name}": value
        for part, values in parts.items()
        for name, value in values.items()
        if isinstance(value, (int, float))
    }


def _below(part: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(f"{part}."): value for name, value in changes.items() if name.startswith(f"{part}.")}


class _Learner(nn.Module):
    """A world model and its objective, which may have parameters that training needs and planning does not."""

    def __init__(self, model: JepaWorldModel, objective: Objective) -> None:
        super().__init__()
        self.model = model
        self.objective = objective

    def forward(self, batch: Batch) -> dict[str, torch.Tensor]:
        return self.objective(self.model, batch.pixels, self.model.scaler.normalise(batch.actions))


def train_world_model(
    data: Path, out: Path, recipe: WorldModelRecipe, *, progress: Progress | None = None
) -> JepaWorldModel:
    """Train, validate and save to `out`; an interrupted run continues from `out`/run."""
    episodes = Episodes(data, require=("pixels", "action"))
    parts = split(len(episodes), recipe.held_out)
    scaler = fit_scaler(episodes, parts.train, recipe.frameskip)
    torch.manual_seed(recipe.loop.seed)
    config = models.configuration(recipe.kind, recipe.preset, scaler.size)
    if not isinstance(config, JepaConfig):
        raise AcidError(f"a {recipe.kind!r} is trained on encoded frames, not on pixels: use training.token_model")
    encoder = replace(config.encoder, **recipe.encoder)
    model = JepaWorldModel(replace(config, **recipe.network, encoder=encoder), scaler)
    learner = _Learner(model, models.objective(recipe.kind, recipe.objective, model))
    windows = Windows(episodes, parts.train, model.config.history + 1, recipe.frameskip)

    def stream(start: int) -> Any:
        return batches(windows, recipe.loop.batch_size, recipe.loop.seed, start)

    clock = time.process_time()
    train(learner, learner, stream, recipe.loop, out / "run", progress=progress)
    metadata = {
        "recipe": asdict(recipe),
        "data": episodes.attributes,
        "cpu_seconds": round(time.process_time() - clock),
        "validation": validate(learner, episodes, parts, recipe.frameskip),
    }
    models.save(model, recipe.kind, out, metadata, half_precision=recipe.half_precision)
    return model


@torch.no_grad()
def validate(learner: _Learner, episodes: Episodes, parts: Split, frameskip: int) -> dict[str, float]:
    """Losses on held-out windows, and the error of imagining from one frame, step by step, against not moving."""
    model = learner.eval().model
    windows = Windows(episodes, parts.held_out, model.config.history + 1, frameskip)
    chosen = np.random.default_rng(0).choice(len(windows), min(VALIDATION_WINDOWS, len(windows)), replace=False)
    batch = windows.batch(chosen)
    torch.manual_seed(0)
    losses = learner(batch)
    latents = model.embed(batch.pixels)
    imagined = model.rollout(latents[:, :1], model.scaler.normalise(batch.actions)[:, None])[:, 0, :, 0]
    error = (imagined - latents[:, 1:]).square().mean((0, 2))
    still = (latents[:, :1] - latents[:, 1:]).square().mean((0, 2))
    steps = {f"imagined_{t + 1}_of_still": float(e / s) for t, (e, s) in enumerate(zip(error, still, strict=True))}
    return {name: float(value) for name, value in losses.items()} | steps
