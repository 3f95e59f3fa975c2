"""Any gymnasium environment whose state can be read and restored, as a task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from acid.errors import AcidError
from acid.evaluation.protocol import Instance, Instances, Protocol, digest
from acid.tasks import Setup, Task

Comparer = Callable[[np.ndarray, np.ndarray], Any]


class EnvironmentTask(Task):
    """Wraps an environment; see `as_task`."""

    def __init__(
        self,
        env: Any,
        *,
        observe: Callable[[Any], np.ndarray] | None,
        error: Comparer | None,
        success: Comparer | None,
        name: str,
        frameskip: int,
    ) -> None:
        self.env = env
        self.name = name  # type: ignore[misc]
        self.frameskip = frameskip  # type: ignore[misc]
        self.metric = "final_error" if success is None else "success"  # type: ignore[misc]
        self.higher_is_better = success is not None  # type: ignore[misc]
        self.setup = Setup()  # type: ignore[misc]
        self.action_space = env.action_space
        self.observation_space = env.observation_space
        self._observe = observe or (lambda env: env.render())
        self._error = error or (lambda state, goal: np.linalg.norm(state - goal))
        self._success = success or (lambda state, goal: False)

    def advance(self, action: np.ndarray) -> None:
        self.env.step(np.asarray(action, self.action_space.dtype).reshape(self.action_space.shape))

    def render(self) -> np.ndarray:  # type: ignore[override]
        seen = self._observe(self.env)
        if not isinstance(seen, np.ndarray):
            raise AcidError(
                f"{self.name}: observing the environment gave {type(seen).__name__}, not an array; make it with "
                "render_mode='rgb_array' or pass observe="
            )
        return seen

    def get_state(self) -> np.ndarray:
        return np.array(self.env.get_state(), np.float64).ravel()

    def set_state(self, state: np.ndarray) -> None:
        self.env.set_state(np.array(state, np.float64))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        _, info = self.env.reset(seed=seed, options=options)
        return self.render(), info

    def pose(self, state: np.ndarray) -> np.ndarray:
        return state

    def error(self, state: np.ndarray, goal_state: np.ndarray) -> float:
        return float(self._error(state, goal_state))

    def success(self, state: np.ndarray, goal_state: np.ndarray) -> bool:
        return bool(self._success(state, goal_state))

    def close(self) -> None:
        self.env.close()


def as_task(
    env: Any,
    *,
    observe: Callable[[Any], np.ndarray] | None = None,
    error: Comparer | None = None,
    success: Comparer | None = None,
    name: str | None = None,
    frameskip: int = 1,
) -> Task:
    """A gymnasium environment with `get_state` and `set_state` as a task; a task stays as it is.

    observe: the environment to what a world model encodes; by default `env.render()`.
    error, success: of a state [S] against a goal state [S]. By default the distance of the states, and no success.
    frameskip: environment steps per model step.
    """
    if isinstance(env, Task):
        if any(option is not None for option in (observe, error, success, name)) or frameskip != 1:
            raise AcidError(f"the task {env.name!r} says itself how it is observed and judged; pass no such options")
        return env
    missing = [method for method in ("get_state", "set_state", "step", "reset") if not hasattr(env, method)]
    if missing:
        inside = getattr(env, "unwrapped", env)
        hint = "; pass env.unwrapped, which has it" if inside is not env and hasattr(inside, missing[0]) else ""
        raise AcidError(
            f"{type(env).__name__} has no {missing[0]}: an environment must restore its states exactly{hint}"
        )
    if not isinstance(getattr(env, "action_space", None), gymnasium.spaces.Box):
        raise AcidError(
            f"{type(env).__name__} must have a Box as action_space, got {getattr(env, 'action_space', None)}"
        )
    return EnvironmentTask(
        env,
        observe=observe,
        error=error,
        success=success,
        name=name or type(getattr(env, "unwrapped", env)).__name__.lower(),
        frameskip=frameskip,
    )


STREAMS = {"select": 0, "test": 1, "confirm": 2}  # of random numbers, so that splits share no problem


def draw_from_environment(task: Task, protocol: Protocol) -> Instances:
    """Starts from resets; goals that random actions reach from there, or that the task draws by itself.

    Only starts that are not solved already.
    """
    if task.setup.judges_paths or task.setup.context > 1:
        raise AcidError(f"instances of {task.name!r} hold frames before the start or a path; pass instances=")
    if not all(np.isfinite(bound).all() for bound in task.action_bounds):
        raise AcidError(f"{task.name!r} has no finite action bounds to act at random within; pass instances=")
    drawn: list[Instance] = []
    for draw in range(20 * protocol.episodes):
        if len(drawn) == protocol.episodes:
            break
        rng = np.random.default_rng([protocol.seed, draw, STREAMS[protocol.split]])
        task.reset(seed=int(rng.integers(2**31)))
        start = task.get_state()
        goal = task.draw_goal(rng) if protocol.goal_offset is None else _wander(task, protocol.goal_offset, rng)
        if not task.success(start, goal):
            name = f"s{protocol.seed}-{protocol.split}-{draw:05d}-g{protocol.goal_offset or ''}-{digest([start, goal])}"
            drawn.append(Instance(name, draw, 0, start, goal, len(drawn)))
    if len(drawn) < protocol.episodes:
        raise AcidError(f"only {len(drawn)} of {20 * protocol.episodes} random starts of {task.name!r} are not solved")
    return Instances(tuple(drawn))


def _wander(task: Task, steps: int, rng: np.random.Generator) -> np.ndarray:
    for _ in range(steps):
        task.advance(rng.uniform(*task.action_bounds))
    return task.get_state()
