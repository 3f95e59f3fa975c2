"""The verdict of our rows on a claim of the paper: one rule for all of them, and the reason in plain words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from acid.evaluation.statistics import Paired

Kind = Literal["confirmed", "not confirmed", "contradicted"]
RULE = (
    "confirmed: every 95 % interval lies on the claimed side of zero; contradicted: one lies on the other side; "
    "not confirmed: anything between, which may mean that there are too few episodes to tell."
)
NAMED = 4  # more of them are counted


@dataclass(frozen=True)
class Verdict:
    """At the scale of the rows, with the reason in plain words and the numbers behind it."""

    kind: Kind
    reason: str
    numbers: str = ""

    def __str__(self) -> str:
        return f"{self.kind} at this scale. {self.reason} {self.numbers}".rstrip()


def on_gains(
    gains: Mapping[str, Paired],
    *,
    lower_is_better: bool = False,
    unit: str = "points of success",
    published: Mapping[str, float] | None = None,
    than: str = "Original",
) -> Verdict:
    """Whether all of them gain. published: the paper's own differences, in the unit that is told."""
    sides = {name: (-g.high, -g.low) if lower_is_better else (g.low, g.high) for name, g in gains.items()}
    gaining = [name for name, (low, _) in sides.items() if low > 0]
    losing = [name for name, (_, high) in sides.items() if high < 0]
    equal = [name for name, side in sides.items() if side == (0, 0)]
    unclear = [name for name in gains if name not in gaining + losing + equal]
    kind: Kind = "contradicted" if losing else "not confirmed" if unclear or equal else "confirmed"
    said = [_gaining(gaining, len(gains))] if gaining or not losing else []
    if losing:
        said.append(f"{_names(losing)} {'is' if len(losing) == 1 else 'are'} worse than {than} for certain.")
    if unclear:
        better = [name for name in unclear if gains[name].difference * (-1 if lower_is_better else 1) > 0]
        said.append(_unclear(unclear, better, sorted({gains[name].n for name in unclear})))
    if equal:
        said.append(f"{_names(equal)} {'is' if len(equal) == 1 else 'are'} equal to {than} in every episode.")
    share = unit.startswith("points")
    said += _excluded(gains, published or {}, unclear + losing, 100 if share else 1)
    return Verdict(kind, " ".join(said), f"Differences in {unit}: {told(gains, share=share)}.")


def judge_gains(gains: Mapping[str, Paired | None], **how: Any) -> Verdict | None:
    """`on_gains`; None while one of them is missing."""
    found = complete(gains)
    return None if found is None else on_gains(found, **how)


def complete(gains: Mapping[str, Paired | None]) -> dict[str, Paired] | None:
    """All of them; None while one is missing."""
    found = {name: gain for name, gain in gains.items() if gain is not None}
    return found if found and len(found) == len(gains) else None


def told(gains: Mapping[str, Paired], *, share: bool) -> str:
    """By name, with intervals; shares in points."""
    return "; ".join(f"{name} {_number(g, share=share)}" for name, g in gains.items())


def _number(gain: Paired, *, share: bool) -> str:
    mean, low, high = (f"{100 * v:+.1f}" if share else f"{v:+.3g}" for v in (gain.difference, gain.low, gain.high))
    return f"{mean} [{low}, {high}]"


def _gaining(names: Sequence[str], total: int) -> str:
    if len(names) == total:
        return {1: "The gain is certain.", 2: "Both gain for certain."}.get(total, f"All {total} gain for certain.")
    if not names:
        return "No gain is certain."
    return f"{len(names)} of {total} {'gains' if len(names) == 1 else 'gain'} for certain ({', '.join(names)})."


def _unclear(names: Sequence[str], better: Sequence[str], counts: Sequence[int]) -> str:
    """Too few episodes: the interval has room on both sides of zero."""
    n = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
    mean = (
        f"{len(better)} of {len(names)} means are gains"
        if len(names) > 1
        else f"the mean is {'a' if better else 'no'} gain"
    )
    return f"For {_names(names)} the interval includes zero: {n} episodes are too few to tell ({mean})."


def _excluded(
    gains: Mapping[str, Paired], published: Mapping[str, float], names: Sequence[str], scale: int
) -> list[str]:
    """Where the paper's own difference is outside our interval, more episodes would not bring it back."""
    outside = [
        f"{name} ({published[name]:+g})"
        for name in names
        if name in published and not scale * gains[name].low <= published[name] <= scale * gains[name].high
    ]
    return [f"The paper's difference lies outside our interval for {', '.join(outside)}."] if outside else []


def _names(names: Sequence[str]) -> str:
    if len(names) > NAMED:
        return f"{len(names)} of them"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
