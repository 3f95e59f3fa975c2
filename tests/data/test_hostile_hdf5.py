"""HDF5 files that lie about their size or take their numbers from elsewhere are refused before anything is read."""

from __future__ import annotations

import os
from pathlib import Path

import h5py
import numpy as np
import pytest

from acid.data import Episodes
from acid.data.recon import read_trajectory
from acid.errors import DataError

from .recon_files import write_trajectory


def dataset(path: Path, **columns) -> Path:
    """Two episodes of three steps; a column is an array or a function that makes it in the file."""
    usual = {"ep_len": np.array([3, 3]), "ep_offset": np.array([0, 3]), "action": np.zeros((6, 2), np.float32)}
    with h5py.File(path, "w") as file:
        for name, values in (usual | columns).items():
            if callable(values):
                values(file, name)
            else:
                file[name] = values
    return path


def external(file: h5py.File, name: str) -> None:
    file.create_dataset(name, (6, 2), "u1", external=[("/etc/passwd", 0, 12)])


def linked(file: h5py.File, name: str) -> None:
    file[name] = h5py.ExternalLink("/dev/zero", "/x")


def virtual(file: h5py.File, name: str) -> None:
    layout = h5py.VirtualLayout((6, 2), "f4")
    layout[:] = h5py.VirtualSource("/elsewhere.h5", "x", (6, 2))
    file.create_virtual_dataset(name, layout)


def declared(file: h5py.File, name: str) -> None:
    file.create_dataset(name, (10**9, 2), "f4", chunks=(1024, 2))


def unwritten(file: h5py.File, name: str) -> None:
    file.create_dataset(name, (10**9, 2), "f4")


def one_piece(file: h5py.File, name: str) -> None:
    file.create_dataset(name, (10**9,), "u1", chunks=(10**9,))


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (external, "takes its numbers from other files"),
        (virtual, "takes its numbers from other files"),
        (linked, "is a link to somewhere else"),
        (declared, "most of them were never written"),
        (unwritten, "most of them were never written"),
        (one_piece, "stored in pieces of 1000000000 bytes"),
    ],
)
@pytest.mark.parametrize("name", ["action", "pixels", "ep_len"])
def test_a_column_that_is_not_what_it_says_is_refused(tmp_path: Path, column, reason: str, name: str) -> None:
    path = dataset(tmp_path / "a.h5", **{name: column})
    with pytest.raises(DataError, match=f"'{name}' of .*a.h5 .*{reason}"):
        Episodes(path)


@pytest.mark.parametrize("lengths", [[2**62, 2**62], [2**41, 3], [-1, 3]])
def test_absurd_lengths_are_refused(tmp_path: Path, lengths: list[int]) -> None:
    with pytest.raises(DataError, match=f"episode 0 of .* has length {lengths[0]}"):
        Episodes(dataset(tmp_path / "a.h5", ep_len=np.array(lengths)))


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.h5")
    with pytest.raises(DataError, match="is a pipe, not a file"):
        Episodes(tmp_path / "a.h5")
    with pytest.raises(DataError, match="is a pipe, not a file"):
        read_trajectory(tmp_path / "a.h5", 64)


def test_recon_does_not_read_other_files(tmp_path: Path) -> None:
    path = tmp_path / "t.hdf5"
    write_trajectory(path, 1, 4)
    with h5py.File(path, "r+") as file:
        del file["jackal/yaw"]
        file.create_dataset("jackal/yaw", (4,), "f8", external=[("/etc/passwd", 0, 32)])
    with pytest.raises(DataError, match=r"'jackal/yaw' of .* takes its numbers from other files"):
        read_trajectory(path, 64)
