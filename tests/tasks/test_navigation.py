"""Navigation on the real simulator: exact states, driving and bumping, what is seen, the data policy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from acid import tasks
from acid.data.poses import STEP_SECONDS, displacements, integrate, to_local, to_world
from acid.errors import ShapeError
from acid.tasks.navigation import SPEED, TOLERANCE, YAW_RATE, Navigation, arc
from acid.tasks.navigation_scene import HORIZONTAL_FIELD
from acid.tasks.navigation_world import GAP, HALF, ROBOT_RADIUS, plan_world


@pytest.fixture(scope="module")
def task() -> Iterator[Navigation]:
    made = tasks.make("navigation")
    assert isinstance(made, Navigation)
    yield made
    made.close()


def drive(task: Navigation, seed: int, steps: int = 60) -> tuple[np.ndarray, np.ndarray, int]:
    """Poses [steps + 1, 3], actions and the number of collisions of an episode that nobody looks at."""
    task.set_state(start_state(task, seed))
    behaviour = task.behaviour(np.random.default_rng(seed))
    poses, actions, collisions = [task.get_state()[1:]], [], 0
    for _ in range(steps):
        actions.append(behaviour.act(task))
        task.advance(actions[-1])
        collisions += task.collided
        poses.append(task.get_state()[1:])
    return np.stack(poses), np.stack(actions), collisions


def start_state(task: Navigation, seed: int) -> np.ndarray:
    return task.reset(seed=seed, options={"world": seed % 3})[1]["state"]


def test_restoring_a_state_and_repeating_actions_gives_the_same_pixels_bit_for_bit(task: Navigation) -> None:
    state = start_state(task, 0)
    actions = np.random.default_rng(0).uniform([0, -1], [1.5, 1], (5, 2))
    before = task.render()
    frames, end = [task.step(action)[0] for action in actions], task.get_state()
    start_state(task, 1)  # another world
    task.set_state(state)
    assert (task.render() == before).all()
    assert all((task.step(action)[0] == frame).all() for action, frame in zip(actions, frames, strict=True))
    assert (task.get_state() == end).all()
    assert (task.render_pose(int(state[0]), state[1:]) == before).all()  # any pose can be looked at from anywhere
    assert (task.get_state() == end).all()


def test_what_is_hidden_to_save_time_would_not_have_been_seen(task: Navigation) -> None:
    state = start_state(task, 0)
    task.render()
    scene = task._scenes[int(state[0])]
    rng = np.random.default_rng(0)
    for _ in range(12):
        pose = rng.uniform([-12, -12, -np.pi], [12, 12, np.pi])
        quick = scene.draw(pose)
        in_view, scene._in_view = scene._in_view, lambda *_: np.True_  # type: ignore[method-assign]
        try:
            assert (scene.draw(pose) == quick).all()
        finally:
            scene._in_view = in_view  # type: ignore[method-assign]


def test_pictures_tell_worlds_places_and_headings_apart(task: Navigation) -> None:
    state = start_state(task, 3)

    def seen(world: float, *pose: float) -> np.ndarray:
        return task.render_pose(int(world), np.array(pose)).astype(float)

    world, x, y, yaw = state
    base = seen(world, x, y, yaw)
    assert base.std() > 15
    ahead = to_world(np.array([0.22, 0, 0]), state[1:])  # one step
    for other in (seen(world, *ahead), seen(world, x, y, yaw + 0.06), seen(world + 1, x, y, yaw)):
        assert np.abs(other - base).mean() > 1.0
    assert np.abs(seen(world, x, y, yaw + 2 * np.pi) - base).max() <= 2


def test_a_thing_to_the_left_is_left_in_the_picture_and_the_field_is_99_degrees_wide(task: Navigation) -> None:
    """Where a thing is in the picture, found by taking it away, is where the camera's geometry says."""
    world = plan_world(0)
    task.set_state(np.array([0, 0.0, 0, 0]))
    task.render()
    scene = task._scenes[0]
    thing = next(thing for thing in world.things if thing.kind == "barrel")
    for bearing in (-0.6, 0.0, 0.6):
        heading = 0.3
        camera = np.array([*thing.place]) - 2.5 * np.array([np.cos(heading + bearing), np.sin(heading + bearing)])
        pose = np.array([*(camera - 0.15 * np.array([np.cos(heading), np.sin(heading)])), heading])
        whole = scene.draw(pose)
        geoms = np.hypot(*(scene._places[:, :2] - thing.place).T) < 0.05
        kept, scene._bounds = scene._bounds, np.where(geoms, -np.inf, scene._bounds)
        gone = scene.draw(pose)
        scene._bounds = kept
        columns = np.flatnonzero((whole != gone).any((0, 2)))
        found = (columns.min() + columns.max() + 1) / 2 / whole.shape[1]
        wanted = 0.5 - np.tan(bearing) / np.tan(np.radians(HORIZONTAL_FIELD) / 2) / 2
        assert found == pytest.approx(wanted, abs=0.03)


