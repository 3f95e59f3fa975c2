"""Pictures of particles on a table from the published camera. MuJoCo only draws; it simulates nothing."""

from __future__ import annotations

import numpy as np

from acid.tasks.offscreen import Offscreen, draw_fast, mujoco

EYE = np.array([6.0, 6.0, 9.5])  # the camera, which looks at the origin with z up
FIELD_OF_VIEW = 45  # degrees
TABLE = (3.5, 4.5)  # half extents

_XML = """
<mujoco>
  <statistic center="0 0 0" extent="12"/>
  <visual>
    <headlight ambient="0.35 0.35 0.35" diffuse="0.25 0.25 0.25" specular="0 0 0"/>
    <quality shadowsize="512" offsamples="0" numslices="12" numstacks="8" numquads="1"/>
    <map znear="0.1" zfar="4"/>
  </visual>
  <worldbody>
    <light directional="true" pos="-3 2 9" dir="0.35 -0.25 -1" diffuse="0.6 0.6 0.6" specular="0.1 0.1 0.1"/>
    <camera name="published" mode="fixed" pos="{eye}" xyaxes="{axes}" fovy="{fov}"/>
    <geom name="floor" type="box" size="40 40 0.1" pos="0 0 -0.12" rgba="0.13 0.14 0.16 1"/>
    <geom name="table" type="box" size="{table} 0.1" pos="0 0 -0.1" rgba="0.33 0.37 0.43 1"/>
    {particles}
  </worldbody>
</mujoco>
"""


class ParticleScene:
    """Draws chains as capsules and loose grains as balls: `count` particles, images of `size` pixels."""

    def __init__(self, count: int, size: int, *, chain: bool, colour: str, shadows: bool = False) -> None:
        """colour: "r g b" from 0 to 1. Shadows make drawing about five times slower."""
        self._chain = chain
        shape = "capsule" if chain else "sphere"
        geom = f'<geom type="{shape}" size="0.1 0.1" rgba="{colour} 1"/>'
        xml = _XML.format(
            eye=_numbers(EYE),
            axes=_numbers(np.concatenate(_camera_axes())),
            fov=FIELD_OF_VIEW,
            table=_numbers(TABLE),
            particles=geom * (count - 1 if chain else count),
        )
        self._model = mujoco.MjModel.from_xml_string(xml)
        if not shadows:
            draw_fast(self._model)
        self._first = self._model.geom("table").id + 1
        self._data = mujoco.MjData(self._model)
        mujoco.mj_forward(self._model, self._data)  # camera and lights, which never move
        self._offscreen = Offscreen(self._model, size)

    def draw(self, positions: np.ndarray, radii: np.ndarray) -> np.ndarray:
        """Pixels uint8 [size, size, 3] of particles at positions [P, 3] with radii [P]."""
        places, sizes = self._data.geom_xpos[self._first :], self._model.geom_size[self._first :]
        if self._chain:
            steps = np.diff(positions, axis=0)
            places[:] = positions[:-1] + steps / 2
            self._data.geom_xmat[self._first :] = _frames_along(steps).reshape(-1, 9)
            sizes[:, 0], sizes[:, 1] = radii[:-1], np.linalg.norm(steps, axis=1) / 2
        else:
            places[:] = positions
            sizes[:] = radii[:, None]
        return self._offscreen.draw(self._data, "published")

    def close(self) -> None:
        self._offscreen.close()


def _numbers(values: np.ndarray | tuple[float, ...]) -> str:
    return " ".join(f"{value:.9g}" for value in values)


def _camera_axes() -> tuple[np.ndarray, np.ndarray]:
    """Directions to the right and up in the picture."""
    towards_eye = EYE / np.linalg.norm(EYE)
    right = np.cross([0, 0, 1], towards_eye)
    right /= np.linalg.norm(right)
    return right, np.cross(towards_eye, right)


def _frames_along(steps: np.ndarray) -> np.ndarray:
    """Rotations [n, 3, 3] whose third axis points along the steps [n, 3]."""
    third = steps / np.maximum(np.linalg.norm(steps, axis=1, keepdims=True), 1e-12)
    upright = np.abs(third[:, 2:]) > 0.9
    first = np.cross(third, np.where(upright, [1.0, 0, 0], [0, 0, 1.0]))
    first /= np.maximum(np.linalg.norm(first, axis=1, keepdims=True), 1e-12)
    return np.stack([first, np.cross(third, first), third], axis=2)
