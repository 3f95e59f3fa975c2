"""Model predictive path integral control, iterated."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from acid.errors import PlanningError, is_number
from acid.planning.noise import Streams
from acid.planning.objective import Objective
from acid.planning.rows import Rows
from acid.planning.search import (
    Elites,
    Gaussian,
    Outcome,
    Ranking,
    Start,
    Std,
    check_counts,
    check_not_negative,
    check_std,
    lowest,
    refine,
)
from acid.planning.spread import spread


@dataclass(frozen=True)
class MPPI:
    """Sample from a Gaussian, fit it to all candidates weighted by exp(−cost/temperature), repeat.

    The cost is measured in its own standard deviations over the candidates: a temperature suits every model and task.
    """

    samples: int = 300  # N
    iterations: int = 30  # J
    temperature: float = 0.5
    std_init: Std = 1.0
    std_min: float = 0.0  # keeps exploring when the weights concentrate on few candidates
    tolerance: float = 0.0  # stop a problem when its largest std falls below this; 0 never

    def __post_init__(self) -> None:
        check_counts(samples=self.samples, iterations=self.iterations)
        check_not_negative(std_min=self.std_min, tolerance=self.tolerance)
        check_std(self.std_init)
        if not is_number(self.temperature) or not 0 < self.temperature < float("inf"):
            raise PlanningError(f"temperature must be positive, got {self.temperature!r}")

    def run(self, objective: Objective, start: Start, streams: Streams) -> Outcome:
        mean = start.mean

        def step(proposal: Gaussian, rows: Rows, iteration: int) -> tuple[Gaussian, Ranking]:
            noise = streams.normal(rows, (self.samples, *mean.shape[1:]), like=mean)
            noise[:, 0] = 0  # candidate 0 is the current mean
            candidates = start.join(objective.clamp(proposal.sample(noise)), rows, iteration)
            evaluation = objective(candidates, rows=rows, iteration=iteration)
            elites = self._weigh(evaluation.total)
            std = elites.variance(candidates).sqrt().clamp(min=self.std_min)
            return Gaussian(elites.mean(candidates), std), Ranking(candidates, evaluation, elites)

        proposal = start.gaussian(self.std_init)
        proposal, trace = refine(objective, step, proposal, iterations=self.iterations, tolerance=self.tolerance)
        return Outcome(proposal.mean, trace)

    def _weigh(self, total: Tensor) -> Elites:
        """All candidates [B, N], each with its share exp(−cost/temperature)."""
        sigma = spread(total, total.isfinite())[:, None]
        scale = self.temperature * sigma.masked_fill(sigma == 0, 1.0)
        everyone = lowest(total, total.shape[1])
        return Elites(everyone.index, torch.softmax(-everyone.take(total) / scale, dim=1))
