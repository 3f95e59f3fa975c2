"""Any gymnasium environment whose state can be restored is a task."""

from __future__ import annotations

from typing import get_args

import gymnasium
import numpy as np
import pytest
from evaluation_fakes import Line, PathLine

from acid.errors import AcidError
from acid.evaluation import Protocol, as_task
from acid.evaluation.environments import draw_from_environment
from acid.evaluation.protocol import Split


class Point(gymnasium.Env):
    """A point in the plane that moves by its action, seen as its place."""

    def __init__(self, low: float = -1.0) -> None:
        self.action_space = gymnasium.spaces.Box(low, 1.0, (2,), np.float32)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.place, self.closed = np.zeros(2), False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.uniform(-1, 1, 2)
        return self.place, {"seed": seed}

    def step(self, action):
        assert self.action_space.contains(action)
        self.place = self.place + action
        return self.place, 0.0, False, False, {}

    def get_state(self):
        return self.place

    def set_state(self, state):
        self.place = np.array(state)

    def close(self):
        self.closed = True


def see(env: Point) -> np.ndarray:
    return env.place.astype(np.float32)


def test_an_environment_answers_as_a_task():
    env = Point()
    task = as_task(env, observe=see, success=lambda state, goal: np.abs(state - goal).max() < 0.1, frameskip=3)
    assert (task.name, task.frameskip, task.metric, task.higher_is_better) == ("point", 3, "success", True)
    task.set_state(np.array([1.0, 2.0]))
    task.advance(np.array([0.5, -0.5]))
    state = task.get_state()
    assert state.tolist() == [1.5, 1.5]
    assert task.render().tolist() == [1.5, 1.5]
    assert task.error(state, np.array([1.5, 4.5])) == 3
    assert task.success(state, np.array([1.5, 1.55]))
    assert not task.moved(state, state.copy())
    seen, info = task.reset(seed=3)
    np.testing.assert_array_equal(seen, see(env))
    assert info == {"seed": 3}
    task.close()
    assert env.closed


def test_states_are_copies():
    """An environment that hands out its own memory cannot change what was remembered."""
    env = Point()
    task = as_task(env, observe=see)
    before = task.get_state()
    env.place += 1
    assert before.tolist() == [0, 0]


def test_how_it_is_judged_may_be_told():
    task = as_task(Point(), observe=see, error=lambda state, goal: abs(state - goal)[0], name="mine")
    assert (task.name, task.metric, task.higher_is_better) == ("mine", "final_error", False)
    assert task.error(np.array([1.0, 5.0]), np.zeros(2)) == 1
    assert not task.success(np.zeros(2), np.zeros(2))


def test_a_task_stays_as_it_is():
    task = Line()
    assert as_task(task) is task
    for option in ({"observe": see}, {"frameskip": 2}, {"name": "mine"}):
        with pytest.raises(AcidError, match="the task 'line' says itself how it is observed and judged"):
            as_task(task, **option)  # type: ignore[arg-type]


def test_environments_that_cannot_be_restored_are_refused():
    class Forgetful(Point):
        get_state = property()  # type: ignore[assignment]

    with pytest.raises(AcidError, match="Forgetful has no get_state: an environment must restore its states exactly"):
        as_task(Forgetful())
    wrapped = gymnasium.wrappers.TimeLimit(Point(), 10)
    with pytest.raises(AcidError, match=r"TimeLimit has no get_state.*; pass env\.unwrapped, which has it"):
        as_task(wrapped)
    assert as_task(wrapped.unwrapped, observe=see).name == "point"  # type: ignore[arg-type]


def test_other_action_spaces_and_blind_environments_are_refused():
    class Buttons(Point):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = gymnasium.spaces.Discrete(3)

    with pytest.raises(AcidError, match=r"Buttons must have a Box as action_space, got Discrete\(3\)"):
        as_task(Buttons())
    blind = Point()
    blind.render = lambda: None  # type: ignore[method-assign]
    with pytest.raises(AcidError, match=r"observing the environment gave NoneType, not an array.*pass observe="):
        as_task(blind).render()


def test_starts_come_from_resets_and_goals_from_acting_at_random():
    task = as_task(Point(), observe=see, success=lambda state, goal: np.abs(state - goal).max() < 0.5)
    protocol = Protocol(goal_offset=4, episodes=5)
    drawn = draw_from_environment(task, protocol)
    assert [i.id for i in drawn] == [i.id for i in draw_from_environment(task, protocol)]
    assert len(drawn) == len({i.id for i in drawn}) == 5
    for instance in drawn:
        assert np.abs(instance.start_state).max() <= 1
        assert np.abs(instance.goal_state - instance.start_state).max() <= 4
        assert not task.success(instance.start_state, instance.goal_state)
    for other in (Protocol(4, episodes=5, split="select"), Protocol(4, episodes=5, seed=1)):
        assert not {i.id for i in draw_from_environment(task, other)} & {i.id for i in drawn}
    assert [i.id for i in draw_from_environment(task, Protocol(4, episodes=3))] == [i.id for i in drawn[:3]]


def test_splits_share_no_problem():
    task = as_task(Point(), observe=see, success=lambda state, goal: np.abs(state - goal).max() < 0.5)
    starts = [
        {tuple(i.start_state) for i in draw_from_environment(task, Protocol(goal_offset=4, episodes=5, split=split))}
        for split in get_args(Split)
    ]
    assert len(set.union(*starts)) == 15


def test_instances_are_named_by_their_states():
    """Rows of an environment that has changed since are not those of the same episode."""

    class Wider(Point):
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.place = 2 * self.place
            return self.place, {}

    ids = [{i.id for i in draw_from_environment(as_task(env, observe=see), Protocol(4, episodes=3))}
           for env in (Point(), Wider())]  # fmt: skip
    assert not ids[0] & ids[1]


def test_a_task_may_draw_goals_of_its_own():
    class Goals(Line):
        def reset(self, *, seed=None, options=None):
            self.position = np.array([float(seed or 0)])
            return self.render(), {}

        def draw_goal(self, rng):
            return self.position + 30

    for instance in draw_from_environment(Goals(), Protocol(None, episodes=3)):
        assert instance.goal_state == instance.start_state + 30


def test_what_cannot_be_drawn_is_told():
    with pytest.raises(AcidError, match="instances of 'pathline' hold frames before the start or a path"):
        draw_from_environment(PathLine(), Protocol(4, episodes=2))
    easy = as_task(Point(), observe=see, success=lambda state, goal: True)
    with pytest.raises(AcidError, match="only 0 of 40 random starts of 'point' are not solved"):
        draw_from_environment(easy, Protocol(4, episodes=2))
    with pytest.raises(AcidError, match="'point' has no finite action bounds to act at random within; pass instances="):
        draw_from_environment(as_task(Point(low=-np.inf), observe=see), Protocol(4, episodes=2))
