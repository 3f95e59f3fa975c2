"""The front door: a model, a cost and a search make a planner."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from acid.device import device_of, dtype_of
from acid.errors import PlanningError, ShapeError, check_offers, did_you_mean
from acid.planning.bounds import Bounds, Limit
from acid.planning.costs import Cost
from acid.planning.finite import FiniteCheck
from acid.planning.imagination import Imagination, takes_past_actions, takes_seeds
from acid.planning.memory import fitting
from acid.planning.noise import Streams
from acid.planning.objective import Objective
from acid.planning.observations import Observation, as_tensors
from acid.planning.observer import Observer
from acid.planning.parametrisation import Free, Parametrisation, Space
from acid.planning.precision import Precision, PrecisionName
from acid.planning.proposals import Proposal
from acid.planning.rows import Rows
from acid.planning.search import MOST_ACTION_NUMBERS, MOST_STEPS, Search, Start, check_counts
from acid.planning.timing import Stopwatch
from acid.types import ActionScaler, Plan, Problem, WorldModel, check_finite, check_tensor


class Planner:
    """A pure function from problems and seeds to plans: same seed, same plan, bit for bit.

    scaler: between normalised and environment actions; by default the model's own `scaler`, if it has one.
    action_size: A, needed only when there is no scaler.
    bounds: (low, high), each one number or one per dimension, in environment units if there is a scaler, else
        normalised. Every candidate and the plan respect them.
    chunk: most candidates (B·N) imagined and judged at once, to save memory; a cost term then sees only those.
    max_memory: most bytes that imagining and judging may take besides the networks, instead of a chunk. Two small
        rollouts at the beginning of every plan tell how many candidates fit. What a gradient needs is not counted.
    parametrisation: what the search looks for; by default `Free`, every number of every action.
    repeats: how often a stochastic model, one whose `rollout` takes `seeds`, rolls out each candidate. Costs are
        averaged over the repeats.
    noise: where candidates are drawn. On the "cpu" a seed means the same candidates on every device; on the "device"
        of the model nothing has to be moved.
    proposal: where a search starts if `plan` is given no `initial`.
    observer: called with every `Iteration` of every search; it sees copies, so plans are the same without it.
    precision: "float32" computes as the model is; "bfloat16" runs encoder, rollout and cost terms under autocast,
        "mixed" the cost terms only.

    Problems are moved to the device of the model, observations and latents take the precision of its weights, and plans
    stay on the device.
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
        max_memory: int | None = None,
        parametrisation: Parametrisation | None = None,
        proposal: Proposal | None = None,
        repeats: int = 1,
        noise: Literal["cpu", "device"] = "cpu",
        observer: Observer | None = None,
        precision: PrecisionName = "float32",
    ) -> None:
        check_offers("the model of a planner", model, "rollout")
        check_offers("the search of a planner", search, "run")
        for what, given, methods in (
            ("proposal", proposal, ["__call__"]),
            ("observer", observer, ["__call__"]),
            ("parametrisation", parametrisation, ["length", "__call__"]),
        ):
            if given is not None:
                check_offers(f"the {what} of a planner", given, *methods)
        if not isinstance(cost, Cost):
            raise PlanningError(f"the cost of a planner must be a Cost, e.g. Cost([GoalDistance()]), got {cost!r}")
        check_counts(MOST_STEPS, horizon=horizon)
        check_counts(repeats=repeats)
        if chunk is not None:
            check_counts(chunk=chunk)
        if max_memory is not None:
            check_counts(max_memory=max_memory)
            if chunk is not None:
                raise PlanningError(f"choose chunk={chunk} or max_memory={max_memory}, not both")
        if noise not in ("cpu", "device"):
            raise PlanningError(f"unknown place to draw noise {noise!r}{did_you_mean(noise, ['cpu', 'device'])}")
        scaler = scaler if scaler is not None else getattr(model, "scaler", None)
        if scaler is not None and not isinstance(scaler, ActionScaler):
            raise PlanningError(f"the scaler of a planner must be an ActionScaler, got a {type(scaler).__name__}")
        self.model = model
        self.cost = cost
        self.search = search
        self.horizon = horizon
        self.chunk = chunk
        self.max_memory = max_memory
        self.repeats = repeats
        self.proposal = proposal
        self.noise = noise
        self.observer = observer
        self.precision = Precision(precision)
        self.scaler: ActionScaler | None = scaler
        self.action_size = _action_size(self.scaler, action_size)
        self.bounds = None if bounds is None else Bounds.of(bounds, size=self.action_size, scaler=self.scaler)
        self.parametrisation = Free(self.action_size) if parametrisation is None else parametrisation
        self._stochastic = takes_seeds(model)
        if repeats > 1 and not self._stochastic:
            raise PlanningError(
                f"repeats is {repeats}, but the rollout of {type(model).__name__} takes no `seeds`, so every repeat "
                "would be the same: plan with repeats=1"
            )
        _check_terms(cost, self.scaler, model)

    def plan(
        self,
        observation: Observation,
        goal: Observation,
        *,
        seed: int | Sequence[int] = 0,
        initial: Tensor | Proposal | None = None,
        past_actions: Tensor | None = None,
    ) -> Plan:
        """Plans from observations [B, ...] to goal observations [B, ...], tensors, arrays or dicts of them.

        seed: an int s gives problem b the stream of (s, b); a sequence gives problem b exactly seed[b].
        initial: where to start instead of at the planner's proposal: another proposal, or the mean [B, V, d] of the
            search variables; without a parametrisation those are normalised actions [B, H, A].
        past_actions: [B, T-1, A], normalised, between T context frames, for a model whose `rollout` takes them.
        """
        stopwatch = Stopwatch()
        with torch.no_grad(), stopwatch.measure("total"), stopwatch.measure("encode"):
            start, target = self._encode("observation", observation), self._encode("goal", goal)
            problem = Problem(start, target if target.dim() == 3 else target[:, -1], past_actions)
        return self._solve(problem, seed, initial, stopwatch)

    def with_horizon(self, horizon: int) -> Planner:
        """The same planner for plans of another length."""
        check_counts(MOST_STEPS, horizon=horizon)
        other = copy.copy(self)
        other.horizon = horizon
        return other

    def solve(
        self, problem: Problem, *, seed: int | Sequence[int] = 0, initial: Tensor | Proposal | None = None
    ) -> Plan:
        """Plans for problems that are already encoded; see `plan`."""
        return self._solve(problem, seed, initial, Stopwatch())

    def prepare(
        self,
        problem: Problem,
        seed: int | Sequence[int],
        initial: Tensor | Proposal | None,
        stopwatch: Stopwatch,
    ) -> tuple[Objective, Start, Streams]:
        """What `Search.run` is given for checked problems: the objective, where to start and the random streams."""
        problem = problem.to(device_of(self.model), dtype_of(self.model))
        if problem.past_actions is not None and not takes_past_actions(self.model):
            raise PlanningError(
                f"past actions were given, but the rollout of {type(self.model).__name__} takes no `past_actions`: "
                "leave them out"
            )
        streams = Streams.of(seed, problem.size, problem.now.device if self.noise == "device" else "cpu")
        imagination = Imagination(
            model=self.model,
            problem=problem,
            seeds=streams.seeds if self._stochastic else None,
            repeats=self.repeats,
            chunk=self.chunk,
            precision=self.precision,
            stopwatch=stopwatch,
        )
        start = self._start(problem, self.proposal if initial is None else initial, streams, stopwatch)
        limits = None if self.bounds is None else self.bounds.normalised(start.mean)
        space = Space(self.parametrisation, self.horizon, limits)
        objective = Objective(
            cost=self.cost,
            space=space,
            imagination=imagination,
            finite=FiniteCheck(deferred=start.mean.device.type != "cpu"),
            observer=self.observer,
        )
        if self.max_memory is not None:
            chunk = _fitting_chunk(objective, start.mean, self.max_memory)
            objective = replace(objective, imagination=replace(imagination, chunk=chunk))
        if start.sequences is not None:
            start = replace(start, sequences=space.clamp(start.sequences))
        return objective, start, streams

    @torch.no_grad()
    def _solve(
        self, problem: Problem, seed: int | Sequence[int], initial: Tensor | Proposal | None, stopwatch: Stopwatch
    ) -> Plan:
        with stopwatch.measure("total"):
            problem.check(self.action_size)
            objective, start, streams = self.prepare(problem, seed, initial, stopwatch)
            outcome = self.search.run(objective, start, streams)
            if not (hasattr(outcome, "candidates") and hasattr(outcome, "trace")):
                raise PlanningError(f"a search must return an Outcome, got a {type(outcome).__name__}")
            objective.check("what a search returns", outcome.candidates, self._shape(problem))
            objective.finite.finish()
            actions = objective.actions(objective.clamp(outcome.candidates))
            with torch.compiler.set_stance("force_eager"):  # one candidate: nothing to compile networks again for
                trajectory = objective.imagine(actions[:, None], Rows.all(len(actions)))
                described = objective.describe(trajectory)
            stopwatch.wait(actions.device)
        return Plan(
            actions=actions,
            env_actions=self._to_env(actions),
            imagined=trajectory.latents[:, 0],
            costs=described.costs,
            per_step=described.per_step,
            trace=outcome.trace,
            seconds={"encode": 0.0, **stopwatch.seconds},
        )

    def _encode(self, name: str, observation: Observation) -> Tensor:
        """Observations [B, ...] to latents [B, P, D] or [B, T, P, D] on the device of the model."""
        check_offers("the model of a planner", self.model, "encode")
        seen = as_tensors(observation, self.model)
        device = device_of(self.model) or getattr(seen, "device", torch.device("cpu"))  # a dict has none
        with self.precision.imagining(device):
            found = self.model.encode(seen)
        check_tensor("what encode returns", found)
        latent = self.precision.latent(found)
        if latent.dim() not in (3, 4) or not latent.numel():
            raise ShapeError(f"encode must return [B, P, D] or [B, T, P, D], got {list(latent.shape)} for the {name}")
        return latent

    def _start(
        self, problem: Problem, initial: Tensor | Proposal | None, streams: Streams, stopwatch: Stopwatch
    ) -> Start:
        """Checked, in at least single precision; candidates are searched and costs summed in it."""
        if initial is not None and not isinstance(initial, Tensor):
            with stopwatch.measure("proposal"), self.precision.imagining(problem.now.device):
                start = initial(self.model, problem, self.horizon, streams)
            return Start(
                self._variables("the mean of the proposal", start.mean, problem),
                None if start.std is None else _not_negative(self._variables("its std", start.std, problem)),
                None if start.sequences is None else self._variables("its sequences", start.sequences, problem, "M"),
            )
        if initial is None:  # known to be finite, without waiting for the device to say so
            return Start(torch.zeros(self._shape(problem), dtype=_search_dtype(problem), device=problem.now.device))
        return Start(self._variables("initial", initial, problem))

    def _shape(self, problem: Problem) -> tuple[int, int, int]:
        """[B, V, d] of the search variables."""
        return problem.size, self.parametrisation.length(self.horizon), self.parametrisation.size

    def _variables(self, name: str, values: Tensor, problem: Problem, many: str | None = None) -> Tensor:
        """Finite values [B, V, d], or [B, M, V, d] of many, on the device of the problem."""
        size, length, width = self._shape(problem)
        found = tuple(values.shape)
        if found != (size, *found[1 : 1 if many is None else 2], length, width):
            letters = "[B, V, d]" if many is None else f"[B, {many}, V, d]"
            expected = str([size, *([] if many is None else [many]), length, width]).replace("'", "")
            raise ShapeError(
                f"{name} must be {letters} = {expected} for the variables of {type(self.parametrisation).__name__}, "
                f"got {list(found)}"
            )
        return check_finite(name, values).to(problem.now.device, _search_dtype(problem), copy=True)

    def _to_env(self, actions: Tensor) -> Tensor | None:
        if self.scaler is None:
            return None
        env_actions = self.scaler.denormalise(actions)
        return env_actions if self.bounds is None else self.bounds.clamp_env(env_actions)


def _fitting_chunk(objective: Objective, mean: Tensor, most: int) -> int:
    """How many candidates take at most so many bytes, from judging few copies of the mean [B, V, d]."""
    rows = Rows.all(len(mean))
    with torch.compiler.set_stance("force_eager"):
        return fitting(
            lambda count: objective(mean[:, None].repeat(1, count, 1, 1), rows=rows, iteration=0), len(mean), most
        )


def _search_dtype(problem: Problem) -> torch.dtype:
    return torch.float64 if problem.now.dtype == torch.float64 else torch.float32


def _not_negative(std: Tensor) -> Tensor:
    if (std < 0).any():
        raise PlanningError("the std of a proposal must not be negative")
    return std


def _check_terms(cost: Cost, scaler: ActionScaler | None, model: WorldModel) -> None:
    for term in cost.terms:
        for name, own in (("check_scaler", scaler), ("check_model", model)):
            check = getattr(term, name, None)
            if check is not None and own is not None:
                check(own)


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
    check_counts(MOST_ACTION_NUMBERS, action_size=size)
    return size
