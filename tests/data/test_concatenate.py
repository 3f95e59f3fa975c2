from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from acid.data import Episodes, EpisodeWriter, concatenate
from acid.errors import DataError


def test_merged_parts_equal_one_file(write: Callable[..., Path], tmp_path: Path) -> None:
    whole = Episodes(write((5, 3, 4, 9)))
    parts = [write((5, 3), "a.h5"), write((4,), "b.h5", first=2), write((9,), "c.h5", first=3)]
    concatenate(parts, tmp_path / "merged.h5")
    merged = Episodes(tmp_path / "merged.h5")
    assert merged.attributes == whole.attributes
    assert merged.columns == whole.columns
    np.testing.assert_array_equal(merged.offsets, whole.offsets)
    for name in whole.columns:
        np.testing.assert_array_equal(merged.read(name, merged.rows_of()), whole.read(name, whole.rows_of()))


def test_parts_that_do_not_match_leave_nothing_behind(write: Callable[..., Path], tmp_path: Path) -> None:
    with EpisodeWriter(tmp_path / "other.h5") as writer:
        writer.write({"action": np.zeros((3, 7), np.float32)})
    with pytest.raises(DataError, match="missing"):
        concatenate([write((5,)), tmp_path / "other.h5"], tmp_path / "merged.h5")
    assert not (tmp_path / "merged.h5").exists()
    with pytest.raises(DataError, match="no part files"):
        concatenate([], tmp_path / "merged.h5")
