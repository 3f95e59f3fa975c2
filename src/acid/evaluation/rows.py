"""Per-episode rows on disk: append-only JSON lines that survive being killed at any moment."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from acid.errors import AcidError, DataError

Row = Mapping[str, Any]
KEY = ("task", "model", "condition", "search", "lambda", "split", "seed", "instance")
# Rows that differ in one of these answer different questions and must not be averaged.
SAME_IN_A_FILE = ("checkpoints", "goal_offset", "budget")


def key(row: Row) -> tuple[Any, ...]:
    """What makes a row the only one of its kind."""
    return tuple(row[name] for name in KEY)


class RowFile:
    """One condition's rows. `with RowFile(path, same) as rows: rows.append([...])`.

    `same` holds the values of `SAME_IN_A_FILE` for the rows to come; a file with other values is refused.
    A last line that a killed process left half written is cut off. One process may write a file at a time.
    """

    def __init__(self, path: str | Path, same: Mapping[str, Any], *, fresh: bool = False) -> None:
        self.path = Path(path)
        self._same = {name: same[name] for name in SAME_IN_A_FILE}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("ab")
        try:
            _lock(self._file, self.path)
            if fresh:
                self._file.truncate(0)
            rows, end = _parse(self.path)
            self._file.truncate(end)
            for row in rows:
                self._check(row)
        except BaseException:
            self._file.close()
            raise
        self._done = {key(row) for row in rows}

    def __contains__(self, row_key: tuple[Any, ...]) -> bool:
        return row_key in self._done

    def __len__(self) -> int:
        return len(self._done)

    def append(self, rows: Sequence[Row]) -> None:
        """Write rows in one go; when this returns they are on the disk."""
        for row in rows:
            self._check(row)
        self._file.write(b"".join(map(_line, rows)))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._done.update(map(key, rows))

    def _check(self, row: Row) -> None:
        for name, expected in self._same.items():
            if row.get(name) != expected:
                raise DataError(
                    f"{self.path} holds rows with {name} {row.get(name)}, this run has {expected}: "
                    "move the file away, or pass --fresh to replace it"
                )

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> RowFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_rows(paths: Iterable[str | Path]) -> list[dict[str, Any]]:
    """The complete rows of some files, which may still be growing."""
    return [row for path in paths for row in _parse(Path(path))[0]]


def _parse(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The rows of a file and where the last complete one ends."""
    lines = path.read_bytes().splitlines(keepends=True)
    rows: list[dict[str, Any]] = []
    end = 0
    for number, line in enumerate(lines, start=1):
        row = _row(line)
        if row is None:
            if number < len(lines):
                raise DataError(
                    f"{path}, line {number} is not a result row: {line[:60]!r}; remove the line or the file"
                )
            break
        rows.append(row)
        end += len(line)
    return rows, end


def _row(line: bytes) -> dict[str, Any] | None:
    if not line.endswith(b"\n"):
        return None
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and all(name in row for name in KEY) else None


def _line(row: Row) -> bytes:
    try:
        return json.dumps(row, allow_nan=False, ensure_ascii=False).encode() + b"\n"
    except ValueError as error:
        raise DataError(f"the row of instance {row.get('instance')!r} holds NaN or infinity: {dict(row)}") from error


def _lock(file: BinaryIO, path: Path) -> None:
    """Held until the file is closed or the process dies. Where the system has no such lock, trust the user."""
    with contextlib.suppress(ImportError):
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise AcidError(f"{path} is being written by another process: wait for it or stop it first") from error
