"""A task of a user's own: what it lacks, and states that it does not restore, are told in one sentence."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from acid import tasks
from acid.errors import AcidError, DataError, MissingMethodError
from acid.tasks import Task
from acid.tasks.collect import Collection, collect
from acid.tasks.restoring import check_restores


class Cart(Task):
    """A cart with a speed, seen as a brightness."""

    name = "cart"
    episode_steps = 3

    def __init__(self, *, size: int = 8) -> None:
        self.size = size
        self.place = self.speed = 0.0
        self.action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        self.place = self.speed = 1.0
        return self.render(), {}

    def advance(self, action):
        self.speed += float(action[0])
        self.place += self.speed

    def render(self):
        return np.full((self.size, self.size, 3), round(self.place) % 256, np.uint8)

    def get_state(self):
        return np.array([self.place, self.speed])

    def set_state(self, state):
        self.place, self.speed = (float(number) for number in state)

    def pose(self, state):
        return state[:1]

    def error(self, state, goal_state):
        return float(abs(state - goal_state)[0])

    def success(self, state, goal_state):
        return self.error(state, goal_state) < 0.5


class Restless(Cart):
    """Restores nothing."""

    def set_state(self, state):
        pass


class Careless(Cart):
    """Forgets its speed."""

    def get_state(self):
        return np.array([self.place])

    def set_state(self, state):
        self.place = float(state[0])


class Fading(Cart):
    """Shows something that is not in its state."""

    shown = 0

    def render(self):
        self.shown += 1
        return super().render() + np.uint8(self.shown)


def test_a_task_that_restores_passes_also_without_bounds():
    cart = Cart()
    check_restores(cart, np.array([2.0, 1.0]))
    cart.action_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    check_restores(cart, np.array([2.0, 1.0]))


@pytest.mark.parametrize(
    ("kind", "state", "complaint"),
    [
        (Restless, [0.0, 0.0], r"does not restore its states: get_state differs after set_state\(get_state\(\)\);"),
        (Careless, [0.0], r"get_state differs after set_state\(get_state\(\)\) and the same action; keep everything"),
        (Fading, [0.0, 0.0], r"render differs after set_state\(get_state\(\)\);"),
    ],
)  # fmt: skip
def test_states_that_are_not_restored_are_told(kind, state, complaint):
    with pytest.raises(AcidError, match=complaint):
        check_restores(kind(), np.array(state))


class Unsteered(Careless):
    def behaviour(self, rng):
        raise AssertionError("nothing is collected of a task that does not restore its states")


def test_collecting_checks_it_first(tmp_path):
    with pytest.raises(AcidError, match="'cart' does not restore its states"):
        collect(Collection(f"{__name__}:Unsteered", 1), tmp_path / "cart.h5", processes=1)


class Pale(Cart):
    behaviour = Unsteered.behaviour

    def render(self):
        return super().render() / 255


def test_collecting_looks_at_a_frame_first(tmp_path):
    with pytest.raises(DataError, match=r"'cart' must draw uint8 \[64, 64, 3\], got float64 \[64, 64, 3\]"):
        collect(Collection(f"{__name__}:Pale", 1), tmp_path / "cart.h5", processes=1)


class Headless(Cart):
    render = Task.render


class Nameless(Task):
    def __init__(self, *, size: int) -> None:
        self.size = size


class Sized(Cart):
    def __init__(self, side: int) -> None:
        super().__init__(size=side)


class Armless(Cart):
    name = "armless"
    action_space = None  # type: ignore[assignment]

    def __init__(self, *, size: int = 8) -> None:
        self.size = size


def test_what_a_task_lacks_is_told_when_it_is_named():
    with pytest.raises(MissingMethodError, match="the class Headless has no 'render', which is needed here; define it"):
        tasks.make(f"{__name__}:Headless")
    with pytest.raises(AcidError, match="Nameless' calls itself None, which cannot be the name of a folder"):
        tasks.make(f"{__name__}:Nameless")
    with pytest.raises(AcidError, match=r"must be made by `Sized\(size=64\)`, but missing a required argument: 'side'"):
        tasks.make(f"{__name__}:Sized")
    with pytest.raises(AcidError, match="'armless' must have a gymnasium Box as action_space, got None"):
        _ = tasks.make(f"{__name__}:Armless").action_bounds


def test_what_only_some_need_is_told_where_it_is_needed(tmp_path):
    with pytest.raises(MissingMethodError, match="the class Cart has no 'behaviour'"):
        collect(Collection(f"{__name__}:Cart", 1), tmp_path / "cart.h5")
    assert not list(tmp_path.iterdir())  # before anything was begun
    with pytest.raises(MissingMethodError, match="the class Cart has no 'pose_error'"):
        Cart().pose_error(np.zeros(1), np.zeros(2))
