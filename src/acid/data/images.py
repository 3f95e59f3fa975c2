"""Encoded images as frames: Pillow, which is an extra package, in one place."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from acid.errors import DataError, need_package


def pillow() -> Any:
    """The module `PIL.Image`."""
    return need_package("PIL.Image", "robots", "reading images", DataError, package="pillow")


def open_image(encoded: bytes) -> Any:
    """The bytes of an image file (JPEG, PNG, ...) as an RGB image; a ValueError if they are none."""
    try:
        with pillow().open(io.BytesIO(encoded)) as image:
            return image.convert("RGB")
    except DataError:
        raise
    except Exception as error:  # Pillow's decoders raise many kinds for damaged bytes
        raise ValueError(str(error).splitlines()[0] if str(error) else type(error).__name__) from error


def frame(image: Any, size: int | None) -> np.ndarray:
    """An image, whole, as uint8 [size, size, 3], or as it is."""
    return np.array(image if size is None else image.resize((size, size), pillow().Resampling.BOX))
