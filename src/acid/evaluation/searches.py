"""The description of a search in rows and file names."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any

from acid import checkpoint
from acid.errors import AcidError, CheckpointError, did_you_mean, look_up
from acid.planning import SEARCHES, Search
from acid.tasks import Setup

_SIZES = ("samples", "iterations", "elites")
FREE = "free"  # candidates that are searched number by number


@dataclass(frozen=True)
class SearchSpec:
    """Method and sizes: N candidates, J iterations, K elites, plans of H model steps."""

    method: str
    samples: int
    iterations: int = 1
    elites: int | None = None
    horizon: int = 5
    candidates: str = FREE  # the family that is searched, e.g. arcs
    repeats: int = 1  # rollouts of each candidate
    execute: int | None = None  # model steps of a plan that are executed before the next is made; None: all
    shrinks: bool = False  # plans become shorter as the goal comes nearer, instead of always aiming H steps ahead
    options: Mapping[str, Any] = field(default_factory=dict)  # of the method where not its default, as JSON values

    def __post_init__(self) -> None:
        if self.execute is not None and not 1 <= self.execute <= self.horizon:
            raise AcidError(
                f"of a plan of {self.horizon} steps, 1 to {self.horizon} can be executed, not {self.execute}"
            )
        if self.shrinks and (self.execute is None or self.candidates != FREE):
            raise AcidError("plans shrink only where a part of them is executed and candidates are free; set `execute`")

    def __hash__(self) -> int:
        return hash(self.name)

    @classmethod
    def of(cls, search: Search, **others: Any) -> SearchSpec:
        """The description of a search."""
        names = {kind: name for name, kind in SEARCHES.items()}
        known = fields(search) if is_dataclass(search) else ()
        values = {f.name: getattr(search, f.name) for f in known}
        defaults = {f.name: f.default for f in known}
        sizes = {name: values[name] for name in _SIZES if name in values}
        changed = {n: v for n, v in values.items() if n not in _SIZES and v != defaults[n]}
        options = {n: list(v) if isinstance(v, tuple) else v for n, v in changed.items()}  # JSON has no tuples
        method = names.get(type(search), type(search).__name__.lower())
        return cls(method, sizes.pop("samples", 1), **sizes, options=options, **others)

    @classmethod
    def usual(cls, setup: Setup, *, method: Any = "cem", **chosen: Any) -> SearchSpec:
        """A task's usual search with the `chosen` settings; one that the method does not have is an error."""
        kind = look_up(SEARCHES, method, "search method")
        has = {f.name for f in fields(kind)}
        around = {f.name for f in fields(cls)} - {"method", "options", *_SIZES}
        chosen = {name: value for name, value in chosen.items() if value is not None}
        for name in chosen:
            if name not in has | around:
                close = "; leave it out" if name in (*_SIZES, "std_init") else did_you_mean(name, has | around)
                raise AcidError(f"the search {method!r} has no {name}{close}")
        usual = {name: getattr(setup, name) for name in _SIZES if name in has}
        if "iterations" not in has:  # as many candidates in one go
            usual["samples"] *= setup.iterations
        sizes = {name: chosen.pop(name, size) for name, size in usual.items()}
        options = {name: chosen.pop(name) for name in list(chosen) if name not in around}
        others: dict[str, Any] = {"horizon": setup.horizon, "options": options} | chosen
        spec = cls(method, **sizes, **others)
        spec.build()  # complains about sizes that make no sense
        if spec.horizon < 1:
            raise AcidError(f"horizon must be at least 1, got {spec.horizon}")
        return spec

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> SearchSpec:
        """A checked one; a ValueError says what is wrong with it."""
        return _read(json.dumps(content, sort_keys=True))

    def build(self) -> Search:
        kind = look_up(SEARCHES, self.method, "search method")
        sizes = {name: getattr(self, name) for name in _SIZES if name in {f.name for f in fields(kind)}}
        options = {n: tuple(v) if isinstance(v, list) else v for n, v in self.options.items()}
        for name in options:
            look_up({f.name: f for f in fields(kind)}, name, f"option of the search {self.method!r}")
        return kind(**sizes, **options)

    @property
    def budget(self) -> int:
        """Candidates in all."""
        return self.samples * self.iterations

    @property
    def label(self) -> str:
        """For people, e.g. cem-n300-j30-k30."""
        sizes = [f"{letter}{size}" for letter, size in self._letters]
        family = [] if self.candidates == FREE else [self.candidates]
        repeated = [] if self.repeats == 1 else [f"r{self.repeats}"]
        options = [f"{name}{value}".replace(" ", "") for name, value in self.options.items()]
        feedback = [] if self.execute is None else [f"x{self.execute}{'s' if self.shrinks else ''}"]
        return "-".join([self.method, *sizes, *family, *repeated, *feedback, *options])

    @property
    def name(self) -> str:
        """For files: all of it."""
        return f"{self.label}-h{self.horizon}"

    @property
    def _letters(self) -> list[tuple[str, int]]:
        has = {f.name for f in fields(SEARCHES[self.method])} if self.method in SEARCHES else set(_SIZES)
        pairs = zip("njk", (getattr(self, name) for name in _SIZES), _SIZES, strict=True)
        return [(letter, size) for letter, size, name in pairs if name in has and size is not None]

    def as_dict(self) -> dict[str, Any]:
        """For rows. Feedback is told only where there is some, as in rows from before it was an option."""
        content = asdict(self)
        if self.execute is None:
            del content["execute"], content["shrinks"]
        return content


@functools.cache
def _read(text: str) -> SearchSpec:
    """Thousands of rows hold the same few searches."""
    try:
        return checkpoint.config_from(SearchSpec, json.loads(text))
    except CheckpointError as error:
        raise ValueError(f"search is not understood: {error}") from None
