"""When not to trust a plan: a threshold on what the planner itself says about it, from plans that were executed.

Split conformal prediction: of plans that keep their word, at most a share `level` is flagged by mistake, on average
over draws of the held-out plans and as long as the problems to come are like them. What share of the others is caught
is measured, not promised.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from acid import files
from acid.errors import AcidError, DataError, are_numbers

RESAMPLES = 2000
AGAIN = "run acid calibrate again"


@dataclass(frozen=True)
class Trust:
    """A plan is trusted if its cost `score` is at most `threshold`."""

    score: str  # a term of the planner's cost, e.g. consistency
    threshold: float
    level: float  # share of good plans that may be flagged
    good: int  # held-out plans that kept their word
    bad: int
    caught: float | None  # share of the bad ones above the threshold
    auroc: tuple[float, float, float] | None  # of the score, with a 95 % interval; 0.5 knows nothing
    made_with: Mapping[str, Any]  # checkpoints, condition, λ and search of those plans

    def holds(self, costs: Mapping[str, float]) -> bool:
        return costs[self.score] <= self.threshold

    @property
    def tells(self) -> bool:
        """Whether the score is certainly better than chance."""
        return self.auroc is not None and self.auroc[1] > 0.5

    def __str__(self) -> str:
        counts = f"{self.good} plans that kept their word and {self.bad} that did not"
        if self.auroc is None or self.caught is None:
            return f"{self.score} ≤ {self.threshold:.4g} is trusted, from {counts}"
        value, low, high = self.auroc
        verdict = "" if self.tells else "; that may be chance, so do not rely on the flag"
        return (
            f"{self.score} ≤ {self.threshold:.4g} is trusted: flags at most {self.level:.0%} of good plans and "
            f"{self.caught:.0%} of bad ones, from {counts}; AUROC {value:.2f} [{low:.2f}, {high:.2f}]{verdict}"
        )

    def save(self, path: Path) -> None:
        files.write_text(path, json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, path: Path) -> Trust:
        content = files.read_json_object(path, remedy=AGAIN)
        try:
            values = {field.name: content[field.name] for field in fields(cls)}
            auroc = values["auroc"]
            values["auroc"] = None if auroc is None else tuple(auroc)
            found = cls(**values)
            measured = [found.threshold, found.level, found.good, found.bad, *(found.auroc or ())]
            if not are_numbers(measured if found.caught is None else [*measured, found.caught]):
                raise ValueError("its threshold, or what was measured, is not a number")
            if found.auroc is not None and len(found.auroc) != 3:
                raise ValueError("its auroc is not a value with an interval")
            if not (isinstance(found.score, str) and isinstance(found.made_with, dict)):
                raise ValueError("its score is not a name, or what it was made with is not known")
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(f"{path} is not a calibration ({error}); {AGAIN}") from error
        return found


def calibrate(
    scores: Sequence[float], good: Sequence[bool], *, score: str, level: float, made_with: Mapping[str, Any]
) -> Trust:
    """The threshold from the scores of executed plans, and whether each of them was good."""
    values, kept = np.asarray(scores, float), np.asarray(good, bool)
    if values.shape != kept.shape or values.ndim != 1 or not np.isfinite(values).all():
        raise AcidError(f"a calibration needs one finite score per plan, got {values.shape} and {kept.shape}")
    check_level(level)
    fine, wrong = values[kept], values[~kept]
    rank = math.ceil((len(fine) + 1) * (1 - level))
    if rank > len(fine):
        needed = math.ceil(1 / level) - 1
        raise AcidError(
            f"{len(fine)} of {len(values)} plans kept their word, but a level of {level:g} needs at least {needed} "
            "such plans: use more episodes or a larger level"
        )
    threshold = float(np.sort(fine)[rank - 1])
    return Trust(
        score=score,
        threshold=threshold,
        level=level,
        good=len(fine),
        bad=len(wrong),
        caught=float((wrong > threshold).mean()) if len(wrong) else None,
        auroc=_auroc(fine, wrong) if len(wrong) > 1 else None,
        made_with=made_with,
    )


def check_level(level: float) -> None:
    if not 0 < level < 1:
        raise AcidError(f"the level must be a share inside (0, 1), got {level:g}")


def _auroc(fine: np.ndarray, wrong: np.ndarray) -> tuple[float, float, float]:
    """How likely a bad plan scores higher than a good one, with a bootstrap interval."""
    higher = (wrong[:, None] > fine) + 0.5 * (wrong[:, None] == fine)
    random, draws = np.random.default_rng(0), []
    for _ in range(RESAMPLES):
        rows, columns = (random.integers(size, size=size) for size in higher.shape)
        draws.append(higher[rows][:, columns].mean())
    low, high = np.quantile(draws, (0.025, 0.975))
    return float(higher.mean()), float(low), float(high)
