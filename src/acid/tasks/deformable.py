"""Rope and Granular: bring a rope, or a pile of grains, to a goal shape by pushing. One action is one whole push.

Lengths are in task units, 1 = 10 cm. The ground continues beyond the table, so nothing falls off. The pusher is never
visible: a frame shows the scene at rest, between pushes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium
import numpy as np

from acid.errors import ShapeError
from acid.tasks.base import Setup, Task, checked_size
from acid.tasks.mujoco_task import Quality
from acid.tasks.particle_scene import ParticleScene
from acid.tasks.particles import Physics, push
from acid.tasks.symmetry import Symmetry, quarter_turns

REACH = 4.0  # pushes start and end within ± this, in x and in y
TOLERANCE = 0.2  # Chamfer distance that counts as success: 1 cm off in either direction, the radius of a grain
UNCHANGED = 0.01  # a push that moves every particle by less than this changed nothing
SHIFT = 1.0  # ropes and goals are shifted by up to this, in x and in y


def _one_push_at_a_time(samples: int) -> Setup:
    """The sizes of the search are the paper's. It does not say how far a plan looks or how many pushes there are.

    One push at a time was chosen because five in a row without looking ended worse on development problems.
    """
    return Setup(None, budget=6, horizon=1, samples=samples, iterations=10, elites=30, own_lambda=True)


def chamfer(x: np.ndarray, y: np.ndarray) -> float:
    """Mean distance of points x [n, 3] to the nearest of y [m, 3], plus the same from y to x; not squared."""
    distances = np.linalg.norm(x[:, None] - y[None], axis=-1)
    return float(distances.min(1).mean() + distances.min(0).mean())


class Deformable(Task):
    """Particles at rest between pushes. An action (x0, y0, x1, y1) is a push from a start to an end on the table.

    The pusher is lowered at the start, moved in a straight line to the end and raised; then the scene settles.
    Then all velocities are zero, so a state consists of positions (and of the radii of grains).
    """

    metric: ClassVar[str] = "chamfer"
    higher_is_better: ClassVar[bool] = False
    error_unit: ClassVar[str] = "10 cm"
    tolerance: ClassVar[float | None] = TOLERANCE
    frameskip: ClassVar[int] = 1
    episode_steps: ClassVar[int] = 20
    physics: ClassVar[Physics]
    colour: ClassVar[str]
    border: ClassVar[float] = REACH  # the data's pushes end within ± this, so that the object stays on the table

    def __init__(self, *, size: int = 224, quality: Quality = "fast") -> None:
        """quality "fast" draws without shadows, "full" with them."""
        self.size = checked_size(size)
        self.action_space = gymnasium.spaces.Box(-REACH, REACH, (4,), np.float32)
        self.observation_space = gymnasium.spaces.Box(0, 255, (size, size, 3), np.uint8)
        self._radii = self._draw_radii(np.random.default_rng(0))
        self._positions = self.initial_positions()
        self._foreseen: tuple[bytes, np.ndarray] | None = None
        self._scene = ParticleScene(
            len(self._radii), size, chain=self.physics.bond > 0, colour=self.colour, shadows=quality == "full"
        )

    @property
    def radii(self) -> np.ndarray:
        """Of the particles, [P]."""
        return self._radii.copy()

    def initial_positions(self) -> np.ndarray:
        """The undisturbed object in the middle of the table, [P, 3], for the radii of this episode."""
        raise NotImplementedError

    def _draw_radii(self, rng: np.random.Generator) -> np.ndarray:
        raise NotImplementedError

    def _place(self, rng: np.random.Generator) -> np.ndarray:
        """Positions [P, 3] at the start of an episode."""
        raise NotImplementedError

    def draw_goal_positions(self, rng: np.random.Generator) -> np.ndarray:
        """The object in a random goal shape, [P, 3]."""
        raise NotImplementedError

    def pose(self, state: np.ndarray) -> np.ndarray:
        """The positions [P, 3] in a state."""
        raise NotImplementedError

    def foresee(self, action: np.ndarray) -> np.ndarray:
        """Positions [P, 3] after a push, without carrying it out; the result is kept in case it is carried out next."""
        action = self.checked_action(action)
        key = self.get_state().tobytes() + action.tobytes()
        if self._foreseen is None or self._foreseen[0] != key:
            self._foreseen = key, push(self._positions, self._radii, action, self.physics)
        return self._foreseen[1].copy()

    def advance(self, action: np.ndarray) -> None:
        self._positions = self.foresee(action)

    def render(self) -> np.ndarray:  # type: ignore[override]
        return self._scene.draw(self._positions, self._radii)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._radii = self._draw_radii(self.np_random)
        self._positions = self._place(self.np_random)
        return self.render(), {"state": self.get_state()}

    def checked_state(self, state: np.ndarray, size: int) -> np.ndarray:
        state = super().checked_state(state, size)
        if not np.isfinite(state).all():
            raise ShapeError(f"a {self.name} state must be finite, got {int((~np.isfinite(state)).sum())} that are not")
        return state

    def physical(self, columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Middle [n, 2]; spread [n, 3]: variance in x and in y, and covariance, of the particles."""
        places = np.stack([self.pose(state)[:, :2] for state in columns["state"]])
        middle = places.mean(1)
        x, y = np.moveaxis(places - middle[:, None], 2, 0)
        return {"middle": middle, "spread": np.stack([(x * x).mean(1), (y * y).mean(1), (x * y).mean(1)], axis=1)}

    @property
    def idle_action(self) -> np.ndarray:
        """Lower and raise the pusher at a corner, off the table."""
        return np.full(4, REACH, np.float32)

    def draw_goal(self, rng: np.random.Generator) -> np.ndarray:
        """The particles of this episode in a random goal shape. The task stays as it is.

        Rope: straight, turned by up to 90° and shifted. Granular: the initial square, scaled by 0.6 to 0.9 and shifted.
        """
        positions = self.draw_goal_positions(rng)
        goal = self.get_state().reshape(len(positions), -1)
        goal[:, :3] = positions
        return goal.ravel()

    def error(self, state: np.ndarray, goal_state: np.ndarray) -> float:
        """Chamfer distance of the particles."""
        return self.pose_error(self.pose(state), goal_state)

    def pose_error(self, pose: np.ndarray, goal_state: np.ndarray) -> float:
        return chamfer(pose, self.pose(goal_state))

    def moved(self, before: np.ndarray, after: np.ndarray) -> bool:
        return _largest_move(self.pose(before), self.pose(after)) >= UNCHANGED

    def success(self, state: np.ndarray, goal_state: np.ndarray) -> bool:
        return self.error(state, goal_state) < TOLERANCE

    def behaviour(self, rng: np.random.Generator) -> PushBehaviour:
        return PushBehaviour(rng, border=self.border)

    def close(self) -> None:
        self._scene.close()


