from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable
from pathlib import Path

import h5py
import hdf5plugin
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acid.data import Episodes
from acid.errors import DataError

from .conftest import LENGTHS, episode


def published(path: Path, **changes: np.ndarray | None) -> Path:
    """A file as others publish it: `ep_idx`, big compressed chunks, NaN in each last action."""
    pixels = np.random.default_rng(0).integers(0, 256, (10, 9, 7, 3), dtype=np.uint8)
    action = np.arange(20, dtype=np.float32).reshape(10, 2)
    action[[3, 9]] = np.nan
    columns: dict[str, np.ndarray | None] = {
        "action": action,
        "ep_idx": np.repeat([0, 1], [4, 6]),
        "ep_len": np.array([4, 6], np.int32),
        "ep_offset": np.array([0, 4]),
        "pixels": pixels,
    }
    with h5py.File(path, "w") as file:
        for name, values in (columns | changes).items():
            if values is None:
                continue
            filters = {"chunks": (5, 9, 7, 3), **hdf5plugin.Blosc(cname="zstd")} if name == "pixels" else {}
            file.create_dataset(name, data=values, **filters)
    return path


def test_round_trip(write: Callable[..., Path]) -> None:
    episodes = Episodes(write())
    assert len(episodes) == len(LENGTHS)
    assert episodes.lengths.tolist() == list(LENGTHS)
    assert episodes.attributes == {"task": "toy"}
    for number, length in enumerate(LENGTHS):
        stored = episodes.episode(number)
        for name, values in episode(number, length).items():
            np.testing.assert_array_equal(stored[name], values)
            assert stored[name].dtype == values.dtype
        assert stored["step_idx"].tolist() == list(range(length))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.integers(0, sum(LENGTHS) - 1), max_size=40), cached=st.booleans())
def test_rows_come_back_in_the_order_asked(
    tmp_path: Path, write: Callable[..., Path], rows: list[int], cached: bool
) -> None:
    path = tmp_path / "data.h5"
    with Episodes(path if path.exists() else write()) as episodes, h5py.File(path) as file:
        if cached:
            episodes.cache("pixels")
        np.testing.assert_array_equal(episodes.read("pixels", rows), file["pixels"][:][rows])
        np.testing.assert_array_equal(episodes.read("state", rows), file["state"][:][rows])


def test_rows_may_have_any_shape(write: Callable[..., Path]) -> None:
    episodes = Episodes(write())
    rows = np.array([[5, 1, 1], [0, 5, 30]])
    assert episodes.read("pixels", rows).shape == (2, 3, 6, 6, 3)
    np.testing.assert_array_equal(episodes.read("pixels", rows)[1, 1], episodes.read("pixels", [5])[0])


def test_published_files_open_as_they_are(tmp_path: Path) -> None:
    episodes = Episodes(published(tmp_path / "theirs.h5"), require=("action", "pixels"))
    assert "episode_idx" in episodes.columns
    assert "ep_idx" not in episodes.columns
    assert episodes.read("episode_idx", [3, 4]).tolist() == [0, 1]
    expected = np.random.default_rng(0).integers(0, 256, (10, 9, 7, 3), dtype=np.uint8)
    np.testing.assert_array_equal(episodes.read("pixels", [9, 0, 4]), expected[[9, 0, 4]])


def test_text_and_boolean_columns_are_read_too(tmp_path: Path) -> None:
    names = np.array([f"s{i}".encode() for i in range(10)], dtype="S3")
    episodes = Episodes(published(tmp_path / "a.h5", name=names, done=np.arange(10) == 9, per_episode=np.zeros(2)))
    assert episodes.read("name", [7, 2]).tolist() == [b"s7", b"s2"]
    assert episodes.read("done", [9, 1]).tolist() == [True, False]
    assert "per_episode" not in episodes.columns


