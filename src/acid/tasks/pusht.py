"""Push-T: gym-pusht's disc and T-shaped block, which must both match the goal scene."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from acid.tasks import drawing
from acid.tasks.base import Task, checked_size, on_circle

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # pygame prints a greeting when it is imported

import gymnasium
from gym_pusht.envs.pusht import PushTEnv
from pymunk._chipmunk_cffi import lib
from pymunk.vec2d import Vec2d

WORLD = 512.0  # px, side of the world
REACH = 100.0  # px of target displacement per unit of action
POSITION_TOLERANCE = 20.0  # px, of agent and block together
ANGLE_TOLERANCE = math.pi / 9  # rad, of the block
AGENT_RADIUS = 15.0
BAR = ((-60.0, 0.0), (60.0, 30.0))  # corners of the T's two rectangles, px in the block's frame
STEM = ((-15.0, 30.0), (15.0, 120.0))
CENTRE = np.array([0.0, 45.0])  # the block's centre of gravity in its frame
CORNERS = np.array([[-60, 0], [60, 0], [60, 30], [15, 30], [15, 120], [-15, 120], [-15, 30], [-60, 30]], float)

_STATE_SIZE = 10  # agent xy, block xy, block angle, agent velocity xy, block velocity xy, block angular velocity
_AGENT, _BLOCK, _ANGLE = slice(0, 2), slice(2, 4), 4
_PUBLISHED_STATE = 7  # the same without the block's velocities, which last no longer than a contact
_WALL = (211, 211, 211)
_BLOCK_LAYERS = [(2.0, (119.0, 136.0, 153.0)), (-2.0, (142.8, 163.2, 183.6))]  # border, inside
_AGENT_LAYERS = [(0.0, (65.0, 105.0, 225.0)), (-4.0, (78.0, 126.0, 255.0))]


class _World(PushTEnv):
    """gym-pusht's physics, loaded from a state vector and read back at every control step."""

    def __init__(self) -> None:
        super().__init__()
        self._setup()
        self._shape_ids = lib.cpSpaceGetShapeIDCounter(self.space._space) - 3  # before agent, bar and stem were added

    def _get_coverage(self) -> float:
        return 0.0  # the original task's reward: polygon intersections, the slowest part of a step

    def run(self, state: np.ndarray, target: Vec2d) -> np.ndarray:
        """The state after 0.1 s of pulling the agent towards `target` (px)."""
        agent, block = self._load(state)
        self.step(target)
        pose = [*agent.position, *block.position, block.angle]
        return np.array([*pose, *agent.velocity, *block.velocity, block.angular_velocity])

    def picture(self, state: np.ndarray, size: int) -> np.ndarray:
        """The state as gym-pusht draws it, with the marker of its goal, uint8 [size, size, 3]."""
        for body in self._load(state):
            for shape in body.shapes:
                shape.cache_bb()  # shapes are drawn where they were when this was last asked
        return self._get_img(self._draw(), size, size)

    def _load(self, state: np.ndarray) -> tuple[Any, Any]:
        """Agent and block, in this state."""
        self._renew_bodies()
        values = state.tolist()
        agent, block = self.agent, self.block
        agent.position, agent.velocity = Vec2d(*values[0:2]), Vec2d(*values[5:7])
        block.angle = values[4]  # before the position: turning is about the centre of gravity
        block.position, block.velocity, block.angular_velocity = Vec2d(*values[2:4]), Vec2d(*values[7:9]), values[9]
        return agent, block

    def _renew_bodies(self) -> None:
        """Remove what pymunk keeps from step to step (contacts, corrections, search trees): only the state may matter.

        The order in which contacts are solved depends on the ids of shapes, so their counter is reset too. A new space
        would also work, but pymunk does not free all of its memory (12 kB per step).
        """
        space = self.space
        space.remove(*self.agent.shapes, self.agent, *self.block.shapes, self.block)
        lib.cpSpaceSetShapeIDCounter(space._space, self._shape_ids)
        self.agent = self.add_circle(space, (256, 400), AGENT_RADIUS)
        self.block, self._block_shapes = self.add_tee(space, (256, 300), 0)


