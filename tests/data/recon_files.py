"""Small files in RECON's layout."""

from __future__ import annotations

import io
from pathlib import Path

import h5py
import numpy as np
from PIL import Image

from acid.data.poses import integrate


def encoded(image: np.ndarray, form: str = "png") -> bytes:
    """uint8 [H, W, 3] as the bytes of an image file."""
    written = io.BytesIO()
    Image.fromarray(image).save(written, form, **({"quality": 95, "subsampling": 0} if form == "jpeg" else {}))
    return written.getvalue()


def poses_of(number: int, length: int) -> np.ndarray:
    steps = np.random.default_rng(number).normal([0.2, 0, 0], [0.05, 0.01, 0.2], (length - 1, 3))
    return integrate(steps, np.array([number, 2.0, 3.0]))


def write_trajectory(path: Path, number: int, length: int) -> None:
    """Pictures of one colour that tells trajectory and step."""
    pictures = np.zeros((length, 24, 32, 3), np.uint8)
    pictures[..., 0], pictures[..., 1] = 10 * number, np.arange(length)[:, None, None]
    poses = poses_of(number, length)
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file.create_dataset("images/rgb_left", data=np.array([encoded(p) for p in pictures], dtype=np.bytes_))
        file["jackal/position"] = np.pad(poses[:, :2], ((0, 0), (0, 1)))
        file["jackal/yaw"] = poses[:, 2]
        file["commands/linear_velocity"] = np.arange(length, dtype=np.float64)
