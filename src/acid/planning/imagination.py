"""From candidate actions to the trajectories that a world model imagines."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from acid.errors import ShapeError
from acid.planning.noise import derive_seed
from acid.planning.precision import Precision
from acid.planning.rows import Rows
from acid.planning.timing import Stopwatch
from acid.types import Problem, Trajectory, WorldModel, check_tensor


def takes_seeds(model: WorldModel) -> bool:
    """Whether the model is stochastic: its rollout takes the keyword `seeds`."""
    return "seeds" in inspect.signature(model.rollout).parameters


def takes_past_actions(model: WorldModel) -> bool:
    """Whether the model can be told what was done between its context frames: its rollout takes `past_actions`."""
    return "past_actions" in inspect.signature(model.rollout).parameters


@dataclass(frozen=True, kw_only=True)
class Imagination:
    """Rolls a world model out for candidates of B problems.

    seeds: one per problem for a stochastic model, else None.
    repeats: rollouts of each candidate, each with a seed of its own.
    chunk: most candidates R·N imagined at once.
    """

    model: WorldModel
    problem: Problem
    seeds: Sequence[int] | None
    repeats: int
    chunk: int | None
    precision: Precision
    stopwatch: Stopwatch

    def __call__(self, actions: Tensor, rows: Rows, iteration: int) -> Trajectory:
        """Trajectories [R, repeats·N, ...] of actions [R, N, H, A], one repeat of all candidates after another."""
        start, now = rows.take(self.problem.start), rows.take(self.problem.now)
        past = self.problem.past_actions
        known: dict[str, Any] = {} if past is None else {"past_actions": rows.take(past)}
        with self.stopwatch.measure("rollout"), self.precision.imagining(actions.device):
            parts = [
                self._rollout(start, now, part, known if seeds is None else {**known, "seeds": seeds})
                for seeds in self._seeds(rows, iteration)
                for part in actions.split(self.width(actions), dim=1)
            ]
            latents = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        return Trajectory(latents, actions if self.repeats == 1 else actions.repeat(1, self.repeats, 1, 1))

    def width(self, actions: Tensor) -> int:
        """How many of the candidates [R, N, H, A] are imagined at once."""
        return actions.shape[1] if self.chunk is None else max(1, self.chunk // len(actions))

    def _seeds(self, rows: Rows, iteration: int) -> list[list[int] | None]:
        """For every repeat one seed per problem, or None for a model that takes none."""
        seeds = self.seeds
        if seeds is None:
            return [None]
        return [[derive_seed(seeds[row], iteration, repeat) for row in rows.numbers] for repeat in range(self.repeats)]

    def _rollout(self, start: Tensor, now: Tensor, actions: Tensor, known: Mapping[str, Any]) -> Tensor:
        """[R, n, H+1, P, D]: the observed latent followed by the imagined ones."""
        problems, candidates, horizon, _ = actions.shape
        asked = actions.to(start.dtype)  # a model in half precision
        rollout: Callable[..., Tensor] = self.model.rollout
        imagined = rollout(start, asked, **known)
        check_tensor("what rollout returns", imagined)
        expected = (problems, candidates, horizon, *now.shape[1:])
        if imagined.shape != expected:
            raise ShapeError(
                f"rollout must return [B, N, H, P, D] = {list(expected)} for start {list(start.shape)} and actions "
                f"{list(actions.shape)}, got {list(imagined.shape)}"
            )
        observed = now[:, None, None].expand(-1, candidates, 1, -1, -1)
        return torch.cat([observed, self.precision.latent(imagined)], dim=2)
