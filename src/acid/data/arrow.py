"""Columns of pyarrow's tables as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from acid.errors import DataError


def as_numbers(column: Any, what: str) -> np.ndarray:
    """A column of T rows: lists as [T, n], numbers as [T, 1], floating-point ones in single precision."""
    try:
        found = np.asarray(column.to_pylist())
    except (ValueError, OverflowError):  # what numpy says of rows of several lengths
        found = np.empty(0, object)
    if found.dtype.kind not in "biuf":
        raise DataError(f"{what} has rows of several lengths, or some that are no numbers")
    found = found[:, None] if found.ndim == 1 else found
    return found.astype(np.float32) if found.dtype.kind == "f" else found
