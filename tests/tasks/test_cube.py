"""Cube on the real simulator: exact restoring, the success test, the pictures, the data policy."""

import os
import subprocess
import sys

import numpy as np
import pytest

from acid import tasks
from acid.errors import ShapeError
from acid.tasks.collect import record_episode
from acid.tasks.cube import TOLERANCE, Cube, cluster

CUBE_IN_STATE = slice(15, 18)  # after the time, six joints of the arm and eight of the gripper


@pytest.fixture(scope="module")
def task():
    made = tasks.make("cube")
    yield made
    made.close()


@pytest.fixture(scope="module")
def other():
    """Another instance, of another size and with all details."""
    made = Cube(size=100, quality="full")
    yield made
    made.close()


@pytest.fixture(scope="module")
def episode(task):
    return record_episode(task, seed=0, index=0)


@pytest.fixture(scope="module")
def carried(episode):
    """A step of the episode at which the gripper carries the cube through the air."""
    step = int(episode["cube"][:, 2].argmax())
    assert episode["cube"][step, 2] > 0.08
    assert np.linalg.norm(episode["cube"][step, :3] - episode["proprio"][step, :3]) < 0.03
    return step


def colour_of_cube(pixels):
    """How much redder than anything else a pixel is, [H, W]."""
    pixels = pixels.astype(float)
    return np.clip(pixels[..., 0] - 1.5 * pixels[..., 1:].max(-1), 0, None)


def place_of_cube(pixels):
    """Row and column of the cube's middle as parts of the image."""
    weight = colour_of_cube(pixels)
    grid = (np.indices(weight.shape) + 0.5) / len(weight)
    return (grid * weight).sum((1, 2)) / weight.sum()


def test_a_recorded_episode_goes_on_exactly_from_any_of_its_steps(task, episode, carried):
    for start in (0, 10, 36, carried - 5, carried, 90):
        task.set_state(episode["state"][start])
        for step in range(start, start + 25):
            assert (task.get_state() == episode["state"][step]).all()
            assert (task.columns()["proprio"] == episode["proprio"][step]).all()
            if step % 6 == 0:
                assert (task.render() == episode["pixels"][step]).all()
            task.advance(episode["action"][step])


def test_another_instance_continues_a_grasp_with_the_same_states(task, other, episode, carried):
    actions = np.random.default_rng(0).uniform(-1, 1, (15, 5))
    actions[:, 4] = 1  # hold on
    ends = []
    for instance in (task, other, task):
        instance.set_state(episode["state"][carried])
        for action in actions:
            instance.advance(action)
        ends.append(instance.get_state())
        instance.env.reset(seed=5)  # somewhere else entirely
    assert (ends[0] == ends[1]).all()
    assert (ends[0] == ends[2]).all()
    assert np.linalg.norm(task.pose(ends[0]) - task.pose(episode["state"][carried])) > 0.02


def test_the_physics_is_ogbenchs_and_looking_does_not_change_it(task, other):
    task.reset(seed=4)
    other.env.reset(seed=4)
    for action in np.random.default_rng(1).uniform(-1, 1, (12, 5)):
        task.step(action)
        task.columns()
        other.env.step(action)  # bare
        assert (task.data.qpos == other.data.qpos).all()
        assert (task.data.qvel == other.data.qvel).all()


def test_actions_move_the_effector_where_they_say_and_are_clipped(task):
    for direction in range(3):
        task.reset(seed=2)
        start = task.get_state()
        action = np.zeros(5)
        action[direction] = 7 if direction == 2 else -7  # away from the workspace's borders
        before = task.columns()["proprio"]
        for _ in range(3):
            task.advance(action)
        moved = task.columns()["proprio"][:3] - before[:3]
        assert np.argmax(np.abs(moved)) == direction
        assert np.sign(moved[direction]) == np.sign(action[direction])
        beyond = task.get_state()
        task.set_state(start)
        for _ in range(3):
            task.advance(np.clip(action, -1, 1))
        assert (task.get_state() == beyond).all()


