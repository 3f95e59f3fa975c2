"""What a task is: a gymnasium environment whose state can be read, restored exactly and compared with a goal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import gymnasium
import numpy as np

from acid.errors import AcidError, MissingMethodError, ShapeError
from acid.tasks.symmetry import Symmetry


class Behaviour(Protocol):
    """Decides during data collection; may look at the simulator's state, unlike a planner."""

    def act(self, task: Task) -> np.ndarray:
        """The next environment action [a]."""
        ...


@dataclass(frozen=True)
class Setup:
    """How a task is planned and tested by default. The defaults are those published for Le-WM and PLDM."""

    goal_offset: int | None = 25  # environment steps from start to goal; None: the task draws its own goals
    budget: int = 50  # environment steps per episode
    horizon: int = 5  # model steps of a plan, all executed before the next plan is made
    samples: int = 300  # N, J and K of the search
    iterations: int = 30
    elites: int = 30
    context: int = 1  # frames that an agent is shown at the start of an episode
    judges_paths: bool = False  # the whole planned path is compared with the recorded one, not only its end
    own_lambda: bool = False  # λ is chosen for this task alone, not once for all tasks of a world model


def checked_size(size: int) -> int:
    """The side of an image in pixels, checked."""
    if not 8 <= size <= 4096:
        raise ShapeError(f"image size must be 8 to 4096 pixels, got {size}")
    return size


def on_circle(angles: np.ndarray) -> np.ndarray:
    """Angles [n, k] as cosines and sines [n, 2k], which do not jump at a full turn."""
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=1)


class Task(gymnasium.Env[np.ndarray, np.ndarray]):
    """The protocol that every task implements. Pixels are uint8 [size, size, 3], states float64 [S].

    Restoring a state and repeating actions gives the same states and the same pixels, bit for bit.
    """

    name: ClassVar[str]
    metric: ClassVar[str] = "success"
    higher_is_better: ClassVar[bool] = True
    error_unit: ClassVar[str] = "states"  # of `error`
    tolerance: ClassVar[float | None] = None  # an error below it is a success, if that is how the task is judged
    frameskip: ClassVar[int] = 5  # environment steps per model step
    episode_steps: ClassVar[int] = 200  # length of a collected episode
    setup: ClassVar[Setup] = Setup()
    state_columns: ClassVar[tuple[tuple[str, ...], ...]] = (("state",),)  # of datasets: those that tell the state
    symmetries: ClassVar[tuple[Symmetry, ...]] = ()  # under which recorded episodes may be shown again

    size: int

    @classmethod
    def check_has(cls, *methods: str) -> None:
        """A MissingMethodError for the first of these methods that the class does not define itself."""
        for name in methods:
            if getattr(cls, name) is getattr(Task, name):
                raise MissingMethodError(cls, name)

    @property
    def action_size(self) -> int:
        return int(np.prod(self._actions.shape))

    @property
    def action_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lowest and highest environment action, each [a]."""
        return self._actions.low, self._actions.high

    @property
    def _actions(self) -> gymnasium.spaces.Box:
        space = getattr(self, "action_space", None)
        if not isinstance(space, gymnasium.spaces.Box):
            raise AcidError(f"the task {self.name!r} must have a gymnasium Box as action_space, got {space}")
        return space

    @property
    def idle_action(self) -> np.ndarray:
        """The planned action that does as little as possible, [a]."""
        return np.zeros(self.action_size, np.float32)

    def checked_action(self, action: np.ndarray) -> np.ndarray:
        """The action for the simulator, float64 [a], clipped to the bounds."""
        action = np.asarray(action, np.float64)
        if action.shape != (self.action_size,):
            raise ShapeError(f"a {self.name} action has {self.action_size} numbers, got shape {list(action.shape)}")
        if not np.isfinite(action).all():
            raise ShapeError(f"a {self.name} action must be finite, got {action.tolist()}")
        return np.clip(action, *self.action_bounds)

    def checked_state(self, state: np.ndarray, size: int) -> np.ndarray:
        """A copy of a state to restore, float64 [size], checked."""
        state = np.array(state, np.float64)
        if state.shape != (size,):
            raise ShapeError(f"a {self.name} state has {size} numbers, got shape {list(state.shape)}")
        return state

    def advance(self, action: np.ndarray) -> None:
        """One environment step without drawing it."""
        raise MissingMethodError(type(self), "advance")

    def render(self) -> np.ndarray:  # type: ignore[override]
        """The current pixels, uint8 [size, size, 3]."""
        raise MissingMethodError(type(self), "render")

    def get_state(self) -> np.ndarray:
        """Everything the future depends on, float64 [S]."""
        raise MissingMethodError(type(self), "get_state")

    def set_state(self, state: np.ndarray) -> None:
        """Restore what `get_state` returned."""
        raise MissingMethodError(type(self), "set_state")

    def recorded_states(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """States [n, S] of dataset columns [n, ...], one of the sets in `state_columns`.

        Published datasets tell less than `get_state`; what they leave out is as at rest.
        """
        return columns["state"]

    def columns(self) -> dict[str, np.ndarray]:
        """Named parts of the state that a dataset keeps in columns of their own."""
        return {}

    def physical(self, columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Dataset columns [n, ...] to named quantities [n, k] that a good latent contains; angles must not wrap."""
        raise MissingMethodError(type(self), "physical")

    def pose(self, state: np.ndarray) -> np.ndarray:
        """The part of a state that the success test compares."""
        raise MissingMethodError(type(self), "pose")

    def error(self, state: np.ndarray, goal_state: np.ndarray) -> float:
        """Distance to the goal in the task's own unit; an episode succeeds when it falls below a threshold."""
        raise MissingMethodError(type(self), "error")

    def pose_error(self, pose: np.ndarray, goal_state: np.ndarray) -> float:
        """The same for a pose that did not come from a state, e.g. one read from a latent."""
        raise MissingMethodError(type(self), "pose_error")

    def success(self, state: np.ndarray, goal_state: np.ndarray) -> bool:
        raise MissingMethodError(type(self), "success")

    def is_fair_start(self, state: np.ndarray) -> bool:
        """Whether a goal can be reached from this state; other states are not drawn as starts."""
        return True

    def moved(self, before: np.ndarray, after: np.ndarray) -> bool:
        """Whether a step from one state to the next changed what the success test compares."""
        return not np.array_equal(self.pose(before), self.pose(after))

    def command(self, action: np.ndarray) -> np.ndarray:
        """The action for `advance` that carries out a planned action, [a]; in most tasks the same."""
        return action

    def last_action(self, states: np.ndarray) -> np.ndarray | None:
        """The planned action [a] that led to the last of the states [C, S]; None if it is not known."""
        return None

    def plan_metrics(self, state: np.ndarray, actions: np.ndarray, path: np.ndarray) -> dict[str, np.ndarray]:
        """Errors [...] of plans [..., k, a] made in a state, compared with the recorded states [k, S].

        Only for tasks whose setup judges paths; `metric` names one of them.
        """
        return {}

    def events(self) -> dict[str, bool]:
        """What happened in the last step, e.g. a collision; a row tells whether it ever happened in the episode."""
        return {}

    def draw_goal(self, rng: np.random.Generator) -> np.ndarray:
        """A random goal state [S] for the current episode; only for tasks that draw their own goals."""
        raise MissingMethodError(type(self), "draw_goal")

    def behaviour(self, rng: np.random.Generator) -> Behaviour:
        """A data-collection policy for one episode."""
        raise MissingMethodError(type(self), "behaviour")

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.advance(action)
        return self.render(), 0.0, False, False, {"state": self.get_state()}
