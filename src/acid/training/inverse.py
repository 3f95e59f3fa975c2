"""Train what infers actions from latents: the verifier, and the goal-conditioned policy it is compared with."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from acid.errors import look_up
from acid.loop import Progress
from acid.training.latents import LatentDataset
from acid.verifier import LITE, LITE_FIT, PAPER, PAPER_FIT, FitConfig, Policy, TransformerSize, Verifier

POLICY_HORIZON = 5  # blocks, as far as the planner looks


@dataclass(frozen=True)
class InverseRecipe:
    size: TransformerSize = LITE
    fit: FitConfig = field(default_factory=lambda: LITE_FIT)


RECIPES = {
    "paper": InverseRecipe(PAPER, PAPER_FIT),
    "lite": InverseRecipe(LITE, replace(LITE_FIT, steps=6_000, batch_size=512)),
}


def recipe(name: str, *, steps: int | None = None, seed: int = 0) -> InverseRecipe:
    chosen = look_up(RECIPES, name, "recipe")
    return replace(chosen, fit=replace(chosen.fit, steps=steps or chosen.fit.steps, seed=seed))


def train_verifier(
    dataset: LatentDataset, out: Path, recipe: InverseRecipe, *, progress: Progress | None = None
) -> Verifier:
    """The inverse dynamics of one model step, at every offset of the frames."""
    clock = time.process_time()
    verifier = Verifier.fit(
        dataset.latents,
        dataset.actions,
        dataset.ids,
        stride=dataset.frameskip,
        size=recipe.size,
        training=recipe.fit,
        scaler=dataset.model.scaler,
        folder=out / "run",
        progress=progress,
    )
    verifier.save(out, metadata=_metadata(dataset, recipe, clock))
    return verifier


def train_policy(
    dataset: LatentDataset, out: Path, recipe: InverseRecipe, *, progress: Progress | None = None
) -> Policy:
    """From here and the goal, 1 to POLICY_HORIZON blocks away, to the next block."""
    clock = time.process_time()
    policy = Policy.fit(
        dataset.latents,
        dataset.actions,
        dataset.ids,
        horizon=POLICY_HORIZON,
        stride=dataset.frameskip,
        size=recipe.size,
        training=recipe.fit,
        scaler=dataset.model.scaler,
        folder=out / "run",
        progress=progress,
    )
    policy.save(out, metadata=_metadata(dataset, recipe, clock))
    return policy


def _metadata(dataset: LatentDataset, recipe: InverseRecipe, clock: float) -> dict[str, Any]:
    return {
        "recipe": asdict(recipe),
        "data": dataset.episodes.attributes,
        "cpu_seconds": round(time.process_time() - clock),
    }
