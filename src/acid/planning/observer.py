"""What a search shows to whoever wants to watch it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Iteration:
    """One iteration of a search, for the R of B problems that are still searched.

    All tensors are copies on the device of the model: nothing that an observer does to them changes the plan.
    """

    number: int  # from 0; a new search begins with 0
    problems: tuple[int, ...]  # the R numbers, below B
    candidates: Tensor  # [R, N, V, d], the variables of the planner's parametrisation
    actions: Tensor  # [R, N, H, A], what they mean, normalised
    total: Tensor  # [R, N], the cost that ranks them; +inf for a candidate that cannot be used
    terms: Mapping[str, Tensor]  # [R, N] per term, unweighted
    spreads: Mapping[str, Tensor]  # [R] per term, standard deviation over the candidates
    weights: Mapping[str, Tensor]  # [R] per term, what it was multiplied by
    elites: Tensor  # [R, K] numbers of the candidates that count, best first
    shares: Tensor  # [R, K] how much each of them counts, sums to 1
    mean: Tensor | None  # [R, V, d] of the Gaussian after this iteration; None for a search that has none
    std: Tensor | None  # [R, V, d]


Observer = Callable[[Iteration], None]
