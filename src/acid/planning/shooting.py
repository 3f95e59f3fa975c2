"""Random shooting: the simplest search, and the one to beat."""

from __future__ import annotations

from dataclasses import dataclass

from acid.planning.noise import Streams
from acid.planning.objective import Objective
from acid.planning.rows import Rows
from acid.planning.search import Outcome, Ranking, Recorder, Start, Std, check_counts, check_std, lowest


@dataclass(frozen=True)
class Shooting:
    """Draw one pool of candidates; the plan is the best of them."""

    samples: int = 9000  # N; the default is what CEM spends in 30 iterations of 300
    std_init: Std = 1.0

    def __post_init__(self) -> None:
        check_counts(samples=self.samples)
        check_std(self.std_init)

    def run(self, objective: Objective, start: Start, streams: Streams) -> Outcome:
        mean = start.mean
        rows = Rows.all(len(mean))
        noise = streams.normal(rows, (self.samples, *mean.shape[1:]), like=mean)
        noise[:, 0] = 0  # candidate 0 is the initial mean
        candidates = start.join(objective.clamp(start.gaussian(self.std_init).sample(noise)), rows)
        evaluation = objective(candidates, rows=rows, iteration=0)
        best = lowest(evaluation.total, 1)
        recorder = Recorder(objective, len(mean))
        recorder.add(rows, Ranking(candidates, evaluation, best))
        return Outcome(best.take(candidates)[:, 0], recorder.trace(1))
