"""The worlds of the navigation task: obstacles, light and collisions, all determined by a seed."""

from __future__ import annotations

import colorsys
import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

HALF = 15.0  # m from the middle to the walls around a world
WALL = 0.2  # m, half their thickness
GAP = 1.3  # m, minimum gap between two obstacles
ROBOT_RADIUS = 0.3  # m, of a circle around the robot

Colour = tuple[float, float, float]  # red, green, blue from 0 to 1


@dataclass(frozen=True)
class Thing:
    """One obstacle. Its footprint is a box of half extents `box`, turned by `yaw` and rounded by `radius`."""

    kind: str
    place: tuple[float, float]
    yaw: float
    box: tuple[float, float]
    radius: float
    height: float
    colour: Colour
    accent: Colour
    variety: float  # from 0 to 1, for other variations within a kind


@dataclass(frozen=True)
class Weather:
    """Light and sky."""

    sun_azimuth: float
    sun_elevation: float  # rad
    sun: Colour
    ambient: float
    zenith: Colour
    horizon: Colour


@dataclass(frozen=True)
class World:
    """Everything in a square with sides of 2 · HALF metres, and its light."""

    seed: int
    things: tuple[Thing, ...]
    weather: Weather
    grass: Colour
    soil: Colour
    walls: tuple[Colour, Colour, Colour, Colour]

    @functools.cached_property
    def _footprints(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        places = np.array([thing.place for thing in self.things])
        yaws = np.array([thing.yaw for thing in self.things])
        turns = np.stack([np.cos(yaws), np.sin(yaws)], axis=1)
        boxes = np.array([thing.box for thing in self.things])
        return places, turns, boxes, np.array([thing.radius for thing in self.things])

    def clearance(self, points: np.ndarray) -> np.ndarray:
        """Distance in metres from points [..., 2] to the nearest obstacle or wall, [...]; negative beyond a wall."""
        points = np.asarray(points, np.float64)
        places, turns, boxes, radii = self._footprints
        offset = points[..., None, :] - places
        along = np.abs(offset[..., 0] * turns[:, 0] + offset[..., 1] * turns[:, 1])
        across = np.abs(offset[..., 1] * turns[:, 0] - offset[..., 0] * turns[:, 1])
        beyond = np.hypot(np.maximum(along - boxes[:, 0], 0), np.maximum(across - boxes[:, 1], 0)) - radii
        return np.minimum(beyond.min(-1), HALF - WALL - np.abs(points).max(-1))


@functools.lru_cache(maxsize=64)
def plan_world(seed: int) -> World:
    """World number `seed`."""
    rng = np.random.default_rng([0x0A71, seed])
    weather = _weather(rng)
    things: list[Thing] = []
    for kind, count in _census(rng):
        for _ in range(count):
            found = _find_room(rng, kind, things)
            if found is not None:
                things.append(found)
    hue = rng.uniform(0.16, 0.33)
    return World(
        seed=seed,
        things=tuple(things),
        weather=weather,
        grass=_rgb(hue, rng.uniform(0.35, 0.6), rng.uniform(0.4, 0.6)),
        soil=_rgb(rng.uniform(0.05, 0.11), rng.uniform(0.2, 0.45), rng.uniform(0.5, 0.75)),
        walls=tuple(_wall_colours(rng)),  # type: ignore[arg-type]
    )


def _census(rng: np.random.Generator) -> Iterator[tuple[str, int]]:
    """How many there are of each kind; large ones first, while there is room."""
    yield "house", int(rng.integers(3, 6))
    yield "silo", int(rng.integers(1, 3))
    yield "fence", int(rng.integers(4, 7))
    yield "conifer", int(rng.integers(6, 11))
    yield "tree", int(rng.integers(7, 13))
    yield "rock", int(rng.integers(5, 9))
    yield "bush", int(rng.integers(4, 8))
    yield "barrel", int(rng.integers(3, 6))
    yield "sign", int(rng.integers(4, 7))
    yield "bale", int(rng.integers(2, 5))


def _find_room(rng: np.random.Generator, kind: str, things: list[Thing]) -> Thing | None:
    """A thing that keeps GAP to all others and to the walls, or None if there is no room."""
    for _ in range(30):
        thing = _draw(rng, kind)
        reach = np.hypot(*thing.box) + thing.radius
        apart = min(
            (_distance(thing, other) - reach - np.hypot(*other.box) - other.radius for other in things), default=GAP
        )
        if apart >= GAP and HALF - np.abs(thing.place).max() - reach >= GAP:
            return thing
    return None


def _distance(a: Thing, b: Thing) -> float:
    return float(np.hypot(a.place[0] - b.place[0], a.place[1] - b.place[1]))


def _draw(rng: np.random.Generator, kind: str) -> Thing:
    x, y = rng.uniform(-HALF, HALF, 2)
    yaw, variety = rng.uniform(-np.pi, np.pi), rng.random()
    box, radius, height, colour = (0.0, 0.0), 0.0, 1.0, (1.0, 1.0, 1.0)
    vivid = _rgb(rng.random(), rng.uniform(0.6, 0.95), rng.uniform(0.6, 0.95))
    if kind == "house":
        box, height = (rng.uniform(1.2, 2.6), rng.uniform(1.2, 2.0)), rng.uniform(1.9, 3.0)
        colour = _rgb(rng.random(), rng.uniform(0.1, 0.75), rng.uniform(0.6, 0.95))
    elif kind == "silo":
        radius, height, colour = rng.uniform(0.8, 1.3), rng.uniform(3.5, 6.0), _rgb(rng.random(), 0.25, 0.85)
    elif kind == "fence":
        box, height = (rng.uniform(1.2, 2.6), 0.06), rng.uniform(0.8, 1.2)
        colour = vivid if variety < 0.5 else _rgb(0.08, rng.uniform(0.1, 0.5), rng.uniform(0.5, 0.95))
    elif kind == "conifer":
        radius, height = rng.uniform(0.5, 0.9), rng.uniform(2.2, 4.5)
        colour = _rgb(rng.uniform(0.32, 0.45), rng.uniform(0.4, 0.7), rng.uniform(0.25, 0.45))
    elif kind == "tree":
        radius, height = rng.uniform(0.15, 0.3), rng.uniform(2.4, 4.2)
        autumn = rng.random() < 0.45
        hue = rng.uniform(-0.02, 0.14) if autumn else rng.uniform(0.18, 0.34)
        colour = _rgb(hue % 1, rng.uniform(0.55, 0.9), rng.uniform(0.45, 0.85))
    elif kind == "rock":
        radius, height = rng.uniform(0.35, 0.8), rng.uniform(0.4, 1.1)
        colour = _rgb(rng.uniform(0.02, 0.14), rng.uniform(0.0, 0.3), rng.uniform(0.35, 0.8))
    elif kind == "bush":
        radius, height = rng.uniform(0.4, 0.7), rng.uniform(0.6, 1.1)
        colour = _rgb(rng.uniform(0.75, 0.98) if variety < 0.4 else rng.uniform(0.2, 0.36), 0.6, rng.uniform(0.4, 0.8))
    elif kind == "barrel":
        radius, height, colour = 0.3, rng.uniform(0.8, 1.0), vivid
    elif kind == "sign":
        radius, height, colour = 0.12, rng.uniform(1.3, 2.0), vivid
    elif kind == "bale":
        radius, height, colour = rng.uniform(0.5, 0.7), 1.0, _rgb(0.12, rng.uniform(0.5, 0.7), rng.uniform(0.75, 0.95))
    accent = _rgb(rng.random(), rng.uniform(0.4, 0.9), rng.uniform(0.25, 0.7))
    return Thing(kind, (float(x), float(y)), float(yaw), box, float(radius), float(height), colour, accent, variety)


def _weather(rng: np.random.Generator) -> Weather:
    grey, warmth = rng.uniform(0, 0.8), rng.uniform(0, 1)
    brightness = rng.uniform(0.75, 1.0)
    zenith = _mixed(_rgb(rng.uniform(0.55, 0.62), 0.65, 0.85 * brightness), (0.62, 0.65, 0.7), grey)
    horizon = _mixed(
        (0.98, 0.84 - 0.1 * warmth, 0.66) if warmth > 0.6 else (0.82, 0.89, 0.95), (0.85, 0.85, 0.85), grey
    )
    strength = 0.75 - 0.35 * grey
    return Weather(
        sun_azimuth=float(rng.uniform(-np.pi, np.pi)),
        sun_elevation=float(rng.uniform(0.45, 1.1)),
        sun=(strength, strength * (1 - 0.12 * warmth), strength * (1 - 0.3 * warmth)),
        ambient=float(0.38 + 0.22 * grey),
        zenith=zenith,
        horizon=horizon,
    )


def _wall_colours(rng: np.random.Generator) -> Iterator[Colour]:
    """One per side with clearly different hues, so that a wall shows the direction of view."""
    first = rng.random()
    for side in rng.permutation(4):
        yield _rgb((first + side / 4) % 1, rng.uniform(0.25, 0.5), rng.uniform(0.45, 0.75))


def _rgb(hue: float, saturation: float, value: float) -> Colour:
    return colorsys.hsv_to_rgb(hue % 1, saturation, value)


def _mixed(a: Colour, b: Colour, share: float) -> Colour:
    return tuple(float(x + (y - x) * share) for x, y in zip(a, b, strict=True))  # type: ignore[return-value]
