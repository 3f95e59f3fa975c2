"""RECON's files: read, decoded once; damaged ones are named with their reason."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from acid.data import import_once
from acid.data.poses import denormalise, displacements, wrap
from acid.data.recon import read_recon, read_trajectory, square_frame
from acid.errors import DataError

from .recon_files import encoded, poses_of, write_trajectory

LENGTHS = (15, 9, 20)
SIZE = 16


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, length in enumerate(LENGTHS):
        write_trajectory(tmp_path / "recon" / f"t{number}.hdf5", number, length)
    return tmp_path / "recon"


def test_a_file_becomes_frames_poses_and_actions(folder: Path) -> None:
    found = read_trajectory(folder / "t2.hdf5", SIZE)
    poses = poses_of(2, LENGTHS[2])
    assert found["pose"] == pytest.approx(poses)
    assert (found["pixels"][:, :, :, 0] == 20).all()
    assert (found["pixels"][:, 3, 4, 1] == np.arange(LENGTHS[2])).all()
    assert denormalise(found["action"][:-1]) == pytest.approx(displacements(poses), abs=1e-6)
    assert (found["action"][-1] == 0).all()


def test_real_files_have_yaws_in_columns_and_jpegs(tmp_path: Path) -> None:
    """RECON's own layout where it differs: variable-length bytes and yaw [T, 1], beyond half a turn."""
    ramp = np.linspace(0, 255, 64).astype(np.uint8)
    smooth = np.broadcast_to(ramp[None, :, None], (48, 64, 3)).copy()
    with h5py.File(tmp_path / "t.hdf5", "w") as file:
        images = file.create_dataset("images/rgb_left", (3,), h5py.vlen_dtype(np.uint8))
        for step in range(3):
            images[step] = np.frombuffer(encoded(smooth, "jpeg"), np.uint8)
        file["jackal/position"] = np.ones((3, 3), np.float32)
        file["jackal/yaw"] = np.array([[0.5], [4.0], [-7.0]], np.float32)
    found = read_trajectory(tmp_path / "t.hdf5", SIZE)
    assert found["pose"][:, 2] == pytest.approx(wrap(np.array([0.5, 4.0, -7.0])), abs=1e-6)
    assert np.abs(found["pixels"].astype(int) - square_frame(smooth, SIZE)).max() <= 3


def test_frames_are_cropped_to_four_by_three_in_the_middle() -> None:
    wide = np.zeros((60, 160, 3), np.uint8)
    wide[:, 40:120] = 200  # the middle 80 × 60
    assert (square_frame(wide, SIZE) == 200).all()
    tall = np.zeros((100, 80, 3), np.uint8)
    tall[20:80] = 200
    assert (square_frame(tall, SIZE) == 200).all()
    halves = np.zeros((60, 80, 3), np.uint8)
    halves[:, 40:] = 200
    assert (square_frame(halves, SIZE)[:, SIZE // 2 :] == 200).all()
    assert (square_frame(halves, SIZE)[:, : SIZE // 2] == 0).all()


def test_a_folder_is_decoded_once_and_again_when_it_changes(folder: Path) -> None:
    told: list[tuple[int, int]] = []
    first = import_once(folder, "recon", SIZE, progress=lambda *p: told.append(p))
    assert first.path == folder.with_name("recon.16px.h5")
    assert (first.lengths == LENGTHS).all()
    assert told == [(1, 3), (2, 3), (3, 3)]
    import_once(folder, "recon", SIZE, progress=lambda *p: told.append(p))
    assert len(told) == 3
    write_trajectory(folder / "t3.hdf5", 3, 6)
    assert len(import_once(folder, "recon", SIZE)) == 4
    assert import_once(folder, "recon", 8).path != first.path


def test_a_file_of_somebody_else_is_not_overwritten(folder: Path, write) -> None:
    write().rename(folder.with_name("recon.16px.h5"))
    with pytest.raises(DataError, match=r"was not imported from .* would be overwritten"):
        import_once(folder, "recon", SIZE)


def damaged(folder: Path, change: str) -> Path:
    path = folder / "t1.hdf5"
    if change == "truncated":
        path.write_bytes(path.read_bytes()[:1500])
        return path
    if change == "no HDF5":
        path.write_bytes(b"hello")
        return path
    with h5py.File(path, "r+") as file:
        if change in file:
            del file[change]
        elif change == "image":
            file["images/rgb_left"][4] = b"no picture"
        elif change == "half an image":
            file["images/rgb_left"][4] = bytes(file["images/rgb_left"][4])[:60]
        elif change == "length":
            del file["jackal/yaw"]
            file["jackal/yaw"] = np.zeros(5)
        elif change == "pose":
            file["jackal/yaw"][2] = np.nan
        elif change == "shape":
            del file["jackal/position"]
            file["jackal/position"] = np.zeros(9)
    return path


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("images/rgb_left", "t1.hdf5 has no 'images/rgb_left', so it is not a RECON trajectory"),
        ("jackal/position", "t1.hdf5 has no 'jackal/position'"),
        ("jackal/yaw", "t1.hdf5 has no 'jackal/yaw'"),
        ("truncated", "t1.hdf5 is truncated"),
        ("no HDF5", "t1.hdf5 is not an HDF5 file"),
        ("image", r"image 4 of .*t1.hdf5 cannot be decoded"),
        ("half an image", r"image 4 of .*t1.hdf5 cannot be decoded"),
        ("length", "holds 9 images, 9 positions and 5 yaws"),
        ("pose", r"step 2 of .*t1.hdf5 has a pose that is not finite"),
        ("shape", r"jackal/position of .*t1.hdf5 has shape \[9\]; expected \[T, 3\]"),
    ],
)
def test_a_damaged_file_is_named_with_its_reason(folder: Path, change: str, reason: str) -> None:
    path = damaged(folder, change)
    with pytest.raises(DataError, match=reason) as raised:
        read_trajectory(path, SIZE)
    assert "\n" not in str(raised.value)
    with pytest.raises(DataError, match=reason):
        import_once(folder, "recon", SIZE)
    assert not list(folder.parent.glob("*.h5*"))  # nothing half decoded is left behind


def test_folders_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a folder"):
        read_recon(tmp_path / "none")
    with pytest.raises(DataError, match=r"holds no \.hdf5 or \.h5 files"):
        read_recon(tmp_path)
