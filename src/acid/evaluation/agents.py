"""Who acts: planners (whatever their cost), a goal-conditioned policy, nothing, or chance."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from acid.errors import AcidError
from acid.planning import Controller
from acid.types import ActionScaler, Plan, WorldModel


@dataclass(frozen=True)
class Decision:
    """What an agent wants done in each of B running episodes, and what it knows about it."""

    env_actions: np.ndarray  # [B, k, a] in environment units
    seconds: float = 0.0  # CPU time for the whole batch
    plan: Plan | None = None  # if the actions come from a search: what it imagined, its consistency, its trace
    imagined_error: Tensor | None = None  # [B], the model's own goal cost of the plan: ‖ẑ_H − z_g‖²
    imagined_pose: np.ndarray | None = None  # [B, k, ...], what a readout sees in each executed imagined step
    gap: Callable[[np.ndarray], Tensor] | None = None  # pixels [B, ...] after the last action to ‖z − ẑ‖² [B] there


class Agent(Protocol):
    """Anything that can be evaluated."""

    def act(self, observations: np.ndarray, goals: np.ndarray, *, left: int, seeds: Sequence[int]) -> Decision:
        """Pixels uint8 [B, H, W, 3] of now and of the goal; `left` environment steps; one seed per episode."""
        ...


class GoalPolicy(Protocol):
    """A policy learned from the same data: no search, one action block at a time."""

    def act(self, latent: Tensor, goal: Tensor, left: int, /) -> Tensor:
        """Latents [B, P, D] of now and of the goal and the blocks left to the next normalised action [B, A]."""
        ...


class PlanningAgent:
    """Plans and executes what its controller says. Original, ACID and the control differ only in the planner's cost.

    A consistency term with λ = 0 plays no part in the search but measures Original's plans too. A `readout` tells the
    poses [B, k, ...] that latents [B, k, P, D] show, as the task's success test compares it.
    """

    def __init__(self, controller: Controller, *, readout: Callable[[Tensor], Tensor] | None = None) -> None:
        if controller.warm_start:
            raise AcidError("evaluation batches shrink as episodes end, so it needs a controller with warm_start=False")
        if controller.planner.scaler is None:
            raise AcidError("the planner has no action scaler, so its plans cannot be executed: pass scaler=")
        self._controller = controller
        self._model = controller.planner.model
        self._readout = readout

    def act(self, observations: np.ndarray, goals: np.ndarray, *, left: int, seeds: Sequence[int]) -> Decision:
        began = time.process_time()
        plan = self._controller.plan(torch.from_numpy(observations), torch.from_numpy(goals), seed=seeds)
        seconds = time.process_time() - began
        expected = plan.imagined[:, self._controller.execute]
        return Decision(
            env_actions=self._controller.actions(plan).numpy(force=True),
            seconds=seconds,
            plan=plan,
            imagined_error=_squared_distance(plan.imagined[:, -1], _encode(self._model, goals)),
            imagined_pose=self._read(plan),
            gap=lambda pixels: _squared_distance(_encode(self._model, pixels), expected),
        )

    def _read(self, plan: Plan) -> np.ndarray | None:
        if self._readout is None:
            return None
        with torch.no_grad():
            return self._readout(plan.imagined[:, 1 : self._controller.execute + 1]).numpy(force=True)


class PolicyAgent:
    """The goal-conditioned inverse-dynamics baseline."""

    def __init__(
        self, model: WorldModel, policy: GoalPolicy, scaler: ActionScaler, *, goal_offset: int, budget: int
    ) -> None:
        self._model = model
        self._policy = policy
        self._scaler = scaler
        self._goal_offset = goal_offset
        self._budget = budget

    def act(self, observations: np.ndarray, goals: np.ndarray, *, left: int, seeds: Sequence[int]) -> Decision:
        began = time.process_time()
        now, goal = _encode(self._model, observations), _encode(self._model, goals)
        with torch.no_grad():
            action = self._policy.act(now, goal, self.blocks_left(left))
        env_actions = self._scaler.denormalise(action[:, None])
        return Decision(env_actions.numpy(force=True), seconds=time.process_time() - began)

    def blocks_left(self, left: int) -> int:
        """Blocks until the goal is due; once it is overdue, as fast as possible."""
        elapsed = self._budget - left
        return max(1, math.ceil((self._goal_offset - elapsed) / self._scaler.frameskip))


class NoOpAgent:
    """The same idle action in environment units [a], again and again: what the task does by itself."""

    def __init__(self, action: np.ndarray) -> None:
        self._action = np.asarray(action, np.float32)

    def act(self, observations: np.ndarray, goals: np.ndarray, *, left: int, seeds: Sequence[int]) -> Decision:
        return Decision(np.tile(self._action, (len(seeds), left, 1)))


class RandomAgent:
    """Uniform within the action bounds, an own stream per episode."""

    def __init__(self, low: np.ndarray, high: np.ndarray) -> None:
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise AcidError(f"uniform random actions need finite bounds, got {low.tolist()} to {high.tolist()}")
        self._low, self._high = low, high

    def act(self, observations: np.ndarray, goals: np.ndarray, *, left: int, seeds: Sequence[int]) -> Decision:
        streams = [np.random.default_rng(seed) for seed in seeds]
        actions = [rng.uniform(self._low, self._high, (left, len(self._low))) for rng in streams]
        return Decision(np.stack(actions).astype(np.float32))


def _encode(model: WorldModel, pixels: np.ndarray) -> Tensor:
    """Pixels uint8 [B, H, W, 3] to latents [B, P, D]."""
    with torch.no_grad():
        latents = model.encode(torch.from_numpy(pixels))
    return latents if latents.dim() == 3 else latents[:, -1]


def _squared_distance(a: Tensor, b: Tensor) -> Tensor:
    """[B, P, D] and [B, P, D] to [B]."""
    return (a - b).square().flatten(1).sum(1)