def test_survives_pickling(write: Callable[..., Path]) -> None:
    episodes = Episodes(write())
    episodes.cache("pixels")
    data = pickle.dumps(episodes)
    assert len(data) < 3000  # neither the handle nor the cached column travels
    np.testing.assert_array_equal(pickle.loads(data).read("state", [3, 1]), episodes.read("state", [3, 1]))


def _read_in_child(episodes: Episodes, rows: list[int], results: multiprocessing.Queue) -> None:
    results.put(episodes.read("pixels", rows))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # forking with threads about is what is tested
def test_survives_a_fork_after_it_was_read(write: Callable[..., Path]) -> None:
    episodes = Episodes(write())
    expected = episodes.read("pixels", [7, 3, 40])
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=_read_in_child, args=(episodes, [7, 3, 40], results))
    child.start()
    np.testing.assert_array_equal(results.get(timeout=600), expected)
    child.join(timeout=600)
    np.testing.assert_array_equal(episodes.read("pixels", [7, 3, 40]), expected)


def test_reads_again_after_close(write: Callable[..., Path]) -> None:
    with Episodes(write()) as episodes:
        first = episodes.read("action", [1])
    np.testing.assert_array_equal(episodes.read("action", [1]), first)


def test_missing_and_foreign_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.h5: there is no dataset"):
        Episodes(tmp_path / "nowhere.h5")
    (tmp_path / "text.h5").write_text("not at all HDF5")
    with pytest.raises(DataError, match=r"text\.h5 is not an HDF5 file"):
        Episodes(tmp_path / "text.h5")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["weights"] = np.zeros(3)
    with pytest.raises(DataError, match=r"no 'ep_len'.*\['weights'\]"):
        Episodes(tmp_path / "other.h5")


@pytest.mark.parametrize("kept", [0.3, 0.7, 0.99])
def test_a_truncated_file_says_so(write: Callable[..., Path], kept: float) -> None:
    path = write()
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * kept)])
    with pytest.raises(DataError, match="truncated"):
        Episodes(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"action": np.zeros((7, 2))}, "truncated: column 'action' has 7 rows.*row 10"),
        ({"pixels": np.zeros((8, 9, 7, 3), np.uint8)}, "truncated: column 'pixels' has 8 rows"),
        ({"action": None}, "no column 'action'"),
        ({"pixels": None}, "no column 'pixels'"),
        ({"ep_offset": None}, "no 'ep_offset'"),
        ({"ep_len": np.array([4])}, "1 episode lengths but 2 offsets"),
        ({"ep_len": np.zeros(0, int), "ep_offset": np.zeros(0, int)}, "holds no episodes"),
        ({"ep_len": np.array([4, 0])}, "episode 1 .* has length 0"),
        ({"ep_len": np.array([5, 5])}, "episodes 0 and 1 .* overlap"),
    ],
)
def test_contradictions_are_found_when_opened(tmp_path: Path, changes: dict, message: str) -> None:
    path = published(tmp_path / "bad.h5", **changes)
    with pytest.raises(DataError, match=message):
        Episodes(path, require=("action", "pixels"))


def test_bad_names_and_numbers_are_named(write: Callable[..., Path]) -> None:
    episodes = Episodes(write())
    with pytest.raises(DataError, match="no column 'pixel'; did you mean 'pixels'"):
        episodes.read("pixel", [0])
    with pytest.raises(DataError, match="episode 9 does not exist"):
        episodes.episode(9)
    for cached in (False, True):
        if cached:
            episodes.cache("action")
        with pytest.raises(DataError, match="rows -1 to 3"):
            episodes.read("action", [3, -1])


def test_damaged_pixels_are_reported(tmp_path: Path) -> None:
    path = published(tmp_path / "a.h5")
    with h5py.File(path, "r+") as file:
        file["pixels"].id.write_direct_chunk((0, 0, 0, 0), b"rubbish")
    with pytest.raises(DataError, match="cannot read column 'pixels'"):
        Episodes(path).read("pixels", [0])
