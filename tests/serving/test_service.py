"""From observations to answers: goals of a session, what is refused, what an answer tells."""

from __future__ import annotations

import numpy as np
import pytest
from serving_toys import GOAL, INPUTS, Point, observation, service

from acid.errors import AcidError
from acid.planning import CEM, Planner, goal_cost
from acid.serving import Inputs, MessageError, Service, Trust, pack, unpack
from acid.serving.service import Session


def test_a_goal_may_come_with_the_observation_or_once_before():
    session = Session(INPUTS)
    assert session.request(GOAL) is None
    first = session.request(observation(0.1))
    np.testing.assert_array_equal(first.goal, GOAL["goal/state"])
    other = np.array([9.0, 9.0], np.float32)
    assert (session.request(observation(0.1, **{"goal/state": other})).goal == other).all()
    assert (session.request(observation(0.2)).goal == other).all()  # it stays
    assert Session(INPUTS, other).request(observation()).goal is other


def test_what_other_clients_send_besides_is_ignored():
    message = unpack(pack({**GOAL, **observation(), "prompt": "pick up the cube", "observation/wrist": np.zeros(3)}))
    assert Session(INPUTS).request(message).seed == 0


WRONG = {
    "is a map": [1, 2],
    "has no 'observation/state'; it has 'prompt'": {"prompt": "go"},
    "has no 'observation/state'; it has nothing": {},
    "there is no goal yet: send 'goal/state' with the observation, or once before it": observation(),
    "must be an array of float32 [2], got float64 [2]": {"observation/state": np.zeros(2), **GOAL},
    "must be an array of float32 [2], got float32 [3]": {"observation/state": np.zeros(3, np.float32), **GOAL},
    "must be an array of float32 [2], got list": {"observation/state": [0.0, 0.0], **GOAL},
    "'goal/state' must be an array": {**observation(), "goal/state": 3},
    "'observation/state' holds NaN": {"observation/state": np.full(2, np.nan, np.float32), **GOAL},
    "'seed' must be an integer": observation(seed=-1, **GOAL),
    "'seed' must be an integer from 0 to 2**63 - 1, got 1.5": observation(seed=1.5, **GOAL),
    "'last_action' must be an array of numbers": observation(last_action="left", **GOAL),
}


@pytest.mark.parametrize("reason", WRONG)
def test_a_wrong_observation_is_answered_with_what_is_wrong(reason: str):
    with pytest.raises(MessageError) as error:
        Session(INPUTS).request(WRONG[reason])
    assert reason in str(error.value)


def test_an_answer_is_the_plan():
    made = service()
    request = Session(INPUTS).request(observation(0.1, seed=5, **GOAL))
    (answer,) = made.answer([request])
    plan = made._planner.plan(
        *(__import__("torch").tensor(v)[None] for v in (request.observation, request.goal)), seed=[5]
    )
    np.testing.assert_array_equal(answer["actions"], plan.env_actions[0])
    np.testing.assert_array_equal(answer["consistency"], plan.consistency[0])
    assert answer["costs"]["goal"] == float(plan.costs["goal"][0])
    assert answer["trusted"] is None
    assert (
        unpack(pack(answer))["actions"].shape
        == (made.metadata["action_horizon"], made.metadata["action_dim"])
        == (6, 2)
    )


def test_an_answer_does_not_depend_on_who_else_asks():
    made, session = service(), Session(INPUTS)
    requests = [session.request(observation(x, seed=seed, **GOAL)) for x, seed in ((0.1, 3), (0.4, 4), (0.1, 3))]
    together = made.answer(requests)
    for request, answer in zip(requests, together, strict=True):
        np.testing.assert_allclose(made.answer([request])[0]["actions"], answer["actions"], atol=1e-6)
    np.testing.assert_array_equal(together[0]["actions"], together[2]["actions"])


def test_the_flag_compares_the_plans_own_consistency_with_the_threshold():
    request = Session(INPUTS).request(observation(0.1, **GOAL))
    score = service().answer([request])[0]["costs"]["consistency"]
    for threshold, trusted in ((score, True), (score * 0.99, False)):
        trust = Trust("consistency", threshold, 0.1, 10, 10, 0.5, None, {})
        (answer,) = service(trust=trust).answer([request])
        assert answer["trusted"] is trusted
        assert service(trust=trust).metadata["trust"]["threshold"] == threshold


def test_a_planner_that_starts_from_the_last_action_asks_for_it():
    seen = []

    def initial(observations, goals, last_actions):
        seen.append(last_actions)

    search = CEM(samples=4, iterations=1, elites=2)
    made = Service(Planner(Point(), goal_cost(), search, horizon=3), INPUTS, initial=initial)
    session = Session(INPUTS)
    made.answer([made.blank(), session.request(observation(last_action=np.array([1, 2]), **GOAL))])
    np.testing.assert_array_equal(seen[0], [[0, 0], [1, 2]])
    with pytest.raises(MessageError, match="send 'last_action', an array"):
        made.answer([session.request(observation())])


def test_plans_that_cannot_be_executed_are_not_served():
    planner = Planner(Point(scaler=None), goal_cost(), CEM(), horizon=3, action_size=2)  # type: ignore[arg-type]
    with pytest.raises(AcidError, match="no action scaler"):
        Service(planner, Inputs((2,), (2,)))
