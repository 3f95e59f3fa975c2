"""Agents that do not see everything, or that something else disturbs."""

from __future__ import annotations

import numpy as np
import pytest

from acid.errors import AcidError
from acid.evaluation import Decision, Situation
from acid.evaluation.disturbances import MaskedAgent, PushedAgent


class Recorder:
    """Remembers what it saw and wants nothing done for ten steps."""

    def act(self, situation: Situation) -> Decision:
        self.seen = situation
        return Decision(np.zeros((len(situation.instances), 10, 2), np.float32))


def situation(plan: int = 0) -> Situation:
    frames = np.full((3, 2, 8, 8, 3), 7, np.uint8)
    return Situation(frames, np.full((3, 8, 8, 3), 9, np.uint8), 50, ["a", "b", "c"], plan=plan)


def test_a_square_of_half_the_side_is_hidden_in_every_frame_but_not_in_the_goal():
    agent, asked = Recorder(), situation()
    MaskedAgent(agent).act(asked)
    hidden = (agent.seen.frames != 7).any(-1)
    assert hidden.sum((2, 3)).tolist() == [[16, 16]] * 3
    assert np.array_equal(hidden[:, 0], hidden[:, 1])  # the same square in every frame of an episode
    assert np.array_equal(agent.seen.goals, asked.goals)
    assert (asked.frames == 7).all()
    before = agent.seen.frames
    MaskedAgent(agent).act(situation())
    assert np.array_equal(agent.seen.frames, before)
    MaskedAgent(agent).act(situation(plan=1))
    assert not np.array_equal(agent.seen.frames, before)


def test_the_first_steps_are_not_the_agents_own():
    low, high = np.array([-1.0, 2.0]), np.array([1.0, 3.0])
    found = PushedAgent(Recorder(), low, high, steps=4).act(situation()).env_actions
    assert (found[:, 4:] == 0).all()
    pushed = found[:, :4]
    assert ((pushed >= low) & (pushed <= high)).all()
    assert len({episode.tobytes() for episode in pushed}) == 3
    again = PushedAgent(Recorder(), low, high, steps=4).act(situation()).env_actions
    assert np.array_equal(found, again)


def test_pushes_need_bounds():
    with pytest.raises(AcidError, match="random pushes need finite bounds"):
        PushedAgent(Recorder(), np.array([-np.inf]), np.array([1.0]), steps=1)
