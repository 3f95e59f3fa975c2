"""CEM against the pseudo-code of the paper, written out with plain loops."""

import math

import pytest
import torch
from planning_toys import ACTION, HORIZON, SEARCHES, TIME_STEP, Integrator, Verifier, planner, problem

from acid.errors import PlanningError
from acid.planning import CEM, Constant, Cost, Custom, GoalDistance, acid_cost, goal_cost

SQUASH = 0.3


def step_model(state, action):
    """One step of Integrator(SQUASH) on plain numbers: state = (x, y, vx, vy)."""
    velocity = [v + TIME_STEP * a for v, a in zip(state[2:], action, strict=True)]
    velocity = [v - SQUASH * math.tanh(v) for v in velocity]
    return [x + TIME_STEP * v for x, v in zip(state[:2], velocity, strict=True)] + velocity


def infer_action(state, following):
    """Verifier on plain numbers."""
    fade = math.exp(-0.2 * (state[0] ** 2 + state[1] ** 2))
    return [(new - old) / TIME_STEP * fade for old, new in zip(state[2:], following[2:], strict=True)]


def deviation(values):
    if min(values) == max(values):
        return 0.0
    mean = sum(values) / len(values)
    return math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))


def plain_cem(start, goal, *, lam, samples, iterations, elites, generator):
    """Algorithm 1 (lam None) or Algorithm 2 for one problem. Actions are flat lists of H·A numbers."""
    size = HORIZON * ACTION
    mean, std = [0.0] * size, [1.0] * size
    trace = []
    for _ in range(iterations):
        noise = torch.randn(samples, HORIZON, ACTION, generator=generator, dtype=torch.float64).flatten(1).tolist()
        pool = []
        for n in range(samples):
            candidate = [m + s * e for m, s, e in zip(mean, std, noise[n], strict=True)] if n else list(mean)
            state, residual = start, 0.0
            for t in range(HORIZON):
                action = candidate[t * ACTION : (t + 1) * ACTION]
                following = step_model(state, action)
                inferred = infer_action(state, following)
                residual += sum((a - b) ** 2 for a, b in zip(action, inferred, strict=True)) / HORIZON
                state = following
            pool.append((candidate, sum((z - g) ** 2 for z, g in zip(state, goal, strict=True)), residual))
        spread_goal, spread_residual = deviation([g for _, g, _ in pool]), deviation([a for _, _, a in pool])
        weight = lam * spread_goal / spread_residual if lam and spread_residual else 0.0
        ranked = sorted(pool, key=lambda entry: entry[1] + weight * entry[2])
        best = ranked[:elites]
        mean = [sum(c[i] for c, _, _ in best) / elites for i in range(size)]
        std = [deviation([c[i] for c, _, _ in best]) for i in range(size)]
        trace.append(
            {
                "best": best[0][1] + weight * best[0][2],
                "goal": sum(g for _, g, _ in best) / elites,
                "consistency": sum(a for _, _, a in best) / elites,
                "spread_goal": spread_goal,
                "spread_consistency": spread_residual,
                "weight": weight,
            }
        )
    return mean, trace


@pytest.mark.parametrize("lam", [None, 0.07, 1.0])
@pytest.mark.parametrize("elites", [1, 5])
def test_agrees_with_the_papers_pseudo_code(lam, elites):
    problems, seeds = problem(2, seed=4), [11, 7]
    search = CEM(samples=20, iterations=4, elites=elites)
    cost = goal_cost() if lam is None else acid_cost(Verifier(), lam)
    plan = planner(search, model=Integrator(SQUASH), cost=cost).solve(problems, seed=seeds)
    for b, seed in enumerate(seeds):
        mean, trace = plain_cem(
            problems.start[b].flatten().tolist(),
            problems.goal[b].flatten().tolist(),
            lam=lam,
            samples=20,
            iterations=4,
            elites=elites,
            generator=torch.Generator().manual_seed(seed),
        )
        expected = {key: torch.tensor([entry[key] for entry in trace], dtype=torch.float64) for key in trace[0]}
        torch.testing.assert_close(plan.actions[b].flatten(), torch.tensor(mean, dtype=torch.float64))
        torch.testing.assert_close(plan.trace.best[:, b], expected["best"])
        torch.testing.assert_close(plan.trace.costs["goal"][:, b], expected["goal"])
        torch.testing.assert_close(plan.trace.spreads["goal"][:, b], expected["spread_goal"])
        if lam is not None:
            torch.testing.assert_close(plan.trace.costs["consistency"][:, b], expected["consistency"])
            torch.testing.assert_close(plan.trace.spreads["consistency"][:, b], expected["spread_consistency"])
            torch.testing.assert_close(plan.trace.weights["consistency"][:, b], expected["weight"])


