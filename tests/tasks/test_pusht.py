"""Push-T on the real simulator: exact restoring, the success test, the meaning of actions, the data policy."""

import os
import subprocess
import sys

import numpy as np
import pytest
from gym_pusht.envs.pusht import PushTEnv

from acid import tasks
from acid.errors import ShapeError
from acid.tasks.collect import record_episode
from acid.tasks.pusht import ANGLE_TOLERANCE, CORNERS, POSITION_TOLERANCE, clearance, to_block, to_world

AT_REST = np.zeros(5)


@pytest.fixture(scope="module")
def task():
    return tasks.make("pusht")


@pytest.fixture(scope="module")
def episode():
    return record_episode(tasks.make("pusht"), 0, 1)


@pytest.fixture(scope="module")
def pushed():
    """States [episodes, steps, 10], actions and whether anything touched, of the data policy."""
    task = tasks.make("pusht")
    states, actions, touched = [], [], []
    for seed in range(10):
        task.reset(seed=seed)
        behaviour = task.behaviour(np.random.default_rng(seed))
        for _ in range(task.episode_steps):
            states.append(task.get_state())
            actions.append(behaviour.act(task))
            task.advance(actions[-1])
            touched.append(task.contacts > 0)
    shape = 10, task.episode_steps
    return np.reshape(states, (*shape, 10)), np.reshape(actions, (*shape, 2)), np.reshape(touched, shape)


def scene(agent, block, angle=0.0):
    return np.array([*agent, *block, angle, *AT_REST], float)


def test_an_episode_restored_at_any_step_goes_on_as_it_was_recorded(episode):
    fresh = tasks.make("pusht")
    moving = 0
    for start in range(0, 120, 7):
        fresh.set_state(episode["state"][start])
        assert (fresh.render() == episode["pixels"][start]).all()
        for step in range(start, min(start + 12, 124)):
            fresh.advance(episode["action"][step])
            moving += fresh.contacts > 0
            assert (fresh.get_state() == episode["state"][step + 1]).all()
            assert (fresh.render() == episode["pixels"][step + 1]).all()
    assert moving > 30  # it was tested where contacts matter


def test_the_future_does_not_depend_on_what_the_simulator_did_before(task):
    """Against a wall and the agent at once, where the order of contacts would show, after ever longer histories."""
    push = np.array([0.01, -0.3])
    start = scene((282, 290), (280, 120), 0.02)
    ends = []
    for history in range(6):
        task.reset(seed=history)
        for _ in range(3 * history):
            task.advance(np.array([0.3, 0.3]))
        task.set_state(start)
        for _ in range(25):
            task.advance(push)
        assert task.contacts > 0
        ends.append(task.get_state())
    assert to_world(ends[0], CORNERS)[:, 1].min() < 8  # it is at the wall
    assert (np.stack(ends) == ends[0]).all()


def test_velocities_are_part_of_the_state(task):
    """Nothing glides here: what moves freely goes on for one of the ten sub-steps of 0.01 s and rests."""
    state = scene((100, 100), (300, 300))
    state[7:] = 80, -40, 2
    task.set_state(state)
    task.advance(np.zeros(2))
    centre = np.array([0, 45])
    moved = to_world(task.get_state(), centre) - to_world(state, centre)
    np.testing.assert_allclose(moved, [0.8, -0.4], atol=1e-9)
    assert task.get_state()[4] == pytest.approx(0.02)
    assert (task.get_state()[7:] == 0).all()


def test_states_are_copies(task):
    task.reset(seed=0)
    state = task.get_state()
    task.set_state(state)
    state += 1
    assert (task.get_state() == state - 1).all()
    task.get_state()[:] = 0
    assert (task.get_state() == state - 1).all()


def test_an_action_moves_the_target_by_a_hundred_pixels_from_where_the_agent_is(task):
    """As gym-pusht moves, asked for the same target."""
    original = PushTEnv()
    for action in ([0.3, -0.2], [-0.6, 0.5], [0, 0]):
        original.reset(seed=0, options={"reset_to_state": [200, 300, 400, 100, 0]})
        task.set_state(scene((200, 300), (400, 100)))
        for _ in range(4):
            target = np.array(original.agent.position) + 100 * np.array(action)
            original.step(target)
            task.advance(np.array(action))
            np.testing.assert_allclose(task.get_state()[:2], original.agent.position, atol=1e-9)
            np.testing.assert_allclose(task.get_state()[5:7], original.agent.velocity, atol=1e-9)


def test_a_push_moves_the_block_as_in_the_original(task):
    """The contacts that pymunk remembers and this task forgets make little difference."""
    original = PushTEnv()
    original.reset(seed=0, options={"reset_to_state": [256, 200, 240, 260, 0.2]})
    start = [*original.agent.position, *original.block.position, original.block.angle]
    task.set_state(np.array([*start, *AT_REST]))
    for _ in range(15):
        original.step(np.add(original.agent.position, (0, 25)))
        task.advance(np.array([0, 0.25]))
    moved = task.get_state()[2:5]
    assert np.linalg.norm(moved[:2] - start[2:4]) > 40
    np.testing.assert_allclose(moved[:2], original.block.position, atol=1)
    np.testing.assert_allclose(moved[2], original.block.angle, atol=0.02)


