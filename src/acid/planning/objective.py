"""From candidate actions to costs: roll out, then evaluate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from acid.errors import PlanningError, ShapeError
from acid.planning.bounds import Bounds
from acid.planning.costs import Cost, Evaluation
from acid.planning.noise import derive_seed
from acid.planning.parametrisation import Parametrisation
from acid.planning.timing import Stopwatch
from acid.types import Problem, StochasticWorldModel, Trajectory, WorldModel


@dataclass(frozen=True)
class Objective:
    """What a search minimises: the cost of B problems as a function of their candidates."""

    model: WorldModel
    cost: Cost
    problem: Problem
    bounds: Bounds | None
    chunk: int | None  # most candidates B·N rolled out at once
    stopwatch: Stopwatch
    horizon: int = 1  # H, for the parametrisation
    parametrisation: Parametrisation | None = None  # then a search sees its variables [..., 1, d] as the actions
    repeats: int | None = None  # rollouts of each candidate by a stochastic model; None: the model is not
    seeds: Sequence[int] = ()  # of the problems, for a stochastic model

    def __call__(self, candidates: Tensor, *, rows: Tensor, iteration: int) -> Evaluation:
        """Costs of candidates [R, N, H, A] for the problems `rows` [R]; a PlanningError if one has no finite cost."""
        trajectory = self.imagine(self.actions(candidates), rows, iteration)
        evaluation = self.cost.evaluate(
            trajectory, self.problem.goal[rows], repeats=self.repeats or 1, stopwatch=self.stopwatch
        )
        _check_some_finite(evaluation, rows, iteration)
        return evaluation

    def clamp(self, actions: Tensor) -> Tensor:
        """Actions [..., H, A] within the bounds, if there are any; variables of a parametrisation have none."""
        return actions if self.bounds is None or self.parametrisation is not None else self.bounds.clamp(actions)

    def actions(self, candidates: Tensor) -> Tensor:
        """What the search looks for as actions [..., H, A] within the bounds."""
        if self.parametrisation is None:
            return candidates
        actions = self.parametrisation(candidates.squeeze(-2), self.horizon)
        return actions if self.bounds is None else self.bounds.clamp(actions)

    def imagine(self, actions: Tensor, rows: Tensor, iteration: int = 0) -> Trajectory:
        """The trajectories of actions [R, N, H, A] for the problems `rows` [R].

        With repeats, the N candidates follow one another that often: [R, repeats·N, ...].
        """
        if self.repeats is None:
            return self._imagine(actions, rows, None)
        drawn = [
            self._imagine(actions, rows, [derive_seed(self.seeds[row], iteration, repeat) for row in rows.tolist()])
            for repeat in range(self.repeats)
        ]
        return Trajectory(torch.cat([one.latents for one in drawn], 1), torch.cat([one.actions for one in drawn], 1))

    def _imagine(self, actions: Tensor, rows: Tensor, seeds: Sequence[int] | None) -> Trajectory:
        start, now = self.problem.start[rows], self.problem.now[rows]
        width = actions.shape[1] if self.chunk is None else max(1, self.chunk // len(rows))
        with self.stopwatch.measure("rollout"):
            parts = [self._rollout(start, now, part, seeds) for part in actions.split(width, dim=1)]
            latents = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        return Trajectory(latents, actions)

    def _rollout(self, start: Tensor, now: Tensor, actions: Tensor, seeds: Sequence[int] | None) -> Tensor:
        """[R, n, H+1, P, D]: the observed latent followed by the imagined ones."""
        problems, candidates, horizon, _ = actions.shape
        if seeds is None:
            imagined = self.model.rollout(start, actions)
        else:
            imagined = cast(StochasticWorldModel, self.model).rollout(start, actions, seeds=seeds)
        expected = (problems, candidates, horizon, *now.shape[1:])
        if imagined.shape != expected:
            raise ShapeError(
                f"rollout must return [B, N, H, P, D] = {list(expected)} for start {list(start.shape)} and actions "
                f"{list(actions.shape)}, got {list(imagined.shape)}"
            )
        observed = now[:, None, None].expand(-1, candidates, 1, -1, -1)
        return torch.cat([observed, imagined], dim=2)


def _check_some_finite(evaluation: Evaluation, rows: Tensor, iteration: int) -> None:
    hopeless = evaluation.total.isinf().all(1)
    if not hopeless.any():
        return
    row = int(hopeless.nonzero()[0])
    broken = {name: int((~values[row].isfinite()).sum()) for name, values in evaluation.terms.items()}
    worst = max(broken, key=lambda name: broken[name])
    culprit = (
        f"term {worst!r} is NaN or infinite for {broken[worst]}" if broken[worst] else "their sum overflows for all"
    )
    raise PlanningError(
        f"no candidate of problem {int(rows[row])} has a finite cost in iteration {iteration}: {culprit} of "
        f"{evaluation.total.shape[1]} candidates; check the model's rollout, or bound the actions"
    )
