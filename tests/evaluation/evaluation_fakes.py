"""A point on a line: small enough that every outcome can be worked out by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from acid.evaluation import Decision, Protocol, Provenance
from acid.evaluation.protocol import Instance


class Line:
    """State [1] is a position, an action moves it; pixels show the position as a brightness. Success within 0.5."""

    name = "line"
    metric = "success"
    higher_is_better = True
    frameskip = 5

    def __init__(self) -> None:
        self.position = np.zeros(1)
        self.renders = 0
        self.advances = 0
        self.closed = False

    def set_state(self, state):
        self.position = np.array(state, np.float64)

    def get_state(self):
        return self.position.copy()

    def advance(self, action):
        self.advances += 1
        self.position = self.position + np.asarray(action, np.float64)

    def render(self):
        self.renders += 1
        return np.full((8, 8, 3), np.clip(self.position[0], 0, 255), np.uint8)

    def error(self, state, goal_state):
        return float(abs(state - goal_state)[0])

    def success(self, state, goal_state):
        return self.error(state, goal_state) < 0.5

    def is_fair_start(self, state):
        return True

    def moved(self, before, after):
        return before[0] != after[0]

    def close(self):
        self.closed = True


class Walker:
    """Moves `speed` a step towards brighter goals, `block` steps per decision, and remembers what it was asked."""

    def __init__(self, speed: float = 1.0, block: int = 5) -> None:
        self.speed, self.block = speed, block
        self.calls: list[SimpleNamespace] = []

    def act(self, observations, goals, *, left, seeds):
        self.calls.append(SimpleNamespace(size=len(observations), left=left, seeds=list(seeds)))
        direction = np.sign(goals[:, 0, 0, 0].astype(float) - observations[:, 0, 0, 0])
        actions = np.repeat(self.speed * direction[:, None, None], self.block, axis=1)
        return Decision(actions, seconds=1.0 * len(observations))


def instance(start: float, goal: float, number: int = 0) -> Instance:
    return Instance(f"i{number}", number, 0, np.array([float(start)]), np.array([float(goal)]), 0, 25, number)


def fake_episodes(count: int, length: int, step: float = 1.0):
    """Episodes that walk along the line, as `acid.data.Episodes` would show them."""
    states = np.concatenate([1000.0 * e + step * np.arange(length) for e in range(count)])[:, None]
    return SimpleNamespace(
        lengths=np.full(count, length),
        offsets=np.arange(count) * length,
        read=lambda column, rows: {"state": states}[column][rows],
    )


def provenance(**checkpoints: str) -> Provenance:
    return Provenance(checkpoints, revision="abc", versions={"python": "3"})


PROTOCOL = Protocol(goal_offset=5, budget=10, episodes=4)
