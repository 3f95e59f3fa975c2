"""Folders written in the published layout of DINO-WM read back; anything else is refused with its reason."""

import os

import numpy as np
import pytest
import torch

from acid.data import Episodes, EpisodeWriter
from acid.data.dinowm import DinoWmFolder
from acid.errors import DataError

COUNT, STEPS, PARTICLES, SIZE = 3, 5, 7, 12


@pytest.fixture
def folder(tmp_path):
    generator = torch.Generator().manual_seed(0)
    torch.save(torch.randn(COUNT, STEPS, PARTICLES, 4, generator=generator), tmp_path / "states.pth")
    torch.save(torch.randn(COUNT, STEPS, 4, generator=generator, dtype=torch.float64), tmp_path / "actions.pth")
    for index in range(COUNT):
        (tmp_path / f"{index:06d}").mkdir()
        frames = torch.randint(0, 256, (STEPS, SIZE, SIZE, 3), generator=generator)
        torch.save(frames.to(torch.uint8), tmp_path / f"{index:06d}" / "obses.pth")
    return tmp_path


def test_every_trajectory_comes_back_as_it_was_written(folder):
    found = DinoWmFolder(folder)
    assert (len(found), found.steps, found.particles) == (COUNT, STEPS, PARTICLES)
    states, actions = torch.load(folder / "states.pth"), torch.load(folder / "actions.pth")
    trajectories = list(found)
    assert len(trajectories) == COUNT
    for index, trajectory in enumerate(trajectories):
        frames = torch.load(folder / f"{index:06d}" / "obses.pth")
        assert (trajectory["pixels"] == frames.numpy()).all()
        assert (trajectory["particles"] == states[index].numpy()).all()
        assert (trajectory["action"] == actions[index].numpy().astype(np.float32)).all()
        assert [trajectory[name].dtype for name in ("pixels", "action", "particles")] == [
            np.uint8, np.float32, np.float32
        ]  # fmt: skip


def test_trajectories_become_a_dataset_of_this_library(folder, tmp_path):
    with EpisodeWriter(tmp_path / "rope.h5") as writer:
        for trajectory in DinoWmFolder(folder):
            writer.write(trajectory)
    with Episodes(tmp_path / "rope.h5") as episodes:
        assert len(episodes) == COUNT
        assert (episodes.episode(1)["pixels"] == DinoWmFolder(folder)[1]["pixels"]).all()


def test_frames_are_opened_only_when_asked_for(folder):
    os.remove(folder / "000001" / "obses.pth")
    found = DinoWmFolder(folder)
    assert found[0]["pixels"].shape == found[2]["pixels"].shape
    with pytest.raises(DataError, match=r"000001/obses\.pth is missing"):
        found[1]
    with pytest.raises(IndexError, match="trajectories 0 to 2, not 3"):
        found[3]


def test_frames_stored_as_floats_and_files_in_the_old_format_read_too(folder):
    path = folder / "000000" / "obses.pth"
    frames = torch.load(path)
    torch.save(frames.float(), path, _use_new_zipfile_serialization=False)
    assert (DinoWmFolder(folder)[0]["pixels"] == frames.numpy()).all()
    torch.save(frames.float() / 255 - 0.5, path)
    with pytest.raises(DataError, match="frames need 0 to 255"):
        DinoWmFolder(folder)[0]


@pytest.mark.parametrize("name", ["states.pth", "actions.pth", "000002/obses.pth"])
@pytest.mark.parametrize("keep", [0, 10, 0.5, 0.95])
def test_truncated_files_are_named(folder, name, keep):
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: keep if keep > 1 else int(keep * len(content))])
    with pytest.raises(DataError, match=name.split("/")[-1]):
        DinoWmFolder(folder)[2]


class Hostile:
    def __reduce__(self):
        return os.mkdir, ("executed",)


@pytest.mark.parametrize("name", ["states.pth", "000000/obses.pth"])
@pytest.mark.parametrize("new_format", [True, False])
def test_code_in_a_file_is_not_executed(folder, name, new_format, monkeypatch):
    monkeypatch.chdir(folder)
    torch.save(Hostile(), folder / name, _use_new_zipfile_serialization=new_format)
    with pytest.raises(DataError, match="was not opened"):
        DinoWmFolder(folder)[0]
    assert not (folder / "executed").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("states.pth", torch.zeros(COUNT, STEPS, PARTICLES, 3), "expected \\[N, T, P, 4\\]"),
        ("states.pth", torch.zeros(COUNT, STEPS + 1, PARTICLES, 4), "download it again"),
        ("states.pth", {"states": torch.zeros(1)}, "holds a dict; expected one tensor"),
        ("states.pth", torch.zeros(COUNT, STEPS, 0, 4), "expected \\[N, T, P, 4\\]"),
        ("actions.pth", torch.zeros(COUNT, STEPS, 4, dtype=torch.complex64), "expected real numbers"),
        ("actions.pth", torch.full((COUNT, STEPS, 4), float("nan")), "trajectory 0 of .*actions.pth .* not finite"),
        ("000000/obses.pth", torch.zeros(STEPS, 3, SIZE, SIZE, dtype=torch.uint8), "expected \\[5, H, W, 3\\]"),
        ("000000/obses.pth", torch.full((STEPS, SIZE, SIZE, 3), float("nan")), "frames need 0 to 255"),
    ],
)
def test_misshapen_files_are_named(folder, name, content, message):
    torch.save(content, folder / name)
    with pytest.raises(DataError, match=message):
        DinoWmFolder(folder)[0]


def test_missing_files_are_named(folder):
    with pytest.raises(DataError, match="is not a folder"):
        DinoWmFolder(folder / "nothing")
    os.remove(folder / "actions.pth")
    with pytest.raises(DataError, match=r"actions\.pth is missing"):
        DinoWmFolder(folder)
