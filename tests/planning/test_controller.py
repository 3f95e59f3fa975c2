"""Model predictive control on a toy environment."""

import numpy as np
import pytest
import torch
from planning_toys import ACTION, HORIZON, SEARCHES, TIME_STEP, Integrator, planner

from acid.errors import PlanningError
from acid.planning import CEM, Controller, goal_cost
from acid.types import ActionScaler

SCALER = ActionScaler(mean=(0.0,), std=(1.0,), frameskip=2)
SEARCH = CEM(samples=100, iterations=10, elites=10)


class Plane:
    """The Integrator in the flesh, a little different from the model: wind blows. One block = both accelerations."""

    def __init__(self, wind=0.05):
        self.wind = wind
        self.terminate_after = None

    def reset(self, *, seed=None):
        self.state, self.pending, self.steps = np.array([1.0, -1.0, 0.0, 0.0]), [], 0
        return self.state.copy(), {}

    def step(self, action):
        self.pending.append(float(action[0]))
        self.steps += 1
        if len(self.pending) == 2:
            self.state[2:] += TIME_STEP * np.array(self.pending)
            self.state[:2] += TIME_STEP * self.state[2:] + self.wind
            self.pending = []
        return self.state.copy(), 0.0, self.steps == self.terminate_after, False, {}


def near(env):
    return bool(np.abs(env.state).max() < 0.15)


def controller(execute=1, warm_start=False, **options):
    return Controller(planner(SEARCH, cost=goal_cost(), scaler=SCALER, **options), execute, warm_start)


@pytest.mark.parametrize("warm_start", [False, True])
def test_replanning_reaches_a_goal_that_the_model_alone_would_miss(warm_start):
    episode = controller(warm_start=warm_start).run(Plane(), np.zeros(4), budget=60, done=near)
    assert episode.done
    assert len(episode.observations) == len(episode.actions) + 1 <= 61
    assert len(episode.plans) == -(-len(episode.actions) // 2)  # one per executed block
    assert episode.actions.shape[1] == 1


def test_the_budget_cuts_the_last_plan_short():
    episode = controller(execute=2).run(Plane(), np.full(4, 50.0), budget=7, done=near)
    assert not episode.done
    assert len(episode.actions) == 7
    assert len(episode.plans) == 2


def test_a_solved_start_needs_no_plan_and_a_terminated_environment_no_more():
    goal = np.zeros(4)
    solved = controller().run(Plane(), goal, budget=5, done=lambda env: True)
    assert solved.done
    assert solved.actions.shape == (0, 1)
    assert solved.plans == ()
    env = Plane()
    env.terminate_after = 3
    assert len(controller().run(env, goal, budget=20).actions) == 3


def test_an_environment_may_be_taken_over_where_it_stands():
    env = Plane()
    env.reset()
    env.state[:] = 0.5
    episode = controller().run(env, np.zeros(4), budget=2, observation=env.state.copy())
    assert np.array_equal(episode.observations[0], np.full(4, 0.5))


def test_same_seed_same_episode():
    runs = [controller(warm_start=True).run(Plane(), np.zeros(4), budget=6, seed=s) for s in (1, 1, 2)]
    assert np.array_equal(runs[0].actions, runs[1].actions)
    assert not np.array_equal(runs[0].actions, runs[2].actions)


def test_every_replanning_draws_its_own_noise():
    still = Plane(wind=0.0)
    still.step = lambda action: (still.state.copy(), 0.0, False, False, {})
    first, second = controller().run(still, np.zeros(4), budget=4).plans
    assert not torch.equal(first.actions, second.actions)


def test_warm_start_shifts_the_previous_plan_and_pads_zeros():
    class Listening(CEM):
        def run(self, objective, start, streams):
            means.append(start.mean.clone())
            return super().run(objective, start, streams)

    means = []
    control = Controller(planner(Listening(samples=8, iterations=2, elites=2)), execute=3, warm_start=True)
    observation = torch.randn(2, 4, dtype=torch.float64)
    plan = control.plan(observation, -observation)
    control.plan(observation, -observation, seed=1)
    control.reset()
    control.plan(observation, -observation)
    assert torch.equal(means[1][:, :1], plan.actions[:, 3:])
    assert not means[1][:, 1:].any()
    assert not means[0].any()
    assert not means[2].any()


def test_actions_are_the_first_blocks():
    control = controller(execute=3)
    plan = control.plan(torch.zeros(2, 4), torch.ones(2, 4))
    assert np.array_equal(control.actions(plan), plan.env_actions[:, :6].numpy())
    bare = Controller(planner(SEARCHES["cem"]), execute=3)
    assert bare.actions(bare.plan(torch.zeros(2, 4), torch.ones(2, 4))).shape == (2, 3, ACTION)


def test_uint8_pixels_reach_the_encoder_as_they_are():
    class Seeing(Integrator):
        def encode(self, observation):
            assert observation.dtype == torch.uint8
            assert observation.shape == (1, 8, 8, 3)
            return super().encode(observation[:, 0, :4, 0].float())

    class Camera(Plane):
        def reset(self, *, seed=None):
            return np.zeros((8, 8, 3), np.uint8), {}

        def step(self, action):
            return np.zeros((8, 8, 3), np.uint8), 0.0, False, False, {}

    episode = controller(model=Seeing()).run(Camera(), np.ones((8, 8, 3), np.uint8), budget=2)
    assert episode.observations.shape == (3, 8, 8, 3)


def test_bad_options_say_what_is_wrong():
    with pytest.raises(PlanningError, match=f"cannot execute 9 blocks of a plan with horizon {HORIZON}"):
        controller(execute=9)
    with pytest.raises(PlanningError, match="execute must be at least 1, got 0"):
        controller(execute=0)
    with pytest.raises(PlanningError, match="budget must be at least 1, got 0"):
        controller().run(Plane(), np.zeros(4), budget=0)
