"""What is compared, and under which names it is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from acid.errors import AcidError, did_you_mean
from acid.planning import Search

# They differ only in the cost that the search minimises, and the clipped ones also in the range that it searches.
# Of the last three, prior takes the middle of what is searched, chance decides by lot, best by the true outcome.
PLANNERS = (
    *("original", "acid", "acid-path", "control", "change", "turn", "clipped", "acid-clipped"),
    *("prior", "chance", "best"),
)
WEIGHTED = ("acid", "acid-path", "control", "change", "turn", "acid-clipped")  # those with a λ
BASELINES = ("noop", "random", "policy")
NO_SEARCH = "-"

_LETTERS = {"samples": "n", "restarts": "n", "iterations": "j", "elites": "k"}  # as in the paper


def search_name(search: Search) -> str:
    """E.g. cem-n300-j30-k30: the sizes always, other options only where they differ from their default."""
    parts = [type(search).__name__.lower()]
    for option in fields(search):  # type: ignore[arg-type]  # every search is a dataclass
        value = getattr(search, option.name)
        if option.name in _LETTERS:
            parts.append(f"{_LETTERS[option.name]}{value}")
        elif value != option.default:
            parts.append(f"{option.name}{value}".replace(" ", ""))
    return "-".join(parts)


@dataclass(frozen=True)
class Condition:
    """One column of a comparison: who acts, with which search and which λ."""

    task: str
    model: str
    name: str
    search: str = NO_SEARCH
    lam: float | None = None

    def __post_init__(self) -> None:
        known = (*PLANNERS, *BASELINES)
        if self.name not in known:
            raise AcidError(f"unknown condition {self.name!r}{did_you_mean(self.name, known)}")
        if (self.name in PLANNERS) == (self.search == NO_SEARCH):
            needs = "needs the name of its search" if self.name in PLANNERS else "does not search"
            raise AcidError(f"condition {self.name!r} {needs}, got search {self.search!r}")

    def file(self, folder: str | Path, split: str) -> Path:
        """Where this condition's rows live; two conditions never share a file, so they may run side by side."""
        parts = [self.name]
        parts += [] if self.search == NO_SEARCH else [self.search]
        parts += [] if self.lam is None else [f"lambda{self.lam:g}"]
        return Path(folder) / self.task / self.model / split / f"{'_'.join(parts)}.jsonl"

    def columns(self) -> Mapping[str, str | float | None]:
        """The row columns that say which condition a row belongs to."""
        return {
            "task": self.task,
            "model": self.model,
            "condition": self.name,
            "search": self.search,
            "lambda": self.lam,
        }
