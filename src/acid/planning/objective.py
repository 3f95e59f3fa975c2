"""What a search minimises: candidates in, costs out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from acid.planning.costs import Cost, Description, Evaluation
from acid.planning.finite import FiniteCheck
from acid.planning.imagination import Imagination
from acid.planning.observer import Observer
from acid.planning.parametrisation import Space
from acid.planning.rows import Rows
from acid.types import Trajectory


@dataclass(frozen=True, kw_only=True)
class Objective:
    """The cost of B problems as a function of candidates for them.

    A candidate is a set of search variables [V, d]; without a parametrisation those are the actions [H, A].
    observer: told about every iteration by the search's `Recorder`.
    """

    cost: Cost
    space: Space
    imagination: Imagination
    finite: FiniteCheck
    observer: Observer | None = None

    def __call__(self, candidates: Tensor, *, rows: Rows, iteration: int) -> Evaluation:
        """Costs of candidates [R, N, V, d] for the problems `rows`; a PlanningError if one has no finite cost."""
        world, actions = self.imagination, self.actions(candidates)
        goal = rows.take(world.problem.goal)
        parts = []
        for part in actions.split(world.width(actions), dim=1):  # what is imagined of one part is gone before the next
            trajectory = self.imagine(part, rows, iteration)
            with world.precision.computing(actions.device):
                parts.append(self.cost.values(trajectory, goal, repeats=world.repeats, stopwatch=world.stopwatch))
        values = (
            parts[0] if len(parts) == 1 else {name: torch.cat([one[name] for one in parts], 1) for name in parts[0]}
        )
        with world.precision.computing(actions.device):
            evaluation = self.cost.weigh(values)
        self.finite.add(evaluation, rows, iteration)
        return evaluation

    def clamp(self, variables: Tensor) -> Tensor:
        """Variables [..., V, d] within the bounds where they are the actions themselves."""
        return self.space.clamp(variables)

    def actions(self, variables: Tensor) -> Tensor:
        """Variables [..., V, d] as normalised actions [..., H, A] within the bounds."""
        return self.space.actions(variables)

    def imagine(self, actions: Tensor, rows: Rows, iteration: int = 0) -> Trajectory:
        """The trajectories [R, repeats·N, ...] of actions [R, N, H, A] for the problems `rows`."""
        return self.imagination(actions, rows, iteration)

    def evaluate(self, cost: Cost, trajectory: Trajectory, rows: Rows) -> Evaluation:
        """What a cost says about imagined trajectories [R, repeats·N, ...]."""
        world = self.imagination
        with world.precision.computing(trajectory.actions.device):
            goal = rows.take(world.problem.goal)
            return cost.evaluate(trajectory, goal, repeats=world.repeats, stopwatch=world.stopwatch)

    def describe(self, trajectory: Trajectory) -> Description:
        """What every term of the cost says about one trajectory per problem [B, repeats, ...]."""
        world = self.imagination
        with world.precision.computing(trajectory.actions.device):
            return self.cost.describe(trajectory, world.problem.goal, repeats=world.repeats, stopwatch=world.stopwatch)
