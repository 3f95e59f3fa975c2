"""Cases of navigation: cut from held-out trajectories, the same for everyone, on disk without loss."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from acid.data import Episodes, EpisodeWriter
from acid.errors import DataError
from acid.evaluation import Protocol
from acid.evaluation.path_cases import draw_cases, load_cases, save_cases

PROTOCOL = Protocol(goal_offset=8, budget=8, episodes=10)


def write(path: Path, world: int) -> Episodes:
    """Twelve drives whose poses tell the episode and the step."""
    with EpisodeWriter(path) as writer:
        for episode in range(12):
            steps = np.arange(20.0)
            pose = np.stack([np.full(20, episode), steps, steps / 7], 1)
            writer.write({"pose": pose, "world": np.full((20, 1), world), "action": np.zeros((20, 2), np.float32)})
    return Episodes(path)


@pytest.fixture
def episodes(tmp_path: Path) -> Episodes:
    return write(tmp_path / "drives.h5", 5)


def draw(episodes: Episodes, protocol: Protocol = PROTOCOL):
    return draw_cases(episodes, np.arange(12), "navigation", protocol, context=4)


def test_a_case_is_a_stretch_of_one_trajectory(episodes: Episodes) -> None:
    cases = draw(episodes)
    assert [case.draw for case in cases] == list(range(10))
    for case in cases:
        path = np.concatenate([case.past, case.future])
        assert path.shape == (12, 3)
        assert (path[:, 0] == case.episode).all()
        np.testing.assert_array_equal(path[:, 1], np.arange(case.step - 3, case.step + 9))
        np.testing.assert_array_equal(case.driven, path[3:])
        assert case.world == 5
    assert len({case.id for case in cases}) == 10


def test_fewer_cases_are_the_first_and_the_halves_are_apart(episodes: Episodes) -> None:
    cases = draw(episodes)
    assert [case.id for case in draw(episodes, replace(PROTOCOL, episodes=4))] == [case.id for case in cases[:4]]
    other = draw(episodes, replace(PROTOCOL, split="select"))
    assert not {case.episode for case in cases} & {case.episode for case in other}
    assert len({case.episode for case in cases[:6]}) == 6  # every trajectory once before any twice
    assert [case.id for case in draw(episodes, replace(PROTOCOL, seed=1))] != [case.id for case in cases]


def test_too_many_cases_are_refused(episodes: Episodes) -> None:
    assert len(draw(episodes, replace(PROTOCOL, episodes=54))) == 54  # 6 trajectories of 20 frames, 9 cases each
    with pytest.raises(DataError, match=r"55 cases were asked for.* give 54: ask for fewer"):
        draw(episodes, replace(PROTOCOL, episodes=55))


def test_what_the_simulator_cannot_draw_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not of the simulator"):
        draw(write(tmp_path / "real.h5", -1))


def test_cases_come_back_from_disk_exactly(episodes: Episodes, tmp_path: Path) -> None:
    path, cases = tmp_path / "new" / "cases.jsonl", draw(episodes)
    save_cases(path, cases, PROTOCOL, "navigation")
    loaded = load_cases(path, replace(PROTOCOL, episodes=7), "navigation")
    assert [case.id for case in loaded] == [case.id for case in cases[:7]]
    for a, b in zip(loaded, cases, strict=False):
        np.testing.assert_array_equal(a.driven, b.driven)
        np.testing.assert_array_equal(a.past, b.past)
    with pytest.raises(DataError, match="drawn with seed 0, not 1"):
        load_cases(path, replace(PROTOCOL, seed=1), "navigation")
    with pytest.raises(DataError, match="holds 10 cases, 11 were asked for"):
        load_cases(path, replace(PROTOCOL, episodes=11), "navigation")
    path.write_text(path.read_text()[:-9])
    with pytest.raises(DataError, match="is not a file of cases"):
        load_cases(path, PROTOCOL, "navigation")
    with pytest.raises(DataError, match="pass the dataset to draw them from"):
        load_cases(tmp_path / "nowhere.jsonl", PROTOCOL, "navigation")
    assert json.loads(path.read_text().splitlines()[0])["goal_offset"] == 8
