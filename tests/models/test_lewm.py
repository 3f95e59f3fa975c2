"""The Le-WM loss learns a moving dot and does not collapse."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from moving_dots import make_model, moving_dots, train_briefly

from acid.models import Batch
from acid.models.lewm import LeWMLoss, LeWMLossConfig


def test_training_lowers_the_loss_without_collapse() -> None:
    model = make_model()
    loss = LeWMLoss(LeWMLossConfig(projections=64), model)
    generator = torch.Generator().manual_seed(0)
    train_briefly(model, loss, generator)
    batch = moving_dots(128, generator)
    pixels, actions = batch.frames, batch.actions
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
    plain = LeWMLossConfig(sigreg=0.3, projections=16)
    for config in (plain, replace(plain, inverse=0.5, alignment=0.2)):
        losses = LeWMLoss(config, model)(model, moving_dots(8, torch.Generator().manual_seed(1)))
        parts = {"sigreg", "inverse", "alignment"} if config.inverse else {"sigreg"}
        assert set(losses) == {"loss", "prediction"} | parts
        expected = losses["prediction"] + sum(getattr(config, name) * losses[name] for name in parts)
        assert losses["loss"].item() == pytest.approx(expected.item())


def test_gradients_reach_the_targets_too() -> None:
    """No stop-gradient: without SIGReg the encoder still learns from the frame it is asked to predict."""
    model = make_model()
    batch = moving_dots(8, torch.Generator())
    embeddings = model.embed(batch.frames)
    embeddings.retain_grad()
    model.embed = lambda _: embeddings  # pyright: ignore[reportAttributeAccessIssue]
    LeWMLoss(LeWMLossConfig(sigreg=0.0, projections=16), model)(model, batch)["loss"].backward()
    assert embeddings.grad is not None
    assert (embeddings.grad[:, -1].abs() > 0).any()


def test_pooling_sees_missing_dimensions_that_a_small_batch_hides() -> None:
    """Gaussian embeddings that fill a quarter of their dimensions, as a share of what full ones cost."""
    generator = torch.Generator().manual_seed(0)
    full = torch.randn(24, 6, 32, generator=generator)
    flat = torch.cat([2 * full[..., :8], torch.zeros(24, 6, 24)], -1)
    model = make_model()
    ratios = {}
    for pooled in (False, True):
        loss = LeWMLoss(LeWMLossConfig(projections=512, pooled=pooled), model)
        costs = []
        for embeddings in (full, flat):
            model.embed = lambda _, shown=embeddings: shown  # pyright: ignore[reportAttributeAccessIssue]
            model.prediction_error = lambda *_: torch.zeros(())  # pyright: ignore[reportAttributeAccessIssue]
            costs.append(loss(model, Batch(torch.empty(0), torch.empty(0)))["sigreg"].item())
        ratios[pooled] = costs[1] / costs[0]
    assert ratios[True] > 1.5 * ratios[False]
