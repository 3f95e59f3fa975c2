"""What tasks simulated by MuJoCo share: exact states and fast, quiet rendering."""

from __future__ import annotations

import atexit
import contextlib
import weakref
from typing import Any, Literal

import numpy as np

from acid.errors import ShapeError
from acid.tasks import headless
from acid.tasks.base import Task

headless.configure()

import gymnasium  # noqa: E402
import mujoco as untyped_mujoco  # noqa: E402

mujoco: Any = untyped_mujoco  # a compiled module without type stubs
Quality = Literal["fast", "full"]
_STATE = mujoco.mjtState.mjSTATE_INTEGRATION


class MujocoTask(Task):
    """A task on one MuJoCo model. Subclasses build the model and say what success means.

    quality "fast" draws without shadows, reflections or multisampling; "full" keeps what the model asks for.
    Either way a frame is drawn `supersample` times larger and averaged down: in software that costs far less than
    multisampling (1.1 against 2.5 ms a 64-px frame) and keeps the sub-pixel motion that small images need.
    """

    supersample = 2
    camera: int | str = 0

    def __init__(self, model: Any, *, size: int = 64, quality: Quality = "fast") -> None:
        if size < 8:
            raise ShapeError(f"image size must be at least 8 pixels, got {size}")
        self.size = size
        self.model = model
        self.data = mujoco.MjData(model)
        self._quality = quality
        self._renderer: Any = None
        if quality == "fast":
            model.vis.quality.shadowsize = 0
            model.vis.quality.offsamples = 0
            model.mat_reflectance[:] = 0
        self._drawn = size * self.supersample
        model.vis.global_.offwidth = max(model.vis.global_.offwidth, self._drawn)
        model.vis.global_.offheight = max(model.vis.global_.offheight, self._drawn)
        low, high = model.actuator_ctrlrange.T.astype(np.float32)
        self.action_space = gymnasium.spaces.Box(low, high, dtype=np.float32)
        self.observation_space = gymnasium.spaces.Box(0, 255, (size, size, 3), np.uint8)

    def get_state(self) -> np.ndarray:
        state = np.empty(mujoco.mj_stateSize(self.model, _STATE))
        mujoco.mj_getState(self.model, self.data, state, _STATE)
        return state

    def set_state(self, state: np.ndarray) -> None:
        expected = mujoco.mj_stateSize(self.model, _STATE)
        if state.shape != (expected,):
            raise ShapeError(f"a {self.name} state has {expected} numbers, got shape {list(state.shape)}")
        mujoco.mj_setState(self.model, self.data, np.asarray(state, np.float64), _STATE)
        mujoco.mj_forward(self.model, self.data)
        # mj_forward refines the warm start; put back the stored one so that the future repeats bit for bit.
        mujoco.mj_setState(self.model, self.data, np.asarray(state, np.float64), _STATE)

    def advance(self, action: np.ndarray) -> None:
        action = np.asarray(action, np.float64)
        if action.shape != (self.model.nu,):
            raise ShapeError(f"a {self.name} action has {self.model.nu} numbers, got shape {list(action.shape)}")
        if not np.isfinite(action).all():
            raise ShapeError(f"a {self.name} action must be finite, got {action.tolist()}")
        self.data.ctrl[:] = np.clip(action, *self.model.actuator_ctrlrange.T)
        mujoco.mj_step(self.model, self.data)

    def render(self) -> np.ndarray:  # type: ignore[override]
        if self._renderer is None:
            self._renderer = self._open_renderer()
        mujoco.mj_kinematics(self.model, self.data)  # positions of the current state, not of the last step's start
        mujoco.mj_camlight(self.model, self.data)
        self._renderer.update_scene(self.data, camera=self.camera)
        return _shrink(self._renderer.render(), self.supersample)

    def _open_renderer(self) -> Any:
        try:
            renderer = mujoco.Renderer(self.model, self._drawn, self._drawn)
        except Exception as error:
            raise headless.advice(error) from error
        _close_at_exit(self)  # after the context exists: exit handlers run last in, first out
        return renderer

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
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


def _shrink(pixels: np.ndarray, factor: int) -> np.ndarray:
    """The mean of each factor × factor square, uint8 [H, W, 3] to [H/factor, W/factor, 3]."""
    total = np.zeros((pixels.shape[0] // factor, pixels.shape[1] // factor, 3), np.uint16)
    for row in range(factor):  # whole strided planes: ten times faster than a reduction over tiny axes
        for column in range(factor):
            total += pixels[row::factor, column::factor]
    return (total // factor**2).astype(np.uint8)


def _close_at_exit(task: MujocoTask) -> None:
    """Free the GL context before the interpreter tears its libraries down: a late one prints a traceback."""
    reference = weakref.ref(task)

    def close() -> None:
        alive = reference()
        if alive is not None:
            with contextlib.suppress(Exception):
                alive.close()

    atexit.register(close)
