"""Cube: OGBench's arm with a gripper, which must bring a cube to its place in the goal state."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import gymnasium
import numpy as np

from acid.tasks.base import checked_size, on_circle
from acid.tasks.mujoco_task import MujocoTask, Quality, mujoco, supersample
from acid.tasks.offscreen import Offscreen

TOLERANCE = 0.04  # m, between cube centres
_EFFECTOR = "ur5e/robotiq/pinch"  # the point between the finger tips
_PART: Any = mujoco.mjtState


class Cube(MujocoTask):
    """Actions in [−1, 1]: effector dx, dy, dz (±0.05 m), dyaw (±0.3 rad), gripper (closing > 0); 0.05 s a step.

    The environment is OGBench's `cube-single` with unchanged physics. Its target marker is not drawn and has no effect.
    Frames come from its pixel camera, which just covers the workspace: at 64 px the cube is 3 to 4 px wide.

    A second model is used for drawing. With quality "fast" it has fewer triangles, a plain floor and a coarse shadow,
    and a 64-px frame takes 2 to 3 ms in software instead of 55 ms. The shadow stays because it shows height: along the
    line of sight nothing else changes by a pixel. "full" draws the original scene.
    """

    name: ClassVar[str] = "cube"
    error_unit: ClassVar[str] = "m"
    tolerance: ClassVar[float | None] = TOLERANCE
    episode_steps: ClassVar[int] = 120
    camera = "front_pixels"
    # The other parts of the integration state never change: no forces are applied, no constraint is switched off.
    state_parts = int(_PART.mjSTATE_TIME | _PART.mjSTATE_PHYSICS | _PART.mjSTATE_WARMSTART | _PART.mjSTATE_CTRL)

    def __init__(self, *, size: int = 64, quality: Quality = "fast") -> None:
        from ogbench.manipspace.envs.cube_env import CubeEnv

        checked_size(size)  # before the work of building the model
        self.env = CubeEnv("single", mode="data_collection", visualize_info=False, terminate_at_goal=False)
        self.env.reset(seed=0)  # builds the model
        super().__init__(self.env.model, size=size, quality="full", data=self.env.data)  # this model is not drawn
        self.action_space = gymnasium.spaces.Box(-1, 1, (5,), np.float32)
        self._effector = self.model.site(_EFFECTOR).id
        start = int(self.model.joint("object_joint_0").qposadr[0])
        self._cube = slice(start, start + 7)  # position and quaternion in qpos
        self._drawing = scene_model(self.env, quality)
        self._drawing_data = mujoco.MjData(self._drawing)
        self._offscreen = Offscreen(self._drawing, size, supersample=supersample(quality))

    @property
    def state_size(self) -> int:
        return super().state_size + 12

    def _state_of(self, data: Any) -> np.ndarray:
        """MuJoCo's state, then the effector's position [3] and rotation [9] that the next action is relative to.

        The environment computes them at the start of the last physics step, so the rest does not determine them.
        """
        site = self._effector
        return np.concatenate([super()._state_of(data), data.site_xpos[site], data.site_xmat[site]])

    def _restore(self, state: np.ndarray) -> None:
        super()._restore(state[:-12])
        self.data.site_xpos[self._effector] = state[-12:-9]
        self.data.site_xmat[self._effector] = state[-9:]

    def _simulate(self, action: np.ndarray) -> None:
        self.env.step(action)

    def _scene(self) -> Any:
        self._drawing_data.qpos[:] = self.data.qpos
        return self._drawing_data

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        self.env.reset(seed=seed)
        return self.render(), {"state": self.get_state()}

    def columns(self) -> dict[str, np.ndarray]:
        """proprio [5]: effector x, y, z, yaw and how far the gripper is closed, 0 to 1. cube [7]: xyz, quaternion."""
        info = self.env.compute_ob_info()
        parts = ("effector_pos", "effector_yaw", "gripper_opening")
        return {
            "proprio": np.concatenate([info[f"proprio/{part}"] for part in parts]),
            "cube": self.data.qpos[self._cube].copy(),
        }

    def physical(self, columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        effector, yaw, gripper = np.split(columns["proprio"], (3, 4), axis=1)
        yaw = on_circle(2 * yaw)  # the gripper looks the same after half a turn
        return {"cube": columns["cube"][:, :3], "effector": effector, "yaw": yaw, "gripper": gripper}

    def pose(self, state: np.ndarray) -> np.ndarray:
        """The cube's centre [3] in m."""
        start = 1 + self._cube.start  # after the time
        return state[start : start + 3]

    def error(self, state: np.ndarray, goal_state: np.ndarray) -> float:
        """Distance of the cube's centres in m."""
        return float(np.linalg.norm(self.pose(state) - self.pose(goal_state)))

    def success(self, state: np.ndarray, goal_state: np.ndarray) -> bool:
        return self.error(state, goal_state) < TOLERANCE

    def behaviour(self, rng: np.random.Generator) -> CubeBehaviour:
        return CubeBehaviour(rng)


