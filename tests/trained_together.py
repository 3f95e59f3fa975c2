"""Run by torchrun in several processes, and by the test in one: the losses and gradients of one step."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import count
from math import inf
from pathlib import Path
from typing import Any

import torch
from torch import nn

from acid import distributed, models
from acid.errors import AcidError
from acid.loop import LoopConfig, train
from acid.models import Batch
from acid.models.lewm import LeWMLossConfig
from acid.models.pldm import PLDMLossConfig
from acid.nn.causal import CausalConfig
from acid.nn.encoders import ConvConfig, ViTConfig
from acid.types import ActionScaler

BATCH, FRAMES, SIDE = 12, 4, 16
SCALER = ActionScaler((0.0, 0.0), (1.0, 1.0))
CONFIG = LoopConfig(steps=1, batch_size=BATCH, clip=inf, log_every=1)
PREDICTOR = CausalConfig(frames=FRAMES - 1, width=16, depth=1, heads=2, head_width=8, mlp_width=32, dropout=0.0)
CONV = ConvConfig(image_size=SIDE, channels=(8, 8), width=16, normalise=True)
VIT = ViTConfig(image_size=SIDE, patch=4, width=16, depth=2, heads=2, mlp_width=32)
CASES: dict[str, tuple[str, Any, Any]] = {  # kind of model, encoder, loss
    "Le-WM as published": ("lewm", VIT, LeWMLossConfig(sigreg=1.0, projections=64)),
    "Le-WM as shipped": ("lewm", CONV, LeWMLossConfig(projections=64, pooled=True, alignment=1.0, inverse=1.0)),
    "PLDM as published": ("pldm", VIT, PLDMLossConfig(covariance_in_time=0.5)),
    "PLDM as shipped": ("pldm", CONV, PLDMLossConfig(variance_in_time=0.0, pooled=True, alignment=1.0, inverse=1.0)),
}


def one_step(case: str, micro_batch: int | None = None) -> dict[str, torch.Tensor]:
    """Losses, gradients and running statistics after a step on this process's share of the batch."""
    name, encoder, settings = CASES[case]
    kind = models.KINDS[name]
    config = replace(kind.presets["lite"](2), latent_size=8, projector_width=16, encoder=encoder, predictor=PREDICTOR)
    torch.manual_seed(0)
    model = kind.model(config, SCALER)
    for block in model.dynamics[0].predictor.blocks:  # zero at first: nothing would depend on the actions
        nn.init.normal_(block.modulation.weight, std=0.1)
    loss = kind.loss(settings, model)
    if micro_batch is not None:
        model.limit_frames(micro_batch * FRAMES)
    told: dict[str, float] = {}

    def batches(start: int):
        for step in count(start):
            random = torch.Generator().manual_seed(step)
            frames = torch.randint(256, (BATCH, FRAMES, SIDE, SIDE, 3), dtype=torch.uint8, generator=random)
            actions = torch.randn(BATCH, FRAMES - 1, 2, generator=random)
            yield Batch(distributed.share(frames), distributed.share(actions))

    module = nn.ModuleDict({"model": model, "loss": loss})
    train(module, lambda b: loss(model, b), batches, CONFIG, progress=lambda step, losses: told.update(losses))
    found = {f"gradient of {n}": p.grad for n, p in module.named_parameters() if p.grad is not None}
    found |= {n: value for n, value in module.named_buffers() if "running" in n}
    return found | {n: torch.tensor(value) for n, value in told.items()}


def mistakes() -> list[str]:
    """What is said to a layer that normalises by itself, and to a batch that cannot be shared."""

    def attempt(module: nn.Module, config: LoopConfig) -> str:
        try:
            train(module, lambda batch: {"loss": module(batch).mean()}, lambda start: (_ for _ in ()), config)
        except AcidError as error:
            return str(error)
        return "nothing"

    layers = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    return [attempt(layers, CONFIG), attempt(nn.Linear(2, 2), replace(CONFIG, batch_size=BATCH + 1))]


def main(out: Path) -> None:
    torch.set_num_threads(1)
    with distributed.group(torch.device("cpu")):
        found: dict[str, Any] = {case: one_step(case) for case in CASES}
        found["mistakes"] = mistakes()
        if distributed.first():
            torch.save(found, out)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
