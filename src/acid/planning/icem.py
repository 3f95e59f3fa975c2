"""iCEM: the cross-entropy method made sample-efficient (Pinneri et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from acid.errors import PlanningError, is_number
from acid.planning.noise import Streams, colour
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
class ICEM:
    """CEM with noise coloured in time, elites kept for the next iteration, and fewer samples as it narrows down.

    The plan is the best candidate of the last iteration: costs of different iterations do not compare, because adaptive
    weights change, but the kept elites are evaluated again each time.
    """

    samples: int = 300  # N of the first iteration
    iterations: int = 30  # J
    elites: int = 30  # K
    colour: float = 2.0  # noise has power 1/f^colour over the horizon; 0 is white
    keep: float = 0.3  # fraction of the elites that stay as candidates
    decay: float = 1.25  # samples shrink by this factor each iteration, down to 2 K
    momentum: float = 0.1  # fraction of the old mean and std that stays
    std_init: Std = 1.0
    tolerance: float = 0.0  # stop a problem when its largest std falls below this; 0 never

    def __post_init__(self) -> None:
        check_counts(iterations=self.iterations)
        check_elites(self.elites, self.samples)
        check_not_negative(tolerance=self.tolerance, colour=self.colour)
        check_std(self.std_init)
        if not is_number(self.decay) or not self.decay >= 1:
            raise PlanningError(f"decay must be at least 1 (samples may not grow), got {self.decay}")
        if not is_number(self.keep) or not 0 <= self.keep <= 1:
            raise PlanningError(f"keep must be a fraction between 0 and 1, got {self.keep}")
        if not is_number(self.momentum) or not 0 <= self.momentum < 1:
            raise PlanningError(f"momentum must be at least 0 and below 1, got {self.momentum}")

    def run(self, objective: Objective, start: Start, streams: Streams) -> Outcome:
        mean = start.mean
        count = round(self.keep * self.elites)
        best, kept = mean, mean.new_empty(len(mean), count, *mean.shape[1:])

        def step(proposal: Gaussian, rows: Rows, iteration: int) -> tuple[Gaussian, Ranking]:
            nonlocal best, kept
            noise = streams.normal(rows, (self._samples(iteration), *mean.shape[1:]), like=mean)
            candidates = proposal.sample(colour(noise, self.colour))
            if iteration == self.iterations - 1:
                candidates[:, 0] = proposal.mean  # only now: earlier it would narrow the distribution too fast
            candidates = start.join(objective.clamp(candidates), rows, iteration)
            if iteration > 0:
                candidates = torch.cat([candidates, rows.take(kept)], dim=1)
            evaluation = objective(candidates, rows=rows, iteration=iteration)
            elites = lowest(evaluation.total, self.elites)
            ranked = elites.take(candidates)
            best, kept = rows.put(best, ranked[:, 0]), rows.put(kept, ranked[:, :count])
            return self._blend(proposal, Gaussian.fit(elites, candidates)), Ranking(candidates, evaluation, elites)

        proposal = start.gaussian(self.std_init)
        _, trace = refine(objective, step, proposal, iterations=self.iterations, tolerance=self.tolerance)
        return Outcome(best, trace)

    def _samples(self, iteration: int) -> int:
        return max(int(self.samples * self.decay**-iteration), min(2 * self.elites, self.samples))

    def _blend(self, old: Gaussian, new: Gaussian) -> Gaussian:
        return Gaussian(torch.lerp(new.mean, old.mean, self.momentum), torch.lerp(new.std, old.std, self.momentum))
