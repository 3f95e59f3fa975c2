"""What every search promises."""

import math
from dataclasses import dataclass, replace

import pytest
import torch
from planning_toys import ACTION, HORIZON, SEARCHES, Integrator, Verifier, planner, problem

from acid.errors import AcidError, PlanningError
from acid.planning import CEM, ICEM, MPPI, Cost, Custom, GoalDistance, Gradient, Rows, Shooting, acid_cost, goal_cost
from acid.planning.finite import FiniteCheck
from acid.planning.noise import Streams, colour
from acid.planning.search import Outcome
from acid.planning.timing import Stopwatch
from acid.types import ActionScaler, Problem, Trace

EARLY_STOPPING = {
    f"{name}-stopping": replace(SEARCHES[name], iterations=30, tolerance=0.3) for name in ("cem", "icem", "mppi")
}
every_search = pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)


@every_search
def test_same_seed_same_plan_bit_for_bit(search):
    first, second = (planner(search).solve(problem(), seed=5) for _ in range(2))
    other = planner(search).solve(problem(), seed=6)
    assert torch.equal(first.actions, second.actions)
    assert torch.equal(first.trace.best, second.trace.best)
    assert not torch.equal(first.actions, other.actions)


@pytest.mark.parametrize("search", [*SEARCHES.values(), *EARLY_STOPPING.values()], ids=[*SEARCHES, *EARLY_STOPPING])
def test_a_plan_does_not_depend_on_its_batch(search):
    batch, seeds = problem(4), [10, 20, 30, 40]
    make = planner(search)
    together = make.solve(batch, seed=seeds)
    for b, seed in enumerate(seeds):
        alone = make.solve(Problem(batch.start[b : b + 1], batch.goal[b : b + 1]), seed=[seed])
        torch.testing.assert_close(together.actions[b], alone.actions[0])
        torch.testing.assert_close(together.trace.best[:, b], alone.trace.best[:, 0])
        for name, values in together.trace.weights.items():
            torch.testing.assert_close(values[:, b], alone.trace.weights[name][:, 0])


@every_search
def test_problems_under_one_seed_have_different_noise(search):
    one = problem(1)
    twins = Problem(one.start.expand(2, -1, -1), one.goal.expand(2, -1, -1))
    plan = planner(search).solve(twins, seed=0)
    assert not torch.allclose(plan.actions[0], plan.actions[1], atol=1e-6)


@every_search
@pytest.mark.parametrize("cost", [goal_cost(), acid_cost(Verifier())], ids=["goal", "acid"])
def test_solves_a_convex_problem_better_than_its_initial_mean(search, cost):
    batch = problem(6)
    nothing = planner(CEM(samples=1, iterations=1, elites=1), cost=cost).solve(batch)
    plan = planner(search, cost=cost).solve(batch)
    assert (plan.costs["goal"] < 0.5 * nothing.costs["goal"]).all()


@every_search
def test_bounds_hold_in_environment_units(search):
    scaler = ActionScaler(mean=(0.3,), std=(0.7,), frameskip=2)
    low, high = -0.2, 0.4
    far = Problem(torch.zeros(2, 2, 2), torch.full((2, 2, 2), 9.0))  # pulls against the bounds
    make = planner(search, cost=goal_cost(), scaler=scaler, bounds=(low, high))
    seen = []
    make.cost = Cost(
        [GoalDistance(), Custom(lambda t, g: seen.append(t.actions.detach().clone()) or t.actions.sum((-2, -1)) * 0)]
    )
    plan = make.solve(far)
    assert plan.env_actions.shape == (2, HORIZON * 2, 1)
    assert plan.env_actions.min() >= torch.tensor(low)
    assert plan.env_actions.max() <= torch.tensor(high)
    assert plan.env_actions.max() > 0.3
    tried = scaler.denormalise(torch.cat([actions.flatten(0, 1) for actions in seen]))
    assert tried.min() >= low - 1e-6
    assert tried.max() <= high + 1e-6


@every_search
def test_warm_start_begins_at_the_initial_mean(search):
    """From a good mean with a narrow start every search stays near it; from zero it cannot get there."""
    good = torch.full((3, HORIZON, ACTION), 25.0, dtype=torch.float64)
    narrow = replace(search, std_init=0.01)
    plan = planner(narrow, cost=Cost([Custom(lambda t, g: (t.actions - 25).square().sum((-2, -1)))])).solve(
        problem(), initial=good
    )
    torch.testing.assert_close(plan.actions, good, atol=0.2, rtol=0)


