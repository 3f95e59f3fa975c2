"""The data policy of navigation: it drives smoothly, at varied speeds, around obstacles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from acid.data.poses import to_world
from acid.tasks.navigation_world import HALF, ROBOT_RADIUS

if TYPE_CHECKING:
    from acid.tasks.base import Task


class NavigationBehaviour:
    """Wanders: desired speed and yaw rate drift smoothly, and the free turn closest to the desired one is taken.

    Speed varies by a factor of five, so that data distinguish a step forward from standing still. Turns are gentle:
    what the robot will see two seconds later is in its field of view now.
    """

    SPEEDS = (0.3, 1.6)  # m/s
    MAX_RATE = 0.5  # rad/s
    RATE_SPREAD = 0.3  # rad/s, standard deviation of the desired yaw rate
    MEMORY = 0.9  # correlation of the desired values from one step to the next
    SPEED_STEP = 0.15  # m/s, largest change of the speed in a step
    RATE_STEP = 0.15  # rad/s
    MARGIN = 0.45  # m, preferred distance to obstacles
    SHY = 3.0  # m, preferred distance to the walls, where there is little to see
    LOOK_AHEAD = np.linspace(0.2, 3.2, 11)  # m along an arc
    RATES = np.linspace(-1, 1, 15)  # shares of MAX_RATE that are considered

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._wish = rng.standard_normal(2)  # of unit variance: speed, yaw rate
        self._speed = rng.uniform(*self.SPEEDS)
        self._rate = 0.0

    def act(self, task: Task) -> np.ndarray:
        from acid.tasks.navigation import Navigation

        assert isinstance(task, Navigation)
        noise = self._rng.standard_normal(2)
        self._wish = self.MEMORY * self._wish + np.sqrt(1 - self.MEMORY**2) * noise
        low, high = self.SPEEDS
        speed = low + (high - low) / (1 + np.exp(-1.7 * self._wish[0]))  # about uniform between the two
        room = self._room(task)
        rates = self.RATES * self.MAX_RATE
        cost = (rates - self.RATE_SPREAD * self._wish[1]) ** 2 + 0.5 * (rates - self._rate) ** 2
        best = int(np.argmin(cost + 4.0 * np.maximum(self.MARGIN - room, 0)))
        speed = min(speed, max(low / 2, low + 2.0 * room[best]))
        self._rate += np.clip(rates[best] - self._rate, -self.RATE_STEP, self.RATE_STEP)
        slower = 2 * self.SPEED_STEP  # it brakes faster than it speeds up
        self._speed += np.clip(speed - self._speed, -slower, self.SPEED_STEP)
        return np.array([self._speed, self._rate], np.float32)

    def _room(self, task: Task) -> np.ndarray:
        """The free room in metres of each considered turn, [n]; what is far away counts less."""
        from acid.tasks.navigation import Navigation, arc

        assert isinstance(task, Navigation)
        speed = max(self._speed, 0.6)
        rates = self.RATES[:, None] * self.MAX_RATE
        path = to_world(arc(speed, rates, self.LOOK_AHEAD / speed), task.get_state()[1:])
        inside = HALF - np.abs(path[..., :2]).max(-1) - self.SHY
        clearance = np.minimum(task.world.clearance(path[..., :2]) - ROBOT_RADIUS, inside)
        seen = clearance + 0.12 * np.maximum(self.LOOK_AHEAD - 1.0, 0)  # there is still time to avoid what is far away
        return seen.min(1)
