"""Lance tables of stable-worldmodel, its default format: one row per step, frames as JPEG.

episode_idx, step_idx       int
pixels, pixels_<view>       encoded images
action, proprio, ...        lists of fixed length
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from acid.data._hdf5 import EPISODE_INDEX, INDEX_COLUMNS
from acid.data.arrow import as_numbers
from acid.data.images import frame, open_image
from acid.data.writer import Source
from acid.errors import DataError, need_package
from acid.files import reason


def read_lance(path: Path, size: int | None = None) -> Source:
    """The episodes of a `.lance` table, or of the only one in a folder; columns of text are left out."""
    table = _open(_table(path))
    columns = [field.name for field in table.schema if field.name not in INDEX_COLUMNS]
    if EPISODE_INDEX not in table.schema.names:
        raise DataError(f"{path} has no column {EPISODE_INDEX!r}, so it is not a table of episodes; it has {columns}")
    ids = as_numbers(table.to_table(columns=[EPISODE_INDEX])[EPISODE_INDEX], f"the column {EPISODE_INDEX} of {path}")
    ids = ids[:, 0] if len(ids) and ids.dtype.kind in "iu" else np.empty(0, np.int64)
    if not len(ids) or (np.diff(ids) < 0).any():
        raise DataError(f"{path} holds no episodes one after another; write it again with stable-worldmodel")
    starts = np.flatnonzero(np.diff(ids, prepend=ids[0] - 1))
    left_out = [name for name in columns if "string" in str(table.schema.field(name).type)]
    known = {"format": "lance", "table": _table(path).stem} | ({"left_out": ", ".join(left_out)} if left_out else {})
    kept = [name for name in columns if name not in left_out]
    return Source(len(starts), _episodes(table, kept, [*starts.tolist(), len(ids)], size, path), known)


def _episodes(
    table: Any, columns: list[str], bounds: list[int], size: int | None, path: Path
) -> Iterator[dict[str, np.ndarray]]:
    for start, stop in pairwise(bounds):
        rows = table.take(list(range(start, stop)), columns=columns)
        yield {name: _column(rows[name], size, f"row {start} of {path}") for name in columns}


def _column(values: Any, size: int | None, where: str) -> np.ndarray:
    """A column of rows [T]: images decoded, lists as [T, n], numbers as [T, 1]."""
    kind = str(values.type)
    if "binary" in kind:
        try:
            return np.stack([frame(open_image(encoded), size) for encoded in values.to_pylist()])
        except (ValueError, TypeError) as error:
            raise DataError(f"an image after {where} cannot be decoded ({error}); leave its episode out") from error
    return as_numbers(values, f"a column after {where}")


def _table(path: Path) -> Path:
    if path.suffix == ".lance":
        return path
    found = sorted(path.glob("*.lance"))
    if len(found) != 1:
        raise DataError(f"{path} holds {len(found)} .lance tables; name one of them")
    return found[0]


def _open(path: Path) -> Any:
    lance = need_package("lance", "lance", "a Lance table", DataError, package="pylance")
    try:
        return lance.dataset(str(path))
    except Exception as error:  # it lets those of Rust pass
        raise DataError(f"{path} cannot be opened as a Lance table ({reason(error)})") from error
