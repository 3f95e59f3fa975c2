"""Checks, resizing and writing shared by sheets and videos."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from acid.errors import AcidError, ShapeError
from acid.files import replacing


def as_frames(name: str, frames: Any) -> np.ndarray:
    """Frames as uint8 [T, H, W, 3]; a ShapeError names the row or panel otherwise."""
    array = np.asarray(frames)
    if array.ndim != 4 or array.shape[-1] != 3 or array.dtype != np.uint8 or not len(array):
        raise ShapeError(f"frames of {name!r} must be uint8 [T, H, W, 3], got {array.dtype} {list(array.shape)}")
    return array


def enlarge(image: np.ndarray, scale: int) -> np.ndarray:
    """[H, W, 3] to [H·scale, W·scale, 3] with every pixel kept as a square."""
    if scale < 1:
        raise ShapeError(f"scale must be at least 1, got {scale}")
    return image.repeat(scale, 0).repeat(scale, 1)


def picture_format(path: str | Path) -> str:
    """The format that the ending of a name says, as Pillow calls it; an AcidError for one that it cannot write."""
    from PIL import Image

    kind = Image.registered_extensions().get(Path(path).suffix.lower())
    if kind is None:
        raise AcidError(f"the file of a picture must end in .png or .jpg, got {Path(path).name!r}")
    return kind


def save_image(image: Any, path: str | Path) -> None:
    """Write an image of Pillow's whole or not at all, in the format that the ending of its name says."""
    kind = picture_format(path)
    with replacing(path, AcidError) as partial:
        image.save(partial, kind)
