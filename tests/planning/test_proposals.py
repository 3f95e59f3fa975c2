"""Proposals: a search that starts where a policy would go."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from planning_toys import SEARCHES
from torch import Tensor

from acid.errors import PlanningError, ShapeError
from acid.planning import (
    CEM,
    Between,
    Controller,
    Planner,
    PolicyProposal,
    PriorProposal,
    Remainder,
    Several,
    Shooting,
    Start,
    goal_cost,
)
from acid.planning.gradient import Gradient
from acid.planning.noise import Streams
from acid.types import ActionScaler, Problem

every_search = pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES.keys())


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


def propose(proposal, seed: int = 0) -> Start:
    return proposal(Line(), Problem(START[:, None], GOAL[:, None]), 4, Streams.of(seed, 2))


def planner(search, **options) -> Planner:
    return Planner(Line(), goal_cost(), search, horizon=4, **options)


def test_the_policy_acts_on_what_its_own_actions_lead_to() -> None:
    policy = Halfway()
    proposed = propose(PolicyProposal(policy)).mean
    assert policy.asked == [3, 3, 2, 1]  # never more than it was trained for
    torch.testing.assert_close(proposed.sum(1), GOAL - START)  # it arrives


def test_what_was_done_before_is_told_to_the_model() -> None:
    told: list[Tensor] = []

    class Remembering(Line):
        def rollout(self, latent: Tensor, actions: Tensor, past_actions: Tensor | None = None) -> Tensor:
            assert past_actions is not None
            told.append(past_actions)
            return super().rollout(latent[:, -1], actions)

    start, past = START[:, None, None].expand(-1, 2, -1, -1), torch.ones(2, 1, 1)
    PolicyProposal(Halfway())(Remembering(), Problem(start, GOAL[:, None], past), 4, Streams.of(0, 2))
    assert len(told) == 3
    assert all(one is past for one in told)


def test_a_goal_may_be_farther_away_than_the_plan_looks() -> None:
    policy = Halfway()
    PolicyProposal(policy, left=3)(Line(), Problem(START[:, None], GOAL[:, None]), 2, Streams.of(0, 2))
    assert policy.asked == [3, 2]


def test_a_policy_may_answer_with_several_actions_in_units_of_its_own_about_what_it_sees() -> None:
    class Path(Halfway):
        """Three equal steps at once, of a tenth each, to a goal seen from the other side."""

        def act(self, latent: Tensor, goal: Tensor, left: int) -> Tensor:
            return -10 * super().act(latent, goal, left).expand(-1, 3)

    policy = Path()
    proposal = PolicyProposal(
        policy, features=lambda latents: -latents, units=lambda answer: answer.unflatten(1, (3, 1)) / 10
    )
    short = proposal(Line(), Problem(START[:, None], GOAL[:, None]), 3, Streams.of(0, 2)).mean
    assert policy.asked == [3]
    torch.testing.assert_close(short, ((GOAL - START) / 3)[:, None].expand(2, 3, 1))
    policy.asked.clear()
    torch.testing.assert_close(propose(proposal).mean[:, :3], short)  # of a longer plan, the rest follows
    assert policy.asked == [3, 1]
    ends = replace(proposal, variables=lambda plans: plans.sum(2, keepdim=True))
    torch.testing.assert_close(propose(ends).mean, propose(proposal).mean.sum(1, keepdim=True))


def test_a_search_of_one_candidate_is_the_proposal_itself() -> None:
    proposal = PolicyProposal(Halfway())
    plan = planner(Shooting(samples=1), proposal=proposal).plan(START, GOAL)
    torch.testing.assert_close(plan.actions, propose(proposal).mean)


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
    with pytest.raises(ShapeError, match=r"the mean of the proposal must be \[B, V, d\] = \[2, 4, 1\]"):
        planner(CEM(4, 1, 2), proposal=lambda *_: Start(torch.zeros(2, 4, 3))).plan(START, GOAL)
    few = Start(torch.zeros(2, 4, 1), sequences=torch.zeros(2, 3, 1))
    with pytest.raises(ShapeError, match=r"its sequences must be \[B, M, V, d\] = \[2, M, 4, 1\]"):
        planner(CEM(4, 1, 2), proposal=lambda *_: few).plan(START, GOAL)
    negative = Start(torch.zeros(2, 4, 1), torch.full((2, 4, 1), -0.1))
    with pytest.raises(PlanningError, match="must not be negative"):
        planner(CEM(4, 1, 2), proposal=lambda *_: negative).plan(START, GOAL)


class Generous(Halfway):
    """Its samples lie around its mean."""

    def act(self, latent: Tensor, goal: Tensor, left: int, *, steps: int = 1, noise: Tensor | None = None) -> Tensor:
        return super().act(latent, goal, left) + (0 if noise is None else 0.5 * noise)


@every_search
def test_a_std_of_zero_keeps_the_plan_of_the_policy(search) -> None:
    proposal = PolicyProposal(Halfway(), std=0.0)
    plan = Planner(Line(), goal_cost(), search, horizon=4, proposal=proposal).plan(START, GOAL)
    if not isinstance(search, Gradient):  # which moves every candidate
        torch.testing.assert_close(plan.actions, propose(proposal).mean)


@every_search
def test_a_sequence_that_solves_the_problem_is_found_among_the_first_candidates(search) -> None:
    class Hint:
        def __call__(self, model, problem, horizon, streams) -> Start:
            distance = (problem.goal - problem.now)[:, None]
            solving = torch.cat([distance, distance.new_zeros(2, horizon - 1, 1, 1)], 1)[..., 0]
            return Start(torch.zeros(2, horizon, 1), torch.full((2, horizon, 1), 1e-3), solving[:, None])

    once = replace(search, iterations=1) if hasattr(search, "iterations") else search
    once = replace(once, elites=1) if hasattr(once, "elites") else once
    plan = Planner(Line(), goal_cost(), once, horizon=4, proposal=Hint()).plan(START, GOAL)
    assert (plan.trace.best[0] < 1e-9).all()


def test_samples_of_the_policy_join_the_candidates_and_depend_on_seed_and_problem_only() -> None:
    proposal = PolicyProposal(Generous(), std=0.0, samples=5)
    one, again, other = propose(proposal, 1), propose(proposal, 1), propose(proposal, 2)
    assert one.sequences is not None
    assert other.sequences is not None
    assert one.sequences.shape == (2, 5, 4, 1)
    assert torch.equal(one.sequences, again.sequences)
    assert not torch.equal(one.sequences, other.sequences)
    single = proposal(Line(), Problem(START[1:, None], GOAL[1:, None]), 4, Streams(Streams.of(1, 2).seeds[1:]))
    torch.testing.assert_close(single.sequences, one.sequences[1:])
    first = planner(Shooting(samples=6), proposal=proposal).plan(START, GOAL, seed=3)
    torch.testing.assert_close(
        first.actions, planner(Shooting(samples=6), proposal=proposal).plan(START, GOAL, seed=3).actions
    )


def test_more_sequences_than_candidates_are_refused() -> None:
    with pytest.raises(PlanningError, match="4 sequences, which leave no room for others among 4 candidates"):
        planner(Shooting(samples=4), proposal=PolicyProposal(Generous(), samples=4)).plan(START, GOAL)


def test_sequences_respect_the_bounds() -> None:
    start = Start(torch.zeros(2, 4, 1), torch.zeros(2, 4, 1), torch.full((2, 1, 4, 1), 9.0))
    make = planner(Shooting(samples=2), proposal=lambda *_: start, bounds=(-0.5, 0.5))
    plan = make.plan(START[:1].expand(2, 1), GOAL[:1].expand(2, 1))
    torch.testing.assert_close(plan.actions, torch.full((2, 4, 1), 0.5))


def test_a_prior_counts_by_its_precision() -> None:
    sure, unsure = 1e-4, 1e4
    std = torch.tensor([sure, unsure, 1.0, 1.0])[None, :, None].expand(2, 4, 1)
    found = propose(PriorProposal(lambda now, goal: (torch.full((2, 4, 1), 2.0), std)))
    assert found.std is not None
    torch.testing.assert_close(found.mean[0, :, 0], torch.tensor([2.0, 0.0, 1.0, 1.0]), atol=1e-3, rtol=0)
    torch.testing.assert_close(found.std[0, :, 0], torch.tensor([sure, 1.0, 0.5**0.5, 0.5**0.5]), atol=1e-3, rtol=0)
    with pytest.raises(PlanningError, match="not positive"):
        propose(PriorProposal(lambda now, goal: (torch.zeros(2, 4, 1), torch.zeros(2, 4, 1))))


def test_between_a_policy_and_the_usual_start_the_surer_one_counts_more() -> None:
    policy, usual = PolicyProposal(Generous(), samples=40, steps=2), torch.full((2, 4, 1), 9.0)
    samples = propose(policy).sequences
    std, mean = torch.std_mean(samples, 1)
    for own, close in ((100.0, mean), (1e-3, usual)):
        start = propose(Between(policy, usual, own))
        torch.testing.assert_close(start.mean, close, atol=0.01, rtol=0)
        assert (start.std < std).all()
        assert (start.std < own).all()
        assert start.sequences is None
    both = propose(Between(policy, usual, 0.5))
    torch.testing.assert_close(both.std, (std**-2 + 4).rsqrt())
    with pytest.raises(PlanningError, match="2 or more samples"):
        propose(Between(PolicyProposal(Generous(), samples=1), usual))
    with pytest.raises(PlanningError, match="the samples of the proposal are all the same"):
        propose(Between(lambda *asked: Start(usual, None, usual[:, None].expand(-1, 3, -1, -1)), usual))
    with pytest.raises(PlanningError, match="must be positive and finite, got 0"):
        Between(policy, usual, 0.0)


def test_the_rest_of_a_plan_is_tried_beside_the_policy() -> None:
    plan = planner(Shooting(samples=1), proposal=PolicyProposal(Halfway())).plan(START, GOAL)
    both = propose(Several(PolicyProposal(Halfway(), std=0.1), Remainder(plan, 1)))
    assert both.sequences is not None
    torch.testing.assert_close(both.sequences[:, 0, :3], plan.actions[:, 1:])
    assert (both.sequences[:, 0, 3] == 0).all()
    control = Controller(planner(CEM(4, 1, 2), proposal=PolicyProposal(Halfway())), execute=1, warm_start=True)
    control.plan(START, GOAL)
    assert isinstance(control._initial(), Several)
    control.plan(START, GOAL)


@pytest.mark.parametrize("options", [{"std": -1.0}, {"std": float("nan")}, {"samples": -1}, {"steps": 0}, {"left": 0}])
def test_settings_that_make_no_sense_are_refused(options) -> None:
    with pytest.raises(PlanningError, match="proposal"):
        PolicyProposal(Halfway(), **options)
