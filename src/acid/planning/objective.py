"""From candidate actions to costs: roll out, then evaluate."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from acid.errors import PlanningError, ShapeError
from acid.planning.bounds import Bounds
from acid.planning.costs import Cost, Evaluation
from acid.planning.timing import Stopwatch
from acid.types import Problem, Trajectory, WorldModel


@dataclass(frozen=True)
class Objective:
    """What a search minimises: the cost of B problems as a function of their candidates."""

    model: WorldModel
    cost: Cost
    problem: Problem
    bounds: Bounds | None
    chunk: int | None  # most candidates B·N rolled out at once
    stopwatch: Stopwatch

    def __call__(self, candidates: Tensor, *, rows: Tensor, iteration: int) -> Evaluation:
        """Costs of candidates [R, N, H, A] for the problems `rows` [R]; a PlanningError if one has no finite cost."""
        trajectory = self.imagine(candidates, rows)
        evaluation = self.cost.evaluate(trajectory, self.problem.goal[rows], stopwatch=self.stopwatch)
        _check_some_finite(evaluation, rows, iteration)
        return evaluation

    def clamp(self, actions: Tensor) -> Tensor:
        """Actions [..., H, A] within the bounds, if there are any."""
        return actions if self.bounds is None else self.bounds.clamp(actions)

    def imagine(self, candidates: Tensor, rows: Tensor) -> Trajectory:
        """The trajectories of candidates [R, N, H, A] for the problems `rows` [R]."""
        start, now = self.problem.start[rows], self.problem.now[rows]
        width = candidates.shape[1] if self.chunk is None else max(1, self.chunk // len(rows))
        with self.stopwatch.measure("rollout"):
            parts = [self._rollout(start, now, part) for part in candidates.split(width, dim=1)]
            latents = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        return Trajectory(latents, candidates)

    def _rollout(self, start: Tensor, now: Tensor, actions: Tensor) -> Tensor:
        """[R, n, H+1, P, D]: the observed latent followed by the imagined ones."""
        problems, candidates, horizon, _ = actions.shape
        imagined = self.model.rollout(start, actions)
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
