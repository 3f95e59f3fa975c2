"""Datasets, and networks that stand in for pretrained ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import training_toys as toys

from acid import tasks
from acid.models import patch_encoders
from acid.nn import lpips


@pytest.fixture
def blobs(tmp_path: Path) -> Path:
    return toys.blobs(tmp_path / "data" / "blobs.h5")


@pytest.fixture
def noise(tmp_path: Path) -> Path:
    return toys.noise(tmp_path / "data" / "noise.h5")


@pytest.fixture
def drives(tmp_path: Path) -> Path:
    return toys.drives(tmp_path / "data" / "drives.h5")


@pytest.fixture
def patches(monkeypatch: pytest.MonkeyPatch) -> toys.Patches:
    found = toys.Patches()
    monkeypatch.setitem(patch_encoders.ENCODERS, "efficientnet-lite0", lambda _: toys.stand_in(found))
    return found


@pytest.fixture
def difference(monkeypatch: pytest.MonkeyPatch) -> toys.Difference:
    found = toys.Difference()
    monkeypatch.setattr(lpips, "load_lpips", lambda: found)
    return found


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "make", lambda name, **_: toys.ThreePoints())
