"""The front door: compare planners on an environment of your own, or agents on a task."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from evaluation_fakes import Adder, Blind, Line, Walker, instance

import acid
from acid.errors import AcidError, DataError, UnknownNameError
from acid.evaluation import (
    Cell,
    CellContender,
    Comparison,
    NoOpAgent,
    Protocol,
    SearchSpec,
    Summary,
    evaluate,
    read_rows,
    wilson,
)
from acid.planning import CEM, Controller, Planner, acid_cost, goal_cost
from acid.types import ActionScaler


class Ice(gymnasium.Env):
    """A point on ice, which slips where it is pushed too strongly."""

    def __init__(self) -> None:
        self.action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.place = np.zeros(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.uniform(-1, 1, 2)
        return self.place, {}

    def step(self, action):
        if np.abs(action).max() <= 0.5:
            self.place = self.place + action
        return self.place, 0.0, False, False, {}

    def get_state(self):
        return self.place

    def set_state(self, state):
        self.place = np.array(state)


class Dream:
    """A world model of it that believes in pushes of any strength."""

    scaler = ActionScaler(mean=(0.0, 0.0), std=(1.0, 1.0))

    def encode(self, observation: torch.Tensor) -> torch.Tensor:
        return observation[:, None].float()

    def rollout(self, latent: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        return (latent[:, None] + self.scaler.denormalise(actions).cumsum(2))[..., None, :]


class Doubt:
    """A verifier that has never seen a strong push."""

    scaler = Dream.scaler

    def infer(self, latent: torch.Tensor, next_latent: torch.Tensor) -> torch.Tensor:
        return self.scaler.normalise((next_latent - latent)[..., 0, :].clamp(-0.5, 0.5))


def test_two_planners_on_an_environment_of_ones_own():
    """What the documentation shows: an environment with get_state and set_state, a world model, two planners."""
    search = CEM(samples=64, iterations=6, elites=8)
    found = acid.evaluate(
        Ice(),
        {
            "original": Planner(Dream(), goal_cost(), search, horizon=3),
            "acid": Planner(Dream(), acid_cost(Doubt(), 2.0), search, horizon=3),
        },
        observe=lambda env: env.place.copy(),
        success=lambda state, goal: np.linalg.norm(state - goal) < 0.3,
        episodes=24,
        goal_offset=3,
        budget=3,
    )
    original, acid_planner = found.summaries()
    assert (original.n, acid_planner.n) == (24, 24)
    assert original.comparison is None
    assert acid_planner.comparison is not None
    assert acid_planner.comparison == found.difference("acid", "original")
    assert acid_planner.comparison.low > 0  # a verifier that doubts strong pushes keeps the point from slipping
    assert acid_planner.against == "original cem-n64-j6-k8"
    assert str(found) == found.table()
    assert "| acid " in str(found)


INSTANCES = [instance(10, 12 + number, number) for number in range(6)]


def compare(agents=None, **options) -> Comparison:
    agents = agents or {"slow": Walker(0.5), "fast": Walker(1.0)}
    given = {"instances": INSTANCES, **options}
    return evaluate(Line(), agents, **given)


def by_name(found: Comparison) -> dict[str, Summary]:
    return {s.condition: s for s in found.summaries()}


def test_everyone_plays_the_same_episodes():
    found = compare()
    assert {row.instance for row in found.rows} == {i.id for i in INSTANCES}
    assert len(found.rows) == 12
    slow, fast = by_name(found)["slow"], by_name(found)["fast"]
    assert (slow.mean, fast.mean) == (pytest.approx(4 / 6), 1.0)  # ten half steps lead five ahead, and 0.5 is not near
    assert (fast.low, fast.high) == (wilson(6, 6).low, wilson(6, 6).high)
    assert fast.comparison is not None
    assert fast.comparison.difference == pytest.approx(2 / 6)
    assert found.difference("slow", "fast").difference == pytest.approx(-2 / 6)
    assert found.difference("slow", "fast", metric="steps").difference > 0


def test_the_first_agent_is_the_baseline_unless_there_is_an_original_or_another_is_named():
    assert compare().baseline == "slow"
    assert compare({"slow": Walker(0.5), "original": Walker()}).baseline == "original"
    named = compare(baseline="fast")
    assert by_name(named)["slow"].against == "fast -"
    assert by_name(named)["fast"].comparison is None
    with pytest.raises(AcidError, match=r"the baseline 'fats' is not among the agents \['slow', 'fast'\]"):
        compare(baseline="fats")


def test_agents_of_any_kind_are_compared_with_the_baseline():
    """A planner, a controller with another search and an agent of one's own: none is left without a comparison."""
    planner = Planner(Adder(), acid_cost(Blind(), 0.0), CEM(8, 2, 3), horizon=2)
    other = Planner(Adder(), acid_cost(Blind(), 0.5), CEM(9, 1, 3), horizon=2)
    found = by_name(compare({"original": planner, "acid": Controller(other, 1), "noop": Walker(), "mine": Walker()}))
    assert found["original"].comparison is None
    for name in ("acid", "noop", "mine"):
        assert found[name].comparison is not None, name
    assert found["acid"].search == SearchSpec.of(CEM(9, 1, 3), horizon=2)
    assert (found["acid"].model, found["mine"].model) == ("Adder", "Walker")


