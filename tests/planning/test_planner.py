"""The planner: what a plan holds, and what it refuses."""

import math
from dataclasses import replace

import pytest
import torch
from planning_toys import ACTION, HORIZON, SEARCHES, Integrator, Verifier, planner, problem

from acid.errors import AcidError, PlanningError, ShapeError
from acid.planning import CEM, GoalDistance, Planner, Shooting, acid_cost, goal_cost
from acid.types import ActionScaler, Problem

SEARCH = SEARCHES["cem"]


def observations(size=3, seed=0):
    batch = problem(size, seed=seed)
    return batch.start.flatten(1), batch.goal.flatten(1)


def test_plan_encodes_once_and_equals_solve():
    model = Integrator()
    make = planner(SEARCH, model=model)
    plan = make.plan(*observations(), seed=2)
    assert model.encoded == 2  # the observation and the goal
    assert torch.equal(plan.actions, make.solve(problem(), seed=2).actions)


def test_a_plan_is_described_completely():
    scaler = ActionScaler(mean=(0.5,), std=(2.0,), frameskip=2)
    verifier = Verifier()
    plan = planner(SEARCH, cost=acid_cost(verifier), scaler=scaler).plan(*observations())
    assert plan.actions.shape == (3, HORIZON, ACTION)
    torch.testing.assert_close(plan.env_actions, scaler.denormalise(plan.actions))
    assert plan.imagined.shape == (3, HORIZON + 1, 2, 2)
    assert torch.equal(plan.imagined[:, 0], problem().start)
    torch.testing.assert_close(plan.imagined[:, 1:], Integrator().rollout(problem().start, plan.actions[:, None])[:, 0])
    by_hand = (plan.actions - verifier.infer(plan.imagined[:, :-1], plan.imagined[:, 1:])).square().sum(-1)
    torch.testing.assert_close(plan.consistency, by_hand)
    assert plan.consistency is plan.per_step["consistency"]
    torch.testing.assert_close(plan.costs["consistency"], by_hand.mean(-1))
    torch.testing.assert_close(plan.costs["goal"], (plan.imagined[:, -1] - problem().goal).square().sum((1, 2)))
    assert set(plan.seconds) == {"encode", "rollout", "goal", "consistency", "total"}
    assert plan.seconds["total"] >= sum(s for name, s in plan.seconds.items() if name != "total")


def test_a_printed_plan_is_one_line_without_tensors():
    plan = planner(SEARCH).plan(*observations())
    costs = [f"{name} {float(values.mean()):.4g}" for name, values in plan.costs.items()]
    start = f"Plan(3 × {HORIZON} actions of {ACTION} numbers; mean costs: {costs[0]}, {costs[1]}; "
    assert str(plan) == repr(plan) == f"{start}{plan.seconds['total']:.2f} s)"


def test_without_scaler_and_verifier_a_plan_says_so():
    plan = planner(SEARCH, cost=goal_cost()).solve(problem())
    assert plan.env_actions is None
    assert plan.consistency is None
    assert plan.per_step == {}


def test_the_models_own_scaler_is_the_default():
    model = Integrator()
    model.scaler = ActionScaler(mean=(0.0, 0.0), std=(3.0, 3.0))
    plan = Planner(model, goal_cost(), SEARCH, horizon=HORIZON).solve(problem())
    torch.testing.assert_close(plan.env_actions, 3 * plan.actions)


@pytest.mark.parametrize("chunk", [1, 7, 64, 10_000])
def test_chunks_bound_what_model_and_verifier_see_without_changing_the_plan(chunk):
    class Watched(Verifier):
        widest = 0

        def infer(self, latent, next_latent):
            self.widest = max(self.widest, latent.shape[0] * latent.shape[1])
            return super().infer(latent, next_latent)

    whole, model, verifier = planner(SEARCH, cost=acid_cost(Verifier())).solve(problem()), Integrator(), Watched()
    chunked = planner(SEARCH, model=model, cost=acid_cost(verifier), chunk=chunk).solve(problem())
    torch.testing.assert_close(chunked.actions, whole.actions)
    torch.testing.assert_close(chunked.trace.spreads, whole.trace.spreads)  # over all candidates, not over a chunk
    assert model.widest <= max(chunk, 3)  # at least one candidate of each of the 3 problems
    assert verifier.widest <= max(chunk, 3)


class Wide(Integrator):
    """Takes 1 MB and more for every candidate."""

    def rollout(self, latent, actions):
        scratch = actions.new_zeros(actions.shape[0] * actions.shape[1], 125_000)
        return super().rollout(latent, actions) + scratch.sum()


@pytest.mark.parametrize(("megabytes", "expected"), [(4, 3), (10.9, 9), (1000, 192)])
def test_a_chunk_that_fits_into_memory_is_chosen(megabytes, expected):
    """For 3 problems and 64 candidates each, whose other tensors take little; at least one of each problem at once."""
    whole, model = planner(SEARCH, model=Wide()).solve(problem()), Wide()
    fitting = planner(SEARCH, model=model, max_memory=int(megabytes * 1e6)).solve(problem())
    torch.testing.assert_close(fitting.actions, whole.actions)
    assert model.widest == expected


