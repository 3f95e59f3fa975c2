"""World models and verifiers of the published sizes with random weights: enough to time them."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from acid import models
from acid.evaluation import SearchSpec
from acid.evaluation.kits import Kit
from acid.models import compact, dinowm
from acid.models.compact import CompactTokenizer
from acid.models.nwm import NavigationWorldModel
from acid.models.patch_encoders import PatchEncoder
from acid.types import ActionScaler, Problem
from acid.verifier import PAPER, FlowConfig, Verifier


class Timed(NamedTuple):
    """The size of one iteration of a search, small enough for one core."""

    candidates: int  # fewer than published where one costs seconds; the ratio of the two networks hardly depends on it
    horizon: int
    scaler: ActionScaler
    steps: int = 1  # Euler steps of the verifier


BLOCKS = ActionScaler((0.0, 0.0), (1.0, 1.0), 5)  # five actions of two numbers
PUSHES = ActionScaler((0.0,) * 4, (1.0,) * 4, 1)
MOVES = ActionScaler((0.0,) * 3, (1.0,) * 3, 1)
SIZES = {
    **{"lewm": Timed(300, 5, BLOCKS), "pldm": Timed(300, 5, BLOCKS), "dinowm": Timed(4, 1, PUSHES)},
    "nwm": Timed(4, 1, MOVES, steps=10),
}


def spec(name: str) -> SearchSpec:
    timed = SIZES[name]
    return SearchSpec("cem", timed.candidates, 1, max(1, timed.candidates // 10), horizon=timed.horizon)


def build(name: str) -> tuple[Kit, Problem]:
    """A kit of the published size, and a problem of noise for it. All plan in latent space, so nothing is drawn."""
    torch.manual_seed(0)
    timed = SIZES[name]
    model: Any = models.build(name, "paper", timed.scaler, **_frozen(name)).eval().requires_grad_(False)
    start, goal = _noise(model)
    config = FlowConfig(start.shape[-1], start.shape[-2], timed.scaler.size, PAPER, steps=timed.steps)
    return Kit(model, Verifier(config, timed.scaler).ready(), {}), Problem(start, goal)


def _noise(model: Any) -> Tensor:
    """Two latents, [2, 1, P, D]."""
    if isinstance(model, NavigationWorldModel):
        return model.quantiser(torch.randn(2, 1, model.tokenizer.tokens, len(model.quantiser.levels)))
    return torch.randn(2, 1, getattr(model, "tokens", 1), model.config.latent_size)


def _frozen(name: str) -> dict[str, Any]:
    """What is not needed for imagining: something of its shape takes the place of DINOv2, and of CompACT's networks."""
    if name == "nwm":
        return {"tokenizer": CompactTokenizer(compact.lite())}  # as many tokens of the same code book
    if not models.KINDS[name].is_map:
        return {}
    return {"encoder": PatchEncoder(dinowm.paper(PUSHES.size).encoder, nn.Conv2d(3, 384, 14, 14))}