def test_a_controller_says_how_much_of_a_plan_is_executed():
    planner = Planner(Adder(), goal_cost(), CEM(8, 2, 3), horizon=2)
    found = compare({"whole": planner, "half": Controller(planner, 1)}, instances=[instance(10, 200)], budget=20)
    assert {row.condition: row.plans for row in found.rows} == {"whole": 2, "half": 4}
    with pytest.raises(AcidError, match=r"warm: .* cannot warm-start here"):
        compare({"warm": Controller(planner, 1, warm_start=True)})


def test_results_are_kept_only_if_there_is_a_place_for_them(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    compare()
    assert list(tmp_path.iterdir()) == []
    compare(results=tmp_path / "kept")
    files = sorted((tmp_path / "kept").rglob("*.jsonl"))
    assert [path.name for path in files] == ["fast.jsonl", "slow.jsonl"]
    assert len(read_rows(files)) == 12


def test_an_evaluation_goes_on_from_the_rows_that_are_there(tmp_path: Path):
    compare(results=tmp_path, instances=INSTANCES[:2])
    agent = Walker()
    found = compare({"slow": Walker(0.5), "fast": agent}, results=tmp_path)
    assert {name for call in agent.calls for name in call.instances} == {i.id for i in INSTANCES[2:]}
    assert len(found.rows) == 12
    assert len(compare(results=tmp_path, instances=INSTANCES[:2]).rows) == 4  # rows that were not asked for stay out
    again = Walker()
    compare({"slow": Walker(0.5), "fast": again}, results=tmp_path, fresh=True)
    assert again.calls


def test_runs_of_different_seeds_are_apart(tmp_path: Path):
    first, second = (compare(results=tmp_path, seed=seed) for seed in (0, 1))
    assert {row.seed for row in first.rows} == {0}
    assert {row.seed for row in second.rows} == {1}
    assert len(second.rows) == 12


def test_progress_is_told():
    told = []
    compare(progress=lambda done, total: told.append((done, total)))
    assert told[0] == (0, 12)
    assert told[-1] == (12, 12)


def test_starts_that_are_solved_do_not_count_for_anyone():
    solved = [instance(10, 10 + number, number, solved=number < 2) for number in range(6)]
    found = compare(instances=solved)
    assert {s.n for s in found.summaries()} == {4}
    assert found.difference("fast", "slow").n == 4
    assert {s.n for s in found.summaries(starts="paper")} == {4}  # of the first four draws, two of them solved


def test_what_cannot_be_compared_is_named():
    found = compare()
    with pytest.raises(UnknownNameError, match="unknown agent 'fats'; did you mean 'fast'"):
        found.difference("fats", "slow")
    with pytest.raises(DataError, match="fast has no number called 'speed'"):
        found.difference("fast", "slow", metric="speed")
    with pytest.raises(DataError, match="no rows have a number called 'final_eror'; did you mean 'final_error'"):
        found.summaries(metric="final_eror")


class Mute:
    def act(self, situation):
        pass


@pytest.mark.parametrize(
    ("agents", "options", "message"),
    [
        ({}, {}, "there are no agents to evaluate"),
        ([Walker()], {}, "agents are given by name, such as {'mine': planner}, got a list"),
        ({"a": 3}, {}, "the agent 'a' needs the method 'act', which a int does not have"),
        ({"a": Walker}, {}, "the agent 'a' must be an object, got the class Walker"),
        ({"a": Mute()}, {}, "Mute must answer with a Decision, got a NoneType"),
        ({"a": Walker()}, {"instances": [3]}, "instances must be a list of Instance, got int"),
        ({"a": Walker()}, {"episode": 3}, "evaluate has no option 'episode'; did you mean 'episodes'"),
        ({"a": Walker()}, {"instances": []}, "there are no instances to play"),
        ({"a/b": Walker()}, {}, "the name of an agent 'a/b' cannot be part of a file's name"),
        ({"": Walker()}, {}, "the name of an agent '' cannot be part of a file's name"),
        ({"a": Walker()}, {"budget": 0}, "budget must be at least 1, got 0"),
        ({"a": Walker()}, {"batch": 0}, "a batch must have at least 1 episode, got 0"),
        ({"a": Walker()}, {"split": "tset"}, "unknown split 'tset'"),
        ({"a": Walker()}, {"observe": lambda env: 0}, "the task 'line' says itself how it is observed and judged"),
    ],
)
def test_mistakes_are_told_in_one_sentence(agents, options, message):
    with pytest.raises(AcidError, match=message):
        evaluate(Line(), agents, **{"instances": INSTANCES, **options})


def test_named_tasks_are_played_on_what_is_shipped_with_them():
    found = evaluate("reacher", {"noop": NoOpAgent(np.zeros(2))}, episodes=2, budget=5)
    shipped = Cell("reacher", "lewm").instances(Protocol(episodes=2))
    assert [row.instance for row in found.rows] == [i.id for i in shipped]
    assert {row.task for row in found.rows} == {"reacher"}
    with pytest.raises(AcidError, match="success: the task 'reacher' says itself how it is observed and judged"):
        evaluate("reacher", {"noop": NoOpAgent(np.zeros(2))}, success=lambda state, goal: True)
    with pytest.raises(UnknownNameError, match="unknown task 'recher'; did you mean 'reacher'"):
        evaluate("recher", {"noop": NoOpAgent(np.zeros(2))})
    with pytest.raises(DataError, match="was drawn with goal_offset 25, not 10"):
        evaluate("reacher", {"noop": NoOpAgent(np.zeros(2))}, goal_offset=10)


def test_a_class_of_ones_own_is_a_task_by_name(tmp_path: Path):
    found = evaluate("evaluation_fakes:Line", {"walker": Walker()}, episodes=3, results=tmp_path)
    assert {row.task for row in found.rows} == {"line"}
    assert len(found.rows) == 3
    again = Walker()
    evaluate("evaluation_fakes:Line", {"walker": again}, episodes=3, results=tmp_path)
    assert not again.calls  # the same starts and goals were drawn


def test_cells_are_compared_under_their_conditions(tmp_path: Path):
    cell, spec = Cell("reacher", "lewm"), SearchSpec("cem", 6, 2, 2, horizon=2)
    agents = {name: CellContender(cell, name, lam, spec) for name, lam in (("acid", 0.2), ("original", None))}
    found = evaluate("reacher", agents, episodes=1, budget=10, results=tmp_path)
    assert found.baseline == "original"
    assert by_name(found)["acid"].comparison is not None
    assert by_name(found)["acid"].lam == 0.2
    with pytest.raises(AcidError, match="a cell of 'reacher' cannot be evaluated on 'pusht'"):
        evaluate("pusht", agents, episodes=1)
    with pytest.raises(
        AcidError, match=r"two agents would write the same rows, reacher/lewm/test/original.*; leave one"
    ):
        evaluate("reacher", {"a": agents["original"], "b": agents["original"]}, episodes=1)


def test_several_weights_are_rows_of_their_own(tmp_path: Path):
    cell, spec = Cell("reacher", "lewm"), SearchSpec("cem", 6, 2, 2, horizon=2)
    agents = {f"acid {lam}": CellContender(cell, "acid", lam, spec) for lam in (0.1, 0.9)}
    agents["original"] = CellContender(cell, "original", None, spec)
    found = evaluate("reacher", agents, episodes=1, budget=10)
    assert [(s.condition, s.lam, s.comparison is None) for s in found.summaries()] == [
        ("original", None, True),
        ("acid", 0.1, False),
        ("acid", 0.9, False),
    ]
    with pytest.raises(AcidError, match="'acid' was played with several λ"):
        found.difference("acid", "original")


def test_two_world_models_can_be_compared():
    """Different weights are what is asked about here, not a mistake."""
    spec = SearchSpec("cem", 6, 2, 2, horizon=2)
    agents = {
        "original": CellContender(Cell("reacher", "lewm"), "original", None, spec),
        "other": CellContender(Cell("reacher", "pldm"), "acid", 0.2, spec),
    }
    found = evaluate("reacher", agents, episodes=1, budget=10)
    assert by_name(found)["acid"].model == "pldm"
    assert by_name(found)["acid"].against == "original cem-n6-j2-k2"


def test_a_planner_with_another_step_than_the_tasks_is_refused():
    planner = Planner(Adder(), goal_cost(), CEM(8, 2, 3), horizon=2)
    task = Line()
    task.frameskip = 1  # type: ignore[misc]
    with pytest.raises(AcidError, match="mine: its model takes 5 environment steps per model step, the task 'line' 1;"):
        evaluate(task, {"mine": planner}, instances=INSTANCES)