@every_search
def test_candidates_with_non_finite_cost_are_never_chosen(search):
    """A cliff cuts off a good part of the first candidates: beyond it there is no cost."""

    def cliff(trajectory, goal):
        reach = trajectory.actions.sum((-2, -1))
        return torch.where(reach > 3.0, math.nan, (reach - 1).square())

    plan = planner(search, cost=Cost([Custom(cliff, "cliff")])).solve(problem())
    assert plan.costs["cliff"].isfinite().all()
    assert (plan.costs["cliff"] < 0.1).all()
    assert plan.trace.best.isfinite().all()
    assert plan.trace.costs["cliff"].isfinite().all()


@every_search
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_no_finite_candidate_is_an_error_that_names_term_problem_and_iteration(search, bad):
    def broken(trajectory, goal):
        return trajectory.actions.sum((-2, -1)) + goal.sum((1, 2))[:, None].where(goal[:, :1, 0] < 5, bad)

    batch = problem()
    batch.goal[1] = 7.0
    cost = Cost([GoalDistance(), Custom(broken, "mine")])
    with pytest.raises(
        PlanningError, match=r"no candidate of problem 1 .* iteration 0: term 'mine' is NaN or infinite"
    ):
        planner(search, cost=cost).solve(batch)


@every_search
def test_the_same_error_comes_after_the_search_where_looking_in_every_iteration_would_mean_waiting(search):
    def broken(trajectory, goal):
        return trajectory.actions.sum((-2, -1)).where(goal[:, :1, 0] < 5, math.nan)

    batch = problem()
    batch.goal[1] = 7.0
    make = planner(search, cost=Cost([GoalDistance(), Custom(broken, "mine")]))
    with pytest.raises(PlanningError) as at_once:
        make.solve(batch)
    objective, start, streams = make.prepare(batch, 0, None, Stopwatch())
    deferred = replace(objective, finite=FiniteCheck(deferred=True))
    search.run(deferred, start, streams)
    with pytest.raises(PlanningError) as later:
        deferred.finite.finish()
    assert str(later.value) == str(at_once.value)


def test_the_failing_iteration_is_counted():
    calls = []

    def later(trajectory, goal):
        calls.append(1)
        return trajectory.actions.sum((-2, -1)) * (math.inf if len(calls) == 3 else 1)

    with pytest.raises(PlanningError, match="iteration 2"):
        planner(SEARCHES["cem"], cost=Cost([Custom(later)])).solve(problem())


def test_fewer_finite_candidates_than_elites():
    """Only candidate 0, the mean, has a cost: it is the one elite, and the std is 0."""

    def only_mean(trajectory, goal):
        values = trajectory.actions.square().sum((-2, -1))
        return values.masked_fill(values > 0, math.nan)

    plan = planner(CEM(samples=20, iterations=2, elites=10), cost=Cost([Custom(only_mean)])).solve(problem())
    assert torch.equal(plan.actions, torch.zeros_like(plan.actions))


@every_search
def test_trace_has_one_row_per_iteration_and_problem(search):
    plan = planner(search).solve(problem())
    iterations = getattr(search, "iterations", 1)
    for group in (plan.trace.costs, plan.trace.spreads, plan.trace.weights):
        assert {name: values.shape for name, values in group.items()} == dict.fromkeys(
            ("goal", "consistency"), (iterations, 3)
        )
    assert plan.trace.best.shape == (iterations, 3)


def test_gradient_leaves_the_model_without_gradients():
    class Learned(Integrator):
        def __init__(self):
            super().__init__()
            self.gain = torch.ones((), dtype=torch.float64, requires_grad=True)

        def rollout(self, latent, actions):
            return super().rollout(latent, self.gain * actions)

    model = Learned()
    plan = planner(SEARCHES["gradient"], model=model).solve(problem())
    assert model.gain.grad is None
    assert not plan.actions.requires_grad
    assert not plan.imagined.requires_grad
    assert not plan.trace.best.requires_grad


def test_gradient_refuses_a_model_that_does_not_carry_gradients():
    class Detached(Integrator):
        def rollout(self, latent, actions):
            return super().rollout(latent, actions.detach())

    with pytest.raises(PlanningError, match="'goal' does not carry gradients"):
        planner(SEARCHES["gradient"], model=Detached()).solve(problem())


