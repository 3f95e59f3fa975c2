"""RECON's files: written, read back, decoded once, cut into windows; damaged ones are named with their reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from acid.data import split
from acid.data.poses import denormalise, displacements, integrate, wrap
from acid.data.recon import (
    PoseWindows,
    Recording,
    encode_image,
    open_recon,
    read_frames,
    read_trajectory,
    square_frame,
    write_trajectory,
)
from acid.errors import DataError

LENGTHS = (15, 9, 20)
SIZE = 16


def trajectory(number: int, length: int) -> Recording:
    """Pictures of one colour that tells trajectory and step."""
    rng = np.random.default_rng(number)
    poses = integrate(rng.normal([0.2, 0, 0], [0.05, 0.01, 0.2], (length - 1, 3)), np.array([number, 2.0, 3.0]))
    pictures = np.zeros((length, 24, 32, 3), np.uint8)
    pictures[..., 0], pictures[..., 1] = 10 * number, np.arange(length)[:, None, None]
    extra = {"commands/linear_velocity": np.arange(length, dtype=np.float64)}
    return Recording([encode_image(picture, "png") for picture in pictures], poses, world=number, extra=extra)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, length in enumerate(LENGTHS):
        write_trajectory(tmp_path / "recon" / f"t{number}.hdf5", trajectory(number, length))
    return tmp_path / "recon"


def test_a_file_comes_back_as_it_was_written(folder: Path) -> None:
    wanted = trajectory(2, LENGTHS[2])
    frames, found = read_frames(folder / "t2.hdf5", SIZE)
    assert list(found.images) == list(wanted.images)
    assert found.poses == pytest.approx(wanted.poses)
    assert found.world == 2
    assert (frames[:, :, :, 0] == 20).all()
    assert (frames[:, 3, 4, 1] == np.arange(LENGTHS[2])).all()
    with h5py.File(folder / "t2.hdf5") as file:
        assert file["jackal/position"].shape == (LENGTHS[2], 3)
        assert (file["commands/linear_velocity"][:] == np.arange(LENGTHS[2])).all()
    assert not list(folder.glob("*.partial"))


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="9 images needs 9 steps of everything"):
        write_trajectory(tmp_path / "t.hdf5", replace(trajectory(0, 9), poses=np.zeros((8, 3))))
    with pytest.raises(TypeError):
        write_trajectory(tmp_path / "t.hdf5", replace(trajectory(0, 9), extra={"what": np.array([object()] * 9)}))
    assert list(tmp_path.iterdir()) == []


def test_real_files_have_yaws_in_columns_jpegs_and_no_world(tmp_path: Path) -> None:
    """RECON's own layout where it differs from ours: variable-length bytes and yaw [T, 1], beyond half a turn."""
    ramp = np.linspace(0, 255, 64).astype(np.uint8)
    smooth = np.broadcast_to(ramp[None, :, None], (48, 64, 3)).copy()
    with h5py.File(tmp_path / "t.hdf5", "w") as file:
        images = file.create_dataset("images/rgb_left", (3,), h5py.vlen_dtype(np.uint8))
        for step in range(3):
            images[step] = np.frombuffer(encode_image(smooth), np.uint8)
        file["jackal/position"] = np.ones((3, 3), np.float32)
        file["jackal/yaw"] = np.array([[0.5], [4.0], [-7.0]], np.float32)
    frames, found = read_frames(tmp_path / "t.hdf5", SIZE)
    assert found.world == -1
    assert found.poses[:, 2] == pytest.approx(wrap(np.array([0.5, 4.0, -7.0])), abs=1e-6)
    assert np.abs(frames.astype(int) - square_frame(smooth, SIZE)).max() <= 3


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


