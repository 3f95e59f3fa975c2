"""Rope and Granular as tasks: exact states, the Chamfer distance, goals, the data policy, the pictures."""

import numpy as np
import pytest

from acid import tasks
from acid.errors import ShapeError
from acid.tasks.collect import record_episode
from acid.tasks.deformable import REACH, TOLERANCE, UNCHANGED, PushBehaviour, chamfer

SIZE = 96
STATE = {"rope": 153, "granular": 400}


@pytest.fixture(scope="module", params=["rope", "granular"])
def task(request):
    made = tasks.make(request.param, size=SIZE)
    made.episode_steps = 6  # fewer pushes are enough here
    yield made
    made.close()


@pytest.fixture(scope="module")
def episode(task):
    return record_episode(task, seed=0, index=0)


def test_a_recorded_episode_goes_on_exactly_from_any_of_its_steps(task, episode):
    for start in (0, 3):
        task.set_state(episode["state"][start])
        task._foreseen = None
        for step in range(start, start + 2):
            assert (task.get_state() == episode["state"][step]).all()
            assert (task.render() == episode["pixels"][step]).all()
            task.advance(episode["action"][step])


def test_a_state_is_its_own_memory(task):
    state = task.reset(seed=3)[1]["state"]
    assert state.shape == (STATE[task.name],)
    task.get_state()[:] = 0
    task.pose(task.get_state())[:] = 0
    task.foresee(np.array([3, 3, 3.1, 3]))[:] = 0
    kept = state.copy()
    task.set_state(state)
    state[:] = 7
    assert (task.get_state() == kept).all()


def test_foreseeing_tells_what_will_happen_and_changes_nothing(task, episode):
    task.set_state(episode["state"][0])
    foreseen = task.foresee(episode["action"][0])
    assert (task.get_state() == episode["state"][0]).all()
    assert (foreseen == task.pose(episode["state"][1])).all()
    task.set_state(episode["state"][2])  # the same push from elsewhere is another push
    assert not (task.foresee(episode["action"][0]) == foreseen).all()


def test_chamfer_is_the_sum_of_two_mean_nearest_distances():
    x = np.array([[0.0, 0, 0], [1, 0, 0]])
    y = np.array([[0.0, 0, 2], [1, 0, 0], [1, 3, 4]])
    # From x: 1 (to the second of y) and 0. From y: 2, 0 and 5.
    assert chamfer(x, y) == pytest.approx((1 + 0) / 2 + (2 + 0 + 5) / 3)
    assert chamfer(x, y) == pytest.approx(chamfer(y, x))
    assert chamfer(x, x[::-1]) == 0


def test_error_and_success_see_positions_only(task):
    state = task.reset(seed=0)[1]["state"]
    assert (task.metric, task.higher_is_better, task.frameskip) == ("chamfer", False, 1)
    for height, expected in [(0.4 * TOLERANCE, True), (0.6 * TOLERANCE, False)]:
        raised = state.reshape(len(task.radii), -1).copy()
        raised[:, 2] += height
        # Neighbours are farther than this, so the nearest point is the same one.
        far_apart = task.error(raised.ravel(), state)
        assert far_apart == pytest.approx(2 * height, rel=1e-6)
        assert task.success(raised.ravel(), state) is expected


def test_doing_nothing_scores_as_published_tasks_do(task):
    """From the undisturbed object to random goals: about 1.59 for the rope and 0.51 for the grains."""
    task.reset(seed=0)
    start, rng = task.initial_positions(), np.random.default_rng(0)
    mean = np.mean([chamfer(start, task.pose(task.draw_goal(rng))) for _ in range(400)])
    assert mean == pytest.approx({"rope": 1.59, "granular": 0.53}[task.name], rel=0.06)


def test_goals_are_the_same_particles_in_a_goal_shape(task):
    state = task.reset(seed=2)[1]["state"]
    rng = np.random.default_rng(1)
    for _ in range(50):
        goal = task.draw_goal(rng)
        assert (task.get_state() == state).all()
        places = task.pose(goal)
        assert np.abs(places[:, :2].mean(0)).max() <= 1
        assert (places[:, 2] == task.radii).all()
        extent = np.linalg.norm(places[0] - places[-1])
        if task.name == "rope":
            assert extent == pytest.approx(3.75)
            assert (np.diff(places[:, :2], axis=0) > -1e-12).all()  # turned by 0 to 90°
        else:
            assert (goal.reshape(-1, 4)[:, 3] == state.reshape(-1, 4)[:, 3]).all()
            assert 0.6 <= extent / np.linalg.norm(task.initial_positions()[0] - task.initial_positions()[-1]) <= 0.9


def test_resets_differ_by_seed_and_repeat_by_seed(task):
    states = [task.reset(seed=seed)[1]["state"] for seed in (0, 1, 0)]
    assert (states[0] == states[2]).all()
    assert not (states[0] == states[1]).all()
    if task.name == "granular":  # the same square, other grains
        assert (task.pose(states[0])[:, :2] == task.pose(states[1])[:, :2]).all()
    else:
        assert chamfer(task.pose(states[0]), task.pose(states[1])) > 0.1


