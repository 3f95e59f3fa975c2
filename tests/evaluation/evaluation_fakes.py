"""A point on a line: small enough that every outcome can be worked out by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import torch

from acid.evaluation import Decision, Instance, Protocol, Provenance, Situation
from acid.tasks import Setup, Task
from acid.types import ActionScaler

PROTOCOL = Protocol(goal_offset=5, budget=10, episodes=4)
SCALER = ActionScaler(mean=(1.0,), std=(2.0,), frameskip=5)


class Line(Task):
    """State [1] is a position, an action moves it; pixels show the position as a brightness. Success within 0.5."""

    name = "line"
    frameskip = 5
    error_unit = "m"
    setup = Setup(goal_offset=5, budget=10)

    def __init__(self, *, size: int = 8) -> None:
        self.size = size
        self.action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        self.position = np.zeros(1)
        self.renders = 0
        self.advances = 0
        self.closed = False

    def set_state(self, state: np.ndarray) -> None:
        self.position = np.array(state, np.float64)

    def get_state(self) -> np.ndarray:
        return self.position.copy()

    def advance(self, action: np.ndarray) -> None:
        self.advances += 1
        self.position = self.position + np.asarray(action, np.float64)

    def render(self) -> np.ndarray:  # type: ignore[override]
        self.renders += 1
        return np.full((self.size, self.size, 3), np.clip(self.position[0], 0, 255), np.uint8)

    def pose(self, state: np.ndarray) -> np.ndarray:
        return state

    def error(self, state: np.ndarray, goal_state: np.ndarray) -> float:
        return float(abs(state - goal_state)[0])

    def pose_error(self, pose: np.ndarray, goal_state: np.ndarray) -> float:
        return self.error(pose, goal_state)

    def success(self, state: np.ndarray, goal_state: np.ndarray) -> bool:
        return self.error(state, goal_state) < 0.5

    def close(self) -> None:
        self.closed = True


class PathLine(Line):
    """The same, where a plan is compared with the way that was really taken, and two frames are shown."""

    name = "pathline"
    metric = "off_m"
    higher_is_better = False
    frameskip = 1
    setup = Setup(goal_offset=3, budget=3, horizon=3, context=2, judges_paths=True, own_lambda=True)

    def last_action(self, states: np.ndarray) -> np.ndarray | None:
        return states[-1] - states[-2] if len(states) > 1 else None

    def plan_metrics(self, state: np.ndarray, actions: np.ndarray, path: np.ndarray) -> dict[str, np.ndarray]:
        passed = state + actions.cumsum(-2)
        return {"off_m": abs(passed - path)[..., 0].mean(-1)}

    def events(self) -> dict[str, bool]:
        return {"beyond": bool(self.position[0] > 15)}


class Walker:
    """Moves `speed` a step towards brighter goals, `block` steps per decision, and remembers what it was asked."""

    def __init__(self, speed: float = 1.0, block: int = 5) -> None:
        self.speed, self.block = speed, block
        self.calls: list[Situation] = []

    def act(self, situation: Situation) -> Decision:
        self.calls.append(situation)
        direction = np.sign(situation.goals[:, 0, 0, 0].astype(float) - situation.frames[:, -1, 0, 0, 0])
        actions = np.repeat(self.speed * direction[:, None, None], self.block, axis=1)
        return Decision(actions, cpu_seconds=1.0 * len(direction), wall_seconds=2.0 * len(direction))


class Adder:
    """A world model: the latent [B, 1, 1] is the brightness, to which each model action adds its sum."""

    scaler = SCALER

    def __init__(self) -> None:
        self.rollouts = 0

    def encode(self, observation: torch.Tensor) -> torch.Tensor:
        return observation[..., 0, 0, :1, None].float()

    def rollout(self, latent: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        self.rollouts += 1
        now = latent if latent.dim() == 3 else latent[:, -1]
        return now[:, None, None] + actions.sum(-1).cumsum(-1)[..., None, None]


class Blind:
    """A verifier that always answers zero, so that the residual is ‖a‖²."""

    scaler = SCALER

    def infer(self, latent: torch.Tensor, next_latent: torch.Tensor) -> torch.Tensor:
        return latent.new_zeros(*latent.shape[:-2], self.scaler.size)


def situation(now: list[int], goals: list[int], **options: Any) -> Situation:
    """Episodes that show one brightness and want another."""
    frames, wanted = (np.stack([np.full((8, 8, 3), b, np.uint8) for b in values]) for values in (now, goals))
    names = options.pop("instances", [f"i{k}" for k in range(len(now))])
    return Situation(frames[:, None], wanted, options.pop("left", 50), names, **options)


def instance(start: float, goal: float, number: int = 0, **options: Any) -> Instance:
    return Instance(f"i{number}", number, 0, np.array([float(start)]), np.array([float(goal)]), number, **options)


def path_instance(start: float, *path: float, number: int = 0) -> Instance:
    """It came from one to the left of the start."""
    context, passed = np.array([[start - 1.0]]), np.array(path, float)[:, None]
    return instance(start, path[-1], number, context=context, path=passed)


def fake_episodes(count: int, length: int, step: float = 1.0) -> Any:
    """Episodes that walk along the line, as `acid.data.Episodes` would show them."""
    states = np.concatenate([1000.0 * e + step * np.arange(length) for e in range(count)])[:, None]
    return SimpleNamespace(
        lengths=np.full(count, length),
        offsets=np.arange(count) * length,
        columns=("state",),
        read=lambda column, rows: {"state": states}[column][rows],
    )


def provenance(**checkpoints: str) -> Provenance:
    return Provenance(checkpoints, revision="abc", versions={"python": "3"})
