"""The PLDM loss: its statistics against plain loops, and learning without collapse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from moving_dots import CONFIG, make_model, moving_dots, train_briefly

from acid.models import Batch, JepaWorldModel
from acid.models.pldm import PLDMLoss, PLDMLossConfig, missing_spread, shared_variance
from acid.types import ActionScaler


def test_penalties_against_plain_loops() -> None:
    samples = torch.randn(3, 6, 4, generator=torch.Generator().manual_seed(0)) * 0.8
    centred = samples - samples.mean(1, keepdim=True)
    spreads, shared = [], []
    for group in centred.double().numpy():
        covariance = np.cov(group.T)
        spreads += [max(0.0, 1 - np.sqrt(covariance[i, i] + 1e-4)) for i in range(4)]
        shared += [covariance[i, j] ** 2 for i in range(4) for j in range(4) if i != j]
    assert missing_spread(centred).item() == pytest.approx(np.mean(spreads), rel=1e-5)
    assert shared_variance(centred).item() == pytest.approx(np.mean(shared), rel=1e-5)


def test_the_loss_is_the_weighted_sum_of_its_parts() -> None:
    config = PLDMLossConfig(18, 0.7, 12, 0.3, 0.2, 0.5)
    model = make_model()
    losses = PLDMLoss(config, model)(model, moving_dots(8, torch.Generator().manual_seed(1)))
    parts = {"variance", "variance_in_time", "covariance", "covariance_in_time", "alignment", "inverse"}
    assert set(losses) == {"loss", "prediction"} | parts
    expected = losses["prediction"] + sum(getattr(config, name) * losses[name] for name in parts)
    assert losses["loss"].item() == pytest.approx(expected.item(), rel=1e-5)


def test_training_lowers_the_loss_without_collapse() -> None:
    model = make_model()
    loss = PLDMLoss(PLDMLossConfig(), model)
    generator = torch.Generator().manual_seed(0)
    train_briefly(model, loss, generator)
    batch = moving_dots(128, generator)
    pixels, actions = batch.frames, batch.actions
    with torch.no_grad():
        embeddings = model.embed(pixels)
        error, shuffled = (model.prediction_error(embeddings, a) for a in (actions, actions.roll(1, 0)))
    assert embeddings.flatten(0, 1).std(0).min() > 0.5
    assert error < 0.9 * shuffled


def test_an_ensemble_imagines_its_mean_and_tells_its_disagreement() -> None:
    torch.manual_seed(0)
    model = JepaWorldModel(replace(CONFIG, ensemble=3), ActionScaler((0.0, 0.0), (1.0, 1.0))).eval()
    latent, actions = torch.randn(2, 1, 8), torch.randn(2, 5, 4, 2)
    alone = []
    for member in model.dynamics:
        single = JepaWorldModel(CONFIG, model.scaler).eval()
        single.dynamics[0].load_state_dict(member.state_dict())
        alone.append(single.rollout(latent, actions))
    together = torch.stack(alone)
    torch.testing.assert_close(model.rollout(latent, actions), together.mean(0))
    spread = model.disagreement(latent, actions)
    assert spread.shape == (2, 5, 4)
    assert (spread > 0).all()
    torch.testing.assert_close(spread, together.var(0, correction=0)[..., 0, :].mean(-1))
    batch = moving_dots(8, torch.Generator())
    model.prediction_error(model.embed(batch.frames), batch.actions).backward()
    assert all(p.grad is not None for m in model.dynamics for p in m.predictor.parameters())


def test_pooled_statistics_show_less_covariance_where_there_is_none() -> None:
    """Independent channels: n samples show 1/n in the mean square, so six times as many show a sixth."""
    embeddings = torch.randn(24, 6, 16, generator=torch.Generator().manual_seed(0))
    model = make_model()
    model.embed = lambda _: embeddings  # pyright: ignore[reportAttributeAccessIssue]
    model.prediction_error = lambda *_: torch.zeros(())  # pyright: ignore[reportAttributeAccessIssue]
    found = {}
    for pooled in (False, True):
        losses = PLDMLoss(PLDMLossConfig(pooled=pooled), model)(model, Batch(torch.empty(0), torch.empty(0)))
        found[pooled] = losses["covariance"].item()
    assert found[True] == pytest.approx(found[False] / 6, rel=0.25)
