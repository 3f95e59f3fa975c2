"""How far a predicted path is from the true one: ATE and RPE as `evo` computes them, without alignment.

ATE is the root mean square distance between poses of the same time; RPE is that of the translation by which each step
differs, seen from the pose before it. Published numbers are in waypoint units of 0.25 m.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from acid.data.poses import WAYPOINT
from acid.errors import AcidError, ShapeError


@dataclass(frozen=True)
class TrajectoryErrors:
    """Of B paths, in metres unless they were converted."""

    ate: np.ndarray  # float64 [B]
    rpe: np.ndarray  # float64 [B]

    @property
    def in_waypoints(self) -> TrajectoryErrors:
        """The same in waypoint units, as published; only sensible once."""
        return TrajectoryErrors(self.ate / WAYPOINT, self.rpe / WAYPOINT)


def trajectory_errors(predicted: np.ndarray, true: np.ndarray) -> TrajectoryErrors:
    """Errors of predicted paths against true ones, both [B, T, 3] of (x, y, yaw) in metres and radians, T ≥ 2.

    Pass both from the pose where they part, in the same frame. A shared first pose counts as one of the T.
    """
    predicted, true = np.asarray(predicted, np.float64), np.asarray(true, np.float64)
    if predicted.shape != true.shape or true.ndim != 3 or true.shape[1] < 2 or true.shape[2] != 3:
        raise ShapeError(
            "paths must be [B, T, 3] with T of at least 2 and of equal shape, "
            f"got {list(predicted.shape)} and {list(true.shape)}"
        )
    if not (np.isfinite(predicted).all() and np.isfinite(true).all()):
        raise ShapeError("paths must be finite")
    metrics = _evo()
    pairs = [(_path(a), _path(b)) for a, b in zip(true, predicted, strict=True)]
    translation = metrics.PoseRelation.translation_part
    return TrajectoryErrors(
        ate=np.array([_rmse(metrics, metrics.APE(translation), pair) for pair in pairs]),
        rpe=np.array([_rmse(metrics, metrics.RPE(translation, delta=1), pair) for pair in pairs]),
    )


def _rmse(metrics: Any, metric: Any, pair: tuple[Any, Any]) -> float:
    metric.process_data(pair)
    return float(metric.get_statistic(metrics.StatisticsType.rmse))


def _path(poses: np.ndarray) -> Any:
    """Poses [T, 3] in the plane as a path of evo."""
    from evo.core.trajectory import PosePath3D

    matrices = np.tile(np.eye(4), (len(poses), 1, 1))
    cosine, sine = np.cos(poses[:, 2]), np.sin(poses[:, 2])
    matrices[:, 0, 0], matrices[:, 0, 1], matrices[:, 1, 0], matrices[:, 1, 1] = cosine, -sine, sine, cosine
    matrices[:, :2, 3] = poses[:, :2]
    return PosePath3D(poses_se3=list(matrices))


def _evo() -> Any:
    try:
        from evo.core import metrics
    except ImportError as error:
        raise AcidError("ATE and RPE need evo: pip install 'acid-planning[navigation]'") from error
    return metrics
