"""Choose a rendering backend before MuJoCo is imported, so that machines without a screen work."""

from __future__ import annotations

import ctypes
import os
import sys

from acid.errors import AcidError

DEBIAN_PACKAGES = "libegl1 libegl-mesa0 libgl1-mesa-dri"
_LIBRARIES = {"egl": "libEGL.so.1", "osmesa": "libOSMesa.so.8"}


class RenderingError(AcidError, RuntimeError):
    """This machine cannot render."""


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def configure() -> str:
    """Set MUJOCO_GL unless the user did; returns the backend's name.

    Software rendering is kept to the calling thread (LP_NUM_THREADS=0): small frames gain nothing from more, and
    parallel collection would oversubscribe the cores.
    """
    os.environ.setdefault("LP_NUM_THREADS", "0")
    if "MUJOCO_GL" in os.environ:
        return os.environ["MUJOCO_GL"]
    if "mujoco" in sys.modules:
        return "chosen before"  # MuJoCo reads the variable only when it is imported
    if sys.platform != "linux":
        return "default"
    for backend, library in _LIBRARIES.items():
        if _loads(library):
            os.environ["MUJOCO_GL"] = backend
            os.environ.setdefault("PYOPENGL_PLATFORM", backend)
            return backend
    if "DISPLAY" in os.environ:
        return "default"
    raise RenderingError(
        f"no OpenGL library found ({', '.join(_LIBRARIES.values())}) and no DISPLAY set; "
        f"on Debian or Ubuntu run: apt-get install {DEBIAN_PACKAGES}"
    )


def advice(error: Exception) -> RenderingError:
    """An error that says what to do when a renderer cannot be opened."""
    return RenderingError(
        f"MuJoCo cannot draw here with MUJOCO_GL={os.environ.get('MUJOCO_GL', '(unset)')} ({error}); "
        f"on Debian or Ubuntu run: apt-get install {DEBIAN_PACKAGES}; "
        "if mujoco is imported before acid.tasks, set MUJOCO_GL=egl yourself"
    )
