"""One row per played episode: its type, and files of rows that survive being killed at any moment."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from acid.errors import AcidError, DataError, did_you_mean, plain
from acid.evaluation.searches import SearchSpec
from acid.files import GrowingFile, check_name, claim, clipped, parse_json, read_bytes

SCHEMA = 2
# Rows that differ in one of these answer different questions and must not be averaged.
SAME_IN_A_FILE = ("checkpoints", "precision", "goal_offset_steps", "budget_steps")
Key = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Row:
    """What happened in one episode, and what it was made with. Errors are in the task's `error_unit`."""

    # Which episode
    task: str
    model: str
    condition: str
    search: SearchSpec | None  # None for agents that do not search
    lam: float | None  # λ of conditions that have a weight
    split: str
    seed: int
    instance: str
    episode: int
    start_step: int
    draw: int
    solved_at_start: bool
    # By which rules
    goal_offset_steps: int | None
    budget_steps: int
    metric: str  # the task's main one
    higher_is_better: bool
    error_unit: str
    # What happened
    success: bool
    steps: int
    initial_error: float
    final_error: float
    best_error: float | None = None  # of all environment steps
    errors: tuple[float, ...] = ()  # after each model step
    imagined_errors: tuple[float, ...] = ()  # what the plans imagined these to be, as a readout sees it
    missed_steps: int | None = None  # environment steps that changed nothing
    metrics: Mapping[str, float] = field(default_factory=dict)  # what else the task measures, units in the names
    # What was planned
    plans: int | None = None
    plan_cpu_seconds: float | None = None
    plan_wall_seconds: float | None = None
    plan_goal_cost: float | None = None  # of the last plan: ‖ẑ_H − z_g‖²
    plan_gap: float | None = None  # of the last plan: ‖z − ẑ‖² after its last executed action
    plan_consistency: float | None = None  # of the last plan: mean residual over its steps
    plan: tuple[tuple[float, ...], ...] | None = None  # environment actions, where a plan is judged as a path
    pool: Mapping[str, float] = field(default_factory=dict)  # rank correlations inside a pool of candidates
    # Made by what
    checkpoints: Mapping[str, str] = field(default_factory=dict)  # fingerprints by part
    precision: str = "float32"  # that the networks computed in: float32, bfloat16 or mixed
    revision: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    schema: int = SCHEMA

    @property
    def key(self) -> Key:
        """What makes a row the only one of its kind."""
        return (*self.group, self.seed, self.instance)

    @property
    def group(self) -> Key:
        """The condition that a row belongs to."""
        return self.task, self.model, self.condition, self.search, self.lam, self.split

    @property
    def pair(self) -> tuple[int, str]:
        """What two conditions are paired by."""
        return self.seed, self.instance

    def value(self, name: str) -> float | None:
        """A number of the row or of its metrics by name; None if this row has no value for it."""
        found = self.metrics[name] if name in self.metrics else getattr(self, name, None)
        return float(found) if isinstance(found, bool | int | float) else None

    @property
    def numbers(self) -> set[str]:
        """The names that `value` may have a number for."""
        return {name for name, kinds in _KINDS.items() if {bool, int} & {*kinds}} | self.metrics.keys()

    def to_json(self) -> dict[str, Any]:
        """Without what is empty or unknown."""
        values = asdict(self)
        return {name: value for name, value in values.items() if name not in _EMPTY or value != _EMPTY[name]}

    @classmethod
    def from_json(cls, content: Any) -> Row:
        """A checked row; a ValueError says what is wrong with it."""
        if not isinstance(content, dict):
            raise ValueError("it is not an object")
        if content.get("schema") != SCHEMA:
            raise ValueError(f"its schema is {content.get('schema')!r}, this version reads {SCHEMA}: run it again")
        if unknown := content.keys() - _KINDS.keys():
            name = sorted(unknown)[0]
            raise ValueError(f"unknown entry {name!r}{did_you_mean(name, _KINDS)}")
        values = {name: _checked(name, value) for name, value in content.items()}
        if missing := sorted(_REQUIRED - values.keys()):
            raise ValueError(f"it lacks {missing[0]!r}")
        return cls(**values)


def _json_types(hint: Any) -> tuple[type, ...]:
    """The types that a JSON value of an annotated field may have."""
    options = get_args(hint) if get_origin(hint) is UnionType else (hint,)
    return tuple(kind for option in options for kind in _JSON_TYPES[get_origin(option) or option])


_JSON_TYPES: dict[Any, tuple[type, ...]] = {
    **{kind: (kind,) for kind in (str, int, bool, NoneType)},
    float: (int, float),
    tuple: (list,),
    Mapping: (dict,),
    SearchSpec: (dict,),
}
_PARTS_OF_PATHS = ("task", "model", "condition", "split", "instance")
_AT_LEAST_ZERO = ("lam", "seed", "steps", "draw", "goal_offset_steps", "budget_steps", "plans", "missed_steps",
                  "plan_cpu_seconds", "plan_wall_seconds")  # fmt: skip