class PushT(Task):
    """Actions: displacement of the agent's target from its position in 100 px of the 512-px world, in [−1, 1]²; 0.1 s
    a step. A controller pulls the agent towards the target; targets stay inside the world.

    The goal is an image, so the original task's marker of its one goal pose is not drawn.

    The simulator is loaded from the state at every step. So a state can be stored and restored without rounding, and an
    episode that is restored at any step continues as it was recorded.
    """

    name: ClassVar[str] = "pusht"
    error_unit: ClassVar[str] = "tolerances"
    tolerance: ClassVar[float | None] = 1.0
    episode_steps: ClassVar[int] = 125

    def __init__(self, *, size: int = 64) -> None:
        self.size = checked_size(size)
        self.action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        self.observation_space = gymnasium.spaces.Box(0, 255, (size, size, 3), np.uint8)
        self.contacts = 0  # contact points during the last step
        self._world = _World()
        self._background = _draw_walls(drawing.Canvas(size=size, world=WORLD))
        self._state = np.array([256.0, 400, 256, 300, 0, 0, 0, 0, 0, 0])

    def get_state(self) -> np.ndarray:
        return self._state.copy()

    def set_state(self, state: np.ndarray) -> None:
        self._state = self.checked_state(state, _STATE_SIZE)

    def recorded_states(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """Also of published states [n, 7]: agent, block, angle, velocity of the agent; the block stands still."""
        states = columns["state"]
        if states.shape[1:] != (_PUBLISHED_STATE,):
            return states
        return np.pad(states, ((0, 0), (0, _STATE_SIZE - _PUBLISHED_STATE)))

    def advance(self, action: np.ndarray) -> None:
        target = np.clip(self._state[_AGENT] + REACH * self.checked_action(action), 0, WORLD)
        self._state = self._world.run(self._state, Vec2d(*target.tolist()))
        self.contacts = self._world.n_contact_points

    def render(self) -> np.ndarray:  # type: ignore[override]
        canvas = self._background.copy()
        ax, ay, bx, by, angle = self._state[:5].tolist()
        bar, stem = drawing.rectangle(bx, by, angle, *BAR), drawing.rectangle(bx, by, angle, *STEM)
        box = _box(self._state, margin=2)
        canvas.paint(bar, _BLOCK_LAYERS, box)
        canvas.paint(stem, _BLOCK_LAYERS, box)
        r = AGENT_RADIUS
        canvas.paint(drawing.disc(ax, ay, r), _AGENT_LAYERS, (ax - r, ay - r, ax + r, ay + r))
        return canvas.image()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._state = _draw_state(self.np_random)
        self.contacts = 0
        return self.render(), {"state": self.get_state()}

    def columns(self) -> dict[str, np.ndarray]:
        """proprio: agent position and velocity [4], px and px/s; block: position and angle [3], px and rad."""
        return {"proprio": self._state[[0, 1, 5, 6]], "block": self.pose(self._state)[2:]}

    def physical(self, columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        proprio, block = columns["proprio"], columns["block"]
        agent, velocity = np.split(proprio, 2, axis=1)
        return {"agent": agent, "speed": velocity, "block": block[:, :2], "angle": on_circle(block[:, 2:])}

    def pose(self, state: np.ndarray) -> np.ndarray:
        """Agent position, block position, block angle in [−π, π): [5]."""
        return np.append(state[:4], _wrap(state[_ANGLE]))

    def error(self, state: np.ndarray, goal_state: np.ndarray) -> float:
        """In tolerances: the larger of position error (agent and block as one 4-vector) / 20 px and angle / (π/9)."""
        position = float(np.linalg.norm(state[:4] - goal_state[:4]))
        angle = abs(_wrap(float(state[_ANGLE] - goal_state[_ANGLE])))
        return max(position / POSITION_TOLERANCE, angle / ANGLE_TOLERANCE)

    def success(self, state: np.ndarray, goal_state: np.ndarray) -> bool:
        return self.error(state, goal_state) < 1

    def behaviour(self, rng: np.random.Generator) -> PushTBehaviour:
        return PushTBehaviour(rng)


class PublishedPushT(PushT):
    """With the frames of published datasets: drawn by gym-pusht itself, with the green marker of its own goal."""

    name: ClassVar[str] = "pusht-published"

    def render(self) -> np.ndarray:  # type: ignore[override]
        return self._world.picture(self._state, self.size)


def _wrap(angle: float) -> float:
    return (angle + math.pi) % (2 * math.pi) - math.pi


def _draw_walls(canvas: drawing.Canvas) -> drawing.Canvas:
    for low, high in [((5, 5), (5, 506)), ((5, 5), (506, 5)), ((506, 5), (506, 506)), ((5, 506), (506, 506))]:
        canvas.paint(drawing.rectangle(0, 0, 0, low, high), [(2, _WALL)], (0, 0, WORLD, WORLD))
    return canvas


def _rotation(angle: float) -> np.ndarray:
    """The matrix that turns row vectors of the block's frame into the world's: local @ rotation."""
    cos, sin = math.cos(angle), math.sin(angle)
    return np.array([[cos, sin], [-sin, cos]])


def to_world(state: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Points of the block's frame in the world, [..., 2]."""
    return points @ _rotation(state[_ANGLE]) + state[_BLOCK]


def to_block(state: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Points of the world in the block's frame, [..., 2]."""
    return (points - state[_BLOCK]) @ _rotation(state[_ANGLE]).T


def _box(state: np.ndarray, margin: float) -> tuple[float, float, float, float]:
    """The block's bounding box with a margin: lowest x, lowest y, highest x, highest y."""
    corners = to_world(state, CORNERS)
    (x0, y0), (x1, y1) = (corners.min(0) - margin).tolist(), (corners.max(0) + margin).tolist()
    return x0, y0, x1, y1


def clearance(state: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Distance of world points [..., 2] to the block in px, 0 inside it, [...]."""
    local = to_block(state, points)
    return np.minimum(*(np.linalg.norm(local - np.clip(local, low, high), axis=-1) for low, high in (BAR, STEM)))


def _draw_state(rng: np.random.Generator) -> np.ndarray:
    """Everything at rest, the block inside the walls, the agent inside the walls and off the block."""
    state = np.zeros(_STATE_SIZE)
    state[_ANGLE] = rng.uniform(-np.pi, np.pi)
    centre = rng.uniform(100, WORLD - 100, 2)  # the block reaches 77 px from its centre
    state[_BLOCK] = centre - CENTRE @ _rotation(state[_ANGLE])
    state[_AGENT] = rng.uniform(30, WORLD - 30, 2)
    while clearance(state, state[_AGENT]) < AGENT_RADIUS + 5:
        state[_AGENT] = rng.uniform(30, WORLD - 30, 2)
    return state


@dataclass
class _Push:
    """One push: where to touch the block, and how to push."""

    contact: np.ndarray  # [2] in the block's frame, on its outline
    normal: np.ndarray  # [2] in the block's frame, outwards
    turn: float  # rad between the inward normal and the direction of the push
    steps: int  # left to push
    speed: float  # action length
    patience: int = 40  # steps left to reach the contact
    started: bool = False
    spin: float = 0.0  # which way around the block, ±1; 0 is not yet chosen

    def beside(self, state: np.ndarray, gap: float) -> np.ndarray:
        """Where the agent is `gap` px away from touching the contact, [2] in the world."""
        return to_world(state, self.contact + self.normal * (AGENT_RADIUS + gap))

    def direction(self, state: np.ndarray) -> np.ndarray:
        """Unit vector of the push in the world, [2]; it turns with the block."""
        return -self.normal @ _rotation(state[_ANGLE] + self.turn)


# Stretches of the outline where the agent fits against the block: both ends and the outward normal.
_SIDES = [
    ((-55, 0), (55, 0), (0, -1)),
    ((60, 5), (60, 25), (1, 0)),
    ((-60, 5), (-60, 25), (-1, 0)),
    ((32, 30), (55, 30), (0, 1)),
    ((-55, 30), (-32, 30), (0, 1)),
    ((15, 47), (15, 115), (1, 0)),
    ((-15, 47), (-15, 115), (-1, 0)),
    ((-10, 120), (10, 120), (0, 1)),
]
_SHARES = np.array([math.dist(start, end) for start, end, _ in _SIDES])
_SHARES /= _SHARES.sum()


class PushTBehaviour:
    """Pushes the block at random places in random directions.

    Each push picks a point of the outline, goes there without crossing the block, and pushes inwards at up to 40° from
    the normal until its time is over or it slips off. It prefers pushes that start nearby and that keep the block away
    from the walls.
    """

    TRAVEL = 0.3  # action length on the way to a push
    PUSH = (0.06, 0.2)  # action length while pushing, lowest and highest
    TURN = 0.7  # rad, largest angle between a push and the inward normal
    CANDIDATES = 12  # pushes to choose from
    STAY = 0.3  # share of them at the place of the last push
    ORBIT = 100.0  # px from the block's centre, where the way around it is free
    SAFE = AGENT_RADIUS + 4.0  # px to keep between the agent's centre and the block on the way
    SLIPPED = AGENT_RADIUS + 10.0  # px between the agent's centre and the block when a push has missed
    MIDDLE = (130.0, WORLD - 130.0)  # px, where the block's centre should stay
    TREMBLE = (0.03, 0.2)  # action noise of an episode, lowest and highest; planners try noisy actions too
    INERTIA = 0.3  # share of the last action in the next

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._tremble = rng.uniform(*self.TREMBLE)
        self._push: _Push | None = None
        self._last = np.zeros(2)

    def act(self, task: PushT) -> np.ndarray:
        state = task.get_state()
        if self._push is None or self._is_over(state, self._push):
            self._push = self._draw_push(state)
        self._last = self.INERTIA * self._last + (1 - self.INERTIA) * self._follow(state, self._push)
        noisy = self._last + self._tremble * self._rng.standard_normal(2)
        return np.clip(noisy, -1, 1).astype(np.float32)

    def _is_over(self, state: np.ndarray, push: _Push) -> bool:
        if not push.started:
            return push.patience <= 0
        slipped = clearance(state, state[_AGENT]) > self.SLIPPED
        return push.steps <= 0 or bool(slipped) or self._drives_out(state, push, distance=15)

    def _follow(self, state: np.ndarray, push: _Push) -> np.ndarray:
        """The next action of a push, [2]."""
        if not push.started:
            push.patience -= 1
            push.started = bool(np.linalg.norm(push.beside(state, 3) - state[_AGENT]) < 8)
        if not push.started:
            return self._towards(state, self._way(state, push))
        push.steps -= 1
        return push.speed * push.direction(state)

    def _draw_push(self, state: np.ndarray) -> _Push:
        """The best of a few random pushes."""
        candidates = [self._draw_candidate() for _ in range(self.CANDIDATES)]
        return max(candidates, key=lambda push: self._merit(state, push))

    def _draw_candidate(self) -> _Push:
        rng = self._rng
        steps, speed, turn = int(rng.integers(8, 26)), rng.uniform(*self.PUSH), rng.uniform(-self.TURN, self.TURN)
        if self._push is not None and rng.random() < self.STAY:
            return _Push(self._push.contact, self._push.normal, turn, steps, speed)
        start, end, normal = np.array(_SIDES[rng.choice(len(_SIDES), p=_SHARES)], float)
        return _Push(start + rng.random() * (end - start), normal, turn, steps, speed)

    def _merit(self, state: np.ndarray, push: _Push) -> float:
        """Prefers near pushes, with some chance; avoids driving the block to a wall, and places without room."""
        beside = push.beside(state, 3)
        merit = -float(np.linalg.norm(beside - state[_AGENT])) * self._rng.uniform(0.3, 1)
        merit -= 500 * self._drives_out(state, push, distance=40)
        return merit - 2000 * bool(np.any((beside < 25) | (beside > WORLD - 25)))

    def _drives_out(self, state: np.ndarray, push: _Push, distance: float) -> bool:
        """Whether pushing by `distance` px moves the block's centre out of the middle, or further out."""
        low, high = self.MIDDLE
        centre = to_world(state, CENTRE)
        after = centre + distance * push.direction(state)
        far, farther = (float((np.maximum(low - at, 0) + np.maximum(at - high, 0)).sum()) for at in (centre, after))
        return farther > far

    def _way(self, state: np.ndarray, push: _Push) -> np.ndarray:
        """The next point [2] on a path to the push that does not cross the block."""
        for gap in (3, 15):
            if self._is_free(state, push.beside(state, gap)):
                return push.beside(state, gap)
        centre = to_world(state, CENTRE)
        here, there = state[_AGENT] - centre, push.beside(state, 15) - centre
        angle = math.atan2(here[1], here[0])
        if np.hypot(*here) < self.ORBIT - 10:  # leave the block first
            return self._on_orbit(centre, angle)
        push.spin = push.spin or math.copysign(1, _wrap(math.atan2(there[1], there[0]) - angle))
        ahead = self._on_orbit(centre, angle + 0.5 * push.spin)
        if np.any((ahead < 5) | (ahead > WORLD - 5)):  # no room between block and wall: go around the other side
            push.spin = -push.spin
            ahead = self._on_orbit(centre, angle + 0.5 * push.spin)
        return ahead

    def _on_orbit(self, centre: np.ndarray, angle: float) -> np.ndarray:
        return centre + self.ORBIT * np.array([math.cos(angle), math.sin(angle)])

    def _is_free(self, state: np.ndarray, point: np.ndarray) -> bool:
        """Whether the straight path from the agent to a point avoids the block."""
        way = state[_AGENT] + np.linspace(0, 1, 9)[1:, None] * (point - state[_AGENT])
        gaps = clearance(state, way)
        return bool((gaps >= min(self.SAFE, gaps[-1]) - 2).all())

    def _towards(self, state: np.ndarray, point: np.ndarray) -> np.ndarray:
        """The action towards a point, slower when near, [2]."""
        offset = (point - state[_AGENT]) / REACH * 1.5
        return offset * min(1.0, self.TRAVEL / (float(np.hypot(*offset)) or 1.0))