def test_too_little_memory_says_how_much_it_takes():
    with pytest.raises(PlanningError, match=r"one candidate for each of 3 problem\(s\) takes 3 MB, max_memory is 1 MB"):
        planner(SEARCH, model=Wide(), max_memory=1_000_000).solve(problem())


def test_context_frames_reach_the_model_and_the_last_is_now():
    class WithContext(Integrator):
        def encode(self, observation):
            return observation.reshape(len(observation), -1, 2, 2)

        def rollout(self, latent, actions):
            assert latent.shape[1] == 3
            return super().rollout(latent[:, -1], actions)

    frames = torch.randn(2, 3, 4, dtype=torch.float64)
    plan = planner(SEARCH, model=WithContext()).plan(frames, frames.flip(0))
    assert torch.equal(plan.imagined[:, 0].flatten(1), frames[:, -1])


def test_single_precision_models_get_single_precision_candidates():
    batch = problem()
    plan = planner(SEARCH).solve(Problem(batch.start.float(), batch.goal.float()))
    assert plan.actions.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_latents_take_the_precision_of_the_weights(dtype):
    class Network(torch.nn.Linear):
        def rollout(self, latent, actions):
            return Integrator().rollout(self(latent), actions)

    batch = problem()
    plan = planner(SEARCH, model=Network(2, 2)).solve(Problem(batch.start.to(dtype), batch.goal.to(dtype)))
    assert plan.actions.dtype == plan.imagined.dtype == torch.float32


def test_planning_leaves_its_inputs_alone():
    batch, initial = problem(), torch.ones(3, HORIZON, ACTION, dtype=torch.float64)
    start = batch.start.clone()
    for search in SEARCHES.values():
        planner(search).solve(batch, initial=initial)
    assert torch.equal(batch.start, start)
    assert torch.equal(initial, torch.ones_like(initial))


@pytest.mark.parametrize("wrong", [(3, 64, 4, 2), (3, 64, 5, 2, 2), (3, 64, 4, 2, 3)])
def test_a_rollout_of_the_wrong_shape_is_refused(wrong):
    class Wrong(Integrator):
        def rollout(self, latent, actions):
            return torch.zeros(wrong)

    with pytest.raises(ShapeError, match=r"rollout must return \[B, N, H, P, D\] = \[3, 64, 4, 2, 2\].*got"):
        planner(SEARCH, model=Wrong()).solve(problem())


def test_an_encoder_of_the_wrong_rank_is_refused():
    class Flat(Integrator):
        def encode(self, observation):
            return observation

    with pytest.raises(ShapeError, match=r"encode must return .* got \[3, 4\] for the observation"):
        planner(SEARCH, model=Flat()).plan(*observations())


