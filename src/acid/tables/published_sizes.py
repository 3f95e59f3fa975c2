"""World models and verifiers of the published sizes with random weights: enough to time them."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import nn

from acid import models
from acid.evaluation import SearchSpec
from acid.evaluation.kits import Kit, kit_of
from acid.models import dinowm
from acid.models.patch_encoders import PatchEncoder
from acid.types import ActionScaler, Problem
from acid.verifier import PAPER, FlowConfig, Verifier


class Timed(NamedTuple):
    """The size of one iteration of a search, small enough for one core."""

    candidates: int  # fewer than published where one costs seconds; the ratio of the two networks hardly depends on it
    horizon: int
    scaler: ActionScaler


BLOCKS = ActionScaler((0.0, 0.0), (1.0, 1.0), 5)  # five actions of two numbers
PUSHES = ActionScaler((0.0,) * 4, (1.0,) * 4, 1)
SIZES = {"lewm": Timed(300, 5, BLOCKS), "pldm": Timed(300, 5, BLOCKS), "dinowm": Timed(4, 1, PUSHES)}


def spec(name: str) -> SearchSpec:
    timed = SIZES[name]
    return SearchSpec("cem", timed.candidates, 1, max(1, timed.candidates // 10), horizon=timed.horizon)


def build(name: str) -> tuple[Kit, Problem]:
    """A kit of the published size, and a problem of noise for it."""
    torch.manual_seed(0)
    scaler = SIZES[name].scaler
    model: Any = models.build(name, "paper", scaler, **_encoder(name)).eval().requires_grad_(False)
    tokens, size = getattr(model, "tokens", 1), model.config.latent_size
    verifier = Verifier(FlowConfig(size, tokens, scaler.size, PAPER), scaler).ready()
    start, goal = torch.randn(2, 1, tokens, size)
    return kit_of(name)(model, verifier, {}), Problem(start, goal)


def _encoder(name: str) -> dict[str, Any]:
    """DINO-WM's encoder is not needed for imagining: something of its shape takes the place of DINOv2."""
    if not models.KINDS[name].is_map:
        return {}
    return {"encoder": PatchEncoder(dinowm.paper(PUSHES.size).encoder, nn.Conv2d(3, 384, 14, 14))}