@pytest.mark.parametrize("size", [33, 100])
def test_images_come_in_any_size(size: int) -> None:
    task = tasks.make("navigation", size=size)
    pixels, _ = task.reset(seed=0)
    assert (pixels.shape, pixels.dtype) == ((size, size, 3), np.uint8)
    task.close()


def test_driving_is_along_exact_arcs() -> None:
    assert arc(1.2, 0.0, 0.25) == pytest.approx([0.3, 0, 0])
    assert arc(1.0, np.pi / 2, 1.0) == pytest.approx([2 / np.pi, 2 / np.pi, np.pi / 2])
    half, whole = arc(0.8, 0.9, 0.5), arc(0.8, 0.9, 1.0)
    assert to_world(half, half) == pytest.approx(whole)


def test_a_robot_stops_at_what_it_hits_and_can_leave_again(task: Navigation) -> None:
    world = plan_world(1)
    thing = world.things[-1]
    towards = np.array([*thing.place, 0.0]) - [thing.radius + 1.5, 0, 0]
    task.set_state(np.array([1, *towards]))
    assert task.free(1, towards)
    for _ in range(10):
        task.advance(np.array([2.0, 0]))
    assert task.collided
    touching = task.get_state()
    assert ROBOT_RADIUS <= world.clearance(touching[1:3]) < ROBOT_RADIUS + 0.15
    task.advance(np.array([-0.5, 0]))
    assert not task.collided
    assert task.get_state()[1] < touching[1]


def test_nothing_leaves_the_walls(task: Navigation) -> None:
    for yaw in np.linspace(-3, 3, 7):
        task.set_state(np.array([2, HALF - 1.0, 0, yaw]))
        for _ in range(60):
            task.advance(np.array([2.0, 0.2]))
        assert np.abs(task.get_state()[1:3]).max() < HALF


def test_worlds_leave_room_to_pass_and_differ() -> None:
    for seed in range(6):
        world = plan_world(seed)
        kinds = {thing.kind for thing in world.things}
        assert {"house", "tree", "rock", "fence"} <= kinds
        places = np.array([thing.place for thing in world.things])
        reach = np.array([np.hypot(*thing.box) + thing.radius for thing in world.things])
        apart = np.linalg.norm(places[:, None] - places[None], axis=-1) - reach[:, None] - reach[None]
        np.fill_diagonal(apart, np.inf)
        assert apart.min() >= GAP > 2 * ROBOT_RADIUS
        assert (world.clearance(places) <= 0).all()
    assert plan_world(0).things != plan_world(1).things


def test_the_policy_avoids_varies_and_keeps_goals_in_view(task: Navigation) -> None:
    episodes = [drive(task, seed) for seed in range(12)]
    assert sum(collisions for _, _, collisions in episodes) <= 2
    actions = np.concatenate([actions for _, actions, _ in episodes])
    low, high = np.quantile(actions[:, 0], [0.1, 0.9])
    assert low < 0.7 < 1.1 < high
    assert SPEED[0] < actions[:, 0].min()
    assert actions[:, 0].max() < SPEED[1]
    assert np.abs(actions[:, 1]).max() < YAW_RATE
    assert 0.1 < actions[:, 1].std() < 0.35
    for _, driven, _ in episodes:
        assert np.abs(np.diff(driven, axis=0)).max() <= 0.31  # smooth
    goals = np.concatenate([to_local(poses[8:], poses[:-8]) for poses, _, _ in episodes])
    bearings = np.degrees(np.abs(np.arctan2(goals[:, 1], goals[:, 0])))
    far = np.hypot(goals[:, 0], goals[:, 1]) > 0.3
    assert (bearings[far] < HORIZONTAL_FIELD / 2 - 5).mean() > 0.98
    assert np.median(np.hypot(goals[:, 0], goals[:, 1])) > 1.0


def test_a_command_for_a_drivable_displacement_is_exact(task: Navigation) -> None:
    rng = np.random.default_rng(0)
    for command in rng.uniform([-0.5, -1.4], [2.0, 1.4], (20, 2)):
        assert task.command(arc(*command, STEP_SECONDS)) == pytest.approx(command, abs=1e-5)
    assert task.command(np.zeros(3)) == pytest.approx([0, 0])
    assert task.command(np.array([0, 0, 0.2])) == pytest.approx([0, 0.8])  # turns on the spot
    low, high = task.action_bounds
    assert (task.command(np.array([9.0, 5.0, 3.0])) <= high).all()
    assert (task.command(np.array([-9.0, 5.0, -3.0])) >= low).all()


