"""ATE and RPE of paths whose errors can be computed by hand."""

import numpy as np
import pytest

from acid.data.poses import integrate, to_world
from acid.errors import ShapeError
from acid.evaluation.trajectories import trajectory_errors

STRAIGHT = np.array([[0.0, 0, 0], [1, 0, 0], [2, 0, 0], [3, 0, 0]])


def test_the_true_path_has_no_error() -> None:
    found = trajectory_errors(STRAIGHT[None], STRAIGHT[None])
    assert found.ate == pytest.approx([0])
    assert found.rpe == pytest.approx([0])


def test_a_shifted_path_is_off_but_steps_alike() -> None:
    shifted = STRAIGHT + np.array([0.3, -0.4, 0])
    found = trajectory_errors(shifted[None], STRAIGHT[None])
    assert found.ate == pytest.approx([0.5])  # no alignment takes the shift away
    assert found.rpe == pytest.approx([0], abs=1e-12)


def test_steps_that_are_too_long_add_up() -> None:
    long = STRAIGHT * np.array([1.1, 1, 1])
    found = trajectory_errors(long[None], STRAIGHT[None])
    assert found.rpe == pytest.approx([0.1])
    assert found.ate == pytest.approx([0.1 * np.sqrt((0 + 1 + 4 + 9) / 4)])


def test_rpe_is_seen_from_the_pose_before() -> None:
    """A robot that believes to look left while it drives forward: each step is off by the diagonal, √2."""
    turned = STRAIGHT + np.array([0, 0, np.pi / 2])
    found = trajectory_errors(turned[None], STRAIGHT[None])
    assert found.ate == pytest.approx([0])
    assert found.rpe == pytest.approx([np.sqrt(2)])


def test_batches_units_and_the_choice_of_frame() -> None:
    rng = np.random.default_rng(0)
    steps = rng.normal(0, 0.2, (2, 5, 8, 3))
    predicted, true = integrate(steps, np.zeros(3))
    together = trajectory_errors(predicted, true)
    apart = [trajectory_errors(a[None], b[None]) for a, b in zip(predicted, true, strict=True)]
    assert together.ate == pytest.approx([found.ate[0] for found in apart])
    assert together.ate == pytest.approx(np.sqrt(((predicted - true)[..., :2] ** 2).sum(-1).mean(-1)))
    assert together.in_waypoints.ate == pytest.approx(4 * together.ate)
    assert together.in_waypoints.rpe == pytest.approx(4 * together.rpe)
    origin = np.array([3.0, -7, 2.5])
    moved = trajectory_errors(to_world(predicted, origin), to_world(true, origin))
    assert moved.ate == pytest.approx(together.ate)
    assert moved.rpe == pytest.approx(together.rpe)


def test_other_shapes_are_refused() -> None:
    for predicted, true in [(STRAIGHT, STRAIGHT), (STRAIGHT[None, :3], STRAIGHT[None]), (STRAIGHT[None, :1],) * 2]:
        with pytest.raises(ShapeError, match=r"paths must be \[B, T, 3\]"):
            trajectory_errors(predicted, true)
    with pytest.raises(ShapeError, match="finite"):
        trajectory_errors(STRAIGHT[None] * np.nan, STRAIGHT[None])
