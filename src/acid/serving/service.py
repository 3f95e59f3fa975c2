"""From a request to an answer: what is read from an observation, and what a client is told about the plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from acid.errors import AcidError
from acid.planning import Planner, Proposal
from acid.serving.messages import MessageError
from acid.serving.trust import Trust

SEED, LAST_ACTION = "seed", "last_action"


@dataclass(frozen=True)
class Inputs:
    """Which entries of an observation are read, and the arrays that they must hold. Others are ignored."""

    observation: tuple[int, ...]  # shape of one observation, e.g. (64, 64, 3)
    goal: tuple[int, ...]
    dtype: str = "uint8"
    observation_key: str = "observation/image"
    goal_key: str = "goal/image"

    def read(self, message: Mapping[str, Any], key: str) -> np.ndarray:
        shape, value = self.goal if key == self.goal_key else self.observation, message[key]
        if not isinstance(value, np.ndarray) or value.shape != shape or value.dtype != self.dtype:
            found = f"{value.dtype} {list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
            raise MessageError(f"{key!r} must be an array of {self.dtype} {list(shape)}, got {found}")
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise MessageError(f"{key!r} holds NaN or infinite values")
        return value.copy()  # what comes out of a message cannot be written to, which torch wants


@dataclass(frozen=True)
class Request:
    """One problem to plan for."""

    observation: np.ndarray
    goal: np.ndarray
    seed: int = 0
    last_action: np.ndarray | None = None


class Session:
    """What one connection has said so far: its goal stays until it names another."""

    def __init__(self, inputs: Inputs, goal: np.ndarray | None = None) -> None:
        self._inputs = inputs
        self._goal = goal

    def request(self, message: Any) -> Request | None:
        """What a message asks for; None if it only names the goal."""
        keys = self._inputs
        if not isinstance(message, dict):
            raise MessageError(f"an observation is a map of names to arrays, got a {type(message).__name__}")
        if keys.goal_key in message:
            self._goal = keys.read(message, keys.goal_key)
        if keys.observation_key not in message:
            if keys.goal_key in message:
                return None
            raise MessageError(f"the observation has no {keys.observation_key!r}; it has {_some(message)}")
        observation = keys.read(message, keys.observation_key)
        if self._goal is None:
            raise MessageError(f"there is no goal yet: send {keys.goal_key!r} with the observation, or once before it")
        seed = message.get(SEED, 0)
        if type(seed) is not int or not 0 <= seed < 2**63:
            raise MessageError(f"{SEED!r} must be an integer from 0 to 2**63 - 1, got {seed!r:.60}")
        last = message.get(LAST_ACTION)
        if last is not None and (not isinstance(last, np.ndarray) or last.ndim != 1 or last.dtype.kind not in "iuf"):
            raise MessageError(f"{LAST_ACTION!r} must be an array of numbers [a], got a {type(last).__name__}")
        return Request(observation, self._goal, seed, None if last is None else last.astype(np.float32))


class Service:
    """A planner that answers requests.

    initial: observations, goals and last actions (None where a client sends none) to what a search starts from.
    """

    def __init__(
        self,
        planner: Planner,
        inputs: Inputs,
        *,
        trust: Trust | None = None,
        about: Mapping[str, Any] | None = None,
        initial: Callable[[np.ndarray, np.ndarray, np.ndarray], Tensor | Proposal | None] | None = None,
    ) -> None:
        if planner.scaler is None:
            raise AcidError("the planner has no action scaler, so its plans cannot be executed: pass scaler=")
        self.inputs = inputs
        self._planner = planner
        self._scaler = planner.scaler
        self._trust = trust
        self._about = about or {}
        self._initial = initial

    @property
    def metadata(self) -> dict[str, Any]:
        """What a client is told first."""
        keys = self.inputs
        return {
            **self._about,
            "inputs": {
                keys.observation_key: {"dtype": keys.dtype, "shape": list(keys.observation)},
                keys.goal_key: {"dtype": keys.dtype, "shape": list(keys.goal)},
            },
            "action_horizon": self._planner.horizon * self._scaler.frameskip,
            "action_dim": self._scaler.env_size,
            "steps_per_consistency": self._scaler.frameskip,
            "trust": None if self._trust is None else asdict(self._trust),
        }

    def blank(self) -> Request:
        """A request to warm up with."""
        keys = self.inputs
        observation, goal = np.zeros(keys.observation, keys.dtype), np.zeros(keys.goal, keys.dtype)
        last = None if self._initial is None else np.zeros(self._scaler.env_size, np.float32)
        return Request(observation, goal, last_action=last)

    def answer(self, requests: Sequence[Request]) -> list[dict[str, Any]]:
        """One answer per request; each is the same as if it had been the only one."""
        observations, goals = (
            np.stack([getattr(request, name) for request in requests]) for name in ("observation", "goal")
        )
        plan = self._planner.plan(
            torch.from_numpy(observations),
            torch.from_numpy(goals),
            seed=[request.seed for request in requests],
            initial=self._start(observations, goals, requests),
        )
        assert plan.env_actions is not None  # there is a scaler
        actions, steps = plan.env_actions.numpy(force=True), plan.consistency
        answers: list[dict[str, Any]] = []
        for row in range(len(requests)):
            costs = {name: float(values[row]) for name, values in plan.costs.items()}
            answers.append(
                {
                    "actions": np.ascontiguousarray(actions[row]),
                    "consistency": None if steps is None else steps[row].numpy(force=True),
                    "costs": costs,
                    "trusted": None if self._trust is None else self._trust.holds(costs),
                }
            )
        return answers

    def _start(
        self, observations: np.ndarray, goals: np.ndarray, requests: Sequence[Request]
    ) -> Tensor | Proposal | None:
        if self._initial is None:
            return None
        size, last = self._scaler.env_size, [request.last_action for request in requests]
        if any(action is None or action.shape != (size,) for action in last):
            raise MessageError(f"this planner starts from the last action: send {LAST_ACTION!r}, an array [{size}]")
        return self._initial(observations, goals, np.stack([action for action in last if action is not None]))


def _some(message: Mapping[Any, Any]) -> str:
    return ", ".join(repr(name)[:40] for name in list(message)[:5]) or "nothing"
