"""The real task, real episode files and the loop together."""

from __future__ import annotations

import numpy as np
import pytest

from acid import tasks
from acid.data import Episodes, EpisodeWriter
from acid.evaluation import Decision, NoOpAgent, Protocol, Situation, draw_instances, play
from acid.tasks.collect import record_episode

PROTOCOL = Protocol(goal_offset=25, budget=50, episodes=6)


@pytest.fixture(scope="module")
def task():
    task = tasks.make("reacher", size=16)
    yield task
    task.close()


@pytest.fixture(scope="module")
def episodes(task, tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "reacher.h5"
    task.episode_steps = 60
    with EpisodeWriter(path) as writer:
        for index in range(8):
            writer.write(record_episode(task, 0, index))
    with Episodes(path) as episodes:
        yield episodes


class Replay:
    """Repeats what the episode did, five steps at a time, and checks that it sees what the episode saw."""

    def __init__(self, episodes, instances) -> None:
        starts = [int(episodes.offsets[i.episode]) + i.start_step for i in instances]
        self.episodes, self.rows = episodes, np.array(starts)

    def act(self, situation: Situation) -> Decision:
        rows = self.rows + PROTOCOL.budget - situation.left
        np.testing.assert_array_equal(situation.observation, self.episodes.read("pixels", rows))
        np.testing.assert_array_equal(situation.goals, self.episodes.read("pixels", self.rows + 25))
        return Decision(self.episodes.read("action", rows[:, None] + np.arange(5)))


def test_replayed_actions_reach_every_goal_exactly(task, episodes):
    for instance in draw_instances(episodes, range(8), task, PROTOCOL):
        (episode,) = play(task, Replay(episodes, [instance]), [instance], protocol=PROTOCOL)
        assert episode.success
        assert episode.steps <= 25
        assert episode.final_error <= episode.initial_error


def test_a_batch_on_one_simulator_keeps_its_episodes_apart(task, episodes):
    class Strict(type(task)):
        def success(self, state, goal_state):
            return self.error(state, goal_state) == 0.0  # bit for bit

    instances = draw_instances(episodes, range(8), task, PROTOCOL)
    strict = Strict(size=16)
    played = play(strict, Replay(episodes, instances), instances, protocol=PROTOCOL)
    strict.close()
    assert [episode.steps for episode in played] == [25] * 6
    assert all(episode.success for episode in played)


def test_doing_nothing_solves_nothing_that_needs_doing(task, episodes):
    instances = draw_instances(episodes, range(8), task, PROTOCOL)
    played = play(task, NoOpAgent(task.idle_action), instances, protocol=PROTOCOL)
    assert not all(episode.success for episode in played)
    assert all(episode.initial_error >= 0.05 for episode in played)