STRAIGHT = np.array([[1, 1.0, 0, 0], [1, 2, 0, 0], [1, 3, 0, 0]])  # states, from the origin of world 1 on


def errors(task: Navigation, *plans: list[tuple[float, float, float]]) -> dict[str, np.ndarray]:
    return task.plan_metrics(np.array([1.0, 0, 0, 0]), np.array(plans), STRAIGHT)


def test_errors_of_paths_by_hand(task: Navigation) -> None:
    found = errors(task, [(1, 0, 0)] * 3, [(1.3, -0.4, 0), (1, 0, 0), (1, 0, 0)], [(1.1, 0, 0)] * 3)
    assert found["ate_m"] == pytest.approx([0, 0.5, np.sqrt((0.1**2 + 0.2**2 + 0.3**2) / 3)])  # no alignment helps
    assert found["rpe_m"] == pytest.approx([0, 0, 0.1], abs=1e-12)  # the first step has no step before it
    for name in ("ate", "rpe"):
        assert found[f"{name}_waypoints"] == pytest.approx(4 * found[f"{name}_m"])
    assert set(found) == {"ate_waypoints", "rpe_waypoints", "ate_m", "rpe_m"}
    assert task.metric in found


def test_errors_of_paths_are_of_places_and_not_of_headings(task: Navigation) -> None:
    turned = [(1, 0, np.pi / 2), (0, -1, 0), (0, -1, -np.pi / 2)]  # looks left while it drives on
    found = errors(task, turned)
    assert found["ate_m"] == pytest.approx([0], abs=1e-12)
    assert found["rpe_m"] == pytest.approx([0], abs=1e-12)


def test_errors_do_not_depend_on_where_the_world_is_seen_from(task: Navigation) -> None:
    rng = np.random.default_rng(0)
    plans, driven = rng.normal(0, 0.2, (5, 8, 3)), rng.normal(0, 0.2, (8, 3))

    def seen_from(start: np.ndarray) -> dict[str, np.ndarray]:
        path = integrate(driven, start)[1:]
        states = np.concatenate([np.ones((8, 1)), path], 1)
        return task.plan_metrics(np.array([1.0, *start]), plans, states)

    here, there = seen_from(np.zeros(3)), seen_from(np.array([3.0, -7, 2.5]))
    for name, values in here.items():
        assert values.shape == (5,)
        assert there[name] == pytest.approx(values)


def test_the_last_action_is_what_the_wheels_tell(task: Navigation) -> None:
    state = start_state(task, 4)
    task.advance(np.array([1.2, 0.4]))
    told = task.last_action(np.stack([state, task.get_state()]))
    assert told == pytest.approx(arc(1.2, 0.4, STEP_SECONDS))
    assert task.command(told) == pytest.approx([1.2, 0.4], abs=1e-5)
    assert task.last_action(state[None]) is None


def test_driven_paths_are_driven_again(task: Navigation) -> None:
    """What was driven, planned as displacements and carried out by commands, ends where it ended."""
    poses, _, collisions = drive(task, 5, steps=8)
    assert not collisions
    state = np.array([5 % 3, *poses[0]])
    task.set_state(state)
    for step in displacements(poses):
        task.advance(task.command(step))
        assert task.events() == {"collided": False}
    assert task.get_state()[1:3] == pytest.approx(poses[-1, :2], abs=1e-4)
    states = np.concatenate([np.full((8, 1), 2.0), poses[1:]], 1)
    assert task.plan_metrics(state, displacements(poses), states)["ate_m"] == pytest.approx(0, abs=1e-9)


def test_standing_still_is_no_displacement(task: Navigation) -> None:
    state = start_state(task, 6)
    task.advance(task.command(task.idle_action))
    assert (task.get_state() == state).all()


def test_success_is_being_near_the_goal_in_its_world(task: Navigation) -> None:
    goal = np.array([1, 2.0, 3.0, 0.5])
    assert task.success(goal + np.array([0, 0.9 * TOLERANCE, 0, 2.0]), goal)
    assert not task.success(goal + np.array([0, 0, 1.1 * TOLERANCE, 0]), goal)
    assert not task.success(goal + np.array([1, 0, 0, 0]), goal)
    assert task.error(goal + np.array([0, 0.3, 0.4, 0]), goal) == pytest.approx(0.5)


def test_wrong_states_are_refused(task: Navigation) -> None:
    for state in ([0.5, 0, 0, 0], [-1, 0, 0, 0], [0, np.nan, 0, 0]):
        with pytest.raises(ShapeError, match="a world's number and a finite pose"):
            task.set_state(np.array(state))
    with pytest.raises(ShapeError, match="state has 4 numbers"):
        task.set_state(np.zeros(3))
    with pytest.raises(ShapeError, match="at least 1 world, got 0"):
        Navigation(worlds=0)
