"""The world model: windows of frames and actions, of pixels or of the latents that a frozen encoder makes of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from acid import distributed, models
from acid.data import Shuffle, Windows
from acid.errors import look_up
from acid.loop import LoopConfig, SettingError, moved
from acid.models import Batch, FrozenEncoderModel, LearnedWorldModel, VideoModel
from acid.models.compact import CompactTokenizer
from acid.models.lewm import LeWMLossConfig
from acid.models.pldm import PLDMLossConfig
from acid.training.dataset import WindowReader, actions_of, encode_rows
from acid.training.goals import GoalReader
from acid.training.part import Job, Part, SplittingRecipe, Trainable, sized, spread
from acid.training.pictures import HORIZON, validate_pictures
from acid.types import ActionScaler

VALIDATION_WINDOWS = 512
REACH = 64


@dataclass(frozen=True)
class ModelRecipe(SplittingRecipe):
    mirror: bool = False  # show every window as often mirrored left to right
    symmetries: bool = False  # show every window as often under each symmetry of the task
    goals: int = 0  # frames to predict from each context, drawn anew each time; 0: the frame that follows
    reach: int = REACH  # how many frames ahead or behind a goal is at most

    def __post_init__(self) -> None:
        if self.goals < 0 or self.reach < 1:
            raise SettingError(f"goals must be at least 0 and reach at least 1, got {self.goals} and {self.reach}")
        if not self.goals and self.reach != REACH:
            raise SettingError(f"reach={self.reach} is for goals: set goals too, or leave it out")


_LITE: dict[str, Any] = {"half_precision": True, "held_out": 0.2}
_JEPA_LITE = _LITE | {
    "loop": LoopConfig(steps=6_000, batch_size=48, learning_rate=1e-3, weight_decay=1e-3, warmup=0.03),
    "frameskip": 5,
}
_JEPA_PAPER: dict[str, Any] = {
    "loop": LoopConfig(steps=150_000, batch_size=128, learning_rate=5e-5, weight_decay=1e-3),
    "frameskip": 5,
}
# Left to itself a small network fills its channels with finer and finer functions of what is easiest to predict, with
# none left for the rest. So it has few channels, and is asked for slow ones and for those that tell the action.
_LEWM_LITE = LeWMLossConfig(sigreg=0.07, projections=256, pooled=True, alignment=1.0, inverse=1.0)
_PLDM_LITE = PLDMLossConfig(variance_in_time=0.0, pooled=True, alignment=1.0, inverse=1.0)
_TOKEN_LOOP = LoopConfig(steps=6_000, batch_size=64, learning_rate=1e-3, weight_decay=1e-2, warmup=0.03)
_DINOWM_PAPER: dict[str, Any] = {"loop": LoopConfig(steps=60_000, batch_size=32, learning_rate=5e-4, weight_decay=1e-2)}
# As published but for the number of steps, which NWM and CompACT count in epochs: the authors of NWM plan with step
# 100 000. Batches are theirs too: 16 contexts on each of 64 GPUs; CompACT tells of 32 on each.
_NWM_PAPER = LoopConfig(batch_size=256, learning_rate=1e-4, warmup=0.0, schedule="constant", ema=0.9999)
_NWM_PAPER_LOOP = replace(_NWM_PAPER, steps=200_000, weight_decay=1e-2, clip=2.0)
_DIFFUSION_PAPER_LOOP = replace(
    _NWM_PAPER, steps=100_000, batch_size=1024, learning_rate=8e-5, weight_decay=0.0, clip=10.0
)
# Where a recipe differs from the default, which is the preset of the network with a loss and a loop as they come.
RECIPES: dict[tuple[str, str], dict[str, Any]] = {
    ("lewm", "paper"): _JEPA_PAPER,
    ("lewm", "lite"): _JEPA_LITE | {"loss": _LEWM_LITE},
    ("lewm-shapes", "lite"): _JEPA_LITE | {"loss": _LEWM_LITE},
    ("pldm", "paper"): _JEPA_PAPER,
    ("pldm", "lite"): _JEPA_LITE | {"loss": _PLDM_LITE},
    ("pldm-shapes", "lite"): _JEPA_LITE | {"loss": _PLDM_LITE},
    ("dinowm", "paper"): _DINOWM_PAPER,
    ("dinowm", "lite"): _LITE | {"loop": _TOKEN_LOOP},
    ("dinowm-symmetric", "paper"): _DINOWM_PAPER | {"symmetries": True},
    ("dinowm-symmetric", "lite"): _LITE | {"loop": replace(_TOKEN_LOOP, steps=12_000), "symmetries": True},
    ("nwm", "paper"): {"loop": _NWM_PAPER_LOOP, "goals": 4},
    ("nwm", "lite"): _LITE | {"loop": replace(_TOKEN_LOOP, steps=8_000), "mirror": True},
    ("nwm-diffusion", "paper"): {"loop": _DIFFUSION_PAPER_LOOP, "goals": 4},
    ("nwm-diffusion", "lite"): _LITE | {"loop": replace(_TOKEN_LOOP, steps=20_000, ema=0.999), "mirror": True},
}


def recipe(model: str, scale: str) -> ModelRecipe:
    kind = look_up(models.KINDS, model, "world model")
    network = look_up(kind.presets, scale, "scale")(0)
    usual = ModelRecipe("model", model, scale, network, kind.loss_config(), LoopConfig())
    return replace(usual, **RECIPES.get((model, scale), {}))


def prepare(job: Job) -> Trainable:
    actions, recipe = actions_of(job), job.recipe
    model = _build(job, actions.scaler)
    latents = None
    if isinstance(model, FrozenEncoderModel):
        rows = job.episodes.rows_of(job.partition.train)
        model.fit_encoder(lambda count: job.pixels(spread(rows, count)).to(job.device))
        latents = encode_rows(job, model, actions.views)
    elif actions.views is not None:
        raise SettingError(f"mirror and symmetries need a frozen encoder, which a {recipe.model} does not have")
    drawing = model if isinstance(model, VideoModel) else None
    if recipe.goals and drawing is None:
        raise SettingError(f"goals={recipe.goals}: a {recipe.model} predicts what follows at once; leave goals at 0")
    loss = job.kind.loss(recipe.loss, model).to(job.device)  # may have parameters that planning does not need
    if job.micro_batch is not None and job.kind.whole_batch:
        model.limit_frames(job.micro_batch * (model.config.history + 1))

    def windows(ids: np.ndarray, frames: int) -> Windows:
        return Windows(job.episodes, ids, frames, job.partition.frameskip)

    ahead = model.config.history + (1 if drawing is None else HORIZON)
    tested = WindowReader(windows(job.partition.held_out, ahead), job.episodes, actions, latents)
    shown = windows(job.partition.train, model.config.history + (0 if recipe.goals else 1))
    frames = WindowReader(shown, job.episodes, actions, latents)
    goals = GoalReader(frames, recipe.reach) if recipe.goals else None
    order = Shuffle(len(shown), recipe.loop.batch_size, recipe.loop.seed)

    def read(step: int) -> Batch:
        chosen, size = distributed.share(order.indices(step)), recipe.loop.batch_size
        random, view = np.random.default_rng([recipe.loop.seed, step]), None
        if actions.views is not None:
            drawn = (len(actions.views) * (1 - random.random(size))).astype(np.int64).clip(max=len(actions.views) - 1)
            view = torch.from_numpy(distributed.share(drawn))
        if goals is None:
            return frames.read(chosen, view)
        return goals.read(chosen, distributed.share(random.random((size, recipe.goals))), view)

    def measure() -> dict[str, Any]:
        found = validate(model, loss, tested) if drawing is None else validate_pictures(drawing, tested)
        return {"validation": found}

    return Trainable(
        nn.ModuleDict({"model": model, "loss": loss}),
        partial(loss, model),
        read,
        len(shown),
        measure,
        partial(models.save, model, recipe.model),
        None if job.kind.whole_batch else job.micro_batch,
    )


def _build(job: Job, scaler: ActionScaler) -> LearnedWorldModel:
    """A fresh model on the job's device."""
    recipe, options = job.recipe, {}
    for name, wanted in (("network", job.kind.config), ("loss", job.kind.loss_config)):
        if not isinstance(getattr(recipe, name), wanted):
            raise SettingError(
                f"the {name} of {recipe.model!r} is set by a {wanted.__name__}, not {getattr(recipe, name)}"
            )
    network = sized(recipe.network, action_size=scaler.size)
    if "tokenizer" in job.kind.parts:
        tokenizer = CompactTokenizer.load(job.cell / "tokenizer")
        if network.tokenizer not in (tokenizer.config, job.kind.presets[recipe.scale](0).tokenizer):
            raise SettingError("the tokenizer is the one in the cell's folder; leave out settings of network.tokenizer")
        options["tokenizer"] = tokenizer
    return job.build(job.kind.model, network, scaler, **options).to(job.device)


@torch.no_grad()
def validate(model: LearnedWorldModel, loss: nn.Module, reader: WindowReader) -> dict[str, float]:
    """Losses on held-out windows, and the error of imagining from one frame, step by step, against not moving."""
    device = next(model.parameters()).device
    batch = moved(reader.read(reader.windows.sample(VALIDATION_WINDOWS)), device)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(0)
        losses = loss(model, batch)
    latents = batch.frames
    if reader.latents is None:
        latents = model.encode(latents.flatten(0, 1)).unflatten(0, latents.shape[:2])
    imagined = model.rollout(latents[:, 0], batch.actions[:, None])[:, 0]
    error, still = ((guess - latents[:, 1:]).square().mean((0, 2, 3)) for guess in (imagined, latents[:, :1]))
    steps = {f"imagined_{t + 1}_of_still": float(e / s) for t, (e, s) in enumerate(zip(error, still, strict=True))}
    return {name: float(value) for name, value in losses.items()} | steps


PART = Part(recipe, prepare, needs="tokenizer")
