"""Which frames are paired, which pairs are held out, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from acid.errors import DataError, ShapeError
from acid.verifier import Transitions, goal_pairs, successive


def table(lengths: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Latents [M, 1, 2], actions [M, 3] and ids [M] of episodes of these lengths; a latent holds (episode, step)."""
    episodes = torch.cat([torch.full((length,), 10 + i) for i, length in enumerate(lengths)])
    steps = torch.cat([torch.arange(length) for length in lengths])
    latents = torch.stack([episodes, steps], dim=-1)[:, None].float()
    return latents, torch.randn(len(episodes), 3), episodes


def pairs(transitions: Transitions) -> list[tuple[int, int, int, int]]:
    """(episode, step) of both frames of every pair."""
    first, second, *_ = transitions.batch(torch.arange(len(transitions)))
    return [tuple(row) for row in torch.cat([first, second], dim=-1)[:, 0].int().tolist()]


@pytest.mark.parametrize("frameskip", [1, 2, 5])
def test_pairs_are_all_those_inside_an_episode(frameskip):
    lengths = [4, 1, 7, 2]
    expected = [(10 + i, t, 10 + i, t + frameskip) for i, n in enumerate(lengths) for t in range(n - frameskip)]
    assert pairs(successive(*table(lengths), frameskip=frameskip)) == expected


def test_a_nan_action_starts_no_transition_but_may_end_one():
    latents, actions, episodes = table([4, 3])
    actions[[1, 3], [0, 2]] = torch.nan
    transitions = successive(latents, actions, episodes)
    assert pairs(transitions) == [(10, 0, 10, 1), (10, 2, 10, 3), (11, 0, 11, 1), (11, 1, 11, 2)]
    assert not transitions.batch(torch.arange(4))[2].isnan().any()


def test_goals_are_every_reachable_frame_and_the_target_is_the_first_action():
    latents, actions, episodes = table([6, 3])
    transitions = goal_pairs(latents, actions, episodes, horizon=2, frameskip=2)
    expected = [(10, t, 10, t + 2 * k, k) for k in (1, 2) for t in range(6 - 2 * k)] + [(11, 0, 11, 2, 1)]
    _, _, targets, left = transitions.batch(torch.arange(len(transitions)))
    assert left is not None
    assert sorted((*p, k + 1) for p, k in zip(pairs(transitions), left.tolist(), strict=True)) == sorted(expected)
    assert torch.equal(targets, actions[transitions.start])
    assert transitions.conditions == 2


def test_whole_episodes_are_held_out_where_there_are_ten():
    transitions = successive(*table([5] * 20))
    train, held_out = transitions.split(0.1, seed=3)
    assert len(held_out) == 2 * 4
    assert len(train) == 18 * 4
    assert not set(transitions.episode[train].tolist()) & set(transitions.episode[held_out].tolist())


def test_transitions_are_held_out_where_episodes_are_few():
    train, held_out = successive(*table([21, 21])).split(0.25, seed=3)
    assert sorted([*train.tolist(), *held_out.tolist()]) == list(range(40))
    assert len(held_out) == 10


def test_split_depends_on_the_seed_alone():
    transitions = successive(*table([5] * 20))
    assert all(torch.equal(a, b) for a, b in zip(transitions.split(0.5, 1), transitions.split(0.5, 1), strict=True))
    assert not torch.equal(transitions.split(0.5, 1)[1], transitions.split(0.5, 2)[1])


def test_too_little_data_is_named():
    with pytest.raises(DataError, match=r"longest has 1 frame\(s\), but a pair of frames 1 apart needs 2"):
        successive(*table([1, 1]))
    with pytest.raises(DataError, match=r"longest has 4 frame\(s\), but a pair of frames 4 apart needs 5"):
        goal_pairs(*table([4]), horizon=3, frameskip=2)
    with pytest.raises(DataError, match="latents have 0 rows"):
        successive(torch.zeros(0, 1, 2), torch.zeros(0, 3), torch.zeros(0))
    with pytest.raises(DataError, match=r"holding out 0\.1 of 2 transitions leaves 2 to train on and 0 to test on"):
        successive(*table([3])).split(0.1, seed=0)


def test_bad_tables_are_named():
    latents, actions, episodes = table([4, 4])
    with pytest.raises(ShapeError, match=r"latents must be \[M, P, D\].*\[8, 2\]"):
        successive(latents[:, 0], actions, episodes)
    with pytest.raises(ShapeError, match="got 8, 7 and 8 rows"):
        successive(latents, actions[:7], episodes)
    with pytest.raises(ShapeError, match=r"frameskip.* at least 1, got 0"):
        successive(latents, actions, episodes, frameskip=0)
    with pytest.raises(ShapeError, match=r"horizon.* at least 1, got 0"):
        goal_pairs(latents, actions, episodes, horizon=0)
    with pytest.raises(DataError, match="rows of episode 10 are not consecutive"):
        successive(latents, actions, torch.tensor([10, 10, 11, 11, 10, 10, 12, 12]))


def test_bad_values_are_named():
    latents, actions, episodes = table([4, 4])
    broken = latents.clone()
    broken[[5, 6]] = torch.nan
    with pytest.raises(DataError, match="latents hold NaN or infinite values, first in row 5 of 8"):
        successive(broken, actions, episodes)
    infinite = actions.clone()
    infinite[2, 1] = torch.inf
    with pytest.raises(DataError, match="actions hold infinite values, first in row 2 of 8"):
        successive(latents, infinite, episodes)
    constant = actions.clone()
    constant[:, 1] = 0.3
    with pytest.raises(DataError, match=r"action dimension 1 is always 0\.3"):
        successive(latents, constant, episodes)


def test_tables_may_be_arrays_doubles_or_still_belong_to_a_gradient():
    weights = torch.nn.Linear(3, 4)
    table = (weights(torch.arange(18.0).reshape(6, 3))[:, None], torch.randn(6, 2), torch.tensor([0, 0, 0, 1, 1, 1]))
    plain = successive(*(column.detach() for column in table))
    in_doubles = [column.detach().double().numpy() for column in table]
    for found in (successive(*table), successive(*in_doubles), successive(table[0].half().detach(), *table[1:])):
        assert not found.latents.requires_grad
        assert found.actions.dtype == torch.float32
        assert torch.equal(found.start, plain.start)
        torch.testing.assert_close(found.batch(torch.arange(2)), plain.batch(torch.arange(2)), atol=0.01, rtol=0.01)


def test_what_is_no_table_is_named():
    latents, actions, episodes = torch.zeros(4, 1, 2), torch.randn(4, 2), torch.tensor([0, 0, 1, 1])
    with pytest.raises(ShapeError, match="latents must be a tensor or an array, got dict"):
        successive({"visual": latents}, actions, episodes)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="actions must hold numbers, got an array of <U1"):
        successive(latents, np.array([["a"]] * 4), episodes)
    with pytest.raises(ShapeError, match="episodes must be whole numbers"):
        successive(latents, actions, episodes + 0.5)