def test_success_is_the_distance_of_cube_centres_and_nothing_else(task):
    task.reset(seed=0)
    goal = task.get_state()
    for offset, expected in [
        ([0.9 * TOLERANCE, 0, 0], True),
        ([0, -1.1 * TOLERANCE, 0], False),
        ([0, 0, 1.1 * TOLERANCE], False),
        ([0.6 * TOLERANCE, 0.6 * TOLERANCE, 0.6 * TOLERANCE], False),
        ([0.5 * TOLERANCE, 0.5 * TOLERANCE, 0.5 * TOLERANCE], True),
    ]:
        state = goal.copy()
        state[CUBE_IN_STATE] += offset
        assert task.success(state, goal) is expected
        assert task.error(state, goal) == pytest.approx(np.linalg.norm(offset))
    elsewhere = task.reset(seed=1)[1]["state"]
    elsewhere[CUBE_IN_STATE] = goal[CUBE_IN_STATE]  # another arm, another target
    assert task.error(elsewhere, goal) == 0


def test_columns_and_pose_agree_and_probing_sees_no_angle_that_wraps(task):
    state = task.reset(seed=8)[1]["state"]
    columns = task.columns()
    assert (task.pose(state) == columns["cube"][:3]).all()
    assert np.linalg.norm(columns["cube"][3:]) == pytest.approx(1)
    physical = task.physical({name: values[None] for name, values in columns.items()})
    assert {name: values.shape for name, values in physical.items()} == {
        "cube": (1, 3), "effector": (1, 3), "yaw": (1, 2), "gripper": (1, 1)
    }  # fmt: skip
    assert np.abs(physical["yaw"]).max() <= 1


def test_a_displacement_of_the_tolerance_shows_in_pixels(task):
    state = task.reset(seed=1)[1]["state"]
    for axis, sign in [(0, 0), (1, 1)]:  # towards the camera is down, the other way is right
        places = []
        for offset in (0.0, TOLERANCE):
            moved = state.copy()
            moved[CUBE_IN_STATE] = [0.42, -0.1, 0.02]
            moved[CUBE_IN_STATE.start + axis] += offset
            task.set_state(moved)
            places.append(place_of_cube(task.render()))
        assert 64 * (places[1] - places[0])[sign] > 2
        assert (colour_of_cube(task.render()) > 20).sum() >= 9  # at least 3 × 3 px


def test_pixels_show_the_gripper_the_height_and_no_target(task):
    state = task.reset(seed=1)[1]["state"]
    first = task.render()
    task.data.mocap_pos[:] = [0.4, 0.1, 0.02]
    assert (task.render() == first).all()
    for _ in range(6):
        task.advance(np.array([0, 0, 0, 0, 1.0]))
    assert np.abs(task.render().astype(int) - first).max() > 30
    # The shadow moves when the cube comes up on the line of sight, where the cube itself stays in its pixels.
    camera = task.model.camera("front_pixels").pos
    frames = []
    for height in (0.02, 0.15):
        lifted, ground = state.copy(), np.array([0.35, 0.25, 0.02])
        lifted[CUBE_IN_STATE] = ground + (camera - ground) * (height - 0.02) / (camera[2] - 0.02)
        task.set_state(lifted)
        frames.append(task.render())
    assert 64 * np.abs(np.subtract(*map(place_of_cube, frames))).max() < 1
    darker = frames[0].sum(-1).astype(int) - frames[1].sum(-1)
    from_cube = np.indices((64, 64)) - 64 * place_of_cube(frames[1])[:, None, None]
    assert (darker[np.abs(from_cube).max(0) > 5] > 60).sum() >= 4


def test_coarse_pictures_show_what_full_pictures_show(task, other, episode, carried):
    for step in (0, carried):
        other.set_state(episode["state"][step])
        full = other.render()
        assert full.shape == (100, 100, 3)
        assert full.dtype == np.uint8
        np.testing.assert_allclose(place_of_cube(full), place_of_cube(episode["pixels"][step]), atol=0.02)


