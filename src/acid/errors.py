"""The errors a user can act on: one sentence that names the thing, its value and what to do."""

from __future__ import annotations

import difflib
import importlib
import math
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


class AcidError(Exception):
    """Base of every error raised on purpose; the CLI prints its message without a traceback."""


class AcidWarning(UserWarning):
    """Something works, but hardly as it was meant."""


class ShapeError(AcidError, ValueError):
    """A tensor has the wrong rank, size or dtype."""


class PlanningError(AcidError, RuntimeError):
    """A plan cannot be made, e.g. every candidate of a problem has a non-finite cost."""


class DataError(AcidError, ValueError):
    """Episodes on disk are missing, truncated, foreign or too short."""


class CheckpointError(AcidError, ValueError):
    """A checkpoint folder is missing, corrupt or belongs to something else."""


class UnknownNameError(AcidError, KeyError):
    """A name is not in a registry; the message suggests the nearest ones."""

    def __str__(self) -> str:  # KeyError would print the repr
        return str(self.args[0])


class MissingMethodError(AcidError, NotImplementedError):
    """A class that extends one of ours lacks a method that is needed."""

    def __init__(self, owner: type, method: str) -> None:
        super().__init__(f"the class {owner.__name__} has no {method!r}, which is needed here; define it")


def check_offers(what: str, thing: object, *methods: str) -> None:
    """An AcidError unless something of the user's is an object, and not its class, with these methods."""
    if isinstance(thing, type):
        raise AcidError(f"{what} must be an object, got the class {thing.__name__}; pass {thing.__name__}(...)")
    for name in methods:
        if not callable(getattr(thing, name, None)):
            raise AcidError(f"{what} needs the method {name!r}, which a {type(thing).__name__} does not have")


def need_package(
    module: str, extra: str, what: str, failure: Callable[[str], AcidError] = AcidError, *, package: str = ""
) -> Any:
    """An optional module, imported; where it is missing, one sentence that says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = package or (error.name or module).partition(".")[0]
        raise failure(f"{what} needs the package {name!r}; run: pip install 'acid-planning[{extra}]'") from error


def named(entries: Iterable[Any], kind: str) -> dict[str, Any]:
    """A registry of things by their `name`; an AcidError if two of them have the same."""
    registry: dict[str, Any] = {}
    for entry in entries:
        if entry.name in registry:
            raise AcidError(f"there are two entries of the {kind} {entry.name!r}; give one of them another name")
        registry[entry.name] = entry
    return registry


def look_up(registry: Mapping[str, T], name: str, kind: str) -> T:
    """`registry[name]`, or an UnknownNameError with "did you mean"."""
    if isinstance(name, str) and name in registry:
        return registry[name]
    raise UnknownNameError(f"unknown {kind} {name!r}{did_you_mean(name, registry)}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    name, known = str(name), list(known)
    close = difflib.get_close_matches(name, known, n=2, cutoff=0.5)
    if close:
        return f"; did you mean {' or '.join(map(repr, close))}?"
    return f"; known: {', '.join(map(repr, sorted(known)))}"


def is_number(value: Any, *, whole: bool = False) -> bool:
    """Whether a setting is a real number (NaN and infinities are), or a whole one; a switch is none."""
    kind = numbers.Integral if whole else numbers.Real
    if isinstance(value, bool) or not isinstance(value, kind):
        return False
    return not isinstance(value, int) or abs(int(value)) < 2**63  # larger ones are numbers of nothing, and no float


def are_numbers(values: Any) -> bool:
    """Whether this is a list of finite numbers, and not an empty one."""
    return isinstance(values, list | tuple) and bool(values) and all(is_number(v) and math.isfinite(v) for v in values)


def some(names: Sequence[str]) -> str:
    """The first three names, and how many more there are."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def plain(text: str) -> str:
    """Text from a file for a terminal: what cannot be printed is shown as an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
