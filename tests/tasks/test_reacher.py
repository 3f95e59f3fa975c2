"""Reacher on the real simulator: exact restoring, the success test, the data policy."""

import os
import subprocess
import sys

import numpy as np
import pytest

from acid import tasks
from acid.errors import ShapeError, UnknownNameError
from acid.tasks.reacher import TOLERANCE


@pytest.fixture(scope="module")
def task():
    made = tasks.make("reacher")
    yield made
    made.close()


def replay(task, actions):
    frames = [task.step(action)[0] for action in actions]
    return np.stack(frames), task.get_state()


def test_restoring_a_state_and_repeating_actions_gives_the_same_pixels_bit_for_bit(task):
    task.reset(seed=3)
    rng = np.random.default_rng(0)
    for _ in range(7):
        task.advance(rng.uniform(-1, 1, 2))
    state, actions = task.get_state(), rng.uniform(-1, 1, (30, 2))
    before = task.render()
    frames, end = replay(task, actions)
    task.reset(seed=9)  # somewhere else entirely
    task.set_state(state)
    assert (task.render() == before).all()
    again, again_end = replay(task, actions)
    assert (frames == again).all()
    assert (end == again_end).all()
    assert (frames[0] != frames[-1]).any()


def test_restoring_is_exact_against_the_joint_limit_where_the_solver_warm_starts(task):
    task.reset(seed=0)
    task.data.qpos[1] = task.model.jnt_range[1, 1] - 0.01
    push = np.array([0.3, 1.0])
    for _ in range(20):
        task.advance(push)
    state = task.get_state()
    _, end = replay(task, [push] * 20)
    task.set_state(state)
    _, again = replay(task, [push] * 20)
    assert (end == again).all()


def test_pixels_show_the_current_state_and_not_the_target(task):
    task.reset(seed=1)
    first = task.render()
    task.data.qpos[0] += 1.0
    assert (task.render() != first).any()
    red = first[..., 0].astype(int) - first[..., 2]
    assert (red > 100).sum() < 60  # the target would be a red disc of about 80 pixels


def test_images_come_in_any_size():
    for size in (32, 100):
        task = tasks.make("reacher", size=size)
        pixels, _ = task.reset(seed=0)
        assert pixels.shape == (size, size, 3)
        assert pixels.dtype == np.uint8
        task.close()


def test_success_needs_every_joint_and_whole_turns_count_as_equal(task):
    task.reset(seed=0)
    goal = task.get_state()
    for offset, expected in [
        ([0.9 * TOLERANCE, -0.9 * TOLERANCE], True),
        ([1.1 * TOLERANCE, 0], False),
        ([0, 1.1 * TOLERANCE], False),
        ([2 * np.pi + 0.9 * TOLERANCE, 0], True),
        ([-4 * np.pi, 0], True),
        ([np.pi, 0], False),
    ]:
        state = goal.copy()
        state[1:3] += offset
        assert task.success(state, goal) is expected
    assert task.error(goal, goal) == 0


def test_resets_differ_by_seed_and_repeat_by_seed(task):
    states = [task.reset(seed=seed)[1]["state"] for seed in (0, 1, 0)]
    assert (states[0] == states[2]).all()
    assert (states[0] != states[1]).any()


def test_policy_is_smooth_varied_and_reaches_poses(task):
    actions, speeds = [], []
    for seed in range(8):
        task.reset(seed=seed)
        behaviour = task.behaviour(np.random.default_rng(seed))
        for _ in range(task.episode_steps):
            actions.append(behaviour.act(task))
            task.advance(actions[-1])
            speeds.append(np.abs(task.data.qvel).max())
    actions = np.stack(actions)
    assert (np.abs(actions) <= 1).all()
    assert (actions.std(0) > 0.12).all()
    neighbours = [np.corrcoef(actions[:-1, j], actions[1:, j])[0, 1] for j in range(2)]
    assert min(neighbours) > 0.6  # smooth
    assert np.quantile(speeds, 0.1) < 0.4 < 1 < np.quantile(speeds, 0.9) < 3  # it rests, it moves, it does not spin


def test_bad_actions_and_states_are_named(task):
    task.reset(seed=0)
    with pytest.raises(ShapeError, match="reacher action has 2 numbers, got shape \\[3\\]"):
        task.advance(np.zeros(3))
    with pytest.raises(ShapeError, match="must be finite"):
        task.advance(np.array([0, np.nan]))
    with pytest.raises(ShapeError, match="reacher state has"):
        task.set_state(np.zeros(5))
    with pytest.raises(ShapeError, match="image size must be 8 to 4096 pixels"):
        tasks.make("reacher", size=0)
    with pytest.raises(UnknownNameError, match="did you mean 'reacher'"):
        tasks.make("recher")


def test_it_is_headless_by_itself_and_silent_at_exit():
    code = "from acid import tasks; t = tasks.make('reacher'); print(t.reset(seed=0)[0].mean() > 1)"
    clean = {k: v for k, v in os.environ.items() if k not in ("MUJOCO_GL", "PYOPENGL_PLATFORM", "DISPLAY")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=clean, check=True)
    assert done.stdout.strip() == "True"
    assert done.stderr == ""
