"""Every format becomes a file of ours, by name; what a format cannot honour is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from acid.data import FORMATS, Episodes, Source, import_episodes
from acid.errors import DataError, UnknownNameError

from .recon_files import write_trajectory


def test_stable_worldmodels_layout_is_checked_and_copied(write: Callable[..., Path], tmp_path: Path) -> None:
    path = write((4, 6))
    with h5py.File(path, "r+") as file:
        file["instruction"] = np.array([b"push"] * 10)
    told: list[tuple[int, int]] = []
    copied = import_episodes(path, tmp_path / "copy.h5", "hdf5", progress=lambda *p: told.append(p))
    assert told == [(1, 2), (2, 2)]
    assert copied.attributes == {"task": "toy", "left_out": "instruction"}
    ours, theirs = copied.episode(1), Episodes(path).episode(1)
    assert set(ours) == set(theirs) - {"instruction"}
    assert all((ours[name] == theirs[name]).all() for name in ours)
    with h5py.File(path, "r+") as file:
        del file["ep_len"]
    with pytest.raises(DataError, match="not an episode dataset"):
        import_episodes(path, tmp_path / "other.h5", "hdf5")


def test_recon_is_decoded_to_a_size(tmp_path: Path) -> None:
    write_trajectory(tmp_path / "recon" / "t.hdf5", 1, 7)
    found = import_episodes(tmp_path / "recon", tmp_path / "recon.h5", "recon", size=8)
    assert (len(found), found.shape("pixels"), found.attributes["size"]) == (1, (8, 8, 3), "8")
    assert import_episodes(tmp_path / "recon", tmp_path / "more.h5", "recon").shape("pixels") == (64, 64, 3)


def test_dino_wms_folders_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "rope"
    (folder / "000000").mkdir(parents=True)
    torch.save(torch.randn(1, 5, 7, 4), folder / "states.pth")
    torch.save(torch.randn(1, 5, 4), folder / "actions.pth")
    torch.save(torch.zeros(5, 12, 12, 3, dtype=torch.uint8), folder / "000000" / "obses.pth")
    found = import_episodes(folder, tmp_path / "rope.h5", "dinowm")
    assert (found.rows, found.shape("particles"), found.attributes["folder"]) == (5, (7, 4), "rope")
    with pytest.raises(DataError, match="'dinowm' keeps the size of its frames; leave size '64' out"):
        import_episodes(folder, tmp_path / "small.h5", "dinowm", size=64)


def test_mistakes_are_named(write: Callable[..., Path], tmp_path: Path) -> None:
    path = write((4, 6))
    with pytest.raises(UnknownNameError, match="unknown format 'hdf'; did you mean 'hdf5'"):
        import_episodes(path, tmp_path / "copy.h5", "hdf")
    with pytest.raises(DataError, match="exists already"):
        import_episodes(path, path, "hdf5")
    with pytest.raises(DataError, match="'hdf5' keeps the size of its frames; leave size '64' out"):
        import_episodes(path, tmp_path / "copy.h5", "hdf5", size=64)


def test_a_format_is_one_function_and_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_numbers(path: Path, size: int | None) -> Source:
        return Source(2, ({"action": np.full((3, 1), number, np.float32)} for number in range(2)), {"from": path.name})

    monkeypatch.setitem(FORMATS, "numbers", read_numbers)
    found = import_episodes(tmp_path / "two", tmp_path / "two.h5", "numbers")
    assert (len(found), found.attributes) == (2, {"from": "two"})


def frames(**changes) -> dict[str, np.ndarray]:
    return {"pixels": np.zeros((4, 6, 6, 3), np.uint8), "action": np.zeros((4, 2), np.float32), **changes}


def read_as(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reader: Callable, **options) -> Episodes:
    monkeypatch.setitem(FORMATS, "mine", reader)
    (tmp_path / "mine").mkdir(exist_ok=True)
    return import_episodes(tmp_path / "mine", tmp_path / "mine.h5", "mine", **options)


def test_a_reader_need_not_take_a_size(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the format 'mine' keeps the size of its frames; leave size '8' out"):
        read_as(monkeypatch, tmp_path, lambda path: Source(1, [frames()], {}), size=8)
    with pytest.raises(DataError, match="the reader of the format 'mine' must return a Source, got a list"):
        read_as(monkeypatch, tmp_path, lambda path: [frames()])
    assert len(read_as(monkeypatch, tmp_path, lambda path: Source(1, [frames()], {}))) == 1


@pytest.mark.parametrize(
    ("pixels", "complaint"),
    [
        (np.zeros((4, 6, 6, 3), np.float32), r"'pixels' must be uint8 \[steps, height, width, 3\], got float32 \[4, 6"),
        (np.zeros((4, 6, 6), np.uint8), r"got uint8 \[4, 6, 6\]"),
        (np.zeros((4, 3, 6, 6), np.uint8), "the frames are 6 × 3 pixels, and world models take square ones"),
        (np.zeros((4, 6, 6, 4), np.uint8), r"got uint8 \[4, 6, 6, 4\]"),
    ],
)
def test_frames_that_nothing_can_learn_from_are_not_imported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pixels: np.ndarray, complaint: str
) -> None:
    with pytest.raises(DataError, match=complaint):
        read_as(monkeypatch, tmp_path, lambda path: Source(1, [frames(pixels=pixels)], {}))
    assert not (tmp_path / "mine.h5").exists()
