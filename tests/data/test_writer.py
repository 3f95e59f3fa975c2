from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from acid.data import Episodes, EpisodeWriter
from acid.errors import DataError


def toy(steps: int = 4, **other: np.ndarray) -> dict[str, np.ndarray]:
    return {"pixels": np.zeros((steps, 6, 5, 3), np.uint8), "action": np.zeros((steps, 2), np.float32)} | other


def interrupted_write(path: Path) -> None:
    before = path.exists()
    with EpisodeWriter(path) as writer:
        writer.write(toy())
        assert path.exists() == before
        raise KeyboardInterrupt


def test_layout_is_what_stable_worldmodel_reads(write: Callable[..., Path]) -> None:
    """Their reader opens in SWMR mode, takes every key but two as a column and slices by ep_offset and ep_len."""
    with h5py.File(write((3, 5)), "r", swmr=True) as file:
        assert set(file) == {"pixels", "action", "state", "episode_idx", "step_idx", "ep_len", "ep_offset"}
        assert file["ep_len"][:].tolist() == [3, 5]
        assert file["ep_offset"][:].tolist() == [0, 3]
        assert file["episode_idx"][:].tolist() == [0] * 3 + [1] * 5
        assert file["step_idx"][:].tolist() == [*range(3), *range(5)]
        assert (file["pixels"].shape, file["pixels"].dtype) == ((8, 6, 6, 3), np.uint8)
        assert (file["action"].shape, file["action"].dtype) == ((8, 2), np.float32)
        assert file["state"].dtype == np.float64
        assert file["pixels"].chunks == (1, 6, 6, 3)
        assert file["action"].chunks[0] >= 1024
        assert file.attrs["task"] == "toy"


@pytest.mark.parametrize("compression", [True, False])
def test_compression_is_optional_and_lossless(tmp_path: Path, compression: bool) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (9, 8, 8, 3), dtype=np.uint8)
    with EpisodeWriter(tmp_path / "a.h5", compression=compression) as writer:
        writer.write(toy(9) | {"pixels": pixels})
    with h5py.File(tmp_path / "a.h5") as file:
        assert (file["pixels"].id.get_create_plist().get_nfilters() > 0) == compression
    np.testing.assert_array_equal(Episodes(tmp_path / "a.h5").read("pixels", np.arange(9)), pixels)


def test_nothing_appears_before_the_end_or_after_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with pytest.raises(KeyboardInterrupt):
        interrupted_write(path)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_keeps_the_file_that_was_there(write: Callable[..., Path]) -> None:
    path = write()
    before = path.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        interrupted_write(path)
    assert path.read_bytes() == before


def test_a_killed_process_leaves_no_final_file_and_the_next_run_succeeds(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    script = (
        "import sys, numpy as np\n"
        "from acid.data import EpisodeWriter\n"
        "episode = {'action': np.zeros((50, 2), np.float32), 'pixels': np.zeros((50, 16, 16, 3), np.uint8)}\n"
        "with EpisodeWriter(sys.argv[1]) as writer:\n"
        "    while True:\n"
        "        writer.write(episode)\n"
        "        print('written', flush=True)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    for _ in range(3):
        assert child.stdout.readline() == b"written\n"
    os.kill(child.pid, signal.SIGKILL)
    child.stdout.close()
    assert child.wait(timeout=600) == -signal.SIGKILL
    assert not path.exists()
    with EpisodeWriter(path) as writer:
        writer.write(toy())
    assert len(Episodes(path)) == 1
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("episode", "message"),
    [
        ({"pixels": np.zeros((2, 6, 5, 3), np.uint8)}, "needs an 'action' column"),
        (toy(3, state=np.zeros((2, 1))), "same number of steps.*'state': 2"),
        (toy(0), r"at least one step"),
        (toy(3, ep_len=np.zeros(3)), "'ep_len' is written by"),
        (toy(3, note=np.array(["a", "b", "c"])), "'note' has dtype"),
        (toy(3) | {"action": np.zeros(3, np.float32)}, r"'action' must be \[steps, numbers\]"),
    ],
)
def test_unusable_episodes_are_refused(tmp_path: Path, episode: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(DataError, match=message), EpisodeWriter(tmp_path / "a.h5") as writer:
        writer.write(episode)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (toy(state=np.zeros((4, 1))), r"unexpected \['state'\]"),
        ({"action": np.zeros((4, 2), np.float32)}, r"missing \['pixels'\]"),
        (toy() | {"action": np.zeros((4, 3), np.float32)}, r"'action' holds \[3\] float32.*\[2\] float32"),
        (toy() | {"action": np.zeros((4, 2))}, r"'action' holds \[2\] float64"),
    ],
)
def test_the_first_episode_fixes_the_columns(tmp_path: Path, second: dict[str, np.ndarray], message: str) -> None:
    with EpisodeWriter(tmp_path / "a.h5") as writer:
        writer.write(toy())
        with pytest.raises(DataError, match=message):
            writer.write(second)
        writer.write(toy())  # a refused episode leaves no trace
    assert Episodes(tmp_path / "a.h5").lengths.tolist() == [4, 4]


def test_a_writer_without_episodes_or_outside_its_block_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no episode was written"), EpisodeWriter(tmp_path / "a.h5"):
        pass
    with pytest.raises(DataError, match="not open"):
        EpisodeWriter(tmp_path / "a.h5").write(toy())
    assert list(tmp_path.iterdir()) == []


def test_two_writers_of_one_file_are_refused(tmp_path: Path) -> None:
    with EpisodeWriter(tmp_path / "a.h5") as writer:
        with pytest.raises(DataError, match=r"a\.h5\.partial is being written"), EpisodeWriter(tmp_path / "a.h5"):
            pass
        writer.write(toy())
    assert len(Episodes(tmp_path / "a.h5")) == 1
