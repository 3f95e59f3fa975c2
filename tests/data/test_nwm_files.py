"""Trajectories as NWM processes them, its splits and its evaluation lists; pickles that ask for more than numbers."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from acid.data import import_episodes
from acid.data.nwm import Start, read_starts, trajectory_names
from acid.data.pickles import read_pickle
from acid.data.poses import displacements, normalise
from acid.errors import DataError

from .recon_files import poses_of

NAMES = ["jackal_b_r00", "jackal_a_r01", "jackal_c_r00"]


def write(folder: Path, number: int, length: int = 6, **changes: Any) -> None:
    folder.mkdir(parents=True)
    poses = poses_of(number, length)
    for step in range(length):
        picture = np.full((24, 32, 3), (40 * number, 10 * step, 0), np.uint8)
        Image.fromarray(picture).save(folder / f"{step}.jpg", quality=95, subsampling=0)
    content = {"position": poses[:, :2], "yaw": poses[:, 2]} | changes
    (folder / "traj_data.pkl").write_bytes(pickle.dumps(content))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, name in enumerate(NAMES):
        write(tmp_path / "recon" / name, number)
    return tmp_path / "recon"


def test_a_folder_per_trajectory(folder: Path, tmp_path: Path) -> None:
    found = import_episodes(folder, tmp_path / "all.h5", "nwm", size=8)
    assert (len(found), found.shape("pixels"), found.attributes["format"]) == (3, (8, 8, 3), "nwm")
    episode, poses = found.episode(1), poses_of(0, 6)  # names are in order, and b is the second
    np.testing.assert_array_equal(episode["pose"], poses)
    np.testing.assert_allclose(episode["action"][:-1], normalise(displacements(poses)), rtol=1e-6)
    colours = episode["pixels"].mean((1, 2))
    np.testing.assert_allclose(colours, [(0, 10 * step, 0) for step in range(6)], atol=3)


def test_a_split_and_its_evaluation_list(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "traj_names.txt").write_text("jackal_c_r00\njackal_b_r00\n")
    found = import_episodes(folder, tmp_path / "test.h5", "nwm", size=8, names=tmp_path / "traj_names.txt")
    np.testing.assert_array_equal(found.episode(0)["pose"], poses_of(2, 6))
    names = trajectory_names(folder, tmp_path / "traj_names.txt")
    evaluation = tmp_path / "navigation_eval.pkl"
    evaluation.write_bytes(pickle.dumps([("jackal_b_r00", 3, 2, 2), ("jackal_c_r00", 0, -1, 4)]))
    assert read_starts(evaluation, names) == [Start(1, 3, 2, 2), Start(0, 0, -1, 4)]
    with pytest.raises(DataError, match=r"lists \('jackal_b_r00', 3, 2, 2\), which is no"):
        read_starts(evaluation, ["jackal_c_r00"])


def test_lists_of_names_are_checked(folder: Path, tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    for text, told in {"gone": "lists gone, but", "../x": "cannot be part of", "": "lists no trajectory"}.items():
        names.write_text(text)
        with pytest.raises(DataError, match=told):
            import_episodes(folder, tmp_path / "out.h5", "nwm", names=names)
    with pytest.raises(DataError, match="'recon' does not choose trajectories by name"):
        import_episodes(folder, tmp_path / "out.h5", "recon", names=names)


@pytest.mark.parametrize(
    "changes",
    [
        {"position": np.zeros((5, 2))},
        {"position": np.zeros(6)},
        {"yaw": np.full(6, np.nan)},
        {"yaw": "north"},
        {"yaw": np.array([None] * 6)},
    ],
    ids=["fewer", "flat", "nan", "text", "objects"],
)
def test_poses_are_checked(folder: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    write(folder / "jackal_d_r00", 3, **changes)
    with pytest.raises(DataError, match=r"jackal_d_r00/traj_data\.pkl"):
        import_episodes(folder, tmp_path / "out.h5", "nwm", size=8)


def test_a_missing_frame_is_named(folder: Path, tmp_path: Path) -> None:
    (folder / NAMES[0] / "3.jpg").unlink()
    with pytest.raises(DataError, match=r"jackal_b_r00/3\.jpg"):
        import_episodes(folder, tmp_path / "out.h5", "nwm", size=8)


@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol_of_pickle(tmp_path: Path, protocol: int) -> None:
    values = {
        "a": np.arange(6.0).reshape(2, 3),
        "b": np.asfortranarray(np.arange(6, dtype=">i4").reshape(2, 3)),
        "c": [np.float32(1.5), ("x", 2, None, True)],
        "d": np.zeros((0, 2)),
    }
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(values, protocol))
    found = read_pickle(tmp_path / "a.pkl")
    assert found["c"] == [1.5, ("x", 2, None, True)]
    for name in "abd":
        np.testing.assert_array_equal(found[name], values[name])


class Intruder:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.mark),)


def test_nothing_is_run(tmp_path: Path) -> None:
    file, mark = tmp_path / "a.pkl", tmp_path / "mark"
    file.write_bytes(pickle.dumps({"yaw": Intruder(mark)}))
    with pytest.raises(DataError, match=r"a\.pkl asks to import (posix|nt)\.mkdir and was not read"):
        read_pickle(file)
    assert not mark.exists()


def claim(shape: tuple[int, ...], letters: str = "f8") -> bytes:
    """A pickle of an array that has another shape or type than its bytes."""
    array = pickle.dumps(np.zeros(3, f"<{letters}") if letters != "O8" else np.array([1, 2, 3], object), 2)
    return array.replace(b"K\x03\x85", pickle.dumps(shape, 2)[2:-1].split(b"q\x00")[0])


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (claim((10**12,)), "claims an array of .1000000000000. in 3 numbers"),
        (claim((3,), "O8"), "holds an array of object"),
        (pickle.dumps({1, 2}), "holds a set"),
        (pickle.dumps(np.dtype("f8")), "holds a Type"),
        (pickle.dumps([1, 2])[:-3], "truncated, damaged"),
        (b"", "truncated, damaged"),
    ],
    ids=["large", "objects", "set", "type", "cut", "empty"],
)
def test_other_content_is_refused(tmp_path: Path, content: bytes, told: str) -> None:
    (tmp_path / "a.pkl").write_bytes(content)
    with pytest.raises(DataError, match=told):
        read_pickle(tmp_path / "a.pkl")


def test_a_list_inside_itself(tmp_path: Path) -> None:
    inside: list[Any] = []
    inside.append(inside)
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(inside))
    with pytest.raises(DataError, match="damaged"):
        read_pickle(tmp_path / "a.pkl")
