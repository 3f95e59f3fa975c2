"""Watching a search: everything is shown, and watching changes nothing."""

from __future__ import annotations

import pytest
import torch
from planning_toys import ACTION, HORIZON, SEARCHES, planner, problem

from acid.planning import CEM, Arc, Iteration, goal_cost
from acid.types import ActionScaler, Problem

every_search = pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)


def spoil(iteration: Iteration) -> None:
    """An observer with bad manners: it writes into all it is shown, and draws from torch's global generator."""
    torch.manual_seed(0)
    shown = [iteration.candidates, iteration.actions, iteration.total, iteration.elites, iteration.shares]
    shown += [*iteration.terms.values(), *iteration.spreads.values(), *iteration.weights.values()]
    for tensor in [*shown, iteration.mean, iteration.std]:
        if tensor is not None:
            tensor.zero_()


@every_search
def test_a_plan_is_the_same_bit_for_bit_whatever_an_observer_does(search):
    alone = planner(search).solve(problem(), seed=3)
    watched = planner(search, observer=spoil).solve(problem(), seed=3)
    assert torch.equal(alone.actions, watched.actions)
    assert torch.equal(alone.trace.best, watched.trace.best)
    for name in alone.trace.weights:
        assert torch.equal(alone.trace.weights[name], watched.trace.weights[name])


@every_search
def test_what_is_shown_is_what_the_trace_sums_up(search):
    shown: list[Iteration] = []
    plan = planner(search, observer=shown.append).solve(problem(), seed=3)
    assert [iteration.number for iteration in shown] == list(range(len(plan.trace.best)))
    for iteration in shown:
        assert iteration.problems == (0, 1, 2)
        candidates = iteration.total.shape[1]
        assert iteration.candidates.shape == iteration.actions.shape == (3, candidates, HORIZON, ACTION)
        assert not iteration.candidates.requires_grad
        best, trace = iteration.total.gather(1, iteration.elites[:, :1])[:, 0], plan.trace
        assert torch.equal(best, trace.best[iteration.number])
        torch.testing.assert_close(iteration.shares.sum(1), torch.ones(3, dtype=best.dtype))
        weighed = sum(iteration.weights[name][:, None] * values for name, values in iteration.terms.items())
        torch.testing.assert_close(weighed, iteration.total)
        for name, spreads in iteration.spreads.items():
            assert torch.equal(spreads, trace.spreads[name][iteration.number])


@every_search
def test_earlier_iterations_stay_as_they_were_shown(search):
    kept: list[Iteration] = []
    first: list[torch.Tensor] = []

    def keep(iteration: Iteration) -> None:
        kept.append(iteration)
        first.append(iteration.candidates.clone())

    planner(search, observer=keep).solve(problem(), seed=3)
    assert all(torch.equal(iteration.candidates, before) for iteration, before in zip(kept, first, strict=True))


def test_the_mean_that_is_shown_last_is_the_plan_of_cem():
    shown: list[Iteration] = []
    plan = planner(SEARCHES["cem"], observer=shown.append).solve(problem(), seed=3)
    assert torch.equal(shown[-1].mean, plan.actions)
    spread = shown[0].candidates.gather(1, shown[0].elites[..., None, None].expand(-1, -1, HORIZON, ACTION)).std(1)
    torch.testing.assert_close(shown[0].std, spread)


def test_a_search_without_a_gaussian_shows_none():
    shown: list[Iteration] = []
    planner(SEARCHES["shooting"], observer=shown.append).solve(problem(), seed=3)
    assert shown[0].mean is None
    assert shown[0].std is None


def test_a_converged_problem_is_no_longer_shown():
    shown: list[Iteration] = []
    stop = CEM(samples=64, iterations=30, elites=8, tolerance=0.3)
    batch = problem(4)
    near = Problem(batch.start, batch.goal * torch.tensor([1.0, 5.0, 1.0, 9.0], dtype=torch.float64)[:, None, None])
    plan = planner(stop, observer=shown.append).solve(near, seed=3)
    sizes = [len(iteration.problems) for iteration in shown]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) > 1
    for iteration in shown:
        rows = list(iteration.problems)
        assert torch.equal(iteration.total.amin(1), plan.trace.best[iteration.number][rows])


def test_variables_of_a_parametrisation_are_shown_beside_what_they_mean():
    shown: list[Iteration] = []
    scaler = ActionScaler((0.2, 0.0, 0.0), (0.1, 0.1, 0.1))

    class Walk:
        def rollout(self, latent, actions):
            return latent[:, None, None] + actions.cumsum(2)[..., None, :]

    start = Problem(torch.zeros(2, 1, 3), torch.ones(2, 1, 3))
    make = planner(
        CEM(samples=8, iterations=2, elites=2),
        model=Walk(),
        cost=goal_cost(),
        scaler=scaler,
        parametrisation=Arc(scaler, std=(1.0, 1.0)),
        observer=shown.append,
    )
    make.solve(start)
    assert shown[0].candidates.shape == (2, 8, 1, 2)
    assert shown[0].actions.shape == (2, 8, HORIZON, 3)


def test_an_error_of_the_observer_is_not_hidden():
    def fail(iteration: Iteration) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        planner(SEARCHES["cem"], observer=fail).solve(problem())
