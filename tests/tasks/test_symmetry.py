"""Symmetries: a changed scene, acted on by a changed action, ends as the changed outcome."""

from __future__ import annotations

import numpy as np
import pytest

from acid import tasks
from acid.tasks.deformable import Deformable


@pytest.fixture(params=["rope", "granular"])
def task(request: pytest.FixtureRequest):
    task = tasks.make(request.param, size=64)
    task.reset(seed=3)
    yield task
    task.close()


def test_a_push_under_a_symmetry_ends_as_the_push_does(task: Deformable) -> None:
    behaviour = task.behaviour(np.random.default_rng(0))
    start, action = task.get_state(), behaviour.act(task)
    task.advance(action)
    end = task.get_state()
    assert task.moved(start, end)
    assert len(task.symmetries) == 3
    for symmetry in task.symmetries:
        task.set_state(symmetry.state(start))
        task.advance(symmetry.action @ action)
        np.testing.assert_allclose(task.get_state(), symmetry.state(end), atol=1e-6)


def test_four_quarter_turns_are_none(task: Deformable) -> None:
    state, action = task.get_state(), np.array([1.0, 2.0, 3.0, 4.0])
    quarter, half, three = task.symmetries
    np.testing.assert_allclose(quarter.state(quarter.state(state)), half.state(state), atol=1e-12)
    np.testing.assert_allclose(quarter.state(three.state(state)), state, atol=1e-12)
    np.testing.assert_array_equal(quarter.action @ action, [-2, 1, -4, 3])


def test_a_turned_scene_looks_different(task: Deformable) -> None:
    task.advance(task.behaviour(np.random.default_rng(1)).act(task))
    before = task.render()
    task.set_state(task.symmetries[0].state(task.get_state()))
    assert (task.render() != before).any()
