"""Published datasets tell less of a state than our tasks keep, and show it as the original simulators draw it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gym_pusht.envs.pusht import PushTEnv

from acid import tasks
from acid.data import Episodes, EpisodeWriter
from acid.errors import ShapeError
from acid.evaluation.agents import NoOpAgent
from acid.evaluation.play import play
from acid.evaluation.protocol import Protocol, draw_instances
from acid.tasks import Task
from acid.tasks.collect import record_episode
from acid.tasks.offscreen import mujoco

STEPS = 20


def published(episode: dict[str, np.ndarray], task: Task) -> dict[str, np.ndarray]:
    """What a published dataset would tell of an episode."""
    if "pusht" in task.name:
        return {"state": np.concatenate([episode["state"][:, :5], episode["proprio"][:, 2:]], 1)}
    nq, nv = task.model.nq, task.model.nv  # type: ignore[attr-defined]
    return {"qpos": episode["state"][:, 1 : 1 + nq], "qvel": episode["state"][:, 1 + nq : 1 + nq + nv]}


@pytest.fixture(scope="module", params=["pusht", "reacher", "cube"])
def recorded(request: pytest.FixtureRequest) -> tuple[Task, dict[str, np.ndarray], np.ndarray]:
    """A task, an episode of it, and the states that its published columns give."""
    task = tasks.make(request.param)
    episode = record_episode(task, 0, 1)
    return task, episode, task.recorded_states(published(episode, task))


def test_a_published_state_is_the_recorded_scene(recorded: tuple[Task, dict[str, np.ndarray], np.ndarray]) -> None:
    task, episode, states = recorded
    assert states.shape == episode["state"].shape
    for step in range(0, len(states), STEPS):
        task.set_state(states[step])
        assert (task.pose(task.get_state()) == task.pose(episode["state"][step])).all()
        assert (task.render() == episode["pixels"][step]).all()
        assert task.success(states[step], episode["state"][step])


def test_it_goes_on_nearly_as_recorded(recorded: tuple[Task, dict[str, np.ndarray], np.ndarray]) -> None:
    """What is left out is the block's speed in Push-T, and what a solver starts from."""
    task, episode, states = recorded
    errors = []
    for start in range(0, len(states) - STEPS, STEPS):
        task.set_state(states[start])
        for action in episode["action"][start : start + STEPS]:
            task.advance(action)
        errors.append(task.error(task.get_state(), episode["state"][start + STEPS]))
    assert task.tolerance is not None
    assert np.median(errors) < 0.05 * task.tolerance


def test_a_published_dataset_is_evaluated_on(
    recorded: tuple[Task, dict[str, np.ndarray], np.ndarray], tmp_path: Path
) -> None:
    task, episode, states = recorded
    with EpisodeWriter(tmp_path / "published.h5") as writer:
        for _ in range(4):
            writer.write({"action": episode["action"], **published(episode, task)})
    protocol = Protocol(goal_offset=25, budget=5, episodes=3)
    with Episodes(tmp_path / "published.h5") as data:
        drawn = draw_instances(data, range(4), task, protocol)
    for instance in drawn:
        np.testing.assert_array_equal(instance.start_state, states[instance.start_step])
        np.testing.assert_array_equal(instance.goal_state, states[instance.start_step + 25])
    played = play(task, NoOpAgent(task.idle_action), drawn.unsolved, protocol=protocol)
    assert all(one.steps for one in played)


def test_states_of_our_own_are_left_alone(recorded: tuple[Task, dict[str, np.ndarray], np.ndarray]) -> None:
    task, episode, _ = recorded
    assert task.recorded_states(episode) is episode["state"]


def test_positions_of_another_scene_are_refused() -> None:
    task = tasks.make("reacher")
    with pytest.raises(ShapeError, match=r"reacher has 2 positions and 2 velocities, .* have \[3\] and \[2\]"):
        task.recorded_states({"qpos": np.zeros((1, 3)), "qvel": np.zeros((1, 2))})


def test_push_t_is_drawn_with_its_marker() -> None:
    task = tasks.make("pusht-published", size=96)
    theirs = PushTEnv(obs_type="pixels")
    theirs.reset(options={"reset_to_state": [100.0, 120, 300, 380, 0.5]})
    there = [*theirs.agent.position, *theirs.block.position, theirs.block.angle]  # it turns the block about its centre
    task.set_state(np.array([*there, 0, 0, 0, 0, 0]))
    drawn = task.render()
    assert (drawn == theirs.get_obs()).all()
    marker = np.array([144, 238, 144])  # light green
    assert (drawn == marker).all(-1).sum() > 100
    assert not (tasks.make("pusht", size=96).render() == marker).all(-1).any()


def test_reacher_is_drawn_as_dm_control_does() -> None:
    from dm_control.suite import reacher

    task = tasks.make("reacher-published", size=96)
    task.reset(seed=1)
    physics = reacher.Physics.from_xml_string(*reacher.get_model_and_assets())
    physics.named.model.mat_rgba["target"] = 0
    with physics.reset_context():
        physics.data.qpos[:] = task.data.qpos  # type: ignore[attr-defined]
    assert (task.render() == physics.render(96, 96, camera_id=0)).all()


def test_cube_is_drawn_as_ogbench_does() -> None:
    task = tasks.make("cube-published", size=96)
    task.reset(seed=1)
    env = task.env  # type: ignore[attr-defined]
    for name in ("black", "pad_gray"):
        env.model.material(f"ur5e/robotiq/{name}").rgba[:] = env._colors["purple"]
    renderer = mujoco.Renderer(env.model, 96, 96)
    renderer.update_scene(env.data, camera="front_pixels")
    difference = np.abs(task.render().astype(int) - renderer.render())
    renderer.close()
    assert (difference > 2).mean() < 0.001


def test_a_published_step_of_reacher_is_two_of_ours() -> None:
    long, short = tasks.make("reacher-published", size=16), tasks.make("reacher", size=16)
    long.reset(seed=2)
    short.set_state(long.get_state())
    long.advance(np.array([0.3, -0.2]))
    for _ in range(2):
        short.advance(np.array([0.3, -0.2]))
    assert (long.get_state() == short.get_state()).all()