def test_pushes_of_the_data_start_beside_the_object_and_move_it(task, episode):
    assert episode["action"].dtype == np.float32
    assert (np.abs(episode["action"]) <= REACH).all()
    moved = []
    for state, after, action in zip(episode["state"], episode["state"][1:], episode["action"], strict=False):
        places = task.pose(state)
        assert np.linalg.norm(places[:, :2] - action[:2], axis=1).min() > 0.2 - 1e-5
        assert np.abs(action[2:]).max() <= max(task.border, np.abs(action[:2]).max()) + 1e-5
        moved.append(np.linalg.norm(task.pose(after) - places, axis=1).max())
    assert min(moved) >= UNCHANGED


def test_pushes_go_through_a_central_particle_and_beyond():
    rng = np.random.default_rng(0)
    places = rng.normal(0, 0.8, (60, 2))
    central = places[np.linalg.norm(places - np.median(places, axis=0), axis=1) <= 2.0]
    for _ in range(100):
        x0, y0, x1, y1 = PushBehaviour(rng)._draw(places).astype(float)
        start, way = np.array([x0, y0]), np.array([x1 - x0, y1 - y0])
        length = np.linalg.norm(way)
        along = (central - start) @ way / length
        beside = np.abs((central - start) @ np.array([-way[1], way[0]]) / length)
        assert ((beside < 1e-5) & (length - along > 0.05) & (length - along < 1.05)).any() or max(
            abs(x1), abs(y1)
        ) > 3.99


def test_probed_quantities_follow_the_particles(task):
    state = task.reset(seed=4)[1]["state"]
    shifted = state.reshape(len(task.radii), -1).copy()
    shifted[:, :2] += [0.5, -0.25]
    found = task.physical({"state": np.stack([state, shifted.ravel()])})
    np.testing.assert_allclose(found["middle"][1] - found["middle"][0], [0.5, -0.25])
    np.testing.assert_allclose(found["spread"][0], found["spread"][1], atol=1e-12)
    if task.name == "rope":  # looks the same from its other end
        other = task.physical({"state": task.pose(state)[::-1].reshape(1, -1)})
        np.testing.assert_allclose(other["ends"][0], found["ends"][0])
        np.testing.assert_allclose(other["quarters"][0], found["quarters"][0])


def colour_of_object(pixels):
    """Red above blue: neither the table nor the floor has that."""
    return np.clip(pixels[..., 0].astype(float) - pixels[..., 2], 0, None)


def place_in_picture(pixels):
    weight = colour_of_object(pixels)
    return (np.indices(weight.shape) * weight).sum((1, 2)) / weight.sum()


def test_pictures_are_from_the_published_camera(task):
    """From (6, 6, 9.5), looking at the origin: x and y both come closer, x to the left."""
    places = {}
    state = task.reset(seed=0)[1]["state"].reshape(len(task.radii), -1)
    state[:, :2] = task.initial_positions()[:, :2]
    for name, shift in {"middle": (0, 0), "x": (1, 0), "y": (0, 1), "both": (1, 1)}.items():
        moved = state.copy()
        moved[:, :2] += shift
        task.set_state(moved.ravel())
        pixels = task.render()
        assert pixels.shape == (SIZE, SIZE, 3)
        places[name] = place_in_picture(pixels)
    np.testing.assert_allclose(places["middle"], (SIZE - 1) / 2, atol=2)
    # A unit across the line of sight is size / (2 · 12.75 · tan 22.5°) pixels.
    pixel = SIZE / (2 * 12.75 * np.tan(np.radians(22.5)))
    across = [(places[name] - places["middle"])[1] for name in "xy"]
    np.testing.assert_allclose(across, [-pixel / np.sqrt(2), pixel / np.sqrt(2)], atol=0.6)
    assert (places["both"] - places["middle"])[0] > 0.8 * pixel * np.sqrt(2) * 9.5 / 12.75


def test_a_small_motion_shows(task):
    task.reset(seed=0)
    before = task.render()
    state = task.get_state().reshape(len(task.radii), -1)
    state[:, 0] += 0.1
    task.set_state(state.ravel())
    assert np.abs(task.render().astype(int) - before).max() > 20


def test_bad_actions_and_states_are_named(task):
    with pytest.raises(ShapeError, match=f"{task.name} action has 4 numbers, got shape \\[2\\]"):
        task.advance(np.zeros(2))
    with pytest.raises(ShapeError, match="must be finite"):
        task.advance(np.array([0, 0, np.nan, 0]))
    with pytest.raises(ShapeError, match=f"{task.name} state has {STATE[task.name]} numbers, got shape \\[5\\]"):
        task.set_state(np.zeros(5))
    with pytest.raises(ShapeError, match="state must be finite, got 1 that are not"):
        task.set_state(np.r_[np.nan, np.ones(STATE[task.name] - 1)])
    with pytest.raises(ShapeError, match="image size must be 8 to 4096 pixels"):
        tasks.make(task.name, size=7)
    if task.name == "granular":
        with pytest.raises(ShapeError, match="positive radii"):
            task.set_state(np.zeros(400))


def test_a_rope_that_the_pusher_cannot_get_behind_is_no_fair_start():
    task = tasks.make("rope", size=32)
    state = task.get_state()
    assert task.is_fair_start(state)
    state[1::3] += 3.6  # towards the border in y
    assert not task.is_fair_start(state)
    task.close()
