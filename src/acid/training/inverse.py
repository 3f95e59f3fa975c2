"""Train what infers actions from latents: the verifier, and the goal-conditioned policy it is compared with."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from acid.errors import look_up
from acid.loop import Progress
from acid.training.latents import LatentDataset
from acid.verifier import LITE, LITE_FIT, PAPER, PAPER_FIT, FitConfig, Policy, TransformerSize, Verifier

Fitted = TypeVar("Fitted", Verifier, Policy)
CHANNELS = (64, 96)  # of convolutions over latents that are maps of many tokens
POLICY_HORIZON = 5  # blocks, as far as the planner looks


@dataclass(frozen=True)
class InverseRecipe:
    size: TransformerSize = LITE
    fit: FitConfig = field(default_factory=lambda: LITE_FIT)
    convolve: bool = True  # look at the two frames with convolutions, where they are maps of tokens


RECIPES = {
    "paper": InverseRecipe(PAPER, PAPER_FIT, convolve=False),
    "lite": InverseRecipe(LITE, replace(LITE_FIT, steps=6_000, batch_size=512)),
}


def recipe(name: str, *, steps: int | None = None, seed: int = 0) -> InverseRecipe:
    chosen = look_up(RECIPES, name, "recipe")
    return replace(chosen, fit=replace(chosen.fit, steps=steps or chosen.fit.steps, seed=seed))


def train_verifier(
    dataset: LatentDataset, out: Path, recipe: InverseRecipe, *, progress: Progress | None = None
) -> Verifier:
    """The inverse dynamics of one model step, at every offset of the frames."""
    return _train(Verifier.fit, dataset, out, recipe, progress)


def train_policy(
    dataset: LatentDataset, out: Path, recipe: InverseRecipe, *, progress: Progress | None = None
) -> Policy:
    """From here and the goal, 1 to POLICY_HORIZON blocks away, to the next block."""
    return _train(partial(Policy.fit, horizon=POLICY_HORIZON), dataset, out, recipe, progress)


def _train(
    fit: Callable[..., Fitted], dataset: LatentDataset, out: Path, recipe: InverseRecipe, progress: Progress | None
) -> Fitted:
    """Fit and save; an interrupted run continues from `out`/run."""
    tokens = dataset.latents.shape[1]
    is_map = tokens > 1 and math.isqrt(tokens) ** 2 == tokens
    clock = time.process_time()
    fitted = fit(
        dataset.latents,
        dataset.actions,
        dataset.ids,
        frameskip=dataset.frameskip,
        size=recipe.size,
        training=recipe.fit,
        channels=CHANNELS if recipe.convolve and is_map else (),
        scaler=dataset.model.scaler,
        folder=out / "run",
        progress=progress,
    )
    metadata = {
        "recipe": asdict(recipe),
        "data": dataset.episodes.attributes,
        "cpu_seconds": round(time.process_time() - clock),
    }
    fitted.save(out, metadata=metadata)
    return fitted
