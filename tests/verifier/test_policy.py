"""The policy baseline moves towards its goal, faster when less time is left."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from acid.errors import ShapeError
from acid.verifier import FitConfig, Policy, TransformerSize

HORIZON = 4


def straight_episodes(count: int = 200, length: int = 10) -> tuple[Tensor, Tensor, Tensor]:
    """Points that keep one velocity (their action) for an episode; latents [M, 1, 6], actions [M, 2], ids [M]."""
    generator = torch.Generator().manual_seed(5)
    velocity = torch.randn(count, 1, 2, generator=generator).expand(-1, length, -1)
    place = torch.randn(count, 1, 2, generator=generator) + torch.arange(length)[:, None] * velocity
    latents = place @ torch.randn(2, 6, generator=generator)
    return latents.reshape(-1, 1, 6), velocity.flatten(0, 1), torch.arange(count).repeat_interleave(length)


@pytest.fixture(scope="module")
def policy(one_thread: None) -> Policy:
    size = TransformerSize(width=32, depth=2, heads=2, mlp_ratio=2)
    training = FitConfig(steps=800, batch_size=128, learning_rate=3e-3, warmup=0.06)
    return Policy.fit(*straight_episodes(), horizon=HORIZON, size=size, training=training)


def test_heads_for_the_goal_at_the_speed_the_time_left_demands(policy):
    latents, actions, _ = straight_episodes()
    for left in range(1, HORIZON + 1):
        acted = policy.scaler.denormalise(policy.act(latents[::10], latents[left::10], left))
        error = (acted - actions[::10]).square().mean() / actions.var()
        assert error < 0.15, left


def test_time_left_matters_and_may_differ_by_row(policy):
    latents, _, _ = straight_episodes()
    start, goal = latents[:2], latents[2:4]
    each = policy.act(start, goal, torch.tensor([1, 4]))
    torch.testing.assert_close(each[0], policy.act(start, goal, 1)[0])
    torch.testing.assert_close(each[1], policy.act(start, goal, 4)[1])
    assert not torch.allclose(policy.act(start, goal, 1), policy.act(start, goal, 4), atol=0.1)


def test_saved_and_loaded_is_the_same_bit_for_bit(policy, tmp_path):
    policy.save(tmp_path)
    loaded = Policy.load(tmp_path)
    latents = torch.randn(5, 2, 1, 6)
    assert loaded.horizon == HORIZON
    assert torch.equal(loaded.act(*latents.unbind(1), 3), policy.act(*latents.unbind(1), 3))


def test_time_left_out_of_range_is_named(policy):
    latents = torch.zeros(3, 1, 6)
    with pytest.raises(ShapeError, match=r"1\.\.4, got 5\.\.5"):
        policy.act(latents, latents, HORIZON + 1)
    with pytest.raises(ShapeError, match=r"1\.\.4, got 0\.\.2"):
        policy.act(latents, latents, torch.tensor([1, 0, 2]))