def test_actions_beyond_the_bounds_and_targets_beyond_the_world_are_cut(task):
    ends = []
    for action in ([1, 0], [7, 0]):
        task.set_state(scene((100, 300), (350, 200)))
        task.advance(np.array(action))
        ends.append(task.get_state())
    assert (ends[0] == ends[1]).all()
    for _ in range(60):
        task.advance(np.array([-1, 1]))
    assert (task.get_state()[:2] >= -5).all()
    assert (task.get_state()[:2] <= 517).all()


def test_success_needs_positions_together_and_the_angle(task):
    goal = scene((100, 200), (300, 250), 3.0)
    half = POSITION_TOLERANCE / 2
    for offset, expected in [
        ([0, 0, 0, 0, 0], True),
        ([19.9, 0, 0, 0, 0], True),
        ([20.1, 0, 0, 0, 0], False),
        ([0, 0, 0, -20.1, 0], False),
        ([0.99 * half] * 4 + [0], True),  # the norm of all four is twice one of them
        ([1.01 * half] * 4 + [0], False),
        ([14, 0, 15, 0, 0], False),  # neither alone is too far
        ([0, 0, 0, 0, 0.99 * ANGLE_TOLERANCE], True),
        ([0, 0, 0, 0, -1.01 * ANGLE_TOLERANCE], False),
        ([0, 0, 0, 0, 2 * np.pi + 0.99 * ANGLE_TOLERANCE], True),
        ([0, 0, 0, 0, -4 * np.pi], True),
        ([0, 0, 0, 0, np.pi], False),
    ]:
        state = goal.copy()
        state[:5] += offset
        assert task.success(state, goal) is expected, offset
        assert task.success(goal, state) is expected, offset
        assert (task.error(state, goal) < 1) is expected
    assert task.error(goal, goal) == 0
    still = goal.copy()
    still[5:] = 50  # velocities do not count
    assert task.error(still, goal) == 0


def test_error_is_in_tolerances(task):
    goal = scene((100, 200), (300, 250))
    assert task.error(scene((140, 200), (300, 250)), goal) == pytest.approx(2)
    assert task.error(scene((110, 200), (300, 250), 3 * ANGLE_TOLERANCE), goal) == pytest.approx(3)


def test_pose_and_columns_name_parts_of_the_state(task):
    state = np.arange(10) * 10.0
    state[4] = 2 * np.pi + 0.5
    task.set_state(state)
    np.testing.assert_allclose(task.pose(state), [0, 10, 20, 30, 0.5])
    columns = task.columns()
    np.testing.assert_allclose(columns["proprio"], [0, 10, 50, 60])
    np.testing.assert_allclose(columns["block"], [20, 30, 0.5])
    physical = task.physical({name: values[None] for name, values in columns.items()})
    np.testing.assert_allclose(physical["angle"], [[np.cos(0.5), np.sin(0.5)]])
    np.testing.assert_allclose(
        np.concatenate([physical[n][0] for n in ("agent", "speed", "block")])[[0, 3, 4]], [0, 60, 20]
    )


def test_resets_differ_by_seed_repeat_by_seed_and_start_apart_at_rest(task):
    states = [task.reset(seed=seed)[1]["state"] for seed in (0, 1, 0)]
    assert (states[0] == states[2]).all()
    assert (states[0] != states[1])[:5].all()
    drawn = np.stack([task.reset(seed=seed)[1]["state"] for seed in range(60)])
    assert (drawn[:, 5:] == 0).all()
    assert min(clearance(state, state[:2]) for state in drawn) > 15
    corners = np.stack([to_world(state, CORNERS) for state in drawn])
    assert corners.min() > 7
    assert corners.max() < 504
    assert np.ptp(drawn[:, 4]) > 5  # the block is turned every way
    task.reset(seed=3)
    before = task.get_state()
    task.advance(np.zeros(2))
    assert task.contacts == 0
    np.testing.assert_allclose(task.get_state(), before, atol=1e-9)


def test_frames_of_the_block_and_the_world_are_inverse():
    state = scene((0, 0), (200, 150), 0.7)
    points = np.array([[3.0, 4.0], [-50.0, 20.0]])
    np.testing.assert_allclose(to_block(state, to_world(state, points)), points)
    assert clearance(state, to_world(state, np.array([[0.0, 45.0], [0.0, -10.0], [75.0, 50.0]]))) == pytest.approx(
        [0, 10, 25]
    )


def test_the_picture_is_the_original_one_without_the_goal_marker():
    original = PushTEnv(observation_width=128, observation_height=128)
    original.reset(seed=0, options={"reset_to_state": [120, 400, 350, 320, 2.0]})
    task = tasks.make("pusht", size=128)
    task.set_state(scene(original.agent.position, original.block.position, original.block.angle))
    wanted = original._render().astype(int)
    marker = (wanted[..., 1] > wanted[..., 0] + 40) & (wanted[..., 1] > wanted[..., 2] + 40)
    assert marker.sum() > 200
    wanted[marker] = 255
    difference = np.abs(task.render().astype(int) - wanted).max(-1)
    assert (difference > 60).mean() < 0.01  # edges are smoother here
    assert np.median(difference) == 0
    assert difference.mean() < 2


