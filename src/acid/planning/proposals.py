"""Where a search begins: by default at 0, the mean of the data's actions, or where something learned would go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from acid.errors import PlanningError
from acid.planning.noise import Streams
from acid.planning.rows import Rows
from acid.planning.search import Start
from acid.planning.view import check_fitted
from acid.types import Plan, Problem, WorldModel


class Proposal(Protocol):
    """A guess of the plan, from which the search starts."""

    def __call__(self, model: WorldModel, problem: Problem, horizon: int, streams: Streams, /) -> Start:
        """Where to start for B problems; without a parametrisation the variables are normalised actions [B, H, A].

        Random numbers come from the streams, one per problem, so that a plan does not depend on its batch.
        """
        ...


class GoalPolicy(Protocol):
    """A policy learned from the same data as the world model. To propose samples, `act` takes `steps` and `noise`."""

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

    std: how far the search may leave it at first: 0 keeps the policy's own plan, None leaves it to the search.
    samples: how many whole sequences, sampled from the policy as a generative model, join the first candidates.
    steps: Euler steps of each sampled action; one would give the mean again.
    left: how many actions away the goal is, where that is farther than the plan looks.
    features: what the policy looks at, if not the latents themselves: [B, P, D] to [B, P', D'].
    units: the policy's answers [B, A'] as actions [B, k, A] of the model, if they differ: in units, or several at once.
    variables: from actions [B, N, H, A] to the variables [B, N, V, d] that are searched, if those are others.
    """

    policy: GoalPolicy
    std: float | None = None
    samples: int = 0
    steps: int = 5
    left: int = 1
    features: Callable[[Tensor], Tensor] | None = None
    units: Callable[[Tensor], Tensor] | None = None
    variables: Callable[[Tensor], Tensor] | None = None

    def __post_init__(self) -> None:
        if self.std is not None and not 0 <= self.std < float("inf"):
            raise PlanningError(f"the std of a proposal must be finite and not negative, got {self.std}")
        for name, value, least in (("samples", self.samples, 0), ("steps", self.steps, 1), ("left", self.left, 1)):
            if value < least:
                raise PlanningError(f"{name} of a proposal must be at least {least}, got {value}")

    def __call__(self, model: WorldModel, problem: Problem, horizon: int, streams: Streams, /) -> Start:
        check_fitted("policy", self.policy, model)
        mean = self._imagine(model, problem, horizon, 1)[:, 0]
        sequences = self._imagine(model, problem, horizon, self.samples, streams) if self.samples else None
        return Start(mean, None if self.std is None else torch.full_like(mean, self.std), sequences)

    def _imagine(
        self, model: WorldModel, problem: Problem, horizon: int, count: int, streams: Streams | None = None
    ) -> Tensor:
        """Variables [B, count, V, d] of the policy's mean, or of samples if there are random streams."""
        goal, latent = (
            self._seen(x)[:, None].expand(-1, count, -1, -1).flatten(0, 1) for x in (problem.goal, problem.now)
        )
        past = {} if problem.past_actions is None else {"past_actions": problem.past_actions}
        actions: list[Tensor] = []
        while len(actions) < horizon:
            left = min(max(horizon, self.left) - len(actions), self.policy.horizon)
            answer = self._act(latent, goal, left, count, streams)
            if not answer.isfinite().all():
                raise PlanningError("the policy proposes actions that are NaN or infinite; fit it again")
            several = answer[:, None] if self.units is None else self.units(answer)
            actions += several.unflatten(0, (-1, count)).unbind(2)
            if len(actions) < horizon:
                imagined = model.rollout(problem.start, torch.stack(actions, 2), **past)
                latent = self._seen(imagined[:, :, -1].flatten(0, 1))
        plans = torch.stack(actions[:horizon], 2)
        return plans if self.variables is None else self.variables(plans)

    def _seen(self, latents: Tensor) -> Tensor:
        return latents if self.features is None else self.features(latents)

    def _act(self, latent: Tensor, goal: Tensor, left: int, count: int, streams: Streams | None) -> Tensor:
        mean = self.policy.act(latent, goal, left)
        if streams is None:
            return mean
        rows = Rows.all(len(latent) // count)
        noise = streams.normal(rows, (count, mean.shape[-1]), like=mean).flatten(0, 1)
        sample: Callable[..., Tensor] = self.policy.act
        return sample(latent, goal, left, steps=self.steps, noise=noise)


@dataclass(frozen=True)
class PriorProposal:
    """A learned Gaussian of the whole plan, times the search's usual one: each counts by its precision.

    prior: latents and goals [B, P, D] to mean and standard deviation of the plan, both [B, H, A].
    std: of the usual Gaussian around 0. A prior that is unsure of a number leaves it to the search.
    """

    prior: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    std: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.std < float("inf"):
            raise PlanningError(f"the std that a prior is combined with must be positive and finite, got {self.std}")

    def __call__(self, model: WorldModel, problem: Problem, horizon: int, streams: Streams, /) -> Start:
        mean, std = self.prior(problem.now, problem.goal)
        if not (std > 0).all():
            raise PlanningError("the prior gives standard deviations that are not positive")
        return _between(mean, std, torch.zeros_like(mean), self.std)


@dataclass(frozen=True)
class Between:
    """The Gaussian of a proposal's samples times the search's usual one: each counts by its precision.

    mean, std: of the usual Gaussian, e.g. around the current speed of a robot, [B, V, d] and one number.
    """

    proposal: Proposal
    mean: Tensor
    std: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.std < float("inf"):
            raise PlanningError(f"the std that a proposal is combined with must be positive and finite, got {self.std}")

    def __call__(self, model: WorldModel, problem: Problem, horizon: int, streams: Streams, /) -> Start:
        samples = self.proposal(model, problem, horizon, streams).sequences
        if samples is None or samples.shape[1] < 2:
            raise PlanningError("only a proposal with 2 or more samples tells how sure it is; propose more")
        std, mean = torch.std_mean(samples, 1)
        if not (std > 0).all():
            raise PlanningError("the samples of the proposal are all the same, so they do not tell how sure it is")
        return _between(mean, std, self.mean.to(mean), self.std)


def _between(mean: Tensor, std: Tensor, usual: Tensor, usual_std: float) -> Start:
    """The product of two Gaussians."""
    precision, other = std.square().reciprocal(), usual_std**-2
    total = precision + other
    return Start((mean * precision + usual * other) / total, total.rsqrt())


@dataclass(frozen=True)
class Remainder:
    """What is left of the last plan after `executed` of its actions, then zeros: a warm start."""

    plan: Plan
    executed: int

    def __call__(self, model: WorldModel, problem: Problem, horizon: int, streams: Streams, /) -> Start:
        rest = torch.roll(self.plan.actions, -self.executed, dims=1)
        rest[:, -self.executed :] = 0
        return Start(rest)


@dataclass(frozen=True, init=False)
class Several:
    """The search starts around the first proposal; the means and sequences of the others are tried as they are."""

    proposals: tuple[Proposal, ...]

    def __init__(self, *proposals: Proposal) -> None:
        if not proposals:
            raise PlanningError("Several needs at least one proposal")
        object.__setattr__(self, "proposals", proposals)

    def __call__(self, model: WorldModel, problem: Problem, horizon: int, streams: Streams, /) -> Start:
        first, *others = (proposal(model, problem, horizon, streams) for proposal in self.proposals)
        parts = [*(other.mean[:, None] for other in others), *(s.sequences for s in (first, *others))]
        tried = [part for part in parts if part is not None]
        return Start(first.mean, first.std, torch.cat(tried, 1) if tried else None)
