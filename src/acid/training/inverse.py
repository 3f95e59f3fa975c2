"""Networks that infer actions from latents: the verifier and the goal-conditioned policy."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from acid import models
from acid.errors import look_up
from acid.models import LearnedWorldModel
from acid.training.dataset import LatentDataset, load_latents
from acid.training.part import Job, Part, Recipe, Trainable
from acid.types import ActionScaler
from acid.verifier import LITE, LITE_FIT, PAPER, PAPER_FIT, Policy, Verifier, goal_pairs, successive
from acid.verifier.fitting import fit_scaler


@dataclass(frozen=True)
class VerifierRecipe(Recipe):
    channels: tuple[int, ...] = ()  # convolutions over two frames that are maps of tokens; none: a transformer alone
    euler_steps: int = 1  # Euler steps of inference
    kind: str = "prefix-suffix"  # kind of network: a name in acid.verifier.flow.NETWORKS
    mirror: bool = False  # learn every episode also mirrored left to right
    symmetries: bool = False  # learn every episode also under each symmetry of the task
    own_units: bool = False  # normalise actions by their own spread instead of as the world model does


@dataclass(frozen=True)
class PolicyRecipe(VerifierRecipe):
    horizon: int = 5  # model steps to the farthest goal: as far as the planner looks
    answers: int = 1  # model steps that it answers with at once


SCALES: dict[str, dict[str, Any]] = {
    "paper": {"network": PAPER, "loop": PAPER_FIT},
    "lite": {"network": LITE, "loop": replace(LITE_FIT, steps=6_000, batch_size=512)},
}
_LITE_MAP: dict[str, Any] = {"channels": (64, 96)}  # more accurate on our data than 2·P tokens, and much faster
_NWM: dict[str, Any] = {"euler_steps": 10, "mirror": True, "own_units": True}
RECIPES: dict[tuple[str, str], dict[str, Any]] = {
    ("dinowm-symmetric", "paper"): {"symmetries": True},
    ("dinowm-symmetric", "lite"): _LITE_MAP | {"symmetries": True},
    ("nwm", "paper"): _NWM,
    ("nwm-diffusion", "paper"): _NWM,
    ("nwm-diffusion", "lite"): _NWM | _LITE_MAP,
    ("nwm", "lite"): _NWM | {"channels": (64, 64, 96), "loop": replace(LITE_FIT, steps=6_000, batch_size=128)},
}


_PATH: dict[str, Any] = {"horizon": 8, "answers": 8, "euler_steps": 1}  # all of a plan, the mean of what may be meant
POLICIES: dict[str, dict[str, Any]] = {"nwm": _PATH}  # where they differ from a verifier's recipe


def recipe(cls: type[VerifierRecipe], part: str, model: str, scale: str) -> VerifierRecipe:
    sizes = SCALES.get(scale, SCALES["lite"])
    usual = cls(part, model, scale, sizes["network"], None, sizes["loop"])
    is_map = look_up(models.KINDS, model, "world model").is_map
    own = RECIPES.get((model, scale), _LITE_MAP if is_map and scale != "paper" else {})
    return replace(usual, **(own | (POLICIES.get(model, {}) if cls is PolicyRecipe else {})))


def prepare(cls: type[Verifier] | type[Policy], job: Job) -> Trainable:
    recipe = job.recipe
    answers = getattr(recipe, "answers", 1)
    dataset = load_latents(job, answers=answers)
    table = (_features(dataset.model, dataset.latents, job.device), dataset.actions, dataset.walks)
    frameskip = dataset.model.scaler.frameskip
    if cls is Policy:
        transitions = goal_pairs(*table, horizon=recipe.horizon, frameskip=frameskip)
    else:
        transitions = successive(*table, frameskip=frameskip)
    transitions = replace(transitions, episode=dataset.ids[transitions.start])
    fitted, fit = cls.prepare(
        transitions,
        training=recipe.loop,
        size=recipe.network,
        channels=recipe.channels,
        euler_steps=recipe.euler_steps,
        network=recipe.kind,
        scaler=_scaler(dataset, answers, own_units=recipe.own_units),
    )

    def measure() -> dict[str, Any]:
        fitted.report = fit.report()
        return {"report": asdict(fitted.report)}

    return Trainable(fitted.flow, fit.loss, fit.read, len(fit.train), measure, fitted.save, job.micro_batch)


def _scaler(dataset: LatentDataset, answers: int, *, own_units: bool) -> ActionScaler | None:
    """Of so many model steps at once, each of them in the same units; None for the units of the targets themselves."""
    known = dataset.model.scaler
    if own_units:
        if answers == 1:
            return None
        known = fit_scaler(dataset.actions[~dataset.actions.isnan().any(1)].reshape(-1, known.env_size))
    return replace(known, frameskip=answers * dataset.model.scaler.frameskip)


@torch.no_grad()
def _features(model: LearnedWorldModel, latents: Tensor, device: torch.device) -> Tensor:
    """What the verifier looks at, [M, P', D'], in the latents' precision."""
    parts = (model.features(part.to(device).float()) for part in latents.split(1024))
    return torch.cat([part.to("cpu", latents.dtype) for part in parts])


VERIFIER = Part(partial(recipe, VerifierRecipe, "verifier"), partial(prepare, Verifier), needs="model")
POLICY = Part(partial(recipe, PolicyRecipe, "policy"), partial(prepare, Policy), needs="model")
