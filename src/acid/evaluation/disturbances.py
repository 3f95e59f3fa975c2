"""Two limits that the paper names: a part of what is observed is hidden, or something else acts too."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from acid.errors import AcidError
from acid.evaluation.agents import Agent, Decision, Situation

GREY = 128


def _streams(situation: Situation) -> list[np.random.Generator]:
    """A stream per episode and plan, another than the search's."""
    return [np.random.default_rng([seed, 1]) for seed in situation.seeds]


@dataclass(frozen=True)
class MaskedAgent:
    """Sees its own frames with a grey square somewhere, which hides a share of each side; the goal is shown whole."""

    agent: Agent
    share: float = 0.5

    def act(self, situation: Situation) -> Decision:
        frames = situation.frames.copy()
        height, width = frames.shape[2:4]
        tall, wide = round(self.share * height), round(self.share * width)
        for seen, stream in zip(frames, _streams(situation), strict=True):
            top, left = stream.integers(height - tall + 1), stream.integers(width - wide + 1)
            seen[:, top : top + tall, left : left + wide] = GREY
        return self.agent.act(replace(situation, frames=frames))


@dataclass(frozen=True)
class PushedAgent:
    """Executes what was planned, except that random actions replace the first steps of every plan."""

    agent: Agent
    low: np.ndarray  # bounds of an environment action, [a]
    high: np.ndarray
    steps: int  # environment steps

    def __post_init__(self) -> None:
        if not (np.isfinite(self.low).all() and np.isfinite(self.high).all()):
            raise AcidError(f"random pushes need finite bounds, got {self.low.tolist()} to {self.high.tolist()}")

    def act(self, situation: Situation) -> Decision:
        decision = self.agent.act(situation)
        actions = decision.env_actions.copy()
        for planned, stream in zip(actions, _streams(situation), strict=True):
            pushed = planned[: self.steps]
            pushed[:] = stream.uniform(self.low, self.high, pushed.shape)
        return replace(decision, env_actions=actions)
