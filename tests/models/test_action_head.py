"""The action head learns what the embeddings tell of the action, and teaches the embeddings to tell it."""

from __future__ import annotations

import torch
from moving_dots import make_model

from acid.models.action_head import ActionHead


def test_it_finds_the_action_between_neighbours_and_nothing_where_there_is_nothing() -> None:
    torch.manual_seed(0)
    model = make_model()
    actions = torch.randn(64, 4, model.config.action_size)
    walk = torch.zeros(64, 5, model.config.latent_size)
    walk[:, 1:, : model.config.action_size] = actions.cumsum(1)
    errors = {}
    for name, embeddings in {"told": walk, "untold": torch.randn_like(walk)}.items():
        head = ActionHead(model)
        optimiser = torch.optim.Adam(head.parameters(), 1e-3)
        for _ in range(60):
            optimiser.zero_grad()
            error = head(embeddings[:48], actions[:48])
            error.backward()
            optimiser.step()
        errors[name] = head(embeddings[48:], actions[48:]).item()
    assert errors["told"] < 0.3
    assert errors["untold"] > 0.8


def test_embeddings_learn_from_it() -> None:
    torch.manual_seed(0)
    model = make_model()
    embeddings = torch.randn(2, 3, model.config.latent_size, requires_grad=True)
    ActionHead(model)(embeddings, torch.randn(2, 2, model.config.action_size)).backward()
    assert embeddings.grad is not None
    assert (embeddings.grad.abs().sum(-1) > 0).all()