class PublishedCube(Cube):
    """With the frames of published datasets."""

    name: ClassVar[str] = "cube-published"

    def __init__(self, *, size: int = 224) -> None:
        super().__init__(size=size, quality="published")


class CubeBehaviour:
    """OGBench's scripted play: pick the cube, put it somewhere random, move away, repeat. Sometimes it wanders.

    Wandering means smooth random actions for 0.25 to 0.75 s, in half of the cases of the gripper too. A planner tries
    actions that are not in the script, and the model must know what they do. Then the script continues.
    """

    PLACES = ((0.3, -0.3), (0.55, 0.3))  # m, lowest and highest x, y for the cube, as in OGBench
    WANDER = 0.015  # probability of starting in a step
    AMPLITUDE = 0.7  # of wandering actions, as a standard deviation
    SMOOTHNESS = 0.8  # correlation of wandering actions from one step to the next
    TREMBLE = 0.1  # action noise while following the script

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._script: Any = None
        self._scripted_steps = 0  # the script's clock stands still during wandering
        self._wandering_steps = 0  # left
        self._free_actions = 5  # how many of the five wander; the gripper is the last one
        self._wander = np.zeros(5)  # of unit variance

    def act(self, task: Cube) -> np.ndarray:
        if self._script is None or self._script.done:
            self._begin(task)
        noise = self._rng.standard_normal(5)
        self._wander = self.SMOOTHNESS * self._wander + np.sqrt(1 - self.SMOOTHNESS**2) * noise
        if self._wandering_steps == 0 and self._rng.random() < self.WANDER:
            self._wandering_steps = int(self._rng.integers(5, 16))
            self._free_actions = 5 if self._rng.random() < 0.5 else 4
        action = self._scripted_action(task) + self.TREMBLE * noise
        if self._wandering_steps:
            self._wandering_steps -= 1
            action[: self._free_actions] = self.AMPLITUDE * self._wander[: self._free_actions]
        else:
            self._scripted_steps += 1
        return np.clip(action, -1, 1).astype(np.float32)

    def _begin(self, task: Cube) -> None:
        """A new script, to a random place for the cube."""
        from ogbench.manipspace.oracles.plan.cube_plan import CubePlanOracle

        info = task.env.compute_ob_info()
        info["privileged/target_block_pos"] = np.array([*self._rng.uniform(*self.PLACES), 0.02])
        info["privileged/target_block_yaw"] = self._rng.uniform(0, 2 * np.pi, 1)
        info["time"] = np.zeros(1)
        self._scripted_steps = 0
        self._script = CubePlanOracle(env=task.env)
        with _global_randomness(self._rng):
            self._script.reset(None, info)

    def _scripted_action(self, task: Cube) -> np.ndarray:
        info = task.env.compute_ob_info()
        info["time"] = np.array([self._scripted_steps * task.env.control_timestep()])
        return self._script.select_action(None, info)


@contextlib.contextmanager
def _global_randomness(rng: np.random.Generator) -> Iterator[None]:
    """Seed numpy's global generator, from which OGBench's scripts draw, and restore it afterwards."""
    before = np.random.get_state()
    np.random.seed(int(rng.integers(2**32)))
    try:
        yield
    finally:
        np.random.set_state(before)


