"""Agents: a planner with any cost, a goal-conditioned policy, no action and random actions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from acid.errors import AcidError
from acid.evaluation.protocol import plan_seed
from acid.planning import Controller, Planner
from acid.planning.observations import as_tensors
from acid.planning.proposals import GoalPolicy, Proposal
from acid.types import ActionScaler, Plan, WorldModel

Judge = Callable[[int, np.ndarray], np.ndarray | None]
StepsLeft = Callable[[int, int], int]  # environment steps left of the budget, frameskip: model steps to the goal


@dataclass(frozen=True)
class Situation:
    """What an agent knows of B running episodes when it decides."""

    frames: np.ndarray  # uint8 [B, C, S, S, 3], oldest first; the last one is seen now
    goals: np.ndarray  # uint8 [B, S, S, 3]
    left: int  # environment steps until the budget is used up
    instances: Sequence[str]  # their ids
    seed: int = 0  # of the whole run
    plan: int = 0  # how many plans were made before
    last_actions: np.ndarray | None = None  # [B, a] what was done last, if the task can tell
    judge: Judge = lambda episode, actions: None  # true errors [N] of plans [N, k, a]: for oracles and notes only

    @property
    def seeds(self) -> list[int]:
        """One per episode, the same for every agent."""
        return [plan_seed(self.seed, instance, self.plan) for instance in self.instances]

    @property
    def observation(self) -> np.ndarray:
        """What a world model encodes: [B, S, S, 3], or [B, C, S, S, 3] where there is a context."""
        return self.frames[:, 0] if self.frames.shape[1] == 1 else self.frames


@dataclass(frozen=True)
class Decision:
    """What an agent wants done in each of B running episodes, and what it knows about it."""

    env_actions: np.ndarray  # [B, k, a] in environment units
    cpu_seconds: float = 0.0  # for the whole batch, as is the next
    wall_seconds: float = 0.0
    plan: Plan | None = None  # if the actions come from a search: what it imagined, its consistency, its trace
    goal_cost: Tensor | None = None  # [B], of the plan: ‖ẑ_H − z_g‖²
    imagined_pose: np.ndarray | None = None  # [B, k, ...], what a readout sees in each executed imagined step
    gap: Callable[[np.ndarray], Tensor] | None = None  # pixels [B, ...] after the last action to ‖z − ẑ‖² [B] there
    pool: Sequence[Mapping[str, float]] = field(default_factory=list)  # per episode: what the pool's costs know


class Agent(Protocol):
    """Anything that can be evaluated."""

    def act(self, situation: Situation) -> Decision: ...


class PlanningAgent:
    """Plans, and executes the first `execute` model steps of each plan, by default all of them.

    initial: the mean [B, H, A] (or variables of the parametrisation) or the proposal that a search starts from.
    readout: latents [B, k, P, D] to the poses [B, k, ...] that they show, as the task's success test compares them.
    steps_left: if given, plans become shorter as the goal comes nearer, instead of always aiming H steps ahead.
    """

    def __init__(
        self,
        planner: Planner,
        execute: int | None = None,
        *,
        initial: Callable[[Situation], Tensor | Proposal | None] = lambda situation: None,
        readout: Callable[[Tensor], Tensor] | None = None,
        steps_left: StepsLeft | None = None,
    ) -> None:
        if planner.scaler is None:
            raise AcidError("the planner has no action scaler, so its plans cannot be executed: pass scaler=")
        whole = Controller(planner, planner.horizon if execute is None else execute)
        shorter = () if steps_left is None else range(1, planner.horizon)
        self._controllers = {planner.horizon: whole} | {
            length: Controller(planner.with_horizon(length), min(whole.execute, length)) for length in shorter
        }
        self._steps_left = steps_left
        self._initial = initial
        self._readout = readout

    def act(self, situation: Situation) -> Decision:
        controller = self._controller(situation.left)
        planner, execute = controller.planner, controller.execute
        goals = torch.from_numpy(situation.goals)
        with _Clock() as clock:
            plan = planner.plan(
                torch.from_numpy(situation.observation),
                goals,
                seed=situation.seeds,
                initial=self._initial(situation),
            )
        expected = plan.imagined[:, execute]
        return Decision(
            env_actions=controller.actions(plan),
            cpu_seconds=clock.cpu,
            wall_seconds=clock.wall,
            plan=plan,
            goal_cost=_squared_distance(plan.imagined[:, -1], encode(planner.model, situation.goals)),
            imagined_pose=self._read(plan, execute),
            gap=lambda pixels: _squared_distance(encode(planner.model, pixels), expected),
        )

    def _controller(self, left: int) -> Controller:
        longest = max(self._controllers)
        if self._steps_left is None:
            return self._controllers[longest]
        frameskip = self._controllers[longest].planner.scaler.frameskip  # type: ignore[union-attr]  # checked above
        return self._controllers[min(longest, self._steps_left(left, frameskip))]

    def _read(self, plan: Plan, execute: int) -> np.ndarray | None:
        if self._readout is None:
            return None
        with torch.no_grad():
            return self._readout(plan.imagined[:, 1 : execute + 1]).numpy(force=True)


class PolicyAgent:
    """The goal-conditioned policy in closed loop: it observes again after every answer, and imagines nothing.

    scaler: of the model's steps. answers: of the policy's, if they are other ones or several at once.
    features: what the policy looks at [B, P', D'] of latents [B, P, D].
    """

    def __init__(
        self,
        model: WorldModel,
        policy: GoalPolicy,
        scaler: ActionScaler,
        steps_left: StepsLeft,
        *,
        answers: ActionScaler | None = None,
        features: Callable[[Tensor], Tensor] = lambda latents: latents,
    ) -> None:
        self._model = model
        self._policy = policy
        self._scaler = scaler
        self._steps_left = steps_left
        self._answers = answers or scaler
        self._features = features

    def act(self, situation: Situation) -> Decision:
        with _Clock() as clock, torch.no_grad():
            now, goal = encode(self._model, situation.observation), encode(self._model, situation.goals)
            left = min(self._steps_left(situation.left, self._scaler.frameskip), self._policy.horizon)
            action = self._policy.act(self._features(now), self._features(goal), left)
            env_actions = self._answers.denormalise(action[:, None]).numpy(force=True)
        return Decision(env_actions, clock.cpu, clock.wall)


class NoOpAgent:
    """Repeats an idle action [a] in environment units, which shows what the task does by itself."""

    def __init__(self, action: np.ndarray) -> None:
        self._action = np.asarray(action, np.float32)

    def act(self, situation: Situation) -> Decision:
        return Decision(np.tile(self._action, (len(situation.instances), situation.left, 1)))


class RandomAgent:
    """Uniform within the action bounds; each episode has its own random stream."""

    def __init__(self, low: np.ndarray, high: np.ndarray) -> None:
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise AcidError(f"uniform random actions need finite bounds, got {low.tolist()} to {high.tolist()}")
        self._low, self._high = low, high

    def act(self, situation: Situation) -> Decision:
        streams = [np.random.default_rng(seed) for seed in situation.seeds]
        actions = [rng.uniform(self._low, self._high, (situation.left, len(self._low))) for rng in streams]
        return Decision(np.stack(actions).astype(np.float32))


def encode(model: WorldModel, pixels: np.ndarray) -> Tensor:
    """Pixels uint8 [B, S, S, 3] or [B, C, S, S, 3] to the latents [B, P, D] of the last frame."""
    with torch.no_grad():
        latents = model.encode(observed(model, pixels))
    return latents if latents.dim() == 3 else latents[:, -1]


def observed(model: WorldModel, pixels: np.ndarray) -> Tensor:
    """Pixels on the model's device."""
    return as_tensors(pixels, model)


def _squared_distance(a: Tensor, b: Tensor) -> Tensor:
    """[B, P, D] and [B, P, D] to [B]."""
    return (a - b).square().flatten(1).sum(1)


class _Clock:
    """CPU and wall seconds of a block."""

    cpu = wall = 0.0

    def __enter__(self) -> _Clock:
        self._began = time.process_time(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.cpu, self.wall = time.process_time() - self._began[0], time.perf_counter() - self._began[1]
