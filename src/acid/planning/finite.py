"""Finds problems that no candidate solves at a finite cost."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from acid.errors import PlanningError
from acid.planning.costs import Evaluation
from acid.planning.rows import Rows


@dataclass(frozen=True)
class _Record:
    """What one iteration left to be looked at."""

    iteration: int
    problems: tuple[int, ...]
    candidates: int
    hopeless: Tensor  # [R], whether no candidate has a finite cost
    broken: dict[str, Tensor]  # [R] per term: candidates for which it is not finite


class FiniteCheck:
    """Looks in every iteration or, if deferred, once after the search: on a GPU looking means waiting for it."""

    def __init__(self, *, deferred: bool) -> None:
        self._deferred = deferred
        self._records: list[_Record] = []

    @torch.no_grad()
    def add(self, evaluation: Evaluation, rows: Rows, iteration: int) -> None:
        hopeless = evaluation.total.isinf().all(1)
        broken = {name: (~values.isfinite()).sum(1) for name, values in evaluation.terms.items()}
        self._records.append(_Record(iteration, rows.numbers, evaluation.total.shape[1], hopeless, broken))
        if not self._deferred:
            self.finish()

    def finish(self) -> None:
        """A PlanningError for the first iteration in which a problem had no finite candidate."""
        records, self._records = self._records, []
        if not records or not torch.cat([record.hopeless for record in records]).any():
            return
        first = next(record for record in records if record.hopeless.any())
        row = int(first.hopeless.nonzero()[0])
        broken = {name: int(counts[row]) for name, counts in first.broken.items()}
        worst = max(broken, key=lambda name: broken[name])
        culprit = (
            f"term {worst!r} is NaN or infinite for {broken[worst]}" if broken[worst] else "their sum overflows for all"
        )
        raise PlanningError(
            f"no candidate of problem {first.problems[row]} has a finite cost in iteration {first.iteration}: "
            f"{culprit} of {first.candidates} candidates; check the model's rollout, or bound the actions"
        )
