"""Reacher: dm_control's two-link arm, which must match a whole pose instead of touching a target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from acid.tasks.base import on_circle
from acid.tasks.mujoco_task import MujocoTask, Quality

TOLERANCE = 0.05  # rad, for every joint
_QPOS = slice(1, 3)  # in the integration state: time, then positions, then velocities
_HIDDEN_GROUP = 4  # a geom group that MuJoCo does not draw


class Reacher(MujocoTask):
    """Actions: torques of shoulder and wrist in [−1, 1]; 0.02 s a step. The target of the original task is hidden."""

    name: ClassVar[str] = "reacher"
    error_unit: ClassVar[str] = "rad"
    tolerance: ClassVar[float | None] = TOLERANCE
    camera = "fixed"

    def __init__(self, *, size: int = 64, quality: Quality = "fast") -> None:
        from dm_control.suite import reacher

        physics = reacher.Physics.from_xml_string(*reacher.get_model_and_assets())
        model = physics.model.ptr
        model.geom("target").group[:] = _HIDDEN_GROUP
        super().__init__(model, size=size, quality=quality)

    def _place(self, rng: np.random.Generator) -> None:
        limit = self.model.jnt_range[1, 1]
        self.data.qpos[:] = rng.uniform([-np.pi, -limit], [np.pi, limit])

    def columns(self) -> dict[str, np.ndarray]:
        return {"qpos": self.data.qpos.copy(), "qvel": self.data.qvel.copy()}

    def physical(self, columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        shoulder, wrist = np.split(columns["qpos"], 2, axis=1)
        return {"shoulder": on_circle(shoulder), "wrist": on_circle(wrist), "speed": columns["qvel"]}

    def pose(self, state: np.ndarray) -> np.ndarray:
        return state[_QPOS]

    def error(self, state: np.ndarray, goal_state: np.ndarray) -> float:
        """The larger of the two joint errors in rad. Whole turns of the shoulder count as equal."""
        difference = self.pose(state) - self.pose(goal_state)
        return float(np.abs((difference + np.pi) % (2 * np.pi) - np.pi).max())

    def success(self, state: np.ndarray, goal_state: np.ndarray) -> bool:
        return self.error(state, goal_state) < TOLERANCE

    def behaviour(self, rng: np.random.Generator) -> ReacherBehaviour:
        return ReacherBehaviour(rng)


class PublishedReacher(Reacher):
    """With the frames and the steps of published datasets: 0.04 s, in which the action is carried out twice."""

    name: ClassVar[str] = "reacher-published"

    def __init__(self, *, size: int = 224) -> None:
        super().__init__(size=size, quality="published")

    def _simulate(self, action: np.ndarray) -> None:
        for _ in range(2):
            super()._simulate(action)


@dataclass
class _Segment:
    """One stretch of behaviour: either a pose to reach and hold, or a torque that wanders smoothly."""

    steps: int
    pose: np.ndarray | None
    stiffness: float = 0.0
    damping: np.ndarray = field(default_factory=lambda: np.zeros(2))
    amplitude: float = 0.0


class ReacherBehaviour:
    """Reaching random poses, and now and then smooth random torques, in segments of 0.4 to 1.2 s.

    It moves like a trained controller, the source of published data: smooth, damped, with hardly any noise. So the data
    cover few of the actions that a search tries. (A frame does not show how fast the arm moves, so speed at the start
    of a plan is an error that no planner can see.)
    """

    WANDERING = 0.1  # share of the segments with random torques
    SMOOTHNESS = 0.95  # correlation of the wandering torque from one step to the next
    TREMBLE = 0.02  # torque noise while reaching
    DAMPING = np.array([0.3, 0.07])  # torque per rad/s while wandering; with more, the light wrist would oscillate
    REACH = 1.5  # rad, how far away a pose to reach may be

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._wander = np.zeros(2)  # of unit variance
        self._segment = _Segment(steps=0, pose=None)

    def _draw_segment(self, task: Reacher) -> _Segment:
        rng = self._rng
        steps = int(rng.integers(20, 61))
        if rng.random() < self.WANDERING:
            return _Segment(steps, pose=None, damping=self.DAMPING, amplitude=rng.uniform(0.1, 0.4))
        limit = task.model.jnt_range[1, 1]
        pose = task.data.qpos + rng.uniform(-self.REACH, self.REACH, 2)
        pose[1] = np.clip(pose[1], -limit, limit)
        stiffness = rng.uniform(0.2, 0.6)
        damping = rng.uniform(0.8, 1.1) * np.sqrt(stiffness) * self.DAMPING  # from a slight overshoot to none
        return _Segment(steps, pose, stiffness, damping, self.TREMBLE)

    def act(self, task: Reacher) -> np.ndarray:
        if self._segment.steps == 0:
            self._segment = self._draw_segment(task)
        segment = self._segment
        segment.steps -= 1
        noise = self._rng.standard_normal(2)
        self._wander = self.SMOOTHNESS * self._wander + np.sqrt(1 - self.SMOOTHNESS**2) * noise
        torque = -segment.damping * task.data.qvel
        if segment.pose is None:
            torque += segment.amplitude * self._wander
        else:
            torque += segment.stiffness * (segment.pose - task.data.qpos) + segment.amplitude * noise
        return np.clip(torque, -1, 1).astype(np.float32)
