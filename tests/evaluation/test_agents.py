from __future__ import annotations

import numpy as np
import pytest
import torch

from acid.errors import AcidError
from acid.evaluation import Condition, NoOpAgent, PlanningAgent, PolicyAgent, RandomAgent, search_name
from acid.planning import CEM, ActionConsistency, Adaptive, Controller, Cost, GoalDistance, Planner, acid_cost
from acid.types import ActionScaler

SCALER = ActionScaler(mean=(1.0,), std=(2.0,), frameskip=5)


class Adder:
    """The latent [B, 1, 1] is the brightness; each model action adds its sum to it."""

    scaler = SCALER

    def encode(self, observation):
        return observation[:, 0, 0, :1, None].float()

    def rollout(self, latent, actions):
        return latent[:, None, None] + actions.sum(-1).cumsum(-1)[..., None, None]


class Blind:
    """A verifier that always answers zero, so that the residual is ‖a‖²."""

    def infer(self, latent, next_latent):
        return latent.new_zeros(*latent.shape[:-2], SCALER.size)


def images(*brightness: int) -> np.ndarray:
    return np.stack([np.full((8, 8, 3), b, np.uint8) for b in brightness])


def agent(*, execute: int = 2, lam: float = 0.0) -> PlanningAgent:
    planner = Planner(Adder(), acid_cost(Blind(), lam), CEM(samples=64, iterations=8, elites=8), horizon=2)
    return PlanningAgent(Controller(planner, execute))


def test_a_plan_becomes_environment_actions_and_knows_its_own_errors():
    decision = agent().act(images(10, 20), images(14, 18), left=50, seeds=[1, 2])
    assert decision.plan is not None
    assert decision.imagined_error is not None
    assert decision.gap is not None
    assert decision.env_actions.shape == (2, 10, 1)
    assert decision.seconds > 0
    end = decision.plan.imagined[:, -1, 0, 0]
    assert torch.allclose(decision.imagined_error, (end - torch.tensor([14.0, 18.0])).square())
    assert torch.allclose(decision.gap(images(0, 0)), end.square())
    assert decision.plan.consistency is not None  # measured although λ is 0


def test_a_partly_executed_plan_is_compared_where_execution_ends():
    decision = agent(execute=1).act(images(10), images(14), left=50, seeds=[1])
    assert decision.env_actions.shape == (1, 5, 1)
    assert decision.plan is not None
    assert decision.gap is not None
    assert torch.allclose(decision.gap(images(0)), decision.plan.imagined[:, 1, 0, 0].square())


def test_seeds_belong_to_episodes_not_to_places_in_the_batch():
    both = agent().act(images(10, 20), images(14, 18), left=50, seeds=[1, 2]).env_actions
    second = agent().act(images(20), images(18), left=50, seeds=[2]).env_actions
    np.testing.assert_allclose(both[1:], second, rtol=1e-5, atol=1e-5)


def test_warm_starts_and_missing_scalers_are_refused():
    planner = Planner(Adder(), Cost([GoalDistance()]), CEM(), horizon=2)
    with pytest.raises(AcidError, match="warm_start"):
        PlanningAgent(Controller(planner, 2, warm_start=True))

    class Bare(Adder):
        scaler = None

    bare = Planner(
        Bare(), Cost([GoalDistance(), ActionConsistency(Blind(), Adaptive(0.1))]), CEM(), horizon=2, action_size=5
    )
    with pytest.raises(AcidError, match="scaler"):
        PlanningAgent(Controller(bare, 2))


def test_the_policy_counts_blocks_down_to_the_goal_and_then_hurries():
    asked = []

    class Countdown:
        def act(self, latent, goal, left):
            asked.append(left)
            return torch.zeros(len(latent), SCALER.size)

    policy = PolicyAgent(Adder(), Countdown(), SCALER, goal_offset=25, budget=50)
    for left in range(50, 0, -5):
        decision = policy.act(images(1, 2), images(3, 4), left=left, seeds=[0, 0])
        assert decision.env_actions.shape == (2, 5, 1)
        assert (decision.env_actions == 1.0).all()  # a normalised zero is the mean action
    assert asked == [5, 4, 3, 2, 1, 1, 1, 1, 1, 1]


def test_noop_is_zero_in_environment_units():
    decision = NoOpAgent(np.zeros(2)).act(images(1, 2), images(3, 4), left=7, seeds=[0, 1])
    assert decision.env_actions.shape == (2, 7, 2)
    assert not decision.env_actions.any()


def test_random_fills_the_bounds_with_a_stream_per_episode():
    random = RandomAgent(np.array([-1.0, 2.0]), np.array([1.0, 5.0]))
    both = random.act(images(1, 2), images(3, 4), left=400, seeds=[5, 6]).env_actions
    alone = random.act(images(2), images(4), left=400, seeds=[6]).env_actions
    np.testing.assert_array_equal(both[1:], alone)
    assert (both[0] != both[1]).any()
    np.testing.assert_allclose(both.min((0, 1)), [-1, 2], atol=0.05)
    np.testing.assert_allclose(both.max((0, 1)), [1, 5], atol=0.05)
    with pytest.raises(AcidError, match="inf"):
        RandomAgent(np.array([-np.inf]), np.array([1.0]))


def test_search_names_hold_what_makes_a_search_different():
    assert search_name(CEM()) == "cem-n300-j30-k30"
    assert search_name(CEM(samples=30, elites=3, tolerance=0.1)) == "cem-n30-j30-k3-tolerance0.1"


def test_conditions_keep_their_rows_apart(tmp_path):
    acid = Condition("reacher", "lewm", "acid", "cem-n30-j30-k3", 0.07)
    noop = Condition("reacher", "lewm", "noop")
    assert acid.file(tmp_path, "test") == tmp_path / "reacher/lewm/test/acid_cem-n30-j30-k3_lambda0.07.jsonl"
    assert noop.file(tmp_path, "select") == tmp_path / "reacher/lewm/select/noop.jsonl"
    with pytest.raises(AcidError, match="did you mean 'acid'"):
        Condition("reacher", "lewm", "acdi", "cem")
    with pytest.raises(AcidError, match="needs the name of its search"):
        Condition("reacher", "lewm", "original")
    with pytest.raises(AcidError, match="does not search"):
        Condition("reacher", "lewm", "noop", "cem")


def test_the_weight_of_a_term_reaches_the_executed_actions():
    def size(lam: float) -> float:
        decision = agent(lam=lam).act(images(10, 20), images(30, 60), left=50, seeds=[1, 2])
        return float(np.square(decision.env_actions - 1.0).sum())  # distance from the mean action

    assert size(5.0) < 0.8 * size(0.0)