def test_motion_of_a_twentieth_of_a_pixel_shows_and_drawn_mass_follows_it(task):
    def ink(state):
        task.set_state(state)
        return 255.0 - task.render().astype(float).mean(-1)

    base = scene((300, 130), (200, 330), 0.4)
    for moved in (scene((300.4, 130), (200, 330), 0.4), scene((300, 130), (200.4, 330), 0.4)):
        assert (ink(moved) != ink(base)).any()
    columns = np.arange(64)
    shifts = []
    for offset in np.linspace(0, 8, 9):  # one pixel of the image in eighths
        drawn = ink(scene((300, 130), (200 + offset, 330), 0.4))[24:62, 2:62]
        shifts.append((drawn.sum(0) * columns[2:62]).sum() / drawn.sum())
    np.testing.assert_allclose(np.diff(shifts), 1 / 8, atol=0.02)


def test_images_come_in_any_size_and_what_is_outside_is_cut():
    for size in (8, 33, 224):
        task = tasks.make("pusht", size=size)
        pixels, _ = task.reset(seed=0)
        assert pixels.shape == (size, size, 3)
        assert pixels.dtype == np.uint8
        task.set_state(scene((-300, 700), (511, 1), 0.3))
        assert task.render().shape == (size, size, 3)


def test_policy_pushes_turns_and_keeps_the_block_in_the_arena(pushed):
    states, _, touched = pushed
    assert touched.mean() > 0.4
    early, late = states[:, :-25], states[:, 25:]
    slid = np.linalg.norm(late[..., 2:4] - early[..., 2:4], axis=-1)
    turned = np.abs(late[..., 4] - early[..., 4])
    assert ((slid > 10) | (turned > 0.1)).mean() > 0.8
    assert (slid > 30).mean() > 0.4
    assert (turned > 0.2).mean() > 0.4
    corners = np.stack([to_world(state, CORNERS) for state in states.reshape(-1, 10)])
    assert corners.min() > 4
    assert corners.max() < 507
    assert states[..., :2].min() > 0
    assert states[..., :2].max() < 512


def test_policy_pushes_from_all_sides(pushed):
    states, _, touched = pushed
    contact = np.stack([to_block(state, state[:2]) for state in states[touched]])
    x, y = contact.T
    over, under, inner = y < 0, y > 120, (y > 30) & (np.abs(x) < 60)
    for side in (over & (x > 0), over & (x < 0), under, x > 60, x < -60, inner & (x > 0), inner & (x < 0)):
        assert side.sum() > 2


def test_policy_goes_around_the_block_and_trembles(pushed):
    states, actions, _ = pushed
    gaps = [clearance(state, state[:2]) for state in states.reshape(-1, 10)]
    assert min(gaps) > 12  # it never dives into the block
    assert np.linalg.norm(actions, axis=-1).max() < 1.2
    neighbours = [np.corrcoef(actions[:, :-1, j].ravel(), actions[:, 1:, j].ravel())[0, 1] for j in range(2)]
    assert min(neighbours) > 0.3
    jumps = np.diff(actions, axis=1).std((1, 2))
    assert jumps.max() > 3 * jumps.min()  # some episodes are calm, some are not
    assert (actions.std((0, 1)) > 0.1).all()


def test_policy_is_a_function_of_its_seed(task):
    ends = []
    for behaviour in (5, 5, 6):
        task.reset(seed=1)
        behaviour = task.behaviour(np.random.default_rng(behaviour))
        for _ in range(20):
            task.advance(behaviour.act(task))
        ends.append(task.get_state())
    assert (ends[0] == ends[1]).all()
    assert (ends[0] != ends[2]).any()


def test_bad_actions_states_and_sizes_are_named(task):
    with pytest.raises(ShapeError, match="pusht action has 2 numbers, got shape \\[3\\]"):
        task.advance(np.zeros(3))
    with pytest.raises(ShapeError, match="must be finite"):
        task.advance(np.array([0, np.nan]))
    with pytest.raises(ShapeError, match="pusht state has 10 numbers, got shape \\[5\\]"):
        task.set_state(np.zeros(5))
    with pytest.raises(ShapeError, match="image size must be 8 to 4096 pixels"):
        tasks.make("pusht", size=4)


def test_memory_does_not_grow_with_steps(task):
    """A whole new pymunk space for each step would leak 12 kB of it."""

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def run(steps):
        for _ in range(steps):
            task.advance(np.array([0.1, 0]))

    task.reset(seed=0)
    run(200)
    before = resident()
    run(600)
    assert resident() - before < 2e6


def test_it_needs_no_screen_and_is_silent():
    code = "from acid import tasks; t = tasks.make('pusht'); print(t.reset(seed=0)[0].mean() > 1)"
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SDL_", "PYGAME_", "DISPLAY", "MUJOCO_GL"))}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=clean, check=True)
    assert done.stdout.strip() == "True"
    assert done.stderr == ""
