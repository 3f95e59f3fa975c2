"""What tasks simulated by MuJoCo share: exact states and fast, quiet rendering."""

from __future__ import annotations

import atexit
import contextlib
import weakref
from typing import Any, Literal

import numpy as np

from acid.tasks import headless
from acid.tasks.base import Task, checked_size

headless.configure()

import gymnasium  # noqa: E402
import mujoco as untyped_mujoco  # noqa: E402

mujoco: Any = untyped_mujoco  # a compiled module without type stubs
Quality = Literal["fast", "full"]


class MujocoTask(Task):
    """A task on one MuJoCo model. Subclasses build the model and say what success means.

    quality "fast" draws without shadows, reflections or multisampling; "full" keeps what the model asks for.
    Either way a frame is drawn `supersample` times larger and averaged down: in software that costs far less than
    multisampling (1.1 against 2.5 ms a 64-px frame) and keeps the sub-pixel motion that small images need.
    """

    supersample = 2
    camera: int | str = 0
    state_parts: int = int(mujoco.mjtState.mjSTATE_INTEGRATION)  # the bits of mjtState that can change in this task

    def __init__(self, model: Any, *, size: int = 64, quality: Quality = "fast", data: Any = None) -> None:
        self.size = checked_size(size)
        self.model = model
        self.data = mujoco.MjData(model) if data is None else data
        self._quality = quality
        self._renderer: Any = None
        if quality == "fast":
            model.vis.quality.shadowsize = 0
            model.vis.quality.offsamples = 0
            model.mat_reflectance[:] = 0
        self._drawn = size * self.supersample
        self._make_room(model)
        low, high = model.actuator_ctrlrange.T.astype(np.float32)
        self.action_space = gymnasium.spaces.Box(low, high, dtype=np.float32)
        self.observation_space = gymnasium.spaces.Box(0, 255, (size, size, 3), np.uint8)

    def _make_room(self, model: Any) -> None:
        """Let the model's drawing buffer hold a frame before it is averaged down."""
        model.vis.global_.offwidth = max(model.vis.global_.offwidth, self._drawn)
        model.vis.global_.offheight = max(model.vis.global_.offheight, self._drawn)

    @property
    def state_size(self) -> int:
        return mujoco.mj_stateSize(self.model, self.state_parts)

    def get_state(self) -> np.ndarray:
        state = np.empty(mujoco.mj_stateSize(self.model, self.state_parts))
        mujoco.mj_getState(self.model, self.data, state, self.state_parts)
        return state

    def set_state(self, state: np.ndarray) -> None:
        self._restore(self.checked_state(state, self.state_size))

    def _restore(self, state: np.ndarray) -> None:
        mujoco.mj_setState(self.model, self.data, state, self.state_parts)
        mujoco.mj_forward(self.model, self.data)
        # mj_forward refines the warm start; put back the stored one so that the future repeats bit for bit.
        mujoco.mj_setState(self.model, self.data, state, self.state_parts)

    def advance(self, action: np.ndarray) -> None:
        self._simulate(self.checked_action(action))

    def _simulate(self, action: np.ndarray) -> None:
        """One environment step with a checked action, float64 [a]."""
        self.data.ctrl[:] = action
        mujoco.mj_step(self.model, self.data)

    def render(self) -> np.ndarray:  # type: ignore[override]
        if self._renderer is None:
            self._renderer = self._open_renderer()
        model, data = self._scene()
        mujoco.mj_kinematics(model, data)  # positions of the current state, not of the last step's start
        mujoco.mj_camlight(model, data)
        self._renderer.update_scene(data, camera=self.camera)
        return _shrink(self._renderer.render(), self.supersample)

    def _scene(self) -> tuple[Any, Any]:
        """The model and the data to draw."""
        return self.model, self.data

    def _open_renderer(self) -> Any:
        try:
            renderer = mujoco.Renderer(self._scene()[0], self._drawn, self._drawn)
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
