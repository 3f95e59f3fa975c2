"""Draw MuJoCo scenes without a screen."""

from __future__ import annotations

import atexit
import contextlib
import weakref
from typing import Any

import numpy as np

from acid.tasks import headless

headless.configure()

import mujoco as untyped_mujoco  # noqa: E402

mujoco: Any = untyped_mujoco  # a compiled module without type stubs


class Offscreen:
    """Draws frames of one model: `size` pixels high, and `aspect` times that wide.

    A frame is drawn `supersample` times larger and averaged down. In software that is faster than multisampling (1.1
    instead of 2.5 ms per 64-px frame) and keeps the sub-pixel motion that small images need.
    """

    def __init__(self, model: Any, size: int, *, supersample: int = 2, aspect: float = 1.0) -> None:
        self.model = model
        self._supersample = supersample
        self._height, self._width = size * supersample, round(size * aspect) * supersample
        self._renderer: Any = None
        room = model.vis.global_  # the drawing buffer must hold the larger frame
        room.offwidth, room.offheight = max(room.offwidth, self._width), max(room.offheight, self._height)

    def draw(self, data: Any, camera: int | str = 0) -> np.ndarray:
        """Pixels uint8 [size, size · aspect, 3] of the scene in the data."""
        if self._renderer is None:
            self._renderer = self._open()
        self._renderer.update_scene(data, camera=camera)
        return shrink(self._renderer.render(), self._supersample)

    def _open(self) -> Any:
        try:
            renderer = mujoco.Renderer(self.model, self._height, self._width)
        except Exception as error:
            raise headless.advice(error) from error
        _close_at_exit(self)  # after the context exists: exit handlers run last in, first out
        return renderer

    def close(self) -> None:
        """Free the renderer; drawing opens a new one."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


def draw_fast(model: Any) -> None:
    """Switch off what is slowest in software: shadows, reflections and multisampling."""
    model.vis.quality.shadowsize = 0
    model.vis.quality.offsamples = 0
    model.mat_reflectance[:] = 0


def shrink(pixels: np.ndarray, factor: int) -> np.ndarray:
    """The mean of each factor × factor square, uint8 [H, W, 3] to [H/factor, W/factor, 3]."""
    total = np.zeros((pixels.shape[0] // factor, pixels.shape[1] // factor, 3), np.uint16)
    for row in range(factor):  # adding strided planes is ten times faster than reducing over tiny axes
        for column in range(factor):
            total += pixels[row::factor, column::factor]
    return (total // factor**2).astype(np.uint8)


def _close_at_exit(offscreen: Offscreen) -> None:
    """Free the GL context before Python unloads its libraries; later it would print a traceback."""
    reference = weakref.ref(offscreen)

    def close() -> None:
        alive = reference()
        if alive is not None:
            with contextlib.suppress(Exception):
                alive.close()

    atexit.register(close)