_COLLISION_GROUP = 3
_FLOOR = (0.25, 0.28, 0.33, 1.0)
_PURPLE = (0.61, 0.28, 0.82, 1.0)  # the gripper's colour in OGBench's own pixel tasks
_CELLS = {"ur5e/robotiq/": 0.008, "": 0.025}  # m, size of the details that stay, by the start of a mesh's name


def scene_model(env: Any, quality: Quality) -> Any:
    """A model for drawing the environment's states: the same bodies and joints, without hidden parts."""
    from ogbench.manipspace import mjcf_utils

    assets = mjcf_utils.get_assets(env.mjcf_model)
    spec = mujoco.MjSpec.from_string(mjcf_utils.to_string(env.mjcf_model), assets=assets)
    for geom in list(spec.geoms):
        if geom.group == _COLLISION_GROUP or geom.name == "target_object_0":
            spec.delete(geom)
    for material in ("black", "pad_gray"):
        spec.material(f"ur5e/robotiq/{material}").rgba = _PURPLE
    if quality == "fast":
        _simplify_surroundings(spec)
        _simplify_meshes(spec, env.model)
    return spec.compile()


def _simplify_surroundings(spec: Any) -> None:
    spec.visual.quality.shadowsize = 128
    spec.visual.quality.offsamples = 0
    spec.delete(spec.light("spotlight"))
    for texture in list(spec.textures):
        if texture.type == mujoco.mjtTexture.mjTEXTURE_SKYBOX:
            spec.delete(texture)
    floor, material = spec.geom("floor"), spec.material("grid")
    floor.type = mujoco.mjtGeom.mjGEOM_BOX  # a plane is drawn in very many pieces: 2.5 ms
    floor.size, floor.pos = (1, 1, 0.01), (0, 0, -0.01)
    material.textures = [""] * len(material.textures)
    material.rgba, material.specular = _FLOOR, 0


def _simplify_meshes(spec: Any, model: Any) -> None:
    spec.compiler.balanceinertia = True  # coarse meshes may have impossible masses; nothing is simulated here
    for mesh in spec.meshes:
        cell = next(cell for start, cell in _CELLS.items() if mesh.name.startswith(start))
        vertices, faces = cluster(*_mesh(model, mesh.name), cell)
        mesh.file, mesh.scale = "", (1, 1, 1)
        mesh.uservert, mesh.userface = vertices.ravel(), faces.ravel()
        mesh.inertia = mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL  # clustered surfaces need not be closed


def _mesh(model: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Vertices [V, 3] and triangles [F, 3] of a compiled mesh, in the frame of its file."""
    mesh = model.mesh(name)
    vertices = model.mesh_vert[mesh.vertadr[0] :][: mesh.vertnum[0]].astype(np.float64)
    faces = model.mesh_face[mesh.faceadr[0] :][: mesh.facenum[0]]
    rotation = np.empty(9)
    mujoco.mju_quat2Mat(rotation, model.mesh_quat[mesh.id])
    return vertices @ rotation.reshape(3, 3).T + model.mesh_pos[mesh.id], faces


def cluster(vertices: np.ndarray, faces: np.ndarray, cell: float) -> tuple[np.ndarray, np.ndarray]:
    """The mesh with all vertices of a cubic cell of this width merged into their mean; flat triangles are dropped."""
    cells = np.floor((vertices - vertices.min(0)) / cell).astype(np.int64)
    _, group, count = np.unique(cells, axis=0, return_inverse=True, return_counts=True)
    group = group.ravel()
    means = np.zeros((len(count), 3))
    np.add.at(means, group, vertices)
    faces = group[faces]
    first = faces.argmin(1)[:, None]
    faces = np.take_along_axis(faces, (first + np.arange(3)) % 3, 1)  # smallest vertex first, to compare them
    faces = np.unique(faces, axis=0)
    distinct = (faces[:, 0] != faces[:, 1]) & (faces[:, 1] != faces[:, 2]) & (faces[:, 2] != faces[:, 0])
    return means / count[:, None], faces[distinct].astype(np.int32)
