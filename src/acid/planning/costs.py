"""What a plan is judged by: weighted terms on the imagined trajectory.

The first term (the goal) is the reference: an adaptive weight makes the spread of another term over the candidates a
fixed fraction λ of the reference's spread, in every problem and iteration anew (Eq. idm-weight of the paper).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch
from torch import Tensor

from acid.errors import PlanningError, ShapeError
from acid.planning.precision import at_least_single
from acid.planning.timing import Stopwatch
from acid.planning.view import VerifierView
from acid.planning.weights import Adaptive, Constant, Weight
from acid.types import ActionScaler, InverseDynamics, Trajectory

RESERVED_NAMES = frozenset({"encode", "rollout", "total"})  # these name other entries of Plan.seconds


class Term(Protocol):
    """One part of a cost. B is the number of problems still being searched, which may shrink as problems converge.

    Two more methods are optional. `per_step(trajectory) -> [B, N, H]` tells what each step costs, where the cost is the
    mean over the steps; plans then report it. `check_scaler(scaler)` may raise a PlanningError if the term does not
    suit the action statistics of the planner that it becomes part of.
    """

    @property
    def name(self) -> str: ...

    @property
    def weight(self) -> Weight: ...

    def __call__(self, trajectory: Trajectory, goal: Tensor) -> Tensor:
        """Imagined trajectories of N candidates and goal latents [B, P, D] to costs [B, N]."""
        ...


@dataclass(frozen=True)
class GoalDistance:
    """Squared distance of the last imagined latent to the goal (Eq. latent-cost), summed or averaged over P and D."""

    reduction: Literal["sum", "mean"] = "sum"
    weight: Weight = field(default_factory=Constant)
    name: str = "goal"

    def __post_init__(self) -> None:
        if self.reduction not in ("sum", "mean"):
            raise PlanningError(f"reduction of the goal distance must be 'sum' or 'mean', got {self.reduction!r}")

    def __call__(self, trajectory: Trajectory, goal: Tensor) -> Tensor:
        squared = (trajectory.latents[:, :, -1] - goal[:, None]).square()
        return squared.sum((-2, -1)) if self.reduction == "sum" else squared.mean((-2, -1))


@dataclass(frozen=True)
class DecodedDistance:
    """Distance between the pictures of the last imagined latent and of the goal, e.g. LPIPS.

    decode: latents [M, P, D] to images [M, S, S, 3] with values in 0..1.
    distance: images [M, 3, S, S] and one image [1, 3, S, S] to distances [M].
    """

    decode: Callable[[Tensor], Tensor]
    distance: Callable[[Tensor, Tensor], Tensor]
    weight: Weight = field(default_factory=Constant)
    name: str = "goal"

    def __call__(self, trajectory: Trajectory, goal: Tensor) -> Tensor:
        wanted = self._draw(goal)
        pairs = zip(trajectory.latents[:, :, -1], wanted.split(1), strict=True)
        return torch.stack([self.distance(self._draw(last), image) for last, image in pairs])

    def _draw(self, latents: Tensor) -> Tensor:
        return self.decode(latents).movedim(-1, -3)


@dataclass(frozen=True)
class ActionConsistency:
    """Whether each imagined transition is the one its action produces (Eq. cyc-cost).

    verifier: an inverse dynamics model, or a view of one that looks at other features or infers other units; residuals
        are measured in its units.
    path: where actions [..., H, A], in the verifier's units, lead: [..., H, D]. Then that is compared, for the actions
        asked for and for those inferred, instead of the actions themselves: what the verifier gets wrong at random
        cancels out along the way, what the model gets wrong always one way adds up.
    """

    verifier: InverseDynamics | VerifierView
    weight: Weight = field(default_factory=Adaptive)
    name: str = "consistency"
    path: Callable[[Tensor], Tensor] | None = None

    @property
    def view(self) -> VerifierView:
        return self.verifier if isinstance(self.verifier, VerifierView) else VerifierView(self.verifier)

    def check_scaler(self, scaler: ActionScaler) -> None:
        """A PlanningError if the verifier infers actions in other units than the planner's."""
        self.view.check_scaler(scaler)

    def differences(self, trajectory: Trajectory) -> Tensor:
        """a_t − G(ẑ_t, ẑ_{t+1}) as [B, N, H, A], or of where they lead as [B, N, H, D]."""
        inferred, asked = self.view.inferred(trajectory), self.view.asked(trajectory)
        if inferred.shape != asked.shape:
            raise ShapeError(
                f"the verifier of term {self.name!r} returned actions {list(inferred.shape)} for candidates "
                f"{list(asked.shape)}; it must be fitted to the model's own normalised action blocks"
            )
        return asked - inferred if self.path is None else self.path(asked) - self.path(inferred)

    def per_step(self, trajectory: Trajectory) -> Tensor:
        """Residuals ‖a_t − G(ẑ_t, ẑ_{t+1})‖² as [B, N, H], or those of where the actions lead."""
        return self.differences(trajectory).square().sum(-1)

    def __call__(self, trajectory: Trajectory, goal: Tensor) -> Tensor:
        return self.per_step(trajectory).mean(-1)


