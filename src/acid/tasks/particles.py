"""Particles pushed on a plane: position-based dynamics, compiled by numba on first use and cached on disk.

One substep predicts where each particle would go freely, corrects the positions until the constraints hold (bonds,
bending, contacts, friction, the pusher, the ground), and takes the velocity from the difference. Within a substep, a
contact remembers how much it has corrected so far: it may only push, and friction is limited to a share of that push.
So particles at rest on the ground stay where they are.

Lengths are in task units (1 = 10 cm), times in seconds, z is up and the ground is at z = 0. All particles have the same
mass and do not turn. No random number, no clock and no parallelism: same state, same push, same result, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np

LOWERING = 0.25  # s, for lowering the pusher and for raising it
CLEARANCE = 0.5  # height of the raised pusher
SETTLING = 2.0  # s, at most, after the pusher was raised
REST_SPEED = 0.01  # units/s; a scene slower than this for REST_STEPS substeps is frozen until the pusher comes near
REST_STEPS = 24
NEAR = 0.01  # distance at which the pusher wakes a frozen scene
SEARCH_EVERY = 8  # substeps between searches for pairs that may touch


class Physics(NamedTuple):
    """The constants of a scene. Changing the substep or the number of iterations changes the results."""

    iterations: int  # of the constraints, each substep
    static_friction: float  # among particles and with the ground
    sliding_friction: float
    pusher_friction: float
    pusher_along: float  # half extent of the pusher's rectangle along the motion
    pusher_across: float  # half extent across the motion
    pusher_rounding: float  # added around the rectangle; a rectangle of size zero becomes a cylinder
    bond: float = 0.0  # distance of neighbours in a chain; 0 for loose grains
    bending: float = 0.0  # share of the way to a straight line that second neighbours move per iteration
    apart: int = 1  # particles that are fewer places apart in a chain do not collide
    substep: float = 1 / 480
    gravity: float = 9.8
    damping: float = 0.99  # of the velocity, each substep
    max_speed: float = 1.5  # also limits separation: a pusher lowered onto grains must not shoot them away
    pusher_speed: float = 0.5


def _compiled(**options: Any) -> Callable[[Callable], Callable]:
    """numba.njit with a cache on disk, or in memory where no folder can be written."""

    def compile_later(function: Callable) -> Callable:
        try:
            return numba.njit(cache=True, error_model="numpy", **options)(function)
        except RuntimeError:  # numba found no place for its cache
            return numba.njit(error_model="numpy", **options)(function)

    return compile_later


def push(positions: np.ndarray, radii: np.ndarray, action: np.ndarray, physics: Physics) -> np.ndarray:
    """Positions [P, 3] at rest after one push: lower at (x0, y0), move to (x1, y1), raise, settle.

    radii: [P]; action: [4]. The positions given must be at rest: nothing moves before the pusher comes near.
    """
    places = np.array(positions, np.float64)
    _push(places, np.asarray(radii, np.float64), np.asarray(action, np.float64), physics)
    return places


@_compiled()
def _push(x, radii, action, ph):  # type: ignore[no-untyped-def]
    """The whole push, in place in x [P, 3]."""
    count = len(x)
    v, p = np.zeros((count, 3)), np.empty((count, 3))
    pairs = np.empty((count * (count - 1) // 2, 2), np.int64)
    touch = np.zeros((len(pairs), 4))
    ground, side = np.zeros((count, 3)), np.zeros((count, 2))

    way_x, way_y = action[2] - action[0], action[3] - action[1]
    length = np.sqrt(way_x * way_x + way_y * way_y)
    along_x, along_y = (way_x / length, way_y / length) if length > 0 else (1.0, 0.0)
    lowering = round(LOWERING / ph.substep)
    moving = int(np.ceil(length / (ph.pusher_speed * ph.substep)))
    raised = 2 * lowering + moving
    end = raised + round(SETTLING / ph.substep)
    fall = CLEARANCE / lowering

    pusher = np.zeros(7)  # x, y, direction x, y, motion in this substep x, y, height
    pusher[2], pusher[3] = along_x, along_y
    asleep, calm, age, found = True, 0, 0, 0
    for step in range(1, end + 1):
        done = min(max(step - lowering, 0), moving)
        share = done / moving if moving > 0 else 0.0
        new_x, new_y = action[0] + share * way_x, action[1] + share * way_y
        pusher[4], pusher[5] = (new_x - pusher[0], new_y - pusher[1]) if step > 1 else (0.0, 0.0)
        pusher[0], pusher[1] = new_x, new_y
        pusher[6] = fall * max(lowering - step, step - lowering - moving, 0)
        is_near = step < raised and _is_near(x, radii, pusher, ph)
        if asleep and not is_near:
            if step >= raised:
                break
            continue
        if asleep or age == SEARCH_EVERY:
            found, age = _search(x, radii, pairs, ph), 0
        asleep = False
        age += 1
        speed = _substep(x, v, p, radii, pairs, found, touch, ground, side, pusher, is_near, ph)
        calm = calm + 1 if speed < REST_SPEED else 0
        if calm >= REST_STEPS and not is_near:
            asleep = True
            v[:] = 0


@_compiled()
def _search(x, radii, pairs, ph):  # type: ignore[no-untyped-def]
    """Write the pairs that can touch before the next search; returns how many."""
    margin = 2 * ph.max_speed * ph.substep * SEARCH_EVERY
    found = 0
    for i in range(len(x)):
        for j in range(i + ph.apart, len(x)):
            reach = radii[i] + radii[j] + margin
            dx, dy, dz = x[i, 0] - x[j, 0], x[i, 1] - x[j, 1], x[i, 2] - x[j, 2]
            if dx * dx + dy * dy + dz * dz < reach * reach:
                pairs[found, 0], pairs[found, 1] = i, j
                found += 1
    return found


@_compiled()
def _substep(x, v, p, radii, pairs, found, touch, ground, side, pusher, with_pusher, ph):  # type: ignore[no-untyped-def]
    """Advance x and v [P, 3] by one substep; returns the highest speed. The other arrays are working memory."""
    count, dt = len(x), ph.substep
    for i in range(count):
        for k in range(3):
            p[i, k] = x[i, k] + v[i, k] * dt
        p[i, 2] -= ph.gravity * dt * dt
    ground[:] = 0
    side[:] = 0
    touch[:found] = 0
    for iteration in range(ph.iterations):
        if ph.bond > 0:
            _bend(p, ph)
            _keep_bonds(p, iteration % 2 == 0, ph)
        _separate(p, x, radii, pairs, found, touch, ph)
        if with_pusher:
            _push_aside(p, x, radii, side, pusher, ph)
        _stand(p, x, radii, ground, ph)
    fastest = 0.0
    for i in range(count):
        dx, dy, dz = p[i, 0] - x[i, 0], p[i, 1] - x[i, 1], p[i, 2] - x[i, 2]
        speed = np.sqrt(dx * dx + dy * dy + dz * dz) / dt
        share = ph.max_speed / speed if speed > ph.max_speed else 1.0
        for k, d in enumerate((dx, dy, dz)):
            x[i, k] += share * d
            v[i, k] = ph.damping * share * d / dt
        fastest = max(fastest, share * speed)
    return fastest


@_compiled()
def _keep_bonds(p, forward, ph):  # type: ignore[no-untyped-def]
    """Restore the distance of neighbours, alternately from either end, so that corrections reach the whole chain."""
    last = len(p) - 1
    for step in range(last):
        i = step if forward else last - 1 - step
        _pull(p, i, i + 1, ph.bond, 1.0)


@_compiled()
def _bend(p, ph):  # type: ignore[no-untyped-def]
    for i in range(len(p) - 2):
        _pull(p, i, i + 2, 2 * ph.bond, ph.bending)


@_compiled(inline="always")
def _pull(p, i, j, rest, stiffness):  # type: ignore[no-untyped-def]
    """Move two particles along their line, half each, to remove this share of their deviation from `rest`."""
    dx, dy, dz = p[j, 0] - p[i, 0], p[j, 1] - p[i, 1], p[j, 2] - p[i, 2]
    distance = np.sqrt(dx * dx + dy * dy + dz * dz)
    share = 0.5 * stiffness * (1 - rest / distance) if distance > 0 else 0.0
    p[i, 0] += share * dx
    p[i, 1] += share * dy
    p[i, 2] += share * dz
    p[j, 0] -= share * dx
    p[j, 1] -= share * dy
    p[j, 2] -= share * dz


@_compiled(inline="always")
def _friction(size, normal, ph):  # type: ignore[no-untyped-def]
    """Share of a friction correction of this size that a contact with this push can give: 1, or less if it slides."""
    if size <= ph.static_friction * normal:
        return 1.0
    return ph.sliding_friction * normal / size


@_compiled()
def _separate(p, x, radii, pairs, found, touch, ph):  # type: ignore[no-untyped-def]
    """Separate particles, with friction. touch [pairs, 4]: push so far, friction so far x, y, z."""
    for k in range(found):
        i, j = pairs[k, 0], pairs[k, 1]
        rest = radii[i] + radii[j]
        dx, dy, dz = p[i, 0] - p[j, 0], p[i, 1] - p[j, 1], p[i, 2] - p[j, 2]
        squared = dx * dx + dy * dy + dz * dz
        if squared >= rest * rest and touch[k, 0] == 0:
            continue
        distance = np.sqrt(squared)
        nx, ny, nz = (dx / distance, dy / distance, dz / distance) if distance > 1e-9 else (0.0, 0.0, 1.0)
        normal = max(touch[k, 0] + rest - distance, 0.0)
        change = normal - touch[k, 0]
        # How far one slid along the other in this substep, and the friction that would undo it.
        ux = (p[i, 0] - x[i, 0]) - (p[j, 0] - x[j, 0])
        uy = (p[i, 1] - x[i, 1]) - (p[j, 1] - x[j, 1])
        uz = (p[i, 2] - x[i, 2]) - (p[j, 2] - x[j, 2])
        un = ux * nx + uy * ny + uz * nz
        fx, fy, fz = touch[k, 1] - (ux - un * nx), touch[k, 2] - (uy - un * ny), touch[k, 3] - (uz - un * nz)
        share = _friction(np.sqrt(fx * fx + fy * fy + fz * fz), normal, ph)
        cx = 0.5 * (change * nx + share * fx - touch[k, 1])
        cy = 0.5 * (change * ny + share * fy - touch[k, 2])
        cz = 0.5 * (change * nz + share * fz - touch[k, 3])
        touch[k, 0], touch[k, 1], touch[k, 2], touch[k, 3] = normal, share * fx, share * fy, share * fz
        p[i, 0] += cx
        p[i, 1] += cy
        p[i, 2] += cz
        p[j, 0] -= cx
        p[j, 1] -= cy
        p[j, 2] -= cz


@_compiled()
def _stand(p, x, radii, ground, ph):  # type: ignore[no-untyped-def]
    """Keep particles above the ground, with friction. ground [P, 3]: push so far, friction so far x, y."""
    for i in range(len(p)):
        normal = max(ground[i, 0] + radii[i] - p[i, 2], 0.0)
        if normal == 0 and ground[i, 0] == 0:
            continue
        p[i, 2] += normal - ground[i, 0]
        fx, fy = ground[i, 1] - (p[i, 0] - x[i, 0]), ground[i, 2] - (p[i, 1] - x[i, 1])
        share = _friction(np.sqrt(fx * fx + fy * fy), normal, ph)
        p[i, 0] += share * fx - ground[i, 1]
        p[i, 1] += share * fy - ground[i, 2]
        ground[i, 0], ground[i, 1], ground[i, 2] = normal, share * fx, share * fy


@_compiled(inline="always")
def _from_pusher(px, py, pusher, ph):  # type: ignore[no-untyped-def]
    """Horizontal distance of a point from the pusher's surface, negative inside, and the direction away from it."""
    ax, ay = pusher[2], pusher[3]
    dx, dy = px - pusher[0], py - pusher[1]
    along, across = dx * ax + dy * ay, dy * ax - dx * ay
    sign_along = 1.0 if along >= 0 else -1.0
    sign_across = 1.0 if across >= 0 else -1.0
    out_along, out_across = abs(along) - ph.pusher_along, abs(across) - ph.pusher_across
    if out_along > 0 or out_across > 0:
        a, b = max(out_along, 0.0), max(out_across, 0.0)
        distance = np.sqrt(a * a + b * b)
        n_along, n_across = sign_along * a / distance, sign_across * b / distance
    elif out_along >= out_across:
        distance, n_along, n_across = out_along, sign_along, 0.0
    else:
        distance, n_along, n_across = out_across, 0.0, sign_across
    return distance - ph.pusher_rounding, n_along * ax - n_across * ay, n_along * ay + n_across * ax


