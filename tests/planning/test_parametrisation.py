"""Candidates that a few numbers determine, stochastic models, and pools that costs share."""

from __future__ import annotations

import math

import pytest
import torch
from planning_toys import ACTION, HORIZON, SEARCHES, Integrator, Verifier, planner, problem
from torch import Tensor

from acid.errors import PlanningError, ShapeError
from acid.planning import (
    CEM,
    Adaptive,
    Arc,
    Controller,
    Cost,
    Custom,
    DecodedDistance,
    Free,
    GoalDistance,
    HeadedLine,
    Planner,
    StraightLine,
    acid_cost,
    derive_seed,
    draw_pool,
    goal_cost,
)
from acid.types import ActionScaler, Problem, Trajectory

NWM = ActionScaler((0.3125, 0.0, 0.0), (0.9375, 1.0, 1.0))  # metres, metres, radians
SEARCH = CEM(samples=32, iterations=1, elites=5)


class Everything:
    """Each number of the sequence is a variable, as in a planner without a parametrisation, but all in one row."""

    size = HORIZON * ACTION

    def length(self, horizon: int) -> int:
        return 1

    def __call__(self, variables: Tensor, horizon: int) -> Tensor:
        return variables.squeeze(-2).unflatten(-1, (horizon, ACTION))


class Unicycle:
    """Poses [x, y, yaw] that add up displacements; with `noise`, each rollout's end is off by a draw of its seed."""

    scaler = NWM

    def __init__(self, noise: float = 0.0) -> None:
        self.noise = noise

    def encode(self, observation: Tensor) -> Tensor:
        return observation.reshape(len(observation), 1, 3)

    def rollout(self, latent: Tensor, actions: Tensor, *, seeds=None) -> Tensor:
        steps = NWM.denormalise(actions)
        pose, poses = latent[:, None, 0].expand(-1, actions.shape[1], -1), []
        for step in steps.unbind(2):
            cosine, sine = pose[..., 2].cos(), pose[..., 2].sin()
            x = pose[..., 0] + cosine * step[..., 0] - sine * step[..., 1]
            y = pose[..., 1] + sine * step[..., 0] + cosine * step[..., 1]
            pose = torch.stack([x, y, pose[..., 2] + step[..., 2]], -1)
            poses.append(pose)
        imagined = torch.stack(poses, 2).unsqueeze(-2)
        if not self.noise or seeds is None:
            return imagined
        draws = [torch.randn(3, generator=torch.Generator().manual_seed(seed), dtype=imagined.dtype) for seed in seeds]
        return imagined + self.noise * torch.stack(draws)[:, None, None, None]


def poses(size: int = 3) -> Problem:
    generator = torch.Generator().manual_seed(0)
    goal = torch.tensor([1.7, 0.0, 0.0], dtype=torch.float64) + 0.3 * torch.randn(size, 1, 3, generator=generator)
    return Problem(torch.zeros(size, 1, 3, dtype=torch.float64), goal)


def drive(parametrisation, *, noise: float = 0.0, cost: Cost | None = None, **options) -> Planner:
    return Planner(Unicycle(noise), cost or goal_cost(), SEARCH, horizon=8, parametrisation=parametrisation, **options)


@pytest.mark.parametrize("search", ["cem", "mppi", "gradient", "shooting"])
def test_searching_every_number_as_a_variable_is_the_same_search(search: str) -> None:
    plain = planner(SEARCHES[search]).solve(problem(), seed=4)
    wrapped = planner(SEARCHES[search], parametrisation=Everything()).solve(problem(), seed=4)
    torch.testing.assert_close(wrapped.actions, plain.actions)
    assert torch.equal(wrapped.trace.best[0], plain.trace.best[0])


def test_one_repeat_of_a_model_that_ignores_its_seed_changes_nothing() -> None:
    class Seeded(Integrator):
        def rollout(self, latent, actions, *, seeds=None):
            return super().rollout(latent, actions)

    for search in SEARCHES.values():
        plain = planner(search).solve(problem(), seed=1)
        for repeats in (1, 2):
            seeded = planner(search, model=Seeded(), repeats=repeats).solve(problem(), seed=1)
            torch.testing.assert_close(seeded.actions, plain.actions)
            torch.testing.assert_close(seeded.consistency, plain.consistency)
            assert seeded.imagined.shape == plain.imagined.shape


def test_a_straight_line_repeats_its_displacement_and_turns_at_the_end() -> None:
    line = StraightLine()
    actions = line(torch.tensor([[[0.0, 0.0, 0.0]], [[1.0, -1.0, 2.0]]]), 8)
    assert actions.shape == (2, 8, 3)
    torch.testing.assert_close(actions[0], torch.tensor([-0.1, 0.0, 0.0]).expand(8, 3))
    torch.testing.assert_close(actions[1, :, :2], torch.tensor([-0.08, -0.1]).expand(8, 2))
    assert (actions[1, :-1, 2] == 0).all()
    assert actions[1, -1, 2] == pytest.approx(0.2)