def test_windows_line_up_frames_actions_and_poses(folder: Path) -> None:
    episodes = open_recon(folder, size=SIZE)
    windows = PoseWindows(episodes, [0, 2], frames=12)
    assert len(windows) == (15 - 12) + (20 - 12)
    batch = windows.batch(np.arange(len(windows)))
    assert batch.frames.shape == (11, 12, SIZE, SIZE, 3)
    assert batch.actions.shape == (11, 12, 3)
    assert batch.poses.shape == (11, 13, 3)
    assert batch.worlds.tolist() == [0] * 3 + [2] * 8
    assert batch.frames[:, :, 0, 0, 1].tolist() == [list(range(s, s + 12)) for s in (*range(3), *range(8))]
    for number, start, poses, actions in zip(
        batch.worlds.tolist(), (*range(3), *range(8)), batch.poses.numpy(), batch.actions.numpy(), strict=True
    ):
        assert poses == pytest.approx(trajectory(number, LENGTHS[number]).poses[start : start + 13])
        assert denormalise(actions) == pytest.approx(displacements(poses), abs=1e-6)


def test_a_goal_is_what_the_actions_lead_to(folder: Path) -> None:
    batch = PoseWindows(open_recon(folder, size=SIZE), [2], frames=12, in_memory=False).batch([3])
    case = batch.goal_case()
    assert case.context[0, :, 0, 0, 1].tolist() == [3, 4, 5, 6]
    assert case.future[0, :, 0, 0, 1].tolist() == list(range(7, 15))
    assert int(case.goal[0, 0, 0, 1]) == 14
    assert case.context_actions.shape == (1, 3, 3)
    truth = trajectory(2, LENGTHS[2]).poses
    assert case.poses[0].numpy() == pytest.approx(truth[6:15])
    followed = integrate(denormalise(case.actions[0].numpy()), truth[6])
    assert followed[-1, :2] == pytest.approx(truth[14, :2], abs=1e-5)
    with pytest.raises(DataError, match="context of 12 frames leaves no goal in windows of 12"):
        batch.goal_case(12)


def test_batches_resume_at_any_step_and_splits_hold_out_whole_trajectories(folder: Path) -> None:
    episodes = open_recon(folder, size=SIZE)
    parts = split(len(episodes), held_out=0.3)
    windows = PoseWindows(episodes, parts.train, frames=4)
    stream, later = windows.batches(3, seed=1), windows.batches(3, seed=1, start_step=2)
    third = [next(stream) for _ in range(3)][2]
    assert (next(later).poses == third.poses).all()
    everything = windows.batch(np.arange(len(windows)))
    assert set(everything.worlds.tolist()).isdisjoint(parts.held_out.tolist())


def test_a_folder_is_decoded_once_and_again_when_it_changes(folder: Path) -> None:
    told: list[tuple[int, int]] = []
    cache = open_recon(folder, size=SIZE, progress=lambda *p: told.append(p)).path
    assert told == [(1, 3), (2, 3), (3, 3)]
    open_recon(folder, size=SIZE, progress=lambda *p: told.append(p))
    assert len(told) == 3
    write_trajectory(folder / "t3.hdf5", trajectory(3, 6))
    assert len(open_recon(folder, size=SIZE)) == 4
    assert open_recon(folder, size=8).path != cache
    with pytest.raises(DataError, match=r"is not an episode dataset|would be overwritten"):
        open_recon(folder, size=SIZE, cache=folder / "t0.hdf5")


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
        ("truncated", "t1.hdf5 cannot be read, it may be truncated"),
        ("no HDF5", "t1.hdf5 cannot be read"),
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
        read_frames(path, SIZE)
    assert "\n" not in str(raised.value)
    with pytest.raises(DataError, match=reason):
        open_recon(folder, size=SIZE)
    assert not list(folder.parent.glob("*.h5*"))  # nothing half decoded is left behind


def test_folders_and_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no RECON trajectory at"):
        read_trajectory(tmp_path / "t.hdf5")
    with pytest.raises(DataError, match="is not a folder"):
        open_recon(tmp_path / "none")
    with pytest.raises(DataError, match=r"holds no \.hdf5 or \.h5 files"):
        open_recon(tmp_path)


def test_windows_longer_than_every_trajectory_are_refused(folder: Path) -> None:
    with pytest.raises(DataError, match=r"need trajectories of 21 steps, but the longest of the 3 given in .* has 20"):
        PoseWindows(open_recon(folder, size=SIZE), [0, 1, 2], frames=20)
