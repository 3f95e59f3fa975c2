"""What all searches share: the protocol, the elites, the Gaussian that is refined, the trace.

A search method is one frozen dataclass (its fields are its options) with `run`. It knows nothing of models or costs: it
draws candidates from `streams`, asks `objective` for their costs and returns the best. A candidate is a set of search
variables [V, d], which are the actions [H, A] themselves unless the planner has a parametrisation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from acid.errors import PlanningError, is_number
from acid.files import clipped
from acid.planning.costs import Evaluation
from acid.planning.noise import Streams
from acid.planning.objective import Objective
from acid.planning.observer import Iteration
from acid.planning.rows import Rows
from acid.types import Trace

MOST_STEPS = 10_000  # of a plan, and numbers of an action: far above any real ones
MOST_ACTION_NUMBERS = 100_000
Std = float | tuple[float, ...]  # one number, or one per action dimension


@dataclass(frozen=True)
class Start:
    """Where a search begins."""

    mean: Tensor  # [B, V, d]
    std: Tensor | None = None  # [B, V, d], 0 to stay where it is; None: the search's own `std_init`
    sequences: Tensor | None = None  # [B, M, V, d], candidates that are tried as they are in the first iteration

    def gaussian(self, std_init: Std) -> Gaussian:
        """The distribution that the first candidates are drawn from."""
        return Gaussian(self.mean, initial_std(std_init, self.mean) if self.std is None else self.std)

    def join(self, candidates: Tensor, rows: Rows, iteration: int = 0) -> Tensor:
        """Candidates [R, N, V, d], of which the sequences replace the last ones in the first iteration."""
        if self.sequences is None or iteration > 0:
            return candidates
        drawn = candidates.shape[1] - self.sequences.shape[1]
        if drawn < 1:
            raise PlanningError(
                f"the proposal has {self.sequences.shape[1]} sequences, which leave no room for others among "
                f"{candidates.shape[1]} candidates: raise `samples` or propose fewer"
            )
        return torch.cat([candidates[:, :drawn], rows.take(self.sequences)], dim=1)


@dataclass(frozen=True)
class Outcome:
    """What a search found."""

    candidates: Tensor  # [B, V, d], the best found for each problem
    trace: Trace


class Search(Protocol):
    """A way to minimise an objective over action sequences."""

    def run(self, objective: Objective, start: Start, streams: Streams) -> Outcome:
        """Search from there with the random stream of each problem."""
        ...


@dataclass(frozen=True)
class Elites:
    """The candidates that count, best first, and how much each one counts."""

    index: Tensor  # [B, K] into the N candidates
    share: Tensor  # [B, K], sums to 1; 0 for a candidate whose cost is not finite

    def take(self, values: Tensor) -> Tensor:
        """Values [B, N, ...] of the elites, as [B, K, ...]."""
        index = self.index.reshape(*self.index.shape, *[1] * (values.dim() - 2))
        return values.gather(1, index.expand(-1, -1, *values.shape[2:]))

    def mean(self, values: Tensor) -> Tensor:
        """Mean of values [B, N, ...] over the elites, as [B, ...]."""
        return self._weigh(self.take(values))

    def variance(self, values: Tensor) -> Tensor:
        """Variance of values [B, N, ...] over the elites as a population, as [B, ...]."""
        taken = self.take(values)
        return self._weigh((taken - self._weigh(taken)[:, None]).square())

    def _weigh(self, taken: Tensor) -> Tensor:
        share = self.share.reshape(*self.share.shape, *[1] * (taken.dim() - 2))
        return (taken.masked_fill(share == 0, 0.0) * share).sum(1)  # masked: 0 · NaN would be NaN


@dataclass(frozen=True)
class Ranking:
    """The candidates of one iteration, what they cost and which of them count."""

    candidates: Tensor  # [R, N, V, d]
    evaluation: Evaluation
    elites: Elites


def lowest(total: Tensor, count: int) -> Elites:
    """The `count` candidates of lowest total cost [B, N], with equal shares; fewer where fewer are finite.

    Equal costs keep the order of the candidates, so that the choice is the same in every batch.
    """
    ordered, index = total.sort(dim=1, stable=True)
    finite = ordered[:, :count].isfinite().to(total.dtype)
    return Elites(index[:, :count], finite / finite.sum(1, keepdim=True))


@dataclass(frozen=True)
class Gaussian:
    """An independent normal distribution for every search variable."""

    mean: Tensor  # [B, V, d]
    std: Tensor  # [B, V, d]

    @classmethod
    def fit(cls, elites: Elites, candidates: Tensor) -> Gaussian:
        """Mean and unbiased standard deviation of the elites among [B, N, V, d]; std 0 for a single elite."""
        count = (elites.share > 0).sum(1)[:, None, None]
        bessel = count / (count - 1).clamp(min=1)
        return cls(elites.mean(candidates), (elites.variance(candidates) * bessel).sqrt())

    def sample(self, noise: Tensor) -> Tensor:
        """Candidates [B, N, V, d] from standard normal noise of that shape."""
        return self.mean[:, None] + self.std[:, None] * noise

    def take(self, rows: Rows) -> Gaussian:
        return Gaussian(rows.take(self.mean), rows.take(self.std))

    def put(self, rows: Rows, new: Gaussian) -> Gaussian:
        return Gaussian(rows.put(self.mean, new.mean), rows.put(self.std, new.std))


Step = Callable[[Gaussian, Rows, int], tuple[Gaussian, Ranking]]


def refine(
    objective: Objective, step: Step, proposal: Gaussian, *, iterations: int, tolerance: float
) -> tuple[Gaussian, Trace]:
    """Apply `step(proposal, rows, iteration)` until each problem has converged or the iterations are used up.

    A problem has converged when its largest std falls below the tolerance. It is then left alone while the others go
    on, so its plan is the same in every batch. With tolerance 0 nothing is read back from the device.
    """
    rows = Rows.all(len(proposal.mean))
    recorder = Recorder(objective, len(rows))
    for iteration in range(iterations):
        new, ranking = step(proposal.take(rows), rows, iteration)
        proposal = proposal.put(rows, new)
        recorder.add(rows, ranking, new)
        if tolerance > 0:
            rows = rows.where(new.std.flatten(1).amax(1) >= tolerance)
        if not len(rows):
            break
    return proposal, recorder.trace(iterations)


class Recorder:
    """Collects the trace and tells the observer, if there is one.

    A problem that is no longer searched repeats its last values in the trace, up to J iterations.
    """

    def __init__(self, objective: Objective, problems: int) -> None:
        self._objective = objective
        self._problems = problems
        self._iterations: list[dict[str, dict[str, Tensor]]] = []

    def add(self, rows: Rows, ranking: Ranking, fitted: Gaussian | None = None) -> None:
        """fitted: what a search that refines a Gaussian made of this iteration."""
        if self._objective.observer is not None:
            self._objective.observer(self._iteration(rows, ranking, fitted))
        evaluation, elites = ranking.evaluation, ranking.elites
        now: dict[str, Mapping[str, Tensor]] = {
            "best": {"total": evaluation.total.amin(1)},
            "costs": {name: elites.mean(values) for name, values in evaluation.terms.items()},
            "spreads": evaluation.spreads,
            "weights": evaluation.weights,
        }
        self._iterations.append(
            {
                kind: {name: self._fill(kind, name, rows, new) for name, new in group.items()}
                for kind, group in now.items()
            }
        )

    def _iteration(self, rows: Rows, ranking: Ranking, fitted: Gaussian | None) -> Iteration:
        evaluation, elites = ranking.evaluation, ranking.elites
        return Iteration(
            number=len(self._iterations),
            problems=rows.numbers,
            candidates=_copy(ranking.candidates),
            actions=_copy(self._objective.actions(ranking.candidates)),
            total=_copy(evaluation.total),
            terms=_copies(evaluation.terms),
            spreads=_copies(evaluation.spreads),
            weights=_copies(evaluation.weights),
            elites=_copy(elites.index),
            shares=_copy(elites.share),
            mean=None if fitted is None else _copy(fitted.mean),
            std=None if fitted is None else _copy(fitted.std),
        )

    def _fill(self, kind: str, name: str, rows: Rows, new: Tensor) -> Tensor:
        last = self._iterations[-1][kind][name] if self._iterations else new.new_zeros(self._problems)
        return rows.put(last, new.detach())

    def trace(self, iterations: int) -> Trace:
        """Everything added, the last values repeated to fill J = `iterations`."""
        padded = self._iterations + [self._iterations[-1]] * (iterations - len(self._iterations))

        def stack(kind: str) -> dict[str, Tensor]:
            return {name: torch.stack([values[kind][name] for values in padded]) for name in padded[0][kind]}

        return Trace(stack("best")["total"], stack("costs"), stack("spreads"), stack("weights"))


def _copy(values: Tensor) -> Tensor:
    return values.detach().clone()


def _copies(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: _copy(tensor) for name, tensor in values.items()}


def initial_std(std: Std, mean: Tensor) -> Tensor:
    """The option `std_init` as a tensor of the shape of the mean [B, V, d]."""
    if not isinstance(std, (int, float)) and len(std) != mean.shape[-1]:
        raise PlanningError(f"std_init needs one number or one per action dimension ({mean.shape[-1]}), got {std}")
    return torch.as_tensor(std, dtype=mean.dtype, device=mean.device).expand_as(mean)


def check_counts(most: int = 2**31 - 1, /, **counts: int) -> None:
    for name, value in counts.items():
        if not is_number(value, whole=True) or value > most:
            raise PlanningError(f"{name} must be a whole number of at most {most}, got {clipped(value)}")
        if value < 1:
            raise PlanningError(f"{name} must be at least 1, got {value}")


def check_elites(elites: int, samples: int) -> None:
    check_counts(elites=elites, samples=samples)
    if elites > samples:
        raise PlanningError(f"elites must be at most samples: {elites} elites of {samples} samples")


def check_not_negative(**values: float) -> None:
    for name, value in values.items():
        if not is_number(value) or not value >= 0:
            raise PlanningError(f"{name} must not be negative, got {value!r}")


def check_std(std: Std, name: str = "std_init") -> None:
    numbers = std if isinstance(std, tuple) else (std,)
    if not numbers or not all(is_number(number) and 0 < number < float("inf") for number in numbers):
        raise PlanningError(f"{name} must be positive and finite, got {std!r}")
