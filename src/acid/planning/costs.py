"""What a plan is judged by: weighted terms on the imagined trajectory.

The first term (the goal) is the reference: an adaptive weight makes the spread of another term over the candidates a
fixed fraction λ of the reference's spread, in every problem and iteration anew (Eq. idm-weight of the paper).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from acid.errors import PlanningError, ShapeError, check_offers
from acid.planning.precision import at_least_single
from acid.planning.spread import spread
from acid.planning.terms import ActionConsistency, GoalDistance, Term
from acid.planning.timing import Stopwatch
from acid.planning.view import VerifierView
from acid.planning.weights import Adaptive
from acid.types import InverseDynamics, Trajectory

RESERVED_NAMES = frozenset({"encode", "proposal", "rollout", "total"})  # these name other entries of Plan.seconds


@dataclass(frozen=True)
class Evaluation:
    """The costs of N candidates in B problems. Terms that are switched off do not appear."""

    total: Tensor  # [B, N]; +inf where any term is not finite, so that such a candidate ranks last
    terms: Mapping[str, Tensor]  # [B, N], unweighted
    spreads: Mapping[str, Tensor]  # [B]
    weights: Mapping[str, Tensor]  # [B]


@dataclass(frozen=True)
class Description:
    """What all terms say about one chosen trajectory per problem."""

    costs: Mapping[str, Tensor]  # [B] per term, unweighted
    per_step: Mapping[str, Tensor]  # [B, H] per term that tells what each step costs


@dataclass(frozen=True, init=False)
class Cost:
    """A weighted sum of terms; the first is the reference of the adaptive weights."""

    terms: tuple[Term, ...]

    def __init__(self, terms: Sequence[Term]) -> None:
        if not isinstance(terms, Iterable):
            raise PlanningError(f"a cost needs a list of terms, got a {type(terms).__name__}")
        object.__setattr__(self, "terms", tuple(terms))
        if not self.terms:
            raise PlanningError("a cost needs at least one term, got none")
        for term in self.terms:
            check_offers("a cost term", term, "__call__")
            if not isinstance(getattr(term, "name", None), str):
                raise PlanningError(f"a cost term needs a `name`, got {term!r}; Custom(fn, name=...) gives one")
            weight = getattr(term, "weight", None)
            if not hasattr(weight, "off") or not callable(weight):
                raise PlanningError(f"the weight of cost term {term.name!r} must be a Weight, got {weight!r}")
        names = [term.name for term in self.terms]
        for name in names:
            if names.count(name) > 1 or name in RESERVED_NAMES:
                reason = "is reserved" if name in RESERVED_NAMES else "is used twice"
                raise PlanningError(f"cost term name {name!r} {reason}; give the term another `name`")
        first = self.terms[0]
        if first.weight.off or isinstance(first.weight, Adaptive):
            raise PlanningError(
                f"the first cost term {first.name!r} is the reference of the adaptive weights and needs a non-zero "
                f"Constant weight, got {first.weight}"
            )

    @property
    def active(self) -> tuple[Term, ...]:
        """The terms that take part in the search: a weight of exactly 0 means not even evaluated."""
        return tuple(term for term in self.terms if not term.weight.off)

    def evaluate(
        self, trajectory: Trajectory, goal: Tensor, *, repeats: int = 1, stopwatch: Stopwatch | None = None
    ) -> Evaluation:
        """Every active term, its spread over the candidates, its weight, and the weighted sum.

        repeats: how often the N candidates follow one another in the trajectory [B, repeats·N, ...]; each term is
        averaged over the repeats before anything else happens to it.
        """
        return self.weigh(self.values(trajectory, goal, repeats=repeats, stopwatch=stopwatch))

    def values(
        self, trajectory: Trajectory, goal: Tensor, *, repeats: int = 1, stopwatch: Stopwatch | None = None
    ) -> dict[str, Tensor]:
        """What every active term says, [B, N] by name, to be weighed when it is there for all candidates."""
        stopwatch = stopwatch or Stopwatch()
        return {term.name: averaged(evaluate_term(term, trajectory, goal, stopwatch), repeats) for term in self.active}

    def describe(self, trajectory: Trajectory, goal: Tensor, *, repeats: int, stopwatch: Stopwatch) -> Description:
        """Every term, also those switched off, of the one candidate in trajectories [B, repeats, ...]."""
        costs: dict[str, Tensor] = {}
        per_step: dict[str, Tensor] = {}
        for term in self.terms:
            steps = evaluate_steps(term, trajectory, stopwatch)
            if steps is None:
                values = evaluate_term(term, trajectory, goal, stopwatch)
                costs[term.name] = averaged(values, repeats)[:, 0]
            else:
                per_step[term.name] = averaged(steps, repeats)[:, 0]
                costs[term.name] = per_step[term.name].mean(-1)
        return Description(costs, per_step)

    def weigh(self, values: Mapping[str, Tensor]) -> Evaluation:
        """The same from what the terms gave already, [B, N] by name; values of other terms are ignored."""
        terms = {term.name: values[term.name] for term in self.active}
        with torch.no_grad():  # weights are constants to a gradient
            usable = torch.stack([values.isfinite() for values in terms.values()]).all(0)
            spreads = {name: spread(values, usable) for name, values in terms.items()}
            reference = spreads[self.terms[0].name]
            weights = {term.name: term.weight(spreads[term.name], reference) for term in self.active}
        total = torch.stack([weights[name][:, None] * values for name, values in terms.items()]).sum(0)
        total = total.masked_fill(~(usable & total.isfinite()), torch.inf)
        return Evaluation(total, terms, spreads, weights)


def evaluate_term(term: Term, trajectory: Trajectory, goal: Tensor, stopwatch: Stopwatch) -> Tensor:
    """The term's costs [B, N] in at least single precision, timed under its name and checked for shape."""
    with stopwatch.measure(term.name):
        values = term(trajectory, goal)
    expected = trajectory.actions.shape[:2]
    if not isinstance(values, Tensor) or values.is_complex():
        raise ShapeError(f"cost term {term.name!r} must return a tensor of real numbers, got {type(values).__name__}")
    if values.shape != expected:
        raise ShapeError(f"cost term {term.name!r} must return [B, N] = {list(expected)}, got {list(values.shape)}")
    return at_least_single(values)


