"""Outdoor navigation: a small robot with a camera drives through a world of trees, houses and fences.

The robot is kinematic: for 0.25 s, RECON's 4 Hz, it drives along an exact arc at the commanded speed and yaw rate,
without inertia or slip. It is a circle that stops where it would touch an obstacle. A state is the world's number and
the pose, so any pose that a planner considers can be drawn. A world and its light are determined by its number.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium
import numpy as np

from acid.data.poses import STEP_SECONDS, WAYPOINT, displacements, integrate, to_world, wrap
from acid.data.recon import square_frame
from acid.errors import ShapeError
from acid.tasks.base import Setup, Task, checked_size, on_circle
from acid.tasks.navigation_behaviour import NavigationBehaviour
from acid.tasks.navigation_scene import NavigationScene
from acid.tasks.navigation_world import HALF, ROBOT_RADIUS, World, plan_world

WORLDS = 8  # the number of worlds that episodes start in
TOLERANCE = 0.5  # m, distance to the goal that counts as success
SPEED = (-0.5, 2.0)  # m/s
YAW_RATE = 1.5  # rad/s
SUBSTEPS = 5  # places along a step where contact is checked: 10 cm apart at full speed
START_CLEARANCE = 1.0  # m around the place where an episode starts
START_FROM_WALL = 3.0  # m
_OPEN_SCENES = 8  # worlds kept ready for drawing; each takes a few megabytes


class Navigation(Task):
    """Actions: speed in m/s and yaw rate in rad/s for 0.25 s. State [4]: world, x, y, yaw (m, rad).

    World models of this task plan displacements (dx, dy, dyaw in m and rad); `command` tells how to drive one.
    Frames are RECON's: a 4:3 picture with a horizontal field of 99°, squeezed into a square. `worlds` is how many
    worlds episodes start in; a state may name any.
    """

    name: ClassVar[str] = "navigation"
    metric: ClassVar[str] = "ate_waypoints"
    higher_is_better: ClassVar[bool] = False
    error_unit: ClassVar[str] = "m"
    tolerance: ClassVar[float | None] = TOLERANCE
    frameskip: ClassVar[int] = 1
    setup: ClassVar[Setup] = Setup(
        8, budget=8, horizon=8, samples=80, iterations=1, elites=5, context=4, judges_paths=True, own_lambda=True
    )
    episode_steps: ClassVar[int] = 60

    def __init__(self, *, size: int = 64, worlds: int = WORLDS) -> None:
        if worlds < 1:
            raise ShapeError(f"navigation needs at least 1 world, got {worlds}")
        self.size = checked_size(size)
        self.worlds = worlds
        low, high = np.array([SPEED[0], -YAW_RATE], np.float32), np.array([SPEED[1], YAW_RATE], np.float32)
        self.action_space = gymnasium.spaces.Box(low, high, dtype=np.float32)
        self.observation_space = gymnasium.spaces.Box(0, 255, (size, size, 3), np.uint8)
        self.collided = False  # whether the last step ended at an obstacle
        self._world, self._pose = 0, np.zeros(3)
        self._scenes: OrderedDict[int, NavigationScene] = OrderedDict()

    @property
    def world(self) -> World:
        """The world of the current state."""
        return plan_world(self._world)

    def advance(self, action: np.ndarray) -> None:
        speed, rate = self.checked_action(action)
        path = to_world(arc(speed, rate, np.linspace(0, 1, SUBSTEPS + 1) * STEP_SECONDS), self._pose)
        clearance = self.world.clearance(path[:, :2])
        # Only approaching an obstacle is blocked, so that a robot that already touches one can leave.
        blocked = (clearance[1:] < ROBOT_RADIUS) & (clearance[1:] < clearance[:-1])
        self.collided = bool(blocked.any())
        self._pose = path[np.argmax(blocked) if self.collided else SUBSTEPS]

    def render(self) -> np.ndarray:  # type: ignore[override]
        return self.render_pose(self._world, self._pose)

    def render_pose(self, world: int, pose: np.ndarray) -> np.ndarray:
        """What the robot would see from a pose (x, y, yaw) of any world, uint8 [size, size, 3]; the state is kept."""
        return square_frame(self._picture(world, pose), self.size)

    def _picture(self, world: int, pose: np.ndarray) -> np.ndarray:
        if world not in self._scenes:
            if len(self._scenes) >= _OPEN_SCENES:
                self._scenes.popitem(last=False)[1].close()
            self._scenes[world] = NavigationScene(plan_world(world), 3 * -(-self.size // 2))
        self._scenes.move_to_end(world)
        return self._scenes[world].draw(pose)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Put the robot at a random free place; options["world"] chooses the world."""
        super().reset(seed=seed)
        world = int(self.np_random.integers(self.worlds))
        self.set_state(np.array([(options or {}).get("world", world), 0.0, 0.0, 0.0]))
        while True:
            reach = HALF - START_FROM_WALL
            pose = self.np_random.uniform([-reach, -reach, -np.pi], [reach, reach, np.pi])
            ahead = to_world(np.array([[0.0, 0, 0], [1, 0, 0], [2, 0, 0]]), pose)
            if self.world.clearance(ahead[:, :2]).min() >= START_CLEARANCE:
                break
        self._pose = pose
        return self.render(), {"state": self.get_state()}

    def free(self, world: int, pose: np.ndarray) -> bool:
        """Whether the robot has room at a pose of a world."""
        return bool(plan_world(world).clearance(np.asarray(pose)[:2]) >= ROBOT_RADIUS)

    def command(self, action: np.ndarray) -> np.ndarray:
        """The action [2] within bounds that comes closest to a displacement (dx, dy, dyaw in m and rad).

        The robot cannot move sideways. Along an arc, the yaw changes by twice the bearing of its end. If the given yaw
        differs from that, the robot turns by the mean of both and covers the distance.
        """
        dx, dy, turn = np.asarray(action, np.float64)
        way = -1.0 if dx < 0 else 1.0
        bearing = np.arctan2(way * dy, way * dx) if dx or dy else turn / 2
        turned = bearing + turn / 2
        length = np.hypot(dx, dy) / np.sinc(turned / (2 * np.pi))  # of the arc with this chord
        return np.clip([way * length / STEP_SECONDS, turned / STEP_SECONDS], *self.action_bounds).astype(np.float32)

    @property
    def idle_action(self) -> np.ndarray:
        """No displacement."""
        return np.zeros(3, np.float32)

    def last_action(self, states: np.ndarray) -> np.ndarray | None:
        """The last displacement [3], which a robot knows from its wheels."""
        return displacements(states[-2:, 1:])[0] if len(states) > 1 else None

    def plan_metrics(self, state: np.ndarray, actions: np.ndarray, path: np.ndarray) -> dict[str, np.ndarray]:
        """ATE and RPE of planned displacements as published: places only, without alignment and without the start.

        ATE is the root mean square distance between places at the same time, RPE that between single steps.
        """
        planned = integrate(actions, state[1:])[..., 1:, :2]
        off = planned - path[:, 1:3]
        ate, rpe = (np.sqrt(np.square(d).sum(-1).mean(-1)) for d in (off, np.diff(off, axis=-2)))
        return {"ate_waypoints": ate / WAYPOINT, "rpe_waypoints": rpe / WAYPOINT, "ate_m": ate, "rpe_m": rpe}

    def events(self) -> dict[str, bool]:
        return {"collided": self.collided}

    def get_state(self) -> np.ndarray:
        return np.array([self._world, *self._pose])

    def set_state(self, state: np.ndarray) -> None:
        state = self.checked_state(state, 4)
        if not np.isfinite(state).all() or state[0] < 0 or state[0] != int(state[0]):
            raise ShapeError(f"a navigation state is a world's number and a finite pose, got {state.tolist()}")
        self._world, self._pose, self.collided = int(state[0]), state[1:], False

    def columns(self) -> dict[str, np.ndarray]:
        """The pose [3], the world [1], and whether the last step ended at an obstacle [1]."""
        return {
            "pose": self._pose.copy(),
            "world": np.array([self._world], np.int64),
            "collided": np.array([self.collided]),
        }

    def physical(self, columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Place [n, 2] and heading [n, 2]; comparable only within one world."""
        return {"place": columns["pose"][:, :2], "heading": on_circle(columns["pose"][:, 2:])}

    def pose(self, state: np.ndarray) -> np.ndarray:
        return state[1:]

    def error(self, state: np.ndarray, goal_state: np.ndarray) -> float:
        """Distance to the goal in metres; infinite between different worlds."""
        return self.pose_error(self.pose(state), goal_state) if state[0] == goal_state[0] else float("inf")

    def pose_error(self, pose: np.ndarray, goal_state: np.ndarray) -> float:
        return float(np.hypot(*(pose[:2] - self.pose(goal_state)[:2])))

    def success(self, state: np.ndarray, goal_state: np.ndarray) -> bool:
        return self.error(state, goal_state) < TOLERANCE

    def behaviour(self, rng: np.random.Generator) -> NavigationBehaviour:
        return NavigationBehaviour(rng)

    def close(self) -> None:
        while self._scenes:
            self._scenes.popitem()[1].close()


def arc(speed: float | np.ndarray, rate: float | np.ndarray, seconds: float | np.ndarray) -> np.ndarray:
    """Poses [..., 3] in the frame of the start, after driving for some time; all three broadcast."""
    turn = np.asarray(rate, np.float64) * seconds
    chord = speed * seconds * np.sinc(turn / (2 * np.pi))  # numpy's sinc has the π in it
    return np.stack(np.broadcast_arrays(chord * np.cos(turn / 2), chord * np.sin(turn / 2), wrap(turn)), axis=-1)
