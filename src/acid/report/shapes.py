"""Pictures and tables of squares that the page shows."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO

import numpy as np

from acid.report.images import as_frames


@dataclass(frozen=True)
class Picture:
    """Images beside each other, each with a caption."""

    title: str
    text: str
    frames: Sequence[np.ndarray]  # uint8 [H, W, 3]
    captions: Sequence[str]

    @property
    def sources(self) -> list[str]:
        return [data_address(frame) for frame in self.frames]


@dataclass(frozen=True)
class Matrix:
    """Squares that are on or off, with names of rows and columns."""

    title: str
    text: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[bool]]
    row_axis: str
    column_axis: str
    steps: Sequence[str] = ()  # what happens, in order: shown beside the squares


def data_address(frame: np.ndarray) -> str:
    """An image uint8 [H, W, 3] as an address that holds it."""
    from PIL import Image

    as_frames("picture", frame[None])
    buffer = BytesIO()
    Image.fromarray(frame).save(buffer, "WEBP", quality=92, method=6)
    return f"data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode()}"
