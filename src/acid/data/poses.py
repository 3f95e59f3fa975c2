"""Poses in the plane, the steps between them, and NWM's normalised actions.

A pose is (x, y, yaw): metres, metres, radians; x points forward and y to the left of a robot at yaw 0. A displacement
is the next pose seen from the current one, in the same units. An action is a displacement with x and y in waypoint
units of 0.25 m, mapped from [−2.5, 5] and [−4, 4] to [−1, 1]; its yaw stays in radians. Arrays are numpy of any leading
shape.
"""

from __future__ import annotations

import numpy as np

from acid.errors import ShapeError
from acid.types import ActionScaler

WAYPOINT = 0.25  # m, the unit in which NWM's actions and published errors are
STEP_SECONDS = 0.25  # RECON's 4 Hz
SCALER = ActionScaler(mean=(0.3125, 0.0, 0.0), std=(0.9375, 1.0, 1.0))  # from displacements (m, m, rad) to actions
_LOW = np.array([-2.5, -4.0]) * WAYPOINT  # m, mapped to −1
_HIGH = np.array([5.0, 4.0]) * WAYPOINT  # m, mapped to 1


def wrap(angles: np.ndarray) -> np.ndarray:
    """Angles in radians, turned by whole turns into [−π, π); an angle that lies there stays exactly as it is."""
    angles = np.asarray(angles, np.float64)
    inside = (angles >= -np.pi) & (angles < np.pi)
    return np.where(inside, angles, (angles + np.pi) % (2 * np.pi) - np.pi)


def to_local(poses: np.ndarray, origin: np.ndarray) -> np.ndarray:
    """World poses [..., 3] as seen from an origin [..., 3], which broadcasts; yaw in [−π, π)."""
    poses, origin = _checked(poses), _checked(origin)
    offset = poses[..., :2] - origin[..., :2]
    return _join(_turned(offset, -origin[..., 2]), poses[..., 2] - origin[..., 2])


def to_world(local: np.ndarray, origin: np.ndarray) -> np.ndarray:
    """The inverse of `to_local`: what is seen at `local` [..., 3] from the pose `origin` [..., 3]."""
    local, origin = _checked(local), _checked(origin)
    place = _turned(local[..., :2], origin[..., 2]) + origin[..., :2]
    return _join(place, local[..., 2] + origin[..., 2])


def displacements(poses: np.ndarray) -> np.ndarray:
    """Each next pose of [..., T + 1, 3] in the local frame of the one before: [..., T, 3]."""
    poses = _checked(poses)
    return to_local(poses[..., 1:, :], poses[..., :-1, :])


def integrate(steps: np.ndarray, start: np.ndarray) -> np.ndarray:
    """The inverse of `displacements`: poses [..., T + 1, 3] that begin at `start` [..., 3] and take the steps."""
    steps, start = _checked(steps), _checked(start)
    poses = [np.broadcast_to(start, (*np.broadcast_shapes(start.shape[:-1], steps.shape[:-2]), 3))]
    for index in range(steps.shape[-2]):
        poses.append(to_world(steps[..., index, :], poses[-1]))
    return np.stack(poses, axis=-2)


def normalise(steps: np.ndarray) -> np.ndarray:
    """Displacements [..., 3] as NWM's actions [..., 3]; standing still is (−1/3, 0, 0)."""
    steps = _checked(steps)
    return np.concatenate([2 * (steps[..., :2] - _LOW) / (_HIGH - _LOW) - 1, steps[..., 2:]], axis=-1)


def denormalise(actions: np.ndarray) -> np.ndarray:
    """The inverse of `normalise`."""
    actions = _checked(actions)
    return np.concatenate([(actions[..., :2] + 1) / 2 * (_HIGH - _LOW) + _LOW, actions[..., 2:]], axis=-1)


def _checked(values: np.ndarray) -> np.ndarray:
    values = np.asarray(values, np.float64)
    if values.ndim == 0 or values.shape[-1] != 3:
        raise ShapeError(f"poses and displacements are (x, y, yaw) along the last axis, got shape {list(values.shape)}")
    return values


def _turned(offsets: np.ndarray, angles: np.ndarray) -> np.ndarray:
    cosine, sine = np.cos(angles), np.sin(angles)
    x, y = offsets[..., 0], offsets[..., 1]
    return np.stack([cosine * x - sine * y, sine * x + cosine * y], axis=-1)


def _join(places: np.ndarray, yaws: np.ndarray) -> np.ndarray:
    return np.concatenate([places, wrap(yaws)[..., None]], axis=-1)