def evaluate_steps(term: Term, trajectory: Trajectory, stopwatch: Stopwatch) -> Tensor | None:
    """The term's costs of each step [B, N, H], likewise; None for a term that does not tell them."""
    per_step: Callable[[Trajectory], Tensor] | None = getattr(term, "per_step", None)
    if per_step is None:
        return None
    with stopwatch.measure(term.name):
        values = per_step(trajectory)
    expected = trajectory.actions.shape[:3]
    if values.shape != expected:
        raise ShapeError(
            f"`per_step` of cost term {term.name!r} must return [B, N, H] = {list(expected)}, got {list(values.shape)}"
        )
    return at_least_single(values)


def averaged(values: Tensor, repeats: int) -> Tensor:
    """Values [B, repeats·N, ...] to their means over the repeats [B, N, ...]."""
    return values if repeats == 1 else values.unflatten(1, (repeats, -1)).mean(1)


def goal_cost(*, reduction: Literal["sum", "mean"] = "sum") -> Cost:
    """The usual planning cost: distance to the goal alone."""
    return Cost([GoalDistance(reduction)])


def acid_cost(
    verifier: InverseDynamics | VerifierView, lam: float = 0.07, *, reduction: Literal["sum", "mean"] = "sum"
) -> Cost:
    """Distance to the goal plus action consistency with adaptive weight λ; λ = 0 only reports the consistency."""
    return Cost([GoalDistance(reduction), ActionConsistency(verifier, Adaptive(lam))])
