"""The particle simulator: what physics demands of it, what its users rely on, and how far MuJoCo agrees."""

import hashlib
import subprocess
import sys

import numba
import numpy as np
import pytest
from mujoco_particles import push_grains, push_rope

from acid.tasks import particles
from acid.tasks.deformable import Granular, PushBehaviour, Rope, chamfer
from acid.tasks.particles import Physics, push

ROPE, GRAINS = Rope.physics, Granular.physics
LENGTH, RADIUS = 3.75, Rope.radius
ROPE_RADII = np.full(51, RADIUS)


def evolve(positions, velocities, radii, seconds, physics):
    """Positions and velocities [P, 3] after some time without a pusher; nothing is put to rest."""
    x, v, count = np.array(positions, float), np.array(velocities, float), len(positions)
    pairs = np.empty((count * (count - 1) // 2, 2), np.int64)
    work = np.zeros((len(pairs), 4)), np.zeros((count, 3)), np.zeros((count, 2)), np.zeros(7)
    for step in range(round(seconds / physics.substep)):
        if step % particles.SEARCH_EVERY == 0:
            found = particles._search(x, radii, pairs, physics)
        particles._substep(x, v, np.empty((count, 3)), radii, pairs, found, *work, False, physics)
    return x, v


def straight_rope():
    along = np.linspace(-LENGTH / 2, LENGTH / 2, 51)
    return np.stack([along, 0 * along, ROPE_RADII], 1)


def square(side, rng):
    line = 0.23 * (np.arange(side) - (side - 1) / 2)
    x, y = np.meshgrid(line, line)
    radii = rng.uniform(0.085, 0.115, side**2)
    return np.stack([x.ravel(), y.ravel(), radii], 1), radii


def pushes(positions, radii, physics, rng, count, *, hit=0.7):
    """Positions before and after each of `count` pushes: most through the object, others anywhere."""
    aimed = PushBehaviour(rng)
    for _ in range(count):
        action = aimed._draw(positions[:, :2]) if rng.random() < hit else rng.uniform(-4, 4, 4)
        after = push(positions, radii, action, physics)
        yield positions, after, action
        positions = after


def deepest_overlap(positions, radii, apart=1):
    """How far the worst pair of particles is inside each other."""
    i, j = np.triu_indices(len(positions), apart)
    return (radii[i] + radii[j] - np.linalg.norm(positions[i] - positions[j], axis=1)).max()


def strongest(walk):
    """The push among the first that moves a particle farthest."""
    return max(walk[:8], key=lambda step: np.abs(step[1] - step[0]).max())


@pytest.fixture(scope="module")
def rope_walk():
    return list(pushes(straight_rope(), ROPE_RADII, ROPE, np.random.default_rng(0), 40))


@pytest.fixture(scope="module")
def grain_walk():
    rng = np.random.default_rng(1)
    positions, radii = square(10, rng)
    return radii, list(pushes(positions, radii, GRAINS, rng, 20))


def test_a_rope_keeps_its_length_and_does_not_enter_itself_or_the_ground(rope_walk):
    for _, after, _ in rope_walk:
        links = np.linalg.norm(np.diff(after, axis=0), axis=1)
        assert abs(links.sum() / LENGTH - 1) < 0.005
        assert np.abs(links / ROPE.bond - 1).max() < 0.01
        assert deepest_overlap(after, ROPE_RADII, apart=ROPE.apart) < 0.05 * 2 * RADIUS
        assert after[:, 2].min() > RADIUS - 1e-6


def test_grains_do_not_enter_each_other_or_the_ground(grain_walk):
    radii, walk = grain_walk
    for _, after, _ in walk:
        assert deepest_overlap(after, radii) < 0.01 * 0.2
        assert (after[:, 2] - radii).min() > -1e-6


def test_everything_rests_after_a_push(rope_walk, grain_walk):
    for _, after, _ in rope_walk[::4]:
        later, _ = evolve(after, np.zeros_like(after), ROPE_RADII, 0.5, ROPE)
        assert np.abs(later - after).max() < 1e-4
    radii, walk = grain_walk
    moved = [np.abs(evolve(after, np.zeros_like(after), radii, 0.5, GRAINS)[0] - after).max() for _, after, _ in walk]
    assert np.median(moved) < 1e-3
    assert max(moved) < 0.02  # a grain that leans on others may still give way a little


def test_nothing_flies_off(rope_walk, grain_walk):
    for radii, walk in [(ROPE_RADII, rope_walk), grain_walk]:
        for before, after, _ in walk:
            assert np.isfinite(after).all()
            assert np.abs(after[:, :2]).max() < 8
            assert (after[:, 2] < 3 * radii.max() * 2).all()
            # The rope and the train of grains ahead of the board have a length of their own, but no flight.
            assert np.linalg.norm(after - before, axis=1).max() < 8


@pytest.mark.parametrize("action", [(0, 0, 0, 0), (0.05, 0.02, 0.06, 0.02), (0.3, -0.3, 0.3, 0.3)])
def test_a_pusher_lowered_onto_the_object_does_not_fire_it(action):
    grains, radii = square(10, np.random.default_rng(2))
    after = push(grains, radii, np.array(action), GRAINS)
    assert np.linalg.norm(after - grains, axis=1).max() < 1.5
    assert np.linalg.norm(after - grains, axis=1).max() > 0.01
    after = push(straight_rope(), ROPE_RADII, np.array(action), ROPE)
    assert np.linalg.norm(after - straight_rope(), axis=1).max() < 1


def test_what_the_pusher_does_not_reach_stays_bit_for_bit(rope_walk, grain_walk):
    for radii, walk, physics in [(ROPE_RADII, rope_walk, ROPE), (*grain_walk, GRAINS)]:
        rest = walk[5][1]
        away = rest[:, :2].max(0) + 1
        assert (push(rest, radii, np.array([*away, *(away + 2)]), physics) == rest).all()


def test_a_push_moves_things_its_own_way():
    grains, radii = square(6, np.random.default_rng(3))
    for physics, positions, sizes in [(ROPE, straight_rope(), ROPE_RADII), (GRAINS, grains, radii)]:
        moved = (push(positions, sizes, np.array([0.02, -1.5, 0.02, 0.5]), physics) - positions).sum(0)
        assert moved[1] > 1
        assert abs(moved[0]) < 0.2 * moved[1]


def test_collisions_keep_momentum():
    free = GRAINS._replace(gravity=0.0, damping=1.0)
    rng = np.random.default_rng(4)
    positions, radii = square(4, rng)
    positions[:, 2] += 5
    velocities = rng.uniform(-0.5, 0.5, positions.shape)
    _, changed = evolve(positions, velocities, radii, 1.0, free)
    assert np.abs(changed - velocities).max() > 0.3  # they did collide
    np.testing.assert_allclose(changed.sum(0), velocities.sum(0), atol=1e-10)
    assert (changed**2).sum() < (velocities**2).sum()


def test_bonds_keep_momentum_and_bending_straightens():
    free = ROPE._replace(gravity=0.0, damping=1.0)
    angle = np.linspace(0, np.pi, 51)
    radius = ROPE.bond / (2 * np.sin(angle[1] / 2))
    bent = np.stack([radius * np.cos(angle), radius * np.sin(angle), np.full(51, 5.0)], 1)
    velocities = np.random.default_rng(5).uniform(-0.1, 0.1, bent.shape)
    after, changed = evolve(bent, velocities, ROPE_RADII, 0.5, free)
    np.testing.assert_allclose(changed.mean(0), velocities.mean(0), atol=1e-3)  # the speed limit may take a little
    assert np.linalg.norm(after[0] - after[-1]) > np.linalg.norm(bent[0] - bent[-1])


def test_a_thrown_particle_falls_and_a_sliding_one_stops_as_coulomb_says():
    physics = GRAINS._replace(damping=1.0)
    radii = np.array([0.1])
    after, velocity = evolve(np.array([[0, 0, 3.0]]), np.zeros((1, 3)), radii, 0.125, physics)
    assert velocity[0, 2] == pytest.approx(-9.8 * 0.125, rel=1e-6)
    assert after[0, 2] == pytest.approx(3 - 9.8 * 0.125**2 / 2, abs=0.005)
    speed = 1.4
    after, velocity = evolve(np.array([[0, 0, 0.1]]), np.array([[speed, 0, 0]]), radii, 1.0, physics)
    assert (velocity == 0).all()
    assert after[0, 0] == pytest.approx(speed**2 / (2 * GRAINS.sliding_friction * 9.8), rel=0.05)


def test_mirrored_pushes_give_mirrored_results(rope_walk, grain_walk):
    flip_x, flip_y, turn = np.diag([-1.0, 1, 1]), np.diag([1.0, -1, 1]), np.diag([-1.0, -1, 1])
    swap = np.array([[0.0, 1, 0], [1, 0, 0], [0, 0, 1]])
    for radii, walk, physics in [(ROPE_RADII, rope_walk, ROPE), (*grain_walk, GRAINS)]:
        before, after, action = strongest(walk)
        for change in (flip_x, flip_y, turn, swap):
            mirrored_action = (action.reshape(2, 2) @ change[:2, :2]).ravel()
            mirrored = push(before @ change, radii, mirrored_action, physics)
            np.testing.assert_allclose(mirrored @ change.T, after, atol=1e-9)


def test_which_end_of_a_rope_is_counted_first_hardly_matters(rope_walk):
    for before, after, action in (rope_walk[0], strongest(rope_walk)):
        reversed_order = push(before[::-1], ROPE_RADII, action, ROPE)[::-1]
        assert chamfer(reversed_order, after) < 0.02


def results():
    """What some pushes come to, as a hash of every bit."""
    rng = np.random.default_rng(6)
    positions, radii = square(5, rng)
    ends = [after for _, after, _ in pushes(positions, radii, GRAINS, rng, 3)]
    ends += [after for _, after, _ in pushes(straight_rope(), ROPE_RADII, ROPE, rng, 3)]
    return hashlib.sha256(b"".join(end.tobytes() for end in ends)).hexdigest()


def test_another_process_gets_the_same_bits():
    here = results()
    assert results() == here
    code = "from test_particles import results; print(results())"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=__file__.rpartition("/")[0], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == here


def test_without_a_place_for_the_cache_it_compiles_in_memory(monkeypatch):
    njit = numba.njit

    def no_place(*, cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return njit(**options)

    monkeypatch.setattr(numba, "njit", no_place)
    assert particles._compiled()(lambda x: x + 1)(1) == 2


def test_the_constants_of_the_tasks_are_frozen():
    """Every dataset and every trained model depends on them: a change must be deliberate."""
    shared = {"substep": 1 / 480, "gravity": 9.8, "damping": 0.99, "max_speed": 1.5, "pusher_speed": 0.5}
    for physics in (ROPE, GRAINS):
        assert {name: getattr(physics, name) for name in shared} == shared
    assert Physics(8, 0.5, 0.4, 0.2, 0.0, 0.0, 0.1, bond=0.075, bending=0.02, apart=4) == ROPE
    assert Physics(4, 0.8, 0.7, 0.3, 0.1, 0.4, 0.0) == GRAINS


@pytest.mark.parametrize("action", [(0.0, -0.8, 0.0, 0.5), (1.0, -0.6, 0.8, 0.6)])
def test_mujoco_bends_the_rope_alike(action):
    """Measured 0.147 and 0.110 between the two; MuJoCo's chain has no stiffness against bending."""
    start = straight_rope()
    ours = push(start, ROPE_RADII, np.array(action), ROPE)
    theirs = push_rope(action)
    assert chamfer(start, theirs) > 0.2
    assert chamfer(ours, theirs) < 0.6 * chamfer(start, theirs)


@pytest.mark.parametrize("action", [(0.0, -1.2, 0.0, 0.4), (1.2, 0.9, 0.1, 0.1)])
def test_mujoco_moves_the_grains_alike(action):
    """Measured 0.004 and 0.033 between the two."""
    start, radii = square(5, np.random.default_rng(7))
    ours = push(start, radii, np.array(action), GRAINS)
    theirs = push_grains(start, radii, action)
    assert chamfer(start, theirs) > 0.2
    assert chamfer(ours, theirs) < 0.4 * chamfer(start, theirs)