_KINDS = {name: _json_types(hint) for name, hint in get_type_hints(Row).items()}
_OPTIONAL = [f for f in fields(Row) if f.default is not MISSING or f.default_factory is not MISSING]
_REQUIRED = _KINDS.keys() - {f.name for f in _OPTIONAL} | {"schema"}
_EMPTY = {f.name: {} if f.default is MISSING else f.default for f in _OPTIONAL if f.name != "schema"}


def _checked(name: str, value: Any) -> Any:
    """A JSON value as its field's type."""
    kinds = _KINDS[name]
    if not _fits(value, kinds):
        raise ValueError(f"{name} must be {' or '.join(kind.__name__ for kind in kinds)}, got {clipped(value)}")
    if name in _PARTS_OF_PATHS:
        check_name(value, name)
    _check_plain(name, value)
    if not all(isinstance(n, int | float) and math.isfinite(n) for n in _numbers(name, value)):
        raise ValueError(f"{name} holds something that is not a finite number: {clipped(value)}")
    if name in ("checkpoints", "versions") and not all(isinstance(text, str) for text in value.values()):
        raise ValueError(f"{name} holds something that is not a text: {clipped(value)}")
    if name in _AT_LEAST_ZERO and value is not None and value < 0:
        raise ValueError(f"{name} must not be negative, got {value}")
    if name == "search" and value is not None:
        found = SearchSpec.from_json(value)
        check_name(found.name, "search")
        return found
    if name == "plan" and value is not None:
        return tuple(tuple(step) for step in value)
    return tuple(value) if isinstance(value, list) else value


def _check_plain(name: str, value: Any) -> None:
    """Texts that a terminal only prints, and numbers that are numbers of something."""
    texts = [value] if isinstance(value, str) else [*value, *value.values()] if isinstance(value, dict) else []
    if any(isinstance(text, str) and text != plain(text) for text in texts):
        raise ValueError(f"{name} holds characters that cannot be printed: {clipped(value)}")
    if type(value) is int and not -(2**63) <= value < 2**63:
        raise ValueError(f"{name} is absurdly large")


def _fits(value: Any, kinds: tuple[type, ...]) -> bool:
    """A switch is not a number, although Python thinks so."""
    return isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))


def _numbers(name: str, value: Any) -> list[Any]:
    """What of a field's value has to be a finite number."""
    if name in ("metrics", "pool"):
        return list(value.values())
    if name in ("errors", "imagined_errors"):
        return list(value)
    if name == "plan":
        return [number for step in value or () for number in (step if isinstance(step, list) else [None])]
    return [value] if isinstance(value, float) else []


class RowFile:
    """One condition's rows. `with RowFile(path, same) as rows: rows.append([...])`.

    `same` holds the values of `SAME_IN_A_FILE` for the rows to come; a file with other values is refused.
    A last line that a killed process left half written is cut off. One process may write a file at a time.
    """

    def __init__(self, path: str | Path, same: Mapping[str, Any], *, fresh: bool = False) -> None:
        self.path = Path(path)
        self._same = {name: same[name] for name in SAME_IN_A_FILE}
        self._file = GrowingFile(self.path)
        try:
            claim(self._file.file.fileno(), self.path, AcidError)
            if fresh:
                self._file.cut(0)
            rows, end = _parse(self.path)
            self._file.cut(end)
            for row in rows:
                self._check(row)
        except BaseException:
            self._file.close()
            raise
        self._done = {row.key for row in rows}

    def __contains__(self, key: Key) -> bool:
        return key in self._done

    def __len__(self) -> int:
        return len(self._done)

    def append(self, rows: Sequence[Row]) -> None:
        """Write rows in one go; when this returns they are on the disk."""
        for row in rows:
            self._check(row)
        self._file.add(b"".join(map(_line, rows)), sync=True)
        self._done.update(row.key for row in rows)

    def _check(self, row: Row) -> None:
        for name, expected in self._same.items():
            if getattr(row, name) != expected:
                raise DataError(
                    f"{self.path} holds rows with {name} {getattr(row, name)}, this run has {expected}: "
                    "choose another folder of results, move the file away, or replace it by `acid eval --fresh`"
                )

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> RowFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_rows(paths: Iterable[str | Path]) -> list[Row]:
    """The complete rows of some files, which may still be growing."""
    return [row for path in paths for row in _parse(Path(path))[0]]


def _parse(path: Path) -> tuple[list[Row], int]:
    """The rows of a file and where the last complete one ends."""
    lines = [line + b"\n" for line in read_bytes(path).split(b"\n")]  # not by what else ends lines of a text
    lines[-1] = lines[-1][:-1]
    rows: list[Row] = []
    end = 0
    for number, line in enumerate(lines, start=1):
        if number == len(lines) and not line.endswith(b"\n"):
            break
        try:
            rows.append(Row.from_json(parse_json(line, "it")))
        except ValueError as error:
            raise DataError(f"{path}, line {number} is not a result row ({error}); remove the line or file") from error
        end += len(line)
    return rows, end


def _line(row: Row) -> bytes:
    """Text that can be read again: a row that could not would make its whole file unreadable."""
    try:
        text = json.dumps(row.to_json(), allow_nan=True, ensure_ascii=False)
        Row.from_json(json.loads(text))
    except (TypeError, ValueError) as error:
        raise DataError(f"the row of instance {row.instance!r} cannot be written: {error}") from error
    return text.encode() + b"\n"
