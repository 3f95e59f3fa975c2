"""Poses and actions: every function against its inverse, and against cases computed by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from acid.data.poses import denormalise, displacements, integrate, normalise, to_local, to_world, wrap
from acid.errors import ShapeError

NUMBERS = st.floats(-20, 20)
POSE = arrays(np.float64, 3, elements=NUMBERS)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal places, and yaws equal up to whole turns."""
    return np.allclose(a[..., :2], b[..., :2], atol=1e-9) and np.allclose(wrap(a[..., 2] - b[..., 2]), 0, atol=1e-9)


@given(pose=POSE, origin=POSE)
def test_local_and_world_are_inverse(pose: np.ndarray, origin: np.ndarray) -> None:
    assert same(to_world(to_local(pose, origin), origin), pose)
    assert same(to_local(to_world(pose, origin), origin), pose)
    assert same(to_local(origin, origin), np.zeros(3))


@given(steps=arrays(np.float64, (2, 5, 3), elements=st.floats(-3, 3)), start=POSE)
def test_steps_and_poses_are_inverse(steps: np.ndarray, start: np.ndarray) -> None:
    poses = integrate(steps, start)
    assert poses.shape == (2, 6, 3)
    assert same(poses[:, 0], np.broadcast_to(start, (2, 3)))
    assert same(displacements(poses), steps)


@given(actions=arrays(np.float64, (4, 3), elements=NUMBERS))
def test_normalising_is_undone(actions: np.ndarray) -> None:
    assert normalise(denormalise(actions)) == pytest.approx(actions)
    assert denormalise(normalise(actions)) == pytest.approx(actions)


def test_a_robot_that_looks_left_sees_the_east_at_its_right() -> None:
    assert to_local(np.array([1.0, 0, 0]), np.array([0, 0, np.pi / 2])) == pytest.approx([0, -1, -np.pi / 2])
    assert to_world(np.array([2.0, 0, 0.1]), np.array([1, 1, np.pi / 2])) == pytest.approx([1, 3, np.pi / 2 + 0.1])


def test_a_square_is_four_times_the_same_step() -> None:
    square = integrate(np.tile([1.0, 0, np.pi / 2], (4, 1)), np.zeros(3))
    assert square[:, :2] == pytest.approx(np.array([[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]), abs=1e-12)
    assert same(square[-1], square[0])


def test_the_published_numbers() -> None:
    assert normalise(np.array([5 * 0.25, 4 * 0.25, 3.0])) == pytest.approx([1, 1, 3])
    assert normalise(np.array([-2.5 * 0.25, -4 * 0.25, -3.0])) == pytest.approx([-1, -1, -3])
    assert normalise(np.zeros(3)) == pytest.approx([-1 / 3, 0, 0])
    assert denormalise(np.array([-0.1, 0, 0])) == pytest.approx([0.875 * 0.25, 0, 0])  # NWM's mean candidate


def test_other_shapes_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"\(x, y, yaw\) along the last axis, got shape \[4, 2\]"):
        to_local(np.zeros((4, 2)), np.zeros(3))