def test_an_arc_is_a_circle_on_which_the_robot_looks_ahead() -> None:
    actions = Arc(NWM, std=(0.1, 0.2))(torch.tensor([[[1.0, 1.5]]], dtype=torch.float64), 8)
    end = Unicycle().rollout(torch.zeros(1, 1, 3, dtype=torch.float64), actions[None])[0, 0, :, 0]
    turn, chord = 0.3, NWM.denormalise(actions)[0, 0, :2].norm()
    radius = chord / (2 * torch.sin(torch.tensor(turn / 2)))
    for step, (x, y, yaw) in enumerate(end.tolist(), 1):
        angle = torch.tensor(step * turn, dtype=torch.float64)
        assert yaw == pytest.approx(float(angle))
        assert (x, y) == pytest.approx((float(radius * angle.sin()), float(radius * (1 - angle.cos()))), abs=1e-6)


def test_an_arc_is_found_along_its_own_actions_and_near_the_places_of_others() -> None:
    arc, asked = Arc(NWM, std=(0.1, 0.2)), torch.tensor([[[1.0, 1.5]], [[-2.0, 0.3]]], dtype=torch.float64)
    torch.testing.assert_close(arc.along(arc(asked, 8)), asked)
    steps = arc(asked[:1], 8).clone()
    steps[..., 4:, 2] -= 0.3  # straightens out half-way
    mean = arc.along(steps[:, :1])
    mean[..., 1] = (steps[..., 2].mean() / 0.2).item()

    def places(actions: Tensor) -> Tensor:
        return Unicycle().rollout(torch.zeros(1, 1, 3, dtype=torch.float64), actions[None])[0, 0, :, 0, :2]

    off = [(places(arc(one, 8)) - places(steps)).square().mean() for one in (arc.along(steps), mean)]
    assert off[0] < 0.5 * off[1]  # an early turn moves more places than a late one


def test_a_plan_is_the_mean_of_the_elites_expanded() -> None:
    make = drive(StraightLine())
    plan, pool = make.solve(poses(), seed=3), draw_pool(make, poses(), seed=3)
    assert plan.actions.shape == (3, 8, 3)
    ends = (pool.trajectory.latents[:, :, -1] - poses().goal[:, None]).square().sum((-2, -1))
    best = ends.argsort(1)[:, :5]
    by_hand = torch.stack([pool.actions[row, chosen].mean(0) for row, chosen in enumerate(best)])
    torch.testing.assert_close(plan.actions, by_hand)
    assert torch.equal(plan.actions[:, 0, :2], plan.actions[:, 5, :2])
    torch.testing.assert_close(plan.env_actions, NWM.denormalise(plan.actions))


def turning(trajectory: Trajectory, goal: Tensor) -> Tensor:
    return trajectory.actions[..., 2].square().mean(-1)


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_a_pool_serves_every_cost_as_if_each_had_planned_alone(noise: float) -> None:
    repeats = 3 if noise else 1
    costs = [goal_cost(), Cost([GoalDistance(), Custom(turning, "turning", Adaptive(0.5))])]
    pool = draw_pool(drive(Arc(NWM), noise=noise, repeats=repeats), poses(), seed=[7, 8, 9])
    assert pool.trajectory.latents.shape[1] == 32 * repeats
    for cost in costs:
        alone = drive(Arc(NWM), noise=noise, repeats=repeats, cost=cost).solve(poses(), seed=[7, 8, 9])
        evaluation = pool.evaluate(cost)
        assert torch.equal(pool.choose(evaluation.total, SEARCH.elites), alone.actions)
        assert torch.equal(evaluation.spreads["goal"], alone.trace.spreads["goal"][0])
    chosen = [pool.choose(pool.evaluate(cost).total, SEARCH.elites) for cost in costs]
    assert not torch.equal(*chosen)


def test_a_pool_lies_around_what_the_search_would_start_from() -> None:
    make, initial = drive(Arc(NWM)), torch.tensor([[[2.0, -1.0]]]).expand(3, 1, 2).double()
    pool = draw_pool(make, poses(), seed=[7, 8, 9], initial=initial)
    assert torch.equal(pool.candidates[:, 0], initial)  # candidate 0 is the mean
    alone = make.solve(poses(), seed=[7, 8, 9], initial=initial)
    assert torch.equal(pool.choose(pool.evaluate(goal_cost()).total, SEARCH.elites), alone.actions)


def test_costs_are_averaged_over_repeats_before_they_are_weighed() -> None:
    make = drive(StraightLine(), noise=0.2, repeats=3)
    pool = draw_pool(make, poses(), seed=[1, 2, 3])
    by_hand = torch.zeros(3, 32, dtype=torch.float64)
    for repeat in range(3):
        seeds = [derive_seed(seed, 0, repeat) for seed in (1, 2, 3)]
        last = Unicycle(0.2).rollout(poses().start, pool.actions, seeds=seeds)[:, :, -1]
        by_hand += (last - poses().goal[:, None]).square().sum((-2, -1)) / 3
    evaluation = pool.evaluate(goal_cost())
    torch.testing.assert_close(evaluation.total, by_hand)
    torch.testing.assert_close(evaluation.spreads["goal"], by_hand.std(1))


