"""A bright dot that actions move about: enough to see whether a joint-embedding loss learns or collapses."""

from __future__ import annotations

import torch
from torch import nn

from acid.models import Batch, JepaConfig, JepaWorldModel
from acid.nn.causal import CausalConfig
from acid.nn.encoders import ConvConfig
from acid.types import ActionScaler

SIDE = 16
CONFIG = JepaConfig(
    action_size=2,
    latent_size=8,
    projector_width=32,
    action_width=8,
    encoder=ConvConfig(image_size=SIDE, channels=(16, 32), width=32),
    predictor=CausalConfig(frames=3, width=32, depth=1, heads=2, head_width=16, mlp_width=64, dropout=0.0),
)


def moving_dots(count: int, generator: torch.Generator) -> Batch:
    """Pixels uint8 [count, 4, S, S, 3] of a bright blob that actions [count, 3, 2] move about."""
    actions = torch.randn(count, 3, 2, generator=generator)
    start = torch.rand(count, 1, 2, generator=generator) * 6 + 5
    centres = torch.cat([start, start + 1.5 * actions.cumsum(1)], 1).clamp(2, SIDE - 2)
    axis = torch.arange(SIDE)
    y, x = (axis - centres[..., i : i + 1] for i in (0, 1))
    blob = torch.exp(-(y.unsqueeze(-1).square() + x.unsqueeze(-2).square()) / 6)
    return Batch((255 * blob).to(torch.uint8).unsqueeze(-1).expand(-1, -1, -1, -1, 3), actions)


def make_model() -> JepaWorldModel:
    torch.manual_seed(0)
    return JepaWorldModel(CONFIG, ActionScaler((0.0, 0.0), (1.0, 1.0)))


def train_briefly(model: JepaWorldModel, loss: nn.Module, generator: torch.Generator) -> None:
    """Sixty steps, which must at least halve the loss."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3)
    history = []
    for _ in range(60):
        losses = loss(model, moving_dots(64, generator))
        optimiser.zero_grad()
        losses["loss"].backward()
        optimiser.step()
        history.append(losses["loss"].item())
    assert sum(history[-5:]) < 0.5 * sum(history[:5])
    model.eval()
