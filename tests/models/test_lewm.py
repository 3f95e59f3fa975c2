"""The Le-WM objective learns a moving dot and does not collapse."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from acid.models import JepaConfig, JepaWorldModel, LeWMConfig, LeWMObjective
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


def moving_dots(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Pixels uint8 [count, 4, S, S, 3] of a bright blob that actions [count, 3, 2] move about."""
    actions = torch.randn(count, 3, 2, generator=generator)
    start = torch.rand(count, 1, 2, generator=generator) * 6 + 5
    centres = torch.cat([start, start + 1.5 * actions.cumsum(1)], 1).clamp(2, SIDE - 2)
    axis = torch.arange(SIDE)
    y, x = (axis - centres[..., i : i + 1] for i in (0, 1))
    blob = torch.exp(-(y.unsqueeze(-1).square() + x.unsqueeze(-2).square()) / 6)
    return (255 * blob).to(torch.uint8).unsqueeze(-1).expand(-1, -1, -1, -1, 3), actions


def make_model() -> JepaWorldModel:
    torch.manual_seed(0)
    return JepaWorldModel(CONFIG, ActionScaler((0.0, 0.0), (1.0, 1.0)))


def test_training_lowers_the_loss_without_collapse() -> None:
    model = make_model()
    objective = LeWMObjective(LeWMConfig(projections=64), model)
    generator = torch.Generator().manual_seed(0)
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3)
    history = []
    for _ in range(60):
        losses = objective(model, *moving_dots(64, generator))
        optimiser.zero_grad()
        losses["loss"].backward()
        optimiser.step()
        history.append(losses["loss"].item())
    assert sum(history[-5:]) < 0.5 * sum(history[:5])

    model.eval()
    pixels, actions = moving_dots(128, generator)
    with torch.no_grad():
        embeddings = model.embed(pixels)
        error = model.prediction_error(embeddings, actions)
        shuffled = model.prediction_error(embeddings, actions.roll(1, 0))
    spread = embeddings.flatten(0, 1).var(0)
    assert spread.min() > 0.1  # no dimension has collapsed
    assert error < 0.5 * spread.mean()  # and the next embedding is predicted,
    assert error < 0.9 * shuffled  # with the help of the action


def test_the_loss_is_the_sum_of_its_parts() -> None:
    model = make_model()
    losses = LeWMObjective(LeWMConfig(sigreg=0.3, projections=16), model)(model, *moving_dots(8, torch.Generator()))
    assert set(losses) == {"loss", "prediction", "sigreg"}
    expected = losses["prediction"] + 0.3 * losses["sigreg"]
    assert losses["loss"].item() == pytest.approx(expected.item())


def test_gradients_reach_the_targets_too() -> None:
    """No stop-gradient: without SIGReg the encoder still learns from the frame it is asked to predict."""
    model = make_model()
    pixels, actions = moving_dots(8, torch.Generator())
    embeddings = model.embed(pixels)
    embeddings.retain_grad()
    model.embed = lambda _: embeddings  # pyright: ignore[reportAttributeAccessIssue]
    LeWMObjective(LeWMConfig(sigreg=0.0, projections=16), model)(model, pixels, actions)["loss"].backward()
    assert embeddings.grad is not None
    assert (embeddings.grad[:, -1].abs() > 0).any()
