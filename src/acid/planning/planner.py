"""The front door: a model, a cost and a search make a planner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from acid.errors import PlanningError, ShapeError
from acid.planning.bounds import Bounds, Limit
from acid.planning.costs import ActionConsistency, Cost, averaged, evaluate_term
from acid.planning.noise import Streams
from acid.planning.objective import Objective
from acid.planning.parametrisation import Parametrisation
from acid.planning.search import Search, check_counts
from acid.planning.timing import Stopwatch
from acid.types import ActionScaler, Plan, Problem, Trace, WorldModel, check_finite


class Planner:
    """A pure function from problems and seeds to plans: same seed, same plan, bit for bit.

    scaler: between normalised and environment actions; by default the model's own `scaler`, if it has one.
    action_size: A, needed only when there is no scaler.
    bounds: (low, high), each one number or one per dimension, in environment units if there is a scaler, else
        normalised. Every candidate and the plan respect them.
    chunk: most candidates (B·N) rolled out at once, to save memory.
    parametrisation: what the search looks for instead of every number of a sequence; bounds then hold for the actions.
    repeats: how often a stochastic model rolls out each candidate, whose costs are averaged; None for a deterministic
        model. The model's `rollout` is then given `seeds`, derived from the plan's.
    """

    def __init__(
        self,
        model: WorldModel,
        cost: Cost,
        search: Search,
        *,
        horizon: int,
        scaler: ActionScaler | None = None,
        action_size: int | None = None,
        bounds: tuple[Limit, Limit] | None = None,
        chunk: int | None = None,
        parametrisation: Parametrisation | None = None,
        repeats: int | None = None,
    ) -> None:
        check_counts(horizon=horizon)
        if repeats is not None:
            check_counts(repeats=repeats)
        if chunk is not None:
            check_counts(chunk=chunk)
        self.model = model
        self.cost = cost
        self.search = search
        self.horizon = horizon
        self.chunk = chunk
        self.parametrisation = parametrisation
        self.repeats = repeats
        self.scaler: ActionScaler | None = scaler if scaler is not None else getattr(model, "scaler", None)
        self.action_size = _action_size(self.scaler, action_size)
        self.bounds = None if bounds is None else Bounds.of(bounds, size=self.action_size, scaler=self.scaler)

    def plan(
        self, observation: Tensor, goal: Tensor, *, seed: int | Sequence[int] = 0, initial: Tensor | None = None
    ) -> Plan:
        """Plans from observations [B, ...] to goal observations [B, ...].

        seed: an int s gives problem b the stream of (s, b); a sequence gives problem b exactly seed[b].
        initial: mean [B, H, A] to start the search from, 0 by default; variables [B, 1, d] if there is a
            parametrisation.
        """
        stopwatch = Stopwatch()
        with torch.no_grad(), stopwatch.measure("total"), stopwatch.measure("encode"):
            start = _encoded("observation", self.model.encode(observation))
            target = _encoded("goal", self.model.encode(goal))
            problem = Problem(start, target if target.dim() == 3 else target[:, -1])
        return self._solve(problem, seed, initial, stopwatch)

    def solve(self, problem: Problem, *, seed: int | Sequence[int] = 0, initial: Tensor | None = None) -> Plan:
        """Plans for problems that are already encoded; see `plan`."""
        return self._solve(problem, seed, initial, Stopwatch())

    @torch.no_grad()
    def _solve(self, problem: Problem, seed: int | Sequence[int], initial: Tensor | None, stopwatch: Stopwatch) -> Plan:
        with stopwatch.measure("total"):
            streams = Streams.of(seed, problem.size)
            objective = self.objective(problem, streams, stopwatch)
            outcome = self.search.run(objective, self.initial_mean(problem, initial), streams)
            plan = self._describe(objective, objective.actions(objective.clamp(outcome.actions)), outcome.trace)
        return replace(plan, seconds={"encode": 0.0, **stopwatch.seconds})

    def objective(self, problem: Problem, streams: Streams, stopwatch: Stopwatch) -> Objective:
        """What a search minimises for these problems."""
        _check_problem(problem)
        return Objective(
            self.model,
            self.cost,
            problem,
            self.bounds,
            self.chunk,
            stopwatch,
            self.horizon,
            self.parametrisation,
            self.repeats,
            streams.seeds,
        )

    def initial_mean(self, problem: Problem, initial: Tensor | None = None) -> Tensor:
        """[B, H, A] in at least single precision; candidates are searched and costs summed in it."""
        chosen = self.parametrisation
        shape = (problem.size, self.horizon, self.action_size) if chosen is None else (problem.size, 1, chosen.size)
        dtype = torch.float64 if problem.now.dtype == torch.float64 else torch.float32
        if initial is None:
            return torch.zeros(shape, dtype=dtype, device=problem.now.device)
        if initial.shape != shape:
            letters = "[B, H, A]" if chosen is None else "[B, 1, d]"
            raise ShapeError(f"initial must be {letters} = {list(shape)}, got {list(initial.shape)}")
        return check_finite("initial", initial).to(problem.now.device, dtype, copy=True)

    def _describe(self, objective: Objective, actions: Tensor, trace: Trace) -> Plan:
        """Look at the chosen actions [B, H, A] once more, this time with every term, even those switched off."""
        everyone = torch.arange(len(actions), device=actions.device)
        repeats = self.repeats or 1
        trajectory = objective.imagine(actions[:, None], everyone)
        costs: dict[str, Tensor] = {}
        consistency: Tensor | None = None
        for term in self.cost.terms:
            if isinstance(term, ActionConsistency) and consistency is None:
                with objective.stopwatch.measure(term.name):
                    consistency = averaged(term.per_step(trajectory), repeats)[:, 0]
                costs[term.name] = consistency.mean(-1)
            else:
                values = evaluate_term(term, trajectory, objective.problem.goal, objective.stopwatch)
                costs[term.name] = averaged(values, repeats)[:, 0]
        return Plan(actions, self._to_env(actions), trajectory.latents[:, 0], costs, consistency, trace)

    def _to_env(self, actions: Tensor) -> Tensor | None:
        if self.scaler is None:
            return None
        env_actions = self.scaler.denormalise(actions)
        return env_actions if self.bounds is None else self.bounds.clamp_env(env_actions)


def _action_size(scaler: ActionScaler | None, action_size: int | None) -> int:
    if scaler is None and action_size is None:
        raise PlanningError("the model has no action scaler: give `scaler`, or `action_size` to plan without one")
    if scaler is not None and action_size not in (None, scaler.size):
        raise ShapeError(
            f"action_size {action_size} does not match the scaler's {scaler.size} "
            f"({scaler.env_size} per environment action, block {scaler.frameskip})"
        )
    size = action_size if scaler is None else scaler.size
    assert size is not None  # for the type checker: both None was refused above
    check_counts(action_size=size)
    return size


def _encoded(name: str, latent: Tensor) -> Tensor:
    if latent.dim() not in (3, 4):
        raise ShapeError(f"encode must return [B, P, D] or [B, T, P, D], got {list(latent.shape)} for the {name}")
    return latent


def _check_problem(problem: Problem) -> None:
    if problem.start.dim() not in (3, 4) or problem.now.shape != problem.goal.shape or not problem.size:
        raise ShapeError(
            "a problem needs start latents [B, P, D] or [B, T, P, D] and goal latents [B, P, D] of the same sizes, "
            f"got start {list(problem.start.shape)} and goal {list(problem.goal.shape)}"
        )
    check_finite("start latent", problem.start)
    check_finite("goal latent", problem.goal)
