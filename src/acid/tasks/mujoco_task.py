"""What MuJoCo tasks share: exact states and fast rendering."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import gymnasium
import numpy as np

from acid.errors import ShapeError
from acid.tasks.base import Task, checked_size
from acid.tasks.offscreen import Offscreen, draw_fast, mujoco

Quality = Literal["fast", "full", "published"]


class MujocoTask(Task):
    """A task on one MuJoCo model. Subclasses build the model and say what success means.

    Quality "fast" draws without shadows, reflections or multisampling; "full" draws what the model specifies.
    In both cases a frame is drawn larger and averaged down. "published" draws what the model specifies as it is, which
    is how the frames of published datasets were made.
    """

    state_columns: ClassVar[tuple[tuple[str, ...], ...]] = (("state",), ("qpos", "qvel"))

    camera: int | str = 0
    state_parts: int = int(mujoco.mjtState.mjSTATE_INTEGRATION)  # the bits of mjtState that can change in this task

    def __init__(self, model: Any, *, size: int = 64, quality: Quality = "fast", data: Any = None) -> None:
        self.size = checked_size(size)
        self.model = model
        self.data = mujoco.MjData(model) if data is None else data
        self._quality = quality
        self._offscreen = Offscreen(model, size, supersample=supersample(quality))
        if quality == "fast":
            draw_fast(model)
        low, high = model.actuator_ctrlrange.T.astype(np.float32)
        self.action_space = gymnasium.spaces.Box(low, high, dtype=np.float32)
        self.observation_space = gymnasium.spaces.Box(0, 255, (size, size, 3), np.uint8)

    @property
    def state_size(self) -> int:
        return mujoco.mj_stateSize(self.model, self.state_parts)

    def get_state(self) -> np.ndarray:
        return self._state_of(self.data)

    def _state_of(self, data: Any) -> np.ndarray:
        state = np.empty(mujoco.mj_stateSize(self.model, self.state_parts))
        mujoco.mj_getState(self.model, data, state, self.state_parts)
        return state

    def recorded_states(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """Of positions and velocities alone: time, controls and applied forces are 0."""
        if "state" in columns:
            return columns["state"]
        positions, velocities = columns["qpos"], columns["qvel"]
        if positions.shape[1:] != (self.model.nq,) or velocities.shape[1:] != (self.model.nv,):
            raise ShapeError(
                f"{self.name} has {self.model.nq} positions and {self.model.nv} velocities, the columns qpos and qvel "
                f"have {list(positions.shape[1:])} and {list(velocities.shape[1:])}"
            )
        data, states = mujoco.MjData(self.model), []
        for qpos, qvel in zip(positions, velocities, strict=True):
            mujoco.mj_resetData(self.model, data)
            data.qpos[:], data.qvel[:] = qpos, qvel
            mujoco.mj_forward(self.model, data)
            states.append(self._state_of(data))
        return np.stack(states)

    def set_state(self, state: np.ndarray) -> None:
        self._restore(self.checked_state(state, self.state_size))

    def _restore(self, state: np.ndarray) -> None:
        mujoco.mj_setState(self.model, self.data, state, self.state_parts)
        mujoco.mj_forward(self.model, self.data)
        # mj_forward changes the warm start. Restore the stored one, so that the future repeats bit for bit.
        mujoco.mj_setState(self.model, self.data, state, self.state_parts)

    def advance(self, action: np.ndarray) -> None:
        self._simulate(self.checked_action(action))

    def _simulate(self, action: np.ndarray) -> None:
        """One environment step with a checked action, float64 [a]."""
        self.data.ctrl[:] = action
        mujoco.mj_step(self.model, self.data)

    def render(self) -> np.ndarray:  # type: ignore[override]
        model, data = self._offscreen.model, self._scene()
        mujoco.mj_kinematics(model, data)  # positions of the current state, not of the last step's start
        mujoco.mj_camlight(model, data)
        return self._offscreen.draw(data, self.camera)

    def _scene(self) -> Any:
        """The data to draw, of the model that `_offscreen` draws."""
        return self.data

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        mujoco.mj_resetData(self.model, self.data)
        self._place(self.np_random)
        mujoco.mj_forward(self.model, self.data)
        return self.render(), {"state": self.get_state()}

    def _place(self, rng: np.random.Generator) -> None:
        """Put the scene into a random initial state."""
        raise NotImplementedError

    def close(self) -> None:
        self._offscreen.close()


def supersample(quality: Quality) -> int:
    """How many times larger than asked for a frame is drawn."""
    return 1 if quality == "published" else 2
