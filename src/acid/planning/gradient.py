"""Gradient descent through the world model."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from acid.errors import PlanningError, is_number
from acid.planning.costs import Evaluation
from acid.planning.noise import Streams
from acid.planning.objective import Objective
from acid.planning.rows import Rows
from acid.planning.search import Outcome, Ranking, Recorder, Start, Std, check_counts, check_std, lowest


@dataclass(frozen=True)
class Gradient:
    """Adam from many random starts at once; the plan is the best one in the last iteration.

    Restarts play the part of candidates: an adaptive weight compares spreads over them, so it needs at least two.
    """

    samples: int = 30  # N; the first starts from the initial mean
    iterations: int = 100  # J evaluations, with a step between each two
    learning_rate: float = 0.1
    std_init: Std = 1.0

    def __post_init__(self) -> None:
        check_counts(samples=self.samples, iterations=self.iterations)
        check_std(self.std_init)
        if not is_number(self.learning_rate) or not 0 < self.learning_rate < float("inf"):
            raise PlanningError(f"learning_rate must be positive, got {self.learning_rate!r}")

    @torch.enable_grad()
    def run(self, objective: Objective, start: Start, streams: Streams) -> Outcome:
        mean = start.mean
        rows = Rows.all(len(mean))
        noise = streams.normal(rows, (self.samples, *mean.shape[1:]), like=mean)
        noise[:, 0] = 0
        candidates = start.join(objective.clamp(start.gaussian(self.std_init).sample(noise)), rows).requires_grad_()
        optimiser = torch.optim.Adam([candidates], lr=self.learning_rate)
        recorder = Recorder(objective, len(mean))
        for iteration in range(self.iterations):
            evaluation = objective(candidates, rows=rows, iteration=iteration)
            best = lowest(evaluation.total, 1)
            recorder.add(rows, Ranking(candidates, evaluation, best))
            if iteration < self.iterations - 1:
                candidates.grad = _gradient(evaluation, candidates)
                optimiser.step()
                with torch.no_grad():
                    candidates.copy_(objective.clamp(candidates))
        return Outcome(best.take(candidates.detach())[:, 0], recorder.trace(self.iterations))


def _gradient(evaluation: Evaluation, candidates: Tensor) -> Tensor:
    """d total / d candidates [B, N, V, d], 0 where it is not finite so that a restart cannot become NaN."""
    for name, values in evaluation.terms.items():
        if not values.requires_grad:
            raise PlanningError(
                f"cost term {name!r} does not carry gradients back to the actions: the model's rollout or the term "
                "detaches them (no_grad, inference_mode, .detach()); use a sampling search such as CEM instead"
            )
    finite = evaluation.total.masked_fill(~evaluation.total.isfinite(), 0.0)
    (gradient,) = torch.autograd.grad(finite.sum(), candidates)  # leaves the .grad of the model's parameters alone
    return gradient.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
