"""A dataset is split once; whoever asks later gets the same parts, or an error that says what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from acid.data import Episodes, fingerprint, fit_scaler, partition, split
from acid.errors import DataError


@pytest.fixture
def episodes(write: Callable[..., Path]) -> Episodes:
    return Episodes(write((6, 7, 8, 9, 10)))


def test_the_first_to_ask_decides_and_the_file_remembers(episodes: Episodes) -> None:
    made = partition(episodes, held_out=0.4, frameskip=2)
    again = partition(episodes)
    parts = split(5, 0.4)
    for found in (made, again):
        np.testing.assert_array_equal(found.train, parts.train)
        np.testing.assert_array_equal(found.held_out, parts.held_out)
        assert found.scaler == fit_scaler(episodes, parts.train, 2)
        assert (found.held_out_share, found.frameskip, found.seed) == (0.4, 2, 0)
        assert found.fingerprint == fingerprint(episodes)
    stored = json.loads(episodes.path.with_suffix(".split.json").read_text())
    assert stored == again.as_dict()
    assert stored["episodes"] == 5


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"held_out": 0.2}, "says held_out 0.4, not 0.2; ask for 0.4, or remove the file"),
        ({"frameskip": 1}, "says frameskip 2, not 1"),
    ],
)
def test_asking_for_something_else_is_an_error(episodes: Episodes, asked: dict[str, float], reason: str) -> None:
    partition(episodes, held_out=0.4, frameskip=2)
    with pytest.raises(DataError, match=reason):
        partition(episodes, **asked)  # type: ignore[arg-type]
    assert partition(episodes, held_out=0.4, frameskip=2).frameskip == 2


@pytest.mark.parametrize("column", ["action", "pixels"])
def test_replaced_content_of_the_same_length_is_noticed(episodes: Episodes, column: str) -> None:
    partition(episodes)
    episodes.close()
    with h5py.File(episodes.path, "r+") as file:
        file[column][0] = file[column][0] + 1
    with pytest.raises(DataError, match=r"was written for another dataset than .* is now; remove it"):
        partition(Episodes(episodes.path))


def test_a_checkpoint_of_another_partition_or_dataset_is_refused(episodes: Episodes) -> None:
    found = partition(episodes, held_out=0.4)
    recorded = found.as_dict()
    found.check(recorded, "the model")
    found.check(recorded | {"fingerprint": None}, "the model")  # it is not known what it was trained on
    for name, value in (("held_out", 0.2), ("episodes", 6), ("frameskip", 5), ("fingerprint", "0123")):
        with pytest.raises(DataError, match=rf"the model was trained with {name} {value}, but the dataset here has"):
            found.check(recorded | {name: value}, "the model")


def test_a_damaged_file_is_named(episodes: Episodes) -> None:
    path = episodes.path.with_suffix(".split.json")
    for text in ("{", "[]", '{"episodes": 5}'):
        path.write_text(text)
        with pytest.raises(DataError, match=r"split\.json .*; remove it"):
            partition(episodes)
