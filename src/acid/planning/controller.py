"""Model predictive control: plan, execute the first blocks, look again, replan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from acid.errors import PlanningError
from acid.planning.noise import derive_seed
from acid.planning.observations import Observation, as_arrays, stacked
from acid.planning.parametrisation import Free
from acid.planning.planner import Planner
from acid.planning.proposals import Proposal, Remainder, Several
from acid.planning.search import MOST_STEPS, check_counts
from acid.types import Plan


@dataclass(frozen=True)
class Execution:
    """What happened when a controller drove one environment for T steps."""

    observations: Any  # array [T+1, ...], the first one before any action, or a dict of such arrays
    actions: np.ndarray  # [T, a], in environment units
    plans: tuple[Plan, ...]  # in the order they were made
    done: bool  # whether the caller's test held, rather than the budget or the environment ending it


class Controller:
    """Plans for B problems at a time and says what to execute.

    execute: how many blocks of a plan are executed before the next one is made.
    warm_start: begin each search at the rest of the previous plan, or try it beside what the planner's proposal says;
        call `reset` before a new set of problems.
    """

    def __init__(self, planner: Planner, execute: int, warm_start: bool = False) -> None:
        check_counts(execute=execute)
        if execute > planner.horizon:
            raise PlanningError(f"cannot execute {execute} blocks of a plan with horizon {planner.horizon}")
        if warm_start and not isinstance(planner.parametrisation, Free):
            raise PlanningError(
                f"the rest of a plan is not a {type(planner.parametrisation).__name__}: choose warm_start or a "
                "parametrisation, not both"
            )
        self.planner = planner
        self.execute = execute
        self.warm_start = warm_start
        self._previous: Plan | None = None

    def reset(self) -> None:
        """Forget the previous plan."""
        self._previous = None

    def plan(self, observation: Observation, goal: Observation, *, seed: int | Sequence[int] = 0) -> Plan:
        """The next plan for observations and goals [B, ...]; give each replanning a seed of its own."""
        plan = self.planner.plan(observation, goal, seed=seed, initial=self._initial())
        self._previous = plan if self.warm_start else None
        return plan

    def actions(self, plan: Plan) -> np.ndarray:
        """What to execute now: [B, execute*frameskip, a] in environment units (model actions without a scaler)."""
        if plan.env_actions is None or self.planner.scaler is None:
            return plan.actions[:, : self.execute].numpy(force=True)
        return plan.env_actions[:, : self.execute * self.planner.scaler.frameskip].numpy(force=True)

    def run(
        self,
        env: Any,
        goal: Observation,
        *,
        budget: int,
        observation: Observation = None,
        history: int = 1,
        done: Callable[[Any], bool] | None = None,
        seed: int = 0,
    ) -> Execution:
        """Drive one gymnasium environment towards a goal observation for at most `budget` steps.

        Observations, arrays or dicts of them, are given to the model's `encode` as a batch of one.
        observation: where the environment is now; by default it is reset with the seed.
        history: how many observations, a model step apart, `encode` is shown as [1, history, ...], the last one now. At
            the beginning the first one is repeated. With 1 it is shown the last one alone, [1, ...].
        done: asked with the environment before the first and after every step; the episode ends when it says yes.
        """
        check_counts(budget=budget)
        check_counts(MOST_STEPS, history=history)
        self.reset()
        if observation is None:
            observation, _ = _answer(env, "reset", env.reset(seed=seed), 2)
        observations, actions, plans = [as_arrays(observation)], [], []
        solved, ended = bool(done and done(env)), False
        while len(actions) < budget and not (solved or ended):
            seen = self._seen(observations, history)
            plan = self.plan(stacked([seen]), stacked([as_arrays(goal)]), seed=[derive_seed(seed, len(plans))])
            plans.append(plan)
            for action in self.actions(plan)[0][: budget - len(actions)]:
                observation, _, terminated, truncated, _ = _answer(env, "step", env.step(action), 5)
                observations.append(as_arrays(observation))
                actions.append(action)
                solved, ended = bool(done and done(env)), terminated or truncated
                if solved or ended:
                    break
        executed = np.asarray(actions, np.float32).reshape(len(actions), self._env_size)
        return Execution(stacked(observations), executed, tuple(plans), solved)

    def _seen(self, observations: Sequence[Any], history: int) -> Any:
        """The last observation, or the last ones that are a model step apart."""
        if history == 1:
            return observations[-1]
        frameskip = 1 if self.planner.scaler is None else self.planner.scaler.frameskip
        rows = [max(0, len(observations) - 1 - back * frameskip) for back in reversed(range(history))]
        return stacked([observations[row] for row in rows])

    @property
    def _env_size(self) -> int:
        return self.planner.action_size if self.planner.scaler is None else self.planner.scaler.env_size

    def _initial(self) -> Proposal | None:
        if self._previous is None:
            return None
        rest, usual = Remainder(self._previous, self.execute), self.planner.proposal
        return rest if usual is None else Several(usual, rest)


def _answer(env: Any, method: str, found: Any, parts: int) -> tuple[Any, ...]:
    """What an environment returned, which must have as many parts as in gymnasium."""
    if isinstance(found, tuple) and len(found) == parts:
        return found
    raise PlanningError(
        f"{method} of {type(env).__name__} must return {parts} values, as gymnasium's environments do, got "
        + (f"{len(found)}" if isinstance(found, tuple) else type(found).__name__)
    )