@dataclass(frozen=True)
class ActionNorm:
    """Mean over H of ‖a_t‖²: the control that tells consistency from a mere preference for small actions."""

    weight: Weight = field(default_factory=Adaptive)
    name: str = "action_norm"

    def __call__(self, trajectory: Trajectory, goal: Tensor) -> Tensor:
        return trajectory.actions.square().sum(-1).mean(-1)


@dataclass(frozen=True)
class Custom:
    """A user's own cost: `fn(trajectory, goal) -> [B, N]`."""

    fn: Callable[[Trajectory, Tensor], Tensor]
    name: str = "custom"
    weight: Weight = field(default_factory=Constant)

    def __call__(self, trajectory: Trajectory, goal: Tensor) -> Tensor:
        return self.fn(trajectory, goal)


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
        object.__setattr__(self, "terms", tuple(terms))
        if not self.terms:
            raise PlanningError("a cost needs at least one term, got none")
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
        stopwatch = stopwatch or Stopwatch()
        return self.weigh(
            {term.name: averaged(evaluate_term(term, trajectory, goal, stopwatch), repeats) for term in self.active}
        )

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


def spread(values: Tensor, usable: Tensor) -> Tensor:
    """Unbiased standard deviation over the usable of N candidates, [B, N] to [B]; 0 when fewer than two.

    Any power of two times the values gives that power times the spread, bit for bit: squares neither underflow nor
    overflow, because the values are first divided by a power of two near the largest.
    """
    values = values.masked_fill(~usable, 0.0)
    unit = _power_of_two(values.abs().amax(1))
    values = values / unit[:, None]
    lowest = values.masked_fill(~usable, torch.inf).amin(1, keepdim=True)
    offset = (values - lowest).masked_fill(~usable, 0.0)  # equal costs give exactly 0, not their rounding error
    count = usable.sum(1)
    mean = offset.sum(1) / count.clamp(min=1)
    squares = (offset - mean[:, None]).masked_fill(~usable, 0.0).square().sum(1)
    return (squares / (count - 1).clamp(min=1)).sqrt() * unit


def _power_of_two(values: Tensor) -> Tensor:
    """The powers of two just below values ≥ 0: their bits without the mantissa. At least the smallest normal number."""
    bits, exponent = (torch.int32, 0xFF << 23) if values.dtype == torch.float32 else (torch.int64, 0x7FF << 52)
    return (values.view(bits) & exponent).view(values.dtype).clamp(min=torch.finfo(values.dtype).tiny)


def goal_cost(*, reduction: Literal["sum", "mean"] = "sum") -> Cost:
    """The usual planning cost: distance to the goal alone."""
    return Cost([GoalDistance(reduction)])


def acid_cost(
    verifier: InverseDynamics | VerifierView, lam: float = 0.07, *, reduction: Literal["sum", "mean"] = "sum"
) -> Cost:
    """Distance to the goal plus action consistency with adaptive weight λ; λ = 0 only reports the consistency."""
    return Cost([GoalDistance(reduction), ActionConsistency(verifier, Adaptive(lam))])
