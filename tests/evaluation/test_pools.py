"""Agents that share one pool choose what they would have planned alone, and nothing is imagined twice."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from evaluation_fakes import Adder, Blind, Line, PathLine, instance, path_instance, situation
from scipy import stats

from acid.errors import AcidError, PlanningError
from acid.evaluation import PlanningAgent, Protocol, play
from acid.evaluation.conditions import _at_random, _by_true_error
from acid.evaluation.pools import JudgedPool, PoolAgent, SharedPool
from acid.planning import (
    CEM,
    MPPI,
    ActionConsistency,
    ActionNorm,
    Adaptive,
    Cost,
    GoalDistance,
    Planner,
    acid_cost,
    goal_cost,
)
from acid.types import ActionScaler

SEARCH = CEM(samples=12, iterations=1, elites=3)
TERMS = [GoalDistance(), ActionConsistency(Blind(), Adaptive(1.0)), ActionNorm(Adaptive(1.0))]


class Walk(Adder):
    """One action a step, as a path is judged."""

    scaler = ActionScaler(mean=(0.0,), std=(2.0,))


class BlindWalk(Blind):
    scaler = Walk.scaler


def shared(model: Adder, terms=TERMS, initial=lambda situation: None) -> SharedPool:
    return SharedPool(Planner(model, goal_cost(), SEARCH, horizon=2), terms, initial=initial)


def cheapest(cost: Cost):
    return lambda judged: cost.weigh(judged.terms).total


ASKED = situation([10, 20], [14, 90])
COSTS = {"goal": goal_cost(), "acid": acid_cost(Blind(), 0.5), "norm": Cost([TERMS[0], ActionNorm(Adaptive(0.7))])}


def test_one_rollout_serves_every_agent():
    model = Adder()
    pool = shared(model)
    agents = [PoolAgent(pool, cheapest(cost)) for cost in COSTS.values()]
    agents += [PoolAgent(pool, 0), PoolAgent(pool, _at_random)]
    for agent in agents:
        agent.act(ASKED)
    assert model.rollouts == 1
    agents[0].act(situation([10, 20], [14, 90], plan=1))
    assert model.rollouts == 2


@pytest.mark.parametrize("name", COSTS)
def test_a_choice_is_the_plan_of_a_planner_with_the_same_cost(name: str):
    pool = shared(Adder())
    PoolAgent(pool, 0).act(ASKED)  # whoever asked before
    chosen = PoolAgent(pool, cheapest(COSTS[name])).act(ASKED)
    alone = PlanningAgent(Planner(Adder(), COSTS[name], SEARCH, horizon=2)).act(ASKED)
    np.testing.assert_array_equal(chosen.env_actions, alone.env_actions)


def test_the_choices_of_different_costs_differ():
    pool = shared(Adder())
    chosen = [PoolAgent(pool, cheapest(cost)).act(ASKED).env_actions for cost in COSTS.values()]
    assert len({one.tobytes() for one in chosen}) == len(COSTS)


def test_a_search_begins_where_it_is_told_to():
    start = torch.full((2, 2, 5), 3.0)
    prior = PoolAgent(shared(Adder(), initial=lambda situation: start), 0).act(ASKED)
    np.testing.assert_allclose(prior.env_actions, 1 + 2 * 3.0)  # candidate 0 is the mean of what is searched
    assert (PoolAgent(shared(Adder()), 0).act(ASKED).env_actions == 1).all()


def test_chance_is_another_stream_than_the_candidates():
    pool = shared(Adder())
    judged = pool.judge(ASKED)
    at_random = _at_random(judged)
    assert at_random.shape == (2, 12)
    assert torch.equal(at_random, _at_random(judged))
    assert not torch.equal(at_random, _at_random(pool.judge(situation([10, 20], [14, 90], seed=1))))
    assert not torch.equal(at_random[0], at_random[1])


def test_the_best_is_the_mean_of_those_that_are_nearest_to_the_truth():
    protocol, told = Protocol.of(PathLine.setup), path_instance(10, 12, 14, 16)
    planner = Planner(Walk(), goal_cost(), SEARCH, horizon=3)
    pool = SharedPool(planner, [GoalDistance()], initial=lambda situation: None)
    errors = {}
    for name, choose in {"best": _by_true_error, "prior": 0, "goal": cheapest(goal_cost())}.items():
        (episode,) = play(PathLine(), PoolAgent(pool, choose), [told], protocol=protocol)
        errors[name] = episode.metrics["off_m"]
    assert errors["best"] < errors["prior"]
    assert errors["prior"] == pytest.approx(4.0)  # it stands still while the truth goes 2, 4 and 6 away
    kept = pool._last
    assert kept is not None
    assert kept.errors[0] is not None
    wanted = torch.from_numpy(pool.env_actions(kept.pool.actions[0])).cumsum(-2)[..., 0] - torch.tensor([2.0, 4, 6])
    np.testing.assert_allclose(kept.errors[0], wanted.abs().mean(-1).numpy(), rtol=1e-5)


def test_there_is_no_best_without_a_truth():
    with pytest.raises(AcidError, match="known only where plans are compared with a true path"):
        PoolAgent(shared(Adder()), _by_true_error).act(ASKED)


def test_correlations_are_spearmans_inside_the_pool():
    planner = Planner(Walk(), goal_cost(), SEARCH, horizon=3)
    terms = [GoalDistance(), ActionConsistency(BlindWalk(), Adaptive(1.0))]
    pool = SharedPool(planner, terms, initial=lambda situation: None)
    (episode,) = play(
        PathLine(), PoolAgent(pool, 0), [path_instance(10, 11, 12, 13)], protocol=Protocol.of(PathLine.setup)
    )
    kept = pool._last
    assert kept is not None
    values = {name: value[0].numpy() for name, value in kept.terms.items()}
    assert episode.pool == {
        "rank_goal": pytest.approx(stats.spearmanr(values["goal"], kept.errors[0]).statistic),
        "rank_consistency": pytest.approx(stats.spearmanr(values["consistency"], kept.errors[0]).statistic),
        "rank_goal_consistency": pytest.approx(stats.spearmanr(values["goal"], values["consistency"]).statistic),
    }
    assert shared(Adder()).judge(ASKED).correlations(0) == {}


def test_episodes_of_several_plans_are_played_as_if_alone():
    """After the first plan agents see different things, so they must not be given each other's pools."""
    protocol = Protocol(5, budget=30)
    instances = [instance(10, 90, 0), instance(20, 100, 1)]
    pool = shared(Adder())
    for cost in COSTS.values():
        together = play(Line(), PoolAgent(pool, cheapest(cost)), instances, protocol=protocol)
        planner = Planner(Adder(), cost, SEARCH, horizon=2)
        alone = play(Line(), PlanningAgent(planner), instances, protocol=protocol)
        assert [e.final_error for e in together] == [e.final_error for e in alone]
        assert together[0].decisions == 3


def test_an_agent_is_charged_for_what_it_uses():
    pool = shared(Adder())
    plain = PoolAgent(pool, cheapest(COSTS["goal"]), uses=("rollout", "goal")).act(ASKED)
    acid = PoolAgent(pool, cheapest(COSTS["acid"]), uses=("rollout", "goal", "consistency")).act(ASKED)
    free = PoolAgent(pool, 0).act(ASKED)
    judged: JudgedPool = pool.judge(ASKED)
    assert free.wall_seconds == 0
    assert acid.wall_seconds - plain.wall_seconds == pytest.approx(judged.pool.seconds["consistency"])


@pytest.mark.parametrize("search", [CEM(12, 2, 3), MPPI(12, 1)])
def test_only_the_first_iteration_of_cem_can_be_shared(search):
    with pytest.raises(PlanningError, match="share the candidates of a CEM with one iteration"):
        SharedPool(Planner(Adder(), goal_cost(), search, horizon=2), TERMS, initial=lambda situation: None)