@pytest.mark.parametrize("exponent", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("steps", [1, 5, 8])
def test_coloured_noise_has_unit_variance_and_the_right_smoothness(exponent, steps):
    white = Streams([0]).normal(Rows.all(1), (20_000, steps, 1), like=torch.zeros(1, dtype=torch.float64))
    coloured = colour(white, exponent)
    assert coloured.shape == white.shape
    torch.testing.assert_close(coloured.std(1), torch.ones(1, steps, 1, dtype=torch.float64), atol=0.03, rtol=0)
    if exponent == 0:
        torch.testing.assert_close(coloured, white)
    elif steps > 1:
        neighbours = (coloured[:, :, 1:] * coloured[:, :, :-1]).mean()
        assert neighbours > 0.1 * exponent


def test_icem_shrinks_its_pool_and_keeps_elites():
    sizes = []
    cost = Cost([Custom(lambda t, g: sizes.append(t.actions.shape[1]) or t.actions.square().sum((-2, -1)), "norm")])
    plan = planner(ICEM(samples=100, iterations=5, elites=10, keep=0.5, decay=2.0), cost=cost).solve(problem())
    assert sizes == [100, 50 + 5, 25 + 5, 20 + 5, 20 + 5, 1]
    assert (plan.trace.best.diff(dim=0) <= 0).all()  # a kept best candidate cannot get lost


def test_mppi_temperature_goes_from_the_mean_to_the_best():
    hot, cold = (MPPI(samples=64, iterations=1, temperature=t) for t in (1e6, 1e-6))
    best = planner(Shooting(samples=64), cost=goal_cost()).solve(problem())
    torch.testing.assert_close(planner(cold, cost=goal_cost()).solve(problem()).actions, best.actions)
    assert planner(hot, cost=goal_cost()).solve(problem()).actions.abs().max() < 0.6  # about 1/√64 around 0


def test_mppi_with_equal_costs_averages_all():
    cost = Cost([Custom(lambda t, g: torch.ones_like(t.actions[:, :, 0, 0]), "flat")])
    plan = planner(MPPI(samples=64, iterations=1), cost=cost).solve(problem())
    assert plan.actions.abs().max() < 0.6


def test_std_init_per_action_dimension():
    plan = planner(Shooting(samples=4, std_init=(1e-9, 1.0))).solve(problem())
    assert plan.actions[..., 0].abs().max() < 1e-7
    with pytest.raises(PlanningError, match=r"one per action dimension \(2\), got \(1.0, 1.0, 1.0\)"):
        planner(Shooting(samples=4, std_init=(1.0, 1.0, 1.0))).solve(problem())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CEM(samples=10, elites=11), "11 elites of 10 samples"),
        (lambda: ICEM(samples=10, elites=11), "11 elites of 10 samples"),
        (lambda: CEM(samples=0, elites=1), "samples must be at least 1, got 0"),
        (lambda: CEM(elites=0), "elites must be at least 1, got 0"),
        (lambda: CEM(iterations=0), "iterations must be at least 1, got 0"),
        (lambda: CEM(tolerance=-1.0), "tolerance must not be negative, got -1.0"),
        (lambda: CEM(std_init=0.0), "std_init must be positive and finite, got 0.0"),
        (lambda: ICEM(decay=0.5), "decay must be at least 1"),
        (lambda: ICEM(keep=1.5), "keep must be a fraction between 0 and 1, got 1.5"),
        (lambda: ICEM(momentum=1.0), "momentum must be at least 0 and below 1, got 1.0"),
        (lambda: MPPI(temperature=0.0), "temperature must be positive, got 0.0"),
        (lambda: MPPI(samples=0), "samples must be at least 1, got 0"),
        (lambda: Gradient(samples=0), "samples must be at least 1, got 0"),
        (lambda: Gradient(learning_rate=0.0), "learning_rate must be positive, got 0.0"),
        (lambda: Shooting(samples=-3), "samples must be at least 1, got -3"),
    ],
)
def test_bad_options_say_what_is_wrong(make, message):
    with pytest.raises(PlanningError, match=message):
        make()


@dataclass(frozen=True)
class Wrong:
    """Asks for candidates of one shape and returns another."""

    asks: tuple[int, ...]
    returns: tuple[int, ...] | None = None

    def run(self, objective, start, streams):
        evaluation = objective(torch.zeros(self.asks), rows=Rows.all(len(start.mean)), iteration=0)
        if self.returns is None:
            return evaluation
        return Outcome(torch.zeros(self.returns), Trace(evaluation.total.amin(1)[None], {}, {}, {}))


@pytest.mark.parametrize(
    ("search", "complaint"),
    [
        (Wrong((3, 5, 4)), r"asked for candidates that must be \[B, N, V, d\] = \[3, N, 4, 2\], got \[3, 5, 4\]"),
        (Wrong((2, 5, 4, 2)), r"= \[3, N, 4, 2\], got \[2, 5, 4, 2\]"),
        (Wrong((3, 0, 4, 2)), r"= \[3, N, 4, 2\], got \[3, 0, 4, 2\]"),
        (Wrong((3, 5, 4, 2), (3, 5, 4, 2)), r"what a search returns must be \[B, V, d\] = \[3, 4, 2\], got \[3, 5, "),
        (Wrong((3, 5, 4, 2), (3, 4, 1)), r"= \[3, 4, 2\], got \[3, 4, 1\]"),
        (Wrong((3, 5, 4, 2)), "a search must return an Outcome, got a Evaluation"),
    ],
)  # fmt: skip
def test_a_search_of_the_wrong_shape_is_told(search, complaint):
    with pytest.raises(AcidError, match=complaint):
        planner(search).solve(problem())