def test_zero_lambda_is_bit_for_bit_the_goal_only_plan():
    verifier = Verifier()
    for search in SEARCHES.values():
        plain = planner(search, cost=goal_cost()).solve(problem())
        zero = planner(search, cost=acid_cost(verifier, 0.0)).solve(problem())
        assert torch.equal(plain.actions, zero.actions)
        assert torch.equal(plain.trace.best, zero.trace.best)
        assert zero.consistency is not None  # still reported for the chosen plan ...
    assert verifier.calls == len(SEARCHES)  # ... and evaluated for nothing else


def test_a_term_with_constant_weight_zero_may_even_be_nan():
    nan = Custom(lambda trajectory, goal: trajectory.actions.new_full(trajectory.actions.shape[:2], math.nan), "nan")
    off = Custom(nan.fn, "nan", Constant(0.0))
    with_off = planner(SEARCHES["cem"], cost=Cost([*goal_cost().terms, off])).solve(problem())
    without = planner(SEARCHES["cem"], cost=goal_cost()).solve(problem())
    assert torch.equal(with_off.actions, without.actions)
    assert "nan" not in with_off.trace.weights


def test_one_iteration_of_one_candidate_returns_the_initial_mean():
    initial = torch.randn(3, HORIZON, ACTION, dtype=torch.float64)
    plan = planner(CEM(samples=1, iterations=1, elites=1)).solve(problem(), initial=initial)
    assert torch.equal(plan.actions, initial)


def test_near_goes_on_around_the_best_candidate_where_the_mean_of_the_elites_is_none() -> None:
    def either(trajectory, goal):
        """Two good first actions, 1 and −1, with nothing between; the left one is a little better."""
        first = trajectory.actions[:, :, 0, 0]
        return (first.abs() - 1).square() + 0.01 * (first > 0)

    cost = Cost([Custom(either, "either")])
    near, usual = (
        planner(CEM(100, 4, 30, near=near), cost=cost).solve(problem(3), seed=0).actions[:, 0, 0]
        for near in (0.1, None)
    )
    assert ((near.abs() - 1).abs() < 0.1).all()
    assert (near < 0).all()
    assert not torch.equal(near, usual)
    for near in (-0.1, 0.0, float("inf")):
        with pytest.raises(PlanningError, match="near must be positive and finite"):
            CEM(near=near)
    with pytest.raises(PlanningError, match=r"near=0.1 needs 2 or more iterations"):
        CEM(iterations=1, near=0.1)


def test_problems_stop_at_their_own_time_and_the_trace_repeats_their_last_values():
    rows = []
    cost = Cost([Custom(lambda t, g: rows.append(len(t.actions)) or GoalDistance()(t, g), "goal")])
    plan = planner(CEM(samples=64, iterations=50, elites=4, tolerance=0.1), cost=cost).solve(problem(8))
    searched = rows[:-1]  # the last call describes the chosen plans
    assert len(searched) < 50
    assert sorted(searched, reverse=True) == searched
    assert len(set(searched)) > 1
    assert plan.trace.best.shape == (50, 8)
    repeated = (plan.trace.best == plan.trace.best[-1]).flip(0).cummin(0).values.sum(0)
    assert int(repeated.max()) > int(repeated.min()) >= 50 - len(searched) + 1


def test_tolerance_zero_never_stops():
    calls = []
    cost = Cost([Custom(lambda t, g: calls.append(1) or t.actions.square().sum((-2, -1)), "norm")])
    planner(CEM(samples=4, iterations=50, elites=1), cost=cost).solve(problem(2))
    assert len(calls) == 50 + 1