@pytest.mark.parametrize("chunk", [None, 5])
def test_a_stochastic_plan_depends_on_its_seed_alone(chunk: int | None) -> None:
    make = drive(StraightLine(), noise=0.5, repeats=2, chunk=chunk)
    whole = make.solve(poses(), seed=[4, 5, 6])
    alone = make.solve(Problem(poses().start[1:2], poses().goal[1:2]), seed=[5])
    assert torch.equal(whole.actions[1], alone.actions[0])
    assert torch.equal(whole.imagined[1], alone.imagined[0])
    other = make.solve(poses(), seed=[7, 5, 6])
    assert not torch.equal(whole.actions[0], other.actions[0])


def test_bounds_hold_for_the_actions() -> None:
    plan = drive(StraightLine(std=(0.2, 0.5, 0.5)), bounds=((0.1, -0.05, -0.3), (0.2, 0.05, 0.3))).solve(poses())
    assert plan.env_actions is not None
    assert (plan.env_actions[..., 0] <= 0.2).all()
    assert (plan.env_actions[..., 1].abs() <= 0.05).all()
    pool = draw_pool(drive(StraightLine(std=(0.2, 0.5, 0.5)), bounds=(-0.1, 0.1)), poses())
    torch.testing.assert_close(NWM.denormalise(pool.actions).abs().amax(), torch.tensor(0.1).double())


def test_pictures_are_compared_problem_by_problem() -> None:
    def decode(latents: Tensor) -> Tensor:  # a flat picture of the pose
        return latents.reshape(-1, 1, 1, 3).expand(-1, 2, 2, 3)

    def distance(images: Tensor, goal: Tensor) -> Tensor:
        assert images.shape[1:] == goal.shape[1:] == (3, 2, 2)
        return (images - goal).square().mean((1, 2, 3))

    pool = draw_pool(drive(StraightLine()), poses())
    pictures = pool.evaluate(Cost([DecodedDistance(decode, distance)])).total
    torch.testing.assert_close(3 * pictures, pool.evaluate(goal_cost()).total)


def test_without_a_parametrisation_every_number_is_free() -> None:
    make = planner(SEARCH)
    assert make.parametrisation == Free(ACTION)
    variables = torch.randn(2, HORIZON, ACTION)
    assert make.parametrisation(variables, HORIZON) is variables
    given = StraightLine()
    assert drive(given).parametrisation is given


@pytest.mark.parametrize("repeats", [1, 3])
def test_a_stochastic_model_is_always_given_its_seeds(repeats: int) -> None:
    class Listening(Unicycle):
        def rollout(self, latent, actions, *, seeds=None):
            heard.append(seeds)
            return super().rollout(latent, actions)

    heard: list[list[int]] = []
    search = CEM(samples=4, iterations=2, elites=2)
    Planner(Listening(), goal_cost(), search, horizon=8, repeats=repeats).solve(poses(2), seed=[7, 8])
    passes = [(iteration, repeat) for iteration in (0, 1, 0) for repeat in range(repeats)]  # the last: its description
    assert heard == [[derive_seed(seed, *path) for seed in (7, 8)] for path in passes]


def test_what_does_not_go_together_is_refused() -> None:
    with pytest.raises(PlanningError, match="not a StraightLine: choose warm_start or a parametrisation"):
        Controller(drive(StraightLine()), execute=1, warm_start=True)
    with pytest.raises(ShapeError, match=r"\[B, V, d\] = \[3, 1, 3\] .* of StraightLine, got \[3, 8, 3\]"):
        drive(StraightLine()).solve(poses(), initial=torch.zeros(3, 8, 3))
    with pytest.raises(PlanningError, match="repeats must be at least 1, got 0"):
        drive(StraightLine(), repeats=0)
    with pytest.raises(PlanningError, match="repeats is 2, but the rollout of Integrator takes no `seeds`"):
        planner(SEARCH, repeats=2)
    with pytest.raises(PlanningError, match="std of a parametrisation must be positive"):
        StraightLine(std=(0.1, 0.0, 0.1))
    with pytest.raises(PlanningError, match="the scaler's have 2 numbers"):
        Arc(ActionScaler((0.0, 0.0), (1.0, 1.0)))
    with pytest.raises(PlanningError, match="a pool is what CEM draws"):
        draw_pool(planner(SEARCHES["mppi"], cost=acid_cost(Verifier())), problem())


def test_a_headed_line_first_turns_to_where_it_leads():
    scaler = ActionScaler(mean=(0.3, 0.0, 0.0), std=(0.9, 1.0, 1.0))
    line = HeadedLine(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0), scaler=scaler)
    variables = torch.tensor([[[0.1, 0.2, 0.25]]])
    actions = line(variables, 4)
    assert actions.shape == (1, 4, 3)
    assert torch.allclose(actions[0, :, :2], variables[0, :, :2].expand(4, 2))  # the same displacement at every step
    heading = math.atan2(0.2, 0.1 * 0.9 + 0.3)
    assert torch.allclose(actions[0, :, 2], torch.tensor([heading, 0, 0, 0.25 * math.pi]))
    assert torch.allclose(line(variables, 1)[0, 0, 2], torch.tensor(heading + 0.25 * math.pi))