@pytest.mark.parametrize("which", ["start", "goal"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_non_finite_latents_are_refused(which, bad):
    batch = problem()
    getattr(batch, which)[1, 0, 0] = bad
    with pytest.raises(ShapeError, match=f"{which} latent holds NaN or infinite"):
        planner(SEARCH).solve(batch)


def test_start_and_goal_must_fit_each_other():
    with pytest.raises(ShapeError, match=r"start \[3, 2, 2\] and goal \[2, 2, 2\]"):
        planner(SEARCH).solve(Problem(problem(3).start, problem(2).goal))
    with pytest.raises(ShapeError, match=r"start \[0, 2, 2\]"):
        planner(SEARCH).solve(Problem(torch.zeros(0, 2, 2), torch.zeros(0, 2, 2)))


@pytest.mark.parametrize("which", ["start", "goal"])
@pytest.mark.parametrize("wrong", [torch.ones(3, 2, 2, dtype=torch.bool), torch.ones(3, 2, 2).long(), [[1.0]], None])
def test_latents_that_are_no_floating_point_numbers_are_refused(which, wrong):
    with pytest.raises(ShapeError, match=f"{which} latents must be a tensor of floating-point numbers, got"):
        planner(SEARCH).solve(replace(problem(), **{which: wrong}))


@pytest.mark.parametrize(
    ("start", "past", "message"),
    [
        (torch.zeros(3, 0, 2, 2), None, r"none of them 0, got start \[3, 0, 2, 2\]"),
        (torch.zeros(3, 2, 2, 2), torch.zeros(3, 2, 2), r"past actions must be \[B, T-1, A\] = \[3, 1, 2\]"),
        (torch.zeros(3, 2, 2, 2), torch.zeros(3, 1, 3), r"= \[3, 1, 2\] for start .* got \[3, 1, 3\]"),
        (torch.zeros(3, 2, 2, 2), torch.full((3, 1, 2), math.nan), "past action holds NaN"),
        (torch.zeros(3, 2, 2, 2), "none", "past actions must be a tensor of floating-point numbers, got a str"),
    ],
)
def test_context_and_past_actions_must_fit(start, past, message):
    with pytest.raises(ShapeError, match=message):
        planner(SEARCH).solve(Problem(start, problem().goal, past))


def test_candidates_that_no_memory_holds_are_refused_before_they_are_drawn():
    with pytest.raises(PlanningError, match="in one iteration, which no memory holds: lower the samples"):
        planner(Shooting(samples=10**9)).solve(problem())


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"horizon": 0}, PlanningError, "horizon must be at least 1, got 0"),
        ({"horizon": 10**9}, PlanningError, "horizon must be a whole number of at most 10000, got 1000000000"),
        ({"action_size": 10**9}, PlanningError, "action_size must be a whole number of at most 100000"),
        ({"chunk": 0}, PlanningError, "chunk must be at least 1, got 0"),
        ({"max_memory": 0}, PlanningError, "max_memory must be at least 1, got 0"),
        ({"chunk": 5, "max_memory": 10**9}, PlanningError, "choose chunk=5 or max_memory=1000000000, not both"),
        ({"action_size": None}, PlanningError, "no action scaler"),
        ({"action_size": 0}, PlanningError, "action_size must be at least 1, got 0"),
        ({"action_size": 3, "scaler": ActionScaler((0.0,), (1.0,), 2)}, ShapeError, "3 does not match the scaler's 2"),
        ({"observer": 3}, AcidError, "the observer of a planner needs the method '__call__'"),
        ({"parametrisation": 3}, AcidError, "the parametrisation of a planner needs the method 'length'"),
        ({"bounds": (1.0, -1.0)}, PlanningError, "low bound must be below"),
        ({"bounds": (math.nan, 1.0)}, PlanningError, "low bound must be below"),
        ({"bounds": ([0.0] * 3, 1.0)}, PlanningError, r"one number or 2 .* got shape \[3\]"),
    ],
)
def test_bad_options_say_what_is_wrong(options, error, message):
    with pytest.raises(error, match=message):
        planner(SEARCH, **options)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        ({"seed": [1, 2]}, ShapeError, "3 problems, 2 seeds"),
        ({"seed": -1}, PlanningError, "between 0 and .* got -1"),
        ({"seed": 0.5}, PlanningError, "must be an integer, got 0.5"),
        ({"initial": torch.zeros(3, 2, ACTION)}, ShapeError, r"\[3, 4, 2\] .* of Free, got \[3, 2, 2\]"),
        ({"initial": torch.full((3, HORIZON, ACTION), math.nan)}, ShapeError, "initial holds NaN"),
    ],
)
def test_bad_calls_say_what_is_wrong(call, error, message):
    with pytest.raises(error, match=message):
        planner(SEARCH).solve(problem(), **call)


def test_bounds_without_scaler_are_normalised_and_may_be_one_sided():
    plan = planner(CEM(samples=32, iterations=3, elites=4), bounds=([-0.1, -math.inf], [0.1, math.inf])).solve(
        problem()
    )
    assert plan.actions[..., 0].abs().max() <= 0.1
    assert plan.actions[..., 1].abs().max() > 0.1


def test_rounding_does_not_push_environment_actions_past_their_bounds():
    class Still(Integrator):
        def rollout(self, latent, actions):
            return latent[:, None, None].expand(-1, *actions.shape[1:3], -1, -1)

    size = 200
    mean, std = (torch.rand(size, generator=torch.Generator().manual_seed(s)).tolist() for s in (0, 1))
    scaler = ActionScaler(tuple(mean), tuple(std))
    make = Planner(Still(), goal_cost(), CEM(1, 1, 1), horizon=1, scaler=scaler, bounds=(-0.3, 0.7))
    start = torch.zeros(1, 2, 2)
    plan = make.solve(Problem(start, start), initial=torch.full((1, 1, size), 1e3))
    assert scaler.denormalise(plan.actions).max() > torch.tensor(0.7)  # what would happen
    assert plan.env_actions.max() == torch.tensor(0.7)


@pytest.mark.parametrize(
    ("parts", "complaint"),
    [
        ({"model": object()}, "the model of a planner needs the method 'rollout', which a object does not have"),
        (
            {"model": Integrator},
            r"the model of a planner must be an object, got the class Integrator; pass Integrator\(",
        ),
        ({"search": "cem"}, "the search of a planner needs the method 'run', which a str does not have"),
        ({"search": CEM}, "the search of a planner must be an object, got the class CEM"),
        ({"cost": GoalDistance()}, r"must be a Cost, e\.g\. Cost\(\[GoalDistance\(\)\]\), got GoalDistance"),
        ({"proposal": 3}, "the proposal of a planner needs the method '__call__', which a int does not have"),
    ],
)
def test_parts_that_are_none_are_named(parts, complaint):
    made = {"model": Integrator(), "cost": goal_cost(), "search": SEARCH, **parts}
    with pytest.raises(AcidError, match=complaint):
        Planner(**made, horizon=HORIZON, action_size=ACTION)
