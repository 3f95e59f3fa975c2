"""Who acts: from a situation to environment actions, and what is known about them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from evaluation_fakes import SCALER, Adder, Blind, situation

from acid.errors import AcidError
from acid.evaluation import NoOpAgent, PlanningAgent, PolicyAgent, RandomAgent, plan_seed
from acid.evaluation.agents import encode
from acid.evaluation.protocol import Protocol
from acid.planning import CEM, ActionConsistency, Adaptive, Cost, GoalDistance, Planner, acid_cost


def planner(lam: float = 0.0, **options) -> Planner:
    return Planner(Adder(), acid_cost(Blind(), lam), CEM(samples=64, iterations=8, elites=8), horizon=2, **options)


def test_a_plan_becomes_environment_actions_and_knows_its_own_errors():
    decision = PlanningAgent(planner()).act(situation([10, 20], [14, 18]))
    assert decision.plan is not None
    assert decision.goal_cost is not None
    assert decision.gap is not None
    assert decision.env_actions.shape == (2, 10, 1)
    end = decision.plan.imagined[:, -1, 0, 0]
    assert torch.allclose(decision.goal_cost, (end - torch.tensor([14.0, 18.0])).square())
    assert torch.allclose(decision.gap(situation([0, 0], [0, 0]).observation), end.square())
    assert decision.plan.consistency is not None  # measured although λ is 0
    assert decision.imagined_pose is None
    np.testing.assert_array_equal(decision.env_actions, SCALER.denormalise(decision.plan.actions).numpy())


def test_a_partly_executed_plan_is_compared_where_execution_ends():
    decision = PlanningAgent(planner(), 1).act(situation([10], [14]))
    assert decision.env_actions.shape == (1, 5, 1)
    assert decision.plan is not None
    assert decision.gap is not None
    assert torch.allclose(decision.gap(situation([0], [0]).observation), decision.plan.imagined[:, 1, 0, 0].square())


def test_a_readout_sees_every_executed_imagined_step():
    for execute in (1, 2):
        agent = PlanningAgent(planner(), execute, readout=lambda latents: 10 * latents[..., 0])
        decision = agent.act(situation([10, 20], [14, 18]))
        assert decision.plan is not None
        assert decision.imagined_pose is not None
        expected = 10 * decision.plan.imagined[:, 1 : execute + 1, :, 0]
        np.testing.assert_array_equal(decision.imagined_pose, expected.numpy())


def test_a_search_starts_from_what_it_is_told():
    """With no spread to speak of, the plan is where the search began."""
    still = Planner(Adder(), acid_cost(Blind(), 0), CEM(4, 1, 2, std_init=1e-6), horizon=2)
    agent = PlanningAgent(still, initial=lambda situation: torch.full((1, 2, 5), float(situation.left)))
    decision = agent.act(situation([10], [14], left=3))
    np.testing.assert_allclose(decision.env_actions, 1 + 2 * 3.0, rtol=1e-4)


def test_random_numbers_belong_to_run_instance_and_plan_not_to_places_in_the_batch():
    agent = PlanningAgent(planner())
    both = agent.act(situation([10, 20], [14, 18], instances=["a", "b"])).env_actions
    second = agent.act(situation([20], [18], instances=["b"])).env_actions
    np.testing.assert_allclose(both[1:], second, rtol=1e-5, atol=1e-5)
    for changes in ({"seed": 1}, {"plan": 1}, {"instances": ["c"]}):
        other = agent.act(situation([20], [18], **{"instances": ["b"], **changes})).env_actions
        assert np.abs(other - second).max() > 1e-3
    asked = situation([20], [18], instances=["b"], seed=3, plan=2)
    assert asked.seeds == [plan_seed(3, "b", 2)]


def test_one_frame_is_an_observation_and_several_are_a_context():
    asked = situation([10, 20], [14, 18])
    assert asked.observation.shape == (2, 8, 8, 3)
    frames = np.concatenate([asked.frames, asked.frames + 5], 1)
    assert type(asked)(frames, asked.goals, 1, ["a", "b"]).observation.shape == (2, 2, 8, 8, 3)
    assert encode(Adder(), frames).flatten().tolist() == [15, 25]  # type: ignore[arg-type]  # the last one is now


def test_planners_that_cannot_act_are_refused():
    class Bare(Adder):
        scaler = None  # type: ignore[assignment]

    cost = Cost([GoalDistance(), ActionConsistency(Blind(), Adaptive(0.1))])
    bare = Planner(Bare(), cost, CEM(), horizon=2, action_size=5)
    with pytest.raises(AcidError, match=r"no action scaler.*pass scaler="):
        PlanningAgent(bare)
    with pytest.raises(AcidError, match="execute"):
        PlanningAgent(planner(), 0)
    with pytest.raises(AcidError, match="cannot execute 3 blocks of a plan with horizon 2"):
        PlanningAgent(planner(), 3)


def test_the_policy_counts_blocks_down_to_the_goal_and_then_hurries():
    asked = []

    class Countdown:
        horizon = 5

        def act(self, latent, goal, left):
            asked.append((latent.flatten().tolist(), goal.flatten().tolist(), left))
            return torch.zeros(len(latent), SCALER.size)

    policy = PolicyAgent(Adder(), Countdown(), SCALER, Protocol(goal_offset=25, budget=50).steps_left)
    for left in range(50, 0, -5):
        decision = policy.act(situation([1, 2], [3, 4], left=left))
        assert decision.env_actions.shape == (2, 5, 1)
        assert (decision.env_actions == 1.0).all()  # a normalised zero is the mean action
    assert asked == [([1, 2], [3, 4], left) for left in (5, 4, 3, 2, 1, 1, 1, 1, 1, 1)]


def test_a_policy_may_answer_with_all_steps_at_once_about_what_it_sees():
    class Path:
        horizon = 2

        def act(self, latent, goal, left):
            assert left == 2
            return (goal - latent).flatten(1).expand(-1, 2 * SCALER.size)

    answers = replace(SCALER, frameskip=2 * SCALER.frameskip)
    steps_left = Protocol(goal_offset=10, budget=10).steps_left
    policy = PolicyAgent(Adder(), Path(), SCALER, steps_left, answers=answers, features=lambda latents: latents / 2)
    env_actions = policy.act(situation([1, 2], [3, 4], left=10)).env_actions
    assert env_actions.shape == (2, 10, 1)
    np.testing.assert_allclose(env_actions, SCALER.denormalise(torch.ones(1, SCALER.size))[0, 0])


def test_noop_repeats_the_idle_action_until_the_end():
    decision = NoOpAgent(np.array([0.0, 0.5])).act(situation([1, 2], [3, 4], left=7))
    assert decision.env_actions.shape == (2, 7, 2)
    assert (decision.env_actions == [0.0, 0.5]).all()


def test_random_fills_the_bounds_with_a_stream_per_episode():
    random = RandomAgent(np.array([-1.0, 2.0]), np.array([1.0, 5.0]))
    both = random.act(situation([1, 2], [3, 4], left=400)).env_actions
    alone = random.act(situation([2], [4], left=400, instances=["i1"])).env_actions
    np.testing.assert_array_equal(both[1:], alone)
    assert (both[0] != both[1]).any()
    np.testing.assert_allclose(both.min((0, 1)), [-1, 2], atol=0.05)
    np.testing.assert_allclose(both.max((0, 1)), [1, 5], atol=0.05)
    with pytest.raises(AcidError, match=r"finite bounds.*inf"):
        RandomAgent(np.array([-np.inf]), np.array([1.0]))


def test_the_weight_of_a_term_reaches_the_executed_actions():
    def size(lam: float) -> float:
        decision = PlanningAgent(planner(lam)).act(situation([10, 20], [30, 60]))
        return float(np.square(decision.env_actions - 1.0).sum())  # distance from the mean action

    assert size(5.0) < 0.8 * size(0.0)
