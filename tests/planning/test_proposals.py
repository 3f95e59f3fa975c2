"""Proposals: a search that starts where a policy would go."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from acid.errors import PlanningError, ShapeError
from acid.planning import CEM, Planner, PolicyProposal, Shooting, goal_cost
from acid.types import ActionScaler, Problem


class Line:
    """A point that actions move along a line; every action adds to it."""

    scaler = ActionScaler((0.0,), (1.0,))

    def encode(self, observation: Tensor) -> Tensor:
        return observation[:, None]

    def rollout(self, latent: Tensor, actions: Tensor) -> Tensor:
        return (latent[:, None] + actions.cumsum(2)).unsqueeze(-2)


class Halfway:
    """Goes to the goal in equal steps."""

    horizon = 3

    def __init__(self) -> None:
        self.asked: list[int] = []

    def act(self, latent: Tensor, goal: Tensor, left: int) -> Tensor:
        self.asked.append(left)
        return (goal - latent)[:, 0] / left


START, GOAL = torch.tensor([[0.0], [1.0]]), torch.tensor([[4.0], [-3.0]])


def planner(search, **options) -> Planner:
    return Planner(Line(), goal_cost(), search, horizon=4, **options)


def test_the_policy_acts_on_what_its_own_actions_lead_to() -> None:
    policy = Halfway()
    proposed = PolicyProposal(policy)(Line(), Problem(START[:, None], GOAL[:, None]), 4)
    assert policy.asked == [3, 3, 2, 1]  # never more than it was trained for
    torch.testing.assert_close(proposed.sum(1), GOAL - START)  # it arrives


def test_a_search_of_one_candidate_is_the_proposal_itself() -> None:
    proposal = PolicyProposal(Halfway())
    plan = planner(Shooting(samples=1), proposal=proposal).plan(START, GOAL)
    expected = PolicyProposal(Halfway())(Line(), Problem(START[:, None], GOAL[:, None]), 4)
    torch.testing.assert_close(plan.actions, expected)


def test_a_narrow_search_finds_what_a_wide_one_needs_many_candidates_for() -> None:
    near = CEM(samples=8, iterations=2, elites=2, std_init=0.05)
    with_proposal = planner(near, proposal=PolicyProposal(Halfway())).plan(START, GOAL)
    without = planner(near).plan(START, GOAL)
    assert (with_proposal.costs["goal"] < 0.1).all()
    assert (without.costs["goal"] > 1).all()


def test_an_initial_mean_that_is_given_comes_first() -> None:
    initial = torch.zeros(2, 4, 1)
    plan = planner(Shooting(samples=1), proposal=PolicyProposal(Halfway())).plan(START, GOAL, initial=initial)
    assert (plan.actions == 0).all()


def test_a_broken_policy_is_named() -> None:
    class Broken(Halfway):
        def act(self, latent: Tensor, goal: Tensor, left: int) -> Tensor:
            return torch.full((len(latent), 1), torch.nan)

    class Wide(Halfway):
        def act(self, latent: Tensor, goal: Tensor, left: int) -> Tensor:
            return torch.zeros(len(latent), 3)

    with pytest.raises(PlanningError, match="the policy proposes actions that are NaN"):
        planner(CEM(4, 1, 2), proposal=PolicyProposal(Broken())).plan(START, GOAL)
    with pytest.raises(ShapeError, match="initial must be"):
        planner(CEM(4, 1, 2), proposal=lambda model, problem, horizon: torch.zeros(2, 4, 3)).plan(START, GOAL)
