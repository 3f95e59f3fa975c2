"""What rows say about a sentence of the paper. One rule for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from acid.evaluation.statistics import Paired
from acid.evaluation.table import difference

Kind = Literal["confirmed", "not confirmed", "contradicted"]
RULE = (
    "confirmed: every 95 % interval lies on the claimed side of zero; contradicted: one lies on the other side; "
    "not confirmed: anything between."
)


@dataclass(frozen=True)
class Verdict:
    """At the scale of the rows, with one sentence that says why."""

    kind: Kind
    reason: str

    def __str__(self) -> str:
        return f"{self.kind} at this scale; {self.reason}"


def on_gains(gains: Mapping[str, Paired], *, lower_is_better: bool = False, reason: str = "") -> Verdict:
    """Whether all of them gain."""
    sides = [(-g.high, -g.low) if lower_is_better else (g.low, g.high) for g in gains.values()]
    if all(low > 0 for low, _ in sides):
        kind: Kind = "confirmed"
    elif any(high < 0 for _, high in sides):
        kind = "contradicted"
    else:
        kind = "not confirmed"
    return Verdict(kind, reason or f"{told(gains, share=not lower_is_better)}.")


def told(gains: Mapping[str, Paired], *, share: bool) -> str:
    """By name, with intervals."""
    return "; ".join(f"{name} {difference(found, share=share)}" for name, found in gains.items())