class Rope(Deformable):
    """A rope of length 3.75 and diameter 0.148, stiff against bending, pushed by a cylinder of radius 0.1.

    51 particles, linked; the links are rigid to within 0.5 %. An episode starts with a straight rope at a random place
    and angle. State [153]: positions [51, 3].
    """

    name: ClassVar[str] = "rope"
    setup: ClassVar[Setup] = _one_push_at_a_time(samples=200)
    colour: ClassVar[str] = "0.95 0.62 0.22"
    physics: ClassVar[Physics] = Physics(
        iterations=8,
        static_friction=0.5,
        sliding_friction=0.4,
        pusher_friction=0.2,
        pusher_along=0.0,
        pusher_across=0.0,
        pusher_rounding=0.1,
        bond=0.075,
        bending=0.02,
        apart=4,
    )
    particles: ClassVar[int] = 51
    radius: ClassVar[float] = 0.074
    border: ClassVar[float] = 2.5
    symmetries: ClassVar[tuple[Symmetry, ...]] = quarter_turns(numbers=3)
    room: ClassVar[float] = 0.5  # for the pusher behind a rope that lies at the border of its reach

    def _draw_radii(self, rng: np.random.Generator) -> np.ndarray:
        return np.full(self.particles, self.radius)

    def initial_positions(self) -> np.ndarray:
        along = (np.arange(self.particles) - (self.particles - 1) / 2) * self.physics.bond
        return np.stack([along, np.zeros_like(along), self._radii], axis=1)

    def _place(self, rng: np.random.Generator) -> np.ndarray:
        return self._moved(rng, np.pi)  # half a turn: larger turns look the same

    def draw_goal_positions(self, rng: np.random.Generator) -> np.ndarray:
        return self._moved(rng, np.pi / 2)

    def _moved(self, rng: np.random.Generator, max_turn: float) -> np.ndarray:
        angle, shift = rng.uniform(0, max_turn), rng.uniform(-SHIFT, SHIFT, 2)
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        positions = self.initial_positions()
        positions[:, :2] = positions[:, :2] @ turn.T + shift
        return positions

    def is_fair_start(self, state: np.ndarray) -> bool:
        """Whether the pusher fits between the rope and the end of its reach; otherwise nothing brings the rope back."""
        return bool(np.abs(self.pose(state)[:, :2]).max() <= REACH - self.room)

    def get_state(self) -> np.ndarray:
        return self._positions.ravel().copy()

    def set_state(self, state: np.ndarray) -> None:
        self._positions = self.pose(self.checked_state(state, 3 * self.particles))

    def pose(self, state: np.ndarray) -> np.ndarray:
        return np.asarray(state).reshape(-1, 3)

    def physical(self, columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Also quarters [n, 6]: the points at a quarter, half and three quarters of the rope.

        Which end is which cannot be seen, so the points are counted from the end with the smaller x − y.
        """
        places = np.stack([self.pose(state)[:, :2] for state in columns["state"]])
        side = places[..., 0] - places[..., 1]
        places = np.where((side[:, 0] > side[:, -1])[:, None, None], places[:, ::-1], places)
        chosen = np.linspace(0, self.particles - 1, 5).round().astype(int)
        return {
            **super().physical(columns),
            "ends": places[:, chosen[[0, -1]]].reshape(-1, 4),
            "quarters": places[:, chosen[1:-1]].reshape(-1, 6),
        }


class Granular(Deformable):
    """A pile of 10 × 10 round grains, pushed by a board 0.8 wide and 0.2 thick that faces its motion.

    An episode starts with the same square of pitch 0.23; the grains' radii, 0.085 to 0.115, are drawn anew.
    State [400]: x, y, z, radius of each grain. A goal is a square that is denser than grains can be, so a Chamfer
    distance of zero cannot be reached.
    """

    name: ClassVar[str] = "granular"
    setup: ClassVar[Setup] = _one_push_at_a_time(samples=100)
    colour: ClassVar[str] = "0.86 0.76 0.55"
    physics: ClassVar[Physics] = Physics(
        iterations=4,
        static_friction=0.8,
        sliding_friction=0.7,
        pusher_friction=0.3,
        pusher_along=0.1,
        pusher_across=0.4,
        pusher_rounding=0.0,
    )
    side: ClassVar[int] = 10  # grains along a side of the square
    pitch: ClassVar[float] = 0.23
    radius_range: ClassVar[tuple[float, float]] = (0.085, 0.115)
    border: ClassVar[float] = 2.0  # a board pushes many grains ahead of it
    symmetries: ClassVar[tuple[Symmetry, ...]] = quarter_turns(numbers=4)
    goal_scale: ClassVar[tuple[float, float]] = (0.6, 0.9)

    def _draw_radii(self, rng: np.random.Generator) -> np.ndarray:
        return rng.uniform(*self.radius_range, self.side**2)

    def initial_positions(self) -> np.ndarray:
        line = (np.arange(self.side) - (self.side - 1) / 2) * self.pitch
        x, y = np.meshgrid(line, line)
        return np.stack([x.ravel(), y.ravel(), self._radii], axis=1)

    def _place(self, rng: np.random.Generator) -> np.ndarray:
        return self.initial_positions()

    def draw_goal_positions(self, rng: np.random.Generator) -> np.ndarray:
        scale, shift = rng.uniform(*self.goal_scale), rng.uniform(-SHIFT, SHIFT, 2)
        positions = self.initial_positions()
        positions[:, :2] = scale * positions[:, :2] + shift
        return positions

    def get_state(self) -> np.ndarray:
        return np.concatenate([self._positions, self._radii[:, None]], axis=1).ravel()

    def set_state(self, state: np.ndarray) -> None:
        grains = self.checked_state(state, 4 * self.side**2).reshape(-1, 4)
        if (grains[:, 3] <= 0).any():
            raise ShapeError(f"a {self.name} state needs positive radii, got {grains[:, 3].min():g}")
        self._positions, self._radii = grains[:, :3].copy(), grains[:, 3].copy()

    def pose(self, state: np.ndarray) -> np.ndarray:
        return np.asarray(state).reshape(-1, 4)[:, :3]


class PushBehaviour:
    """Random pushes that hit: from anywhere beside the object, through one of its particles and beyond.

    A push that would move nothing is drawn again.
    """

    GAP = 0.2  # minimum distance of a start from every particle
    AIM = 2.0  # the particles aimed at are at most this far from their median
    BEYOND = (0.1, 1.0)  # how far a push continues behind the particle
    TRIES = 10

    def __init__(self, rng: np.random.Generator, *, border: float = REACH) -> None:
        """Pushes end within ± border, in x and in y."""
        self._rng = rng
        self._border = border

    def act(self, task: Task) -> np.ndarray:
        assert isinstance(task, Deformable)
        places = task.pose(task.get_state())
        action = np.zeros(4, np.float32)
        for _ in range(self.TRIES):
            action = self._draw(places[:, :2])
            if _largest_move(places, task.foresee(action)) >= UNCHANGED:
                break
        return action

    def _draw(self, places: np.ndarray) -> np.ndarray:
        """A push [4] for particles at places [P, 2]."""
        start = self._rng.uniform(-REACH, REACH, 2)
        while np.linalg.norm(places - start, axis=1).min() <= self.GAP:
            start = self._rng.uniform(-REACH, REACH, 2)
        central = np.linalg.norm(places - np.median(places, axis=0), axis=1) <= self.AIM
        target = self._rng.choice(places[central] if central.any() else places)
        distance = float(np.linalg.norm(target - start))
        direction = (target - start) / distance
        length = min(distance + self._rng.uniform(*self.BEYOND), _way_to_border(start, direction, self._border))
        return np.concatenate([start, start + length * direction]).clip(-REACH, REACH).astype(np.float32)


def _largest_move(before: np.ndarray, after: np.ndarray) -> float:
    """The largest distance that one of the particles [P, 3] moved."""
    return float(np.linalg.norm(after - before, axis=1).max())


def _way_to_border(start: np.ndarray, direction: np.ndarray, border: float) -> float:
    """Distance from a start [2] along a unit direction [2] to the square of ± border."""
    with np.errstate(divide="ignore"):
        ways = (np.copysign(border, direction) - start) / direction
    return max(float(ways.min()), 0.0)
