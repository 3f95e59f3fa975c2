"""Draw flat shapes into small images with exact sub-pixel edges, so that motion by a tenth of a pixel is visible."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

Colour = tuple[float, float, float]
# Signed distance of points (x [W], y [H, 1]) to a shape, [H, W]; negative inside. In the unit of the points.
Distance = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Canvas:
    """Pixels of a square world, float32 [size, size, 3]; x runs right and y runs down, as in the world.

    How much of a pixel a shape covers follows from the distance of its edge to the pixel's centre, ± half a pixel. The
    result is that of averaging a much larger drawing, at a hundredth of the cost: only pixels near the shape are drawn.
    """

    def __init__(self, *, size: int, world: float, background: Colour = (255, 255, 255)) -> None:
        self.pixels = np.empty((size, size, 3), np.float32)
        self.pixels[:] = background
        self._pixel = world / size
        self._centres = ((np.arange(size) + 0.5) * self._pixel).astype(np.float32)

    def copy(self) -> Canvas:
        twin = object.__new__(Canvas)
        twin.pixels, twin._pixel, twin._centres = self.pixels.copy(), self._pixel, self._centres
        return twin

    def paint(
        self, distance: Distance, layers: list[tuple[float, Colour]], box: tuple[float, float, float, float]
    ) -> None:
        """Fill a shape within `box` (x0, y0, x1, y1), once per layer (margin, colour).

        A margin grows the shape before it is filled; a negative one shrinks it, which leaves a border.
        """
        columns, rows = self._span(box[0], box[2]), self._span(box[1], box[3])
        depth = 0.5 - distance(self._centres[columns], self._centres[rows, None]) / np.float32(self._pixel)
        area = self.pixels[rows, columns]
        for margin, colour in layers:
            cover = np.clip(depth + np.float32(margin / self._pixel), 0, 1)[..., None]
            area += cover * (np.asarray(colour, np.float32) - area)

    def _span(self, low: float, high: float) -> slice:
        """The pixels that a shape between two coordinates can touch, with one more at each end for soft edges."""
        first, last = math.floor(low / self._pixel) - 1, math.floor(high / self._pixel) + 2
        return slice(max(first, 0), max(last, 0))

    def image(self) -> np.ndarray:
        """uint8 [size, size, 3]."""
        return (self.pixels + np.float32(0.5)).astype(np.uint8)


def disc(x: float, y: float, radius: float) -> Distance:
    def distance(px: np.ndarray, py: np.ndarray) -> np.ndarray:
        return np.sqrt((px - np.float32(x)) ** 2 + (py - np.float32(y)) ** 2) - np.float32(radius)

    return distance


def rectangle(x: float, y: float, angle: float, low: tuple[float, float], high: tuple[float, float]) -> Distance:
    """Corners `low` and `high` in a frame at (x, y) turned by `angle`; beyond a corner the distance is the larger of
    the two sides', so that a grown rectangle keeps its corners."""
    cos, sin = np.float32(math.cos(angle)), np.float32(math.sin(angle))
    centre = np.float32((low[0] + high[0]) / 2), np.float32((low[1] + high[1]) / 2)
    half = np.float32((high[0] - low[0]) / 2), np.float32((high[1] - low[1]) / 2)

    def distance(px: np.ndarray, py: np.ndarray) -> np.ndarray:
        dx, dy = px - np.float32(x), py - np.float32(y)
        u, v = dx * cos + dy * sin - centre[0], dy * cos - dx * sin - centre[1]
        return np.maximum(np.abs(u) - half[0], np.abs(v) - half[1])

    return distance