@_compiled()
def _is_near(x, radii, pusher, ph):  # type: ignore[no-untyped-def]
    for i in range(len(x)):
        if pusher[6] < x[i, 2] + radii[i] + NEAR:
            distance, _, _ = _from_pusher(x[i, 0], x[i, 1], pusher, ph)
            if distance < radii[i] + NEAR:
                return True
    return False


@_compiled()
def _push_aside(p, x, radii, side, pusher, ph):  # type: ignore[no-untyped-def]
    """Move particles out of the pusher, sideways only, with friction. side [P, 2]: push so far, friction so far."""
    for i in range(len(p)):
        if pusher[6] > p[i, 2] + radii[i]:
            continue
        distance, nx, ny = _from_pusher(p[i, 0], p[i, 1], pusher, ph)
        normal = max(side[i, 0] + radii[i] - distance, 0.0)
        if normal == 0 and side[i, 0] == 0:
            continue
        change = normal - side[i, 0]
        tx, ty = -ny, nx
        slid = (p[i, 0] - x[i, 0] - pusher[4]) * tx + (p[i, 1] - x[i, 1] - pusher[5]) * ty
        limit = ph.pusher_friction * normal
        friction = min(max(side[i, 1] - slid, -limit), limit)
        more = friction - side[i, 1]
        p[i, 0] += change * nx + more * tx
        p[i, 1] += change * ny + more * ty
        side[i, 0], side[i, 1] = normal, friction
