"""What a search minimises: candidates in, costs out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from acid.errors import ShapeError
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
        self.check("a search asked for candidates that", candidates, (len(rows), None, *self.shape))
        world, actions = self.imagination, self.actions(candidates)
        goal = rows.take(world.problem.goal)
        parts = []
        for part in actions.split(world.width(actions), dim=1):  # what is imagined of one part is gone before the next
            trajectory = self.imagine(part, rows, iteration)
            with world.precision.judging(actions.device):
                parts.append(self.cost.values(trajectory, goal, repeats=world.repeats, stopwatch=world.stopwatch))
        values = (
            parts[0] if len(parts) == 1 else {name: torch.cat([one[name] for one in parts], 1) for name in parts[0]}
        )
        with world.precision.judging(actions.device):
            evaluation = self.cost.weigh(values)
        self.finite.add(evaluation, rows, iteration)
        return evaluation

    @property
    def shape(self) -> tuple[int, int]:
        """[V, d] of a candidate."""
        return self.space.parametrisation.length(self.space.horizon), self.space.parametrisation.size

    def check(self, what: str, found: object, shape: tuple[int | None, ...]) -> None:
        """A ShapeError unless a search gave numbers of this shape, of which None is any size but 0."""
        letters = "[B, V, d]" if len(shape) == 3 else "[B, N, V, d]"
        wanted = f"must be {letters} = {str(list(shape)).replace('None', 'N')}"
        if not isinstance(found, Tensor) or not found.is_floating_point():
            raise ShapeError(f"{what} {wanted} floating-point numbers, got a {type(found).__name__}")
        sizes = zip(found.shape, shape, strict=False)
        if found.dim() != len(shape) or not all(size == (size if want is None else want) > 0 for size, want in sizes):
            raise ShapeError(f"{what} {wanted}, got {list(found.shape)}")

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
        with world.precision.judging(trajectory.actions.device):
            goal = rows.take(world.problem.goal)
            return cost.evaluate(trajectory, goal, repeats=world.repeats, stopwatch=world.stopwatch)

    def describe(self, trajectory: Trajectory) -> Description:
        """What every term of the cost says about one trajectory per problem [B, repeats, ...]."""
        world = self.imagination
        with world.precision.judging(trajectory.actions.device):
            return self.cost.describe(trajectory, world.problem.goal, repeats=world.repeats, stopwatch=world.stopwatch)
