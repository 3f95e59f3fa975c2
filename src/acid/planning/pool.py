"""One set of candidates, imagined once and judged by any number of costs.

In its first iteration CEM draws the same candidates whatever the cost. Where that iteration is the only one, costs can
share the rollouts, which are most of the work, and their choices differ by nothing but the cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from acid.errors import PlanningError
from acid.planning.cem import CEM
from acid.planning.costs import Cost, Evaluation
from acid.planning.objective import Objective
from acid.planning.planner import Planner
from acid.planning.proposals import Proposal
from acid.planning.rows import Rows
from acid.planning.search import Gaussian, lowest
from acid.planning.timing import Stopwatch
from acid.types import Problem, Trajectory


@dataclass(frozen=True)
class Pool:
    """N candidates of each of B problems and what the model imagines for them."""

    candidates: Tensor  # [B, N, V, d], the variables of the planner's parametrisation
    actions: Tensor  # [B, N, H, A], normalised
    trajectory: Trajectory  # of [B, repeats·N] candidates, one repeat after another
    objective: Objective = field(repr=False)

    @property
    def seconds(self) -> Mapping[str, float]:
        """Seconds spent so far: `rollout`, and each term that was evaluated by its name."""
        return dict(self.objective.imagination.stopwatch.seconds)

    def evaluate(self, cost: Cost) -> Evaluation:
        """The candidates' costs, averaged over the repeats."""
        return self.objective.evaluate(cost, self.trajectory, Rows.all(len(self.candidates)))

    def choose(self, total: Tensor, elites: int) -> Tensor:
        """The plan [B, H, A] that CEM makes of total costs [B, N]: the mean of the best candidates."""
        mean = Gaussian.fit(lowest(total, elites), self.candidates).mean
        return self.objective.actions(self.objective.clamp(mean))


@torch.no_grad()
def draw_pool(
    planner: Planner,
    problem: Problem,
    *,
    seed: int | Sequence[int] = 0,
    initial: Tensor | Proposal | None = None,
    stopwatch: Stopwatch | None = None,
) -> Pool:
    """What the first iteration of the planner's CEM draws for these problems and seeds, imagined.

    seed, initial: as in `Planner.plan`. stopwatch: by which the pool tells its seconds; default: of the wall clock.
    """
    search = planner.search
    if not isinstance(search, CEM):
        raise PlanningError(f"a pool is what CEM draws in its first iteration, but the search is {search}")
    objective, start, streams = planner.prepare(problem, seed, initial, stopwatch or Stopwatch())
    rows = Rows.all(len(start.mean))
    candidates = start.join(search.draw(objective, start.gaussian(search.std_init), rows, streams), rows)
    actions = objective.actions(candidates)
    return Pool(candidates, actions, objective.imagine(actions, rows), objective)
