"""Where a search begins: by default at 0, the mean of the data's actions, or where something learned would go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from acid.errors import PlanningError
from acid.types import Problem, WorldModel


class Proposal(Protocol):
    """A guess of the plan, from which the search starts."""

    def __call__(self, model: WorldModel, problem: Problem, horizon: int) -> Tensor:
        """The mean of the first candidates, [B, V, d]; without a parametrisation normalised actions [B, H, A]."""
        ...


class GoalPolicy(Protocol):
    """A policy learned from the same data as the world model."""

    @property
    def horizon(self) -> int:
        """The most actions that may be left to the goal."""
        ...

    def act(self, latent: Tensor, goal: Tensor, left: int, /) -> Tensor:
        """Latents and goals [B, P, D] and the number of actions left to the next normalised action [B, A]."""
        ...


@dataclass(frozen=True)
class PolicyProposal:
    """What a goal-conditioned policy would do, rolled out in imagination: act, imagine, act on what was imagined.

    How far the search then leaves it is up to the search: `CEM(std_init=0.3)` stays near.
    """

    policy: GoalPolicy

    def __call__(self, model: WorldModel, problem: Problem, horizon: int) -> Tensor:
        actions: list[Tensor] = []
        latent = problem.now
        for step in range(horizon):
            left = min(horizon - step, self.policy.horizon)
            actions.append(self.policy.act(latent, problem.goal, left))
            if step + 1 < horizon:
                latent = model.rollout(problem.start, torch.stack(actions, 1)[:, None])[:, 0, -1]
        proposed = torch.stack(actions, 1)
        if not proposed.isfinite().all():
            raise PlanningError("the policy proposes actions that are NaN or infinite; fit it again")
        return proposed