def test_clustering_keeps_shape_and_orientation_with_fewer_triangles():
    angles, heights = np.meshgrid(np.linspace(0, 2 * np.pi, 60, endpoint=False), np.linspace(-1, 1, 40))
    radius = np.sqrt(1 - heights**2)
    ball = np.stack([radius * np.cos(angles), radius * np.sin(angles), heights], -1).reshape(-1, 3)
    corner = (np.arange(39)[:, None] * 60 + np.arange(60)).ravel()
    right = (np.arange(39)[:, None] * 60 + (np.arange(60) + 1) % 60).ravel()
    faces = np.concatenate([np.stack([corner, right, right + 60], 1), np.stack([corner, right + 60, corner + 60], 1)])

    def volume(vertices, faces):
        a, b, c = vertices[faces].transpose(1, 0, 2)
        return (a * np.cross(b, c)).sum() / 6

    vertices, few = cluster(ball, faces, 0.2)
    assert len(few) < len(faces) / 4
    assert volume(vertices, few) == pytest.approx(volume(ball, faces), rel=0.1)
    assert (few[:, 0] != few[:, 1]).all()
    assert (few[:, 1] != few[:, 2]).all()
    assert len(np.unique(few, axis=0)) == len(few)


def test_resets_differ_by_seed_and_repeat_by_seed(task):
    states = [task.reset(seed=seed)[1]["state"] for seed in (0, 1, 0)]
    assert (states[0] == states[2]).all()
    assert np.linalg.norm(task.pose(states[0]) - task.pose(states[1])) > 0.01
    assert np.linalg.norm(states[0][-12:-9] - states[1][-12:-9]) > 0.01  # the effector


def play(task, seed, steps):
    """Cube [T, 3], proprio [T, 5] and actions [T, 5] of the policy."""
    task.env.reset(seed=seed)
    behaviour = task.behaviour(np.random.default_rng(seed))
    rows = []
    for _ in range(steps):
        action, columns = behaviour.act(task), task.columns()
        rows.append((columns["cube"][:3], columns["proprio"], action))
        task.advance(action)
    return map(np.stack, zip(*rows, strict=True))


def test_policy_picks_carries_and_places_all_over_the_workspace(task):
    cubes, proprios, actions = zip(*(play(task, seed, task.episode_steps) for seed in range(6)), strict=True)
    moved = [np.linalg.norm(cube[25:] - cube[:-25], axis=1) for cube in cubes]
    assert 0.35 < (np.stack(moved) > TOLERANCE).mean() < 0.95  # problems that are not solved at the start
    assert sum(cube[:, 2].max() > 0.06 for cube in cubes) >= 4  # most episodes lift it
    assert sum(np.linalg.norm(cube[-1] - cube[0]) > 0.08 for cube in cubes) >= 3
    cube, proprio, action = map(np.concatenate, (cubes, proprios, actions))
    assert 0.1 < (cube[:, 2] > 0.04).mean() < 0.6
    assert np.ptp(cube[:, 1]) > 0.35
    assert np.ptp(proprio[:, 4]) > 0.8  # the gripper opens and closes
    assert action.dtype == np.float32
    assert (np.abs(action) <= 1).all()
    assert (action.std(0) > 0.2).all()


def test_policy_depends_on_its_generator_only_and_leaves_the_global_one_alone(task):
    np.random.seed(0)
    expected = np.random.random()
    np.random.seed(0)
    first = list(play(task, 3, 12))[2]
    assert np.random.random() == expected
    again = list(play(task, 3, 12))[2]
    assert (first == again).all()


def test_bad_actions_and_states_are_named(task):
    task.reset(seed=0)
    with pytest.raises(ShapeError, match="cube action has 5 numbers, got shape \\[7\\]"):
        task.advance(np.zeros(7))
    with pytest.raises(ShapeError, match="must be finite"):
        task.advance(np.array([0, 0, np.inf, 0, 0]))
    with pytest.raises(ShapeError, match="cube state has 81 numbers, got shape \\[5\\]"):
        task.set_state(np.zeros(5))
    with pytest.raises(ShapeError, match="image size must be 8 to 4096 pixels"):
        tasks.make("cube", size=7)


def test_it_is_headless_by_itself_and_silent_at_exit():
    code = "from acid import tasks; t = tasks.make('cube', size=8); print(t.reset(seed=0)[0].mean() > 1)"
    clean = {k: v for k, v in os.environ.items() if k not in ("MUJOCO_GL", "PYOPENGL_PLATFORM", "DISPLAY")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=clean, check=True)
    assert done.stdout.strip() == "True"
    assert done.stderr == ""
