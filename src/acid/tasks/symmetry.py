"""What can be done to a whole scene without its physics noticing, so that one recording shows several episodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Symmetry:
    """A change of the scene after which the changed action leads to the changed next state."""

    name: str
    state: Callable[[np.ndarray], np.ndarray]  # [S] to [S]
    action: np.ndarray  # [a, a]: the changed action is this matrix times the action


def quarter_turns(numbers: int) -> tuple[Symmetry, ...]:
    """By 90°, 180° and 270° about the middle of a floor that is the same everywhere.

    A state is a list of particles with so many numbers each, x and y first; an action is a list of points (x, y).
    """
    return tuple(_turned(90 * quarters, numbers) for quarters in (1, 2, 3))


def _turned(degrees: int, numbers: int) -> Symmetry:
    sine, cosine = {90: (1, 0), 180: (0, -1), 270: (-1, 0)}[degrees]
    turn = np.array([[cosine, -sine], [sine, cosine]], np.float64)

    def state(state: np.ndarray) -> np.ndarray:
        found = np.array(state, np.float64).reshape(-1, numbers)
        found[:, :2] = found[:, :2] @ turn.T
        return found.ravel()

    return Symmetry(f"turned by {degrees}°", state, np.kron(np.eye(2), turn))
