"""Model predictive control on a toy environment."""

import numpy as np
import pytest
import torch
from planning_toys import ACTION, HORIZON, SEARCHES, TIME_STEP, Integrator, planner

from acid.errors import PlanningError, ShapeError
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


class Network(torch.nn.Module):
    """A real network around the Integrator: it refuses what is not in the precision of its weights."""

    def __init__(self):
        super().__init__()
        self.see = torch.nn.Linear(4, 4, bias=False)
        torch.nn.init.eye_(self.see.weight)
        self.world, self.seen = Integrator(), []

    def encode(self, observation):
        self.seen.append(observation)
        return self.world.encode(self.see(observation))

    def rollout(self, latent, actions):
        assert latent.dtype == actions.dtype == self.see.weight.dtype
        return self.world.rollout(latent, actions)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_observations_take_the_precision_of_the_weights(dtype):
    episode = controller(model=Network().to(dtype)).run(Plane(), np.zeros(4), budget=40, done=near)
    assert episode.done
    assert episode.observations.dtype == np.float64  # as the environment gave them


def test_observations_may_be_dicts():
    class Named(Network):
        def encode(self, observation):
            assert observation["place"].shape == (1, 2)
            return super().encode(torch.cat([observation["place"], observation["speed"]], 1))

    class Sensors(Plane):
        def look(self, state):
            return {"place": state[:2], "speed": state[2:]}

        def reset(self, *, seed=None):
            return self.look(super().reset()[0]), {}

        def step(self, action):
            state, *rest = super().step(action)
            return self.look(state), *rest

    env = Sensors()
    named = controller(model=Named()).run(env, env.look(np.zeros(4)), budget=6)
    plain = controller(model=Network()).run(Plane(), np.zeros(4), budget=6)
    assert np.array_equal(named.actions, plain.actions)
    assert named.observations["speed"].shape == (7, 2)


def test_history_shows_the_last_observations_a_model_step_apart():
    class Context(Network):
        def encode(self, observation):
            latent = super().encode(observation.flatten(0, -2))
            return latent.unflatten(0, observation.shape[:-1]) if observation.dim() == 3 else latent

        def rollout(self, latent, actions):
            return super().rollout(latent[:, -1], actions)

    model = Context()
    episode = controller(model=model).run(Plane(), np.zeros(4), budget=6, history=3)
    shown = [seen.view(3, 4).double().numpy() for seen in model.seen[::2]]  # every other one is the goal
    for plan, rows in enumerate([(0, 0, 0), (0, 0, 2), (0, 2, 4)]):
        np.testing.assert_allclose(shown[plan], episode.observations[list(rows)], rtol=1e-6)


def test_what_an_environment_or_a_model_must_return_is_named():
    class Old(Plane):
        def reset(self, *, seed=None):
            return super().reset()[0]

    with pytest.raises(PlanningError, match=r"reset of Old must return 2 values, .* got ndarray"):
        controller().run(Old(), np.zeros(4), budget=2)

    class Older(Plane):
        def step(self, action):
            return super().step(action)[:4]

    with pytest.raises(PlanningError, match=r"step of Older must return 5 values, .* got 4"):
        controller().run(Older(), np.zeros(4), budget=2)

    class Tuples(Integrator):
        def encode(self, observation):
            return (super().encode(observation),)

    class Dicts(Integrator):
        def rollout(self, latent, actions):
            return {"latents": super().rollout(latent, actions)}

    with pytest.raises(ShapeError, match="what encode returns must be a tensor of floating-point numbers, got a tuple"):
        controller(model=Tuples()).run(Plane(), np.zeros(4), budget=2)
    with pytest.raises(ShapeError, match="what rollout returns must be a tensor of floating-point numbers, got a dict"):
        controller(model=Dicts()).run(Plane(), np.zeros(4), budget=2)
    with pytest.raises(ShapeError, match="an observation must be a tensor, an array or a dict of them, got str"):
        controller().plan("pixels", torch.zeros(1, 4))


def test_bad_options_say_what_is_wrong():
    with pytest.raises(PlanningError, match=f"cannot execute 9 blocks of a plan with horizon {HORIZON}"):
        controller(execute=9)
    with pytest.raises(PlanningError, match="execute must be at least 1, got 0"):
        controller(execute=0)
    with pytest.raises(PlanningError, match="budget must be at least 1, got 0"):
        controller().run(Plane(), np.zeros(4), budget=0)
