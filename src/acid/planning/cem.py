"""The cross-entropy method, Algorithms 1 and 2 of the paper (the difference between them is the cost)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from acid.errors import PlanningError
from acid.planning.noise import Streams
from acid.planning.objective import Objective
from acid.planning.rows import Rows
from acid.planning.search import (
    Gaussian,
    Outcome,
    Ranking,
    Start,
    Std,
    check_counts,
    check_elites,
    check_not_negative,
    check_std,
    lowest,
    refine,
)


@dataclass(frozen=True)
class CEM:
    """Sample from a Gaussian, fit it to the K best, repeat; the plan is the final mean."""

    samples: int = 300  # N
    iterations: int = 30  # J
    elites: int = 30  # K
    std_init: Std = 1.0
    tolerance: float = 0.0  # stop a problem when its largest std falls below this; 0 never
    near: float | None = None  # std around the best of the first candidates, to go on there instead of at elites' mean

    def __post_init__(self) -> None:
        check_counts(iterations=self.iterations)
        check_elites(self.elites, self.samples)
        check_not_negative(tolerance=self.tolerance)
        if self.near is not None and self.iterations < 2:
            raise PlanningError(f"near={self.near} needs 2 or more iterations: the search goes on there in the second")
        check_std(self.std_init)
        if self.near is not None:
            check_std(self.near, "near")

    def run(self, objective: Objective, start: Start, streams: Streams) -> Outcome:
        def step(proposal: Gaussian, rows: Rows, iteration: int) -> tuple[Gaussian, Ranking]:
            candidates = start.join(self.draw(objective, proposal, rows, streams), rows, iteration)
            evaluation = objective(candidates, rows=rows, iteration=iteration)
            elites = lowest(evaluation.total, self.elites)
            fitted = Gaussian.fit(elites, candidates)
            if iteration == 0 and self.near is not None:
                best = elites.take(candidates)[:, 0]
                fitted = Gaussian(best, torch.full_like(best, self.near))
            return fitted, Ranking(candidates, evaluation, elites)

        proposal = start.gaussian(self.std_init)
        proposal, trace = refine(objective, step, proposal, iterations=self.iterations, tolerance=self.tolerance)
        return Outcome(proposal.mean, trace)

    def draw(self, objective: Objective, proposal: Gaussian, rows: Rows, streams: Streams) -> Tensor:
        """Candidates [R, N, V, d] for the problems `rows`; candidate 0 is the proposal's mean."""
        noise = streams.normal(rows, (self.samples, *proposal.mean.shape[1:]), like=proposal.mean)
        noise[:, 0] = 0
        return objective.clamp(proposal.sample(noise))
