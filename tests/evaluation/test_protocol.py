from __future__ import annotations

import numpy as np
import pytest
from evaluation_fakes import Line, fake_episodes

from acid.errors import AcidError, DataError
from acid.evaluation.protocol import Instances, Protocol, draw_instances, halves

HELD_OUT = list(range(3, 23))


def draw(data=None, **options):
    options = {"goal_offset": 5, "episodes": 30} | options
    return draw_instances(data or fake_episodes(30, 20), HELD_OUT, Line(), Protocol(**options))


def test_goals_are_the_offset_ahead_in_the_same_held_out_episode():
    for instance in draw():
        assert instance.episode in HELD_OUT
        assert 0 <= instance.start_step < 20 - 5
        assert instance.goal_row - instance.start_row == 5
        assert instance.start_state.dtype == np.float64
        assert instance.start_state == 1000 * instance.episode + instance.start_step
        assert instance.goal_state - instance.start_state == 5


def test_the_draw_is_a_function_of_task_and_seed_alone():
    ids = [instance.id for instance in draw()]
    assert ids == [instance.id for instance in draw()]
    assert ids != [instance.id for instance in draw(seed=1)]
    assert len(set(ids)) == len(ids)


class MostlySolved(Line):
    def success(self, state, goal_state):
        return state[0] % 3 != 0


def draw_mostly_solved(episodes):
    protocol = Protocol(goal_offset=5, episodes=episodes)
    return draw_instances(fake_episodes(30, 20), HELD_OUT, MostlySolved(), protocol)


def test_fewer_instances_are_among_more():
    assert [i.id for i in draw(episodes=12)] == [i.id for i in draw(episodes=30)][:12]
    few, many = draw_mostly_solved(8), draw_mostly_solved(20)
    assert {i.id for i in few} < {i.id for i in many}
    assert [i.id for i in Instances.among(many, 8)] == [i.id for i in few]


def test_every_episode_is_used_before_any_is_used_twice():
    used = [instance.episode for instance in draw(episodes=10)]
    assert len(set(used)) == 10


@pytest.mark.parametrize("seeds", [(0, 0), (0, 7)])
def test_select_and_test_never_share_an_episode_whatever_the_seeds(seeds):
    select, test = (
        {instance.episode for instance in draw(split=split, seed=seed)}
        for split, seed in zip(("select", "test"), seeds, strict=True)
    )
    assert select.isdisjoint(test)


def test_halves_do_not_depend_on_the_order_of_ids():
    assert halves(HELD_OUT, "line") == halves(HELD_OUT[::-1], "line")


def test_one_draw_serves_the_strict_protocol_and_the_papers():
    instances = draw_mostly_solved(20)
    assert len(instances.unsolved) == 20
    assert all(i.solved == (i.start_state[0] % 3 != 0) for i in instances)
    assert [i.draw for i in instances if i.draw < 20] == list(range(20))  # the paper's: every one of the first 20
    assert not any(i.solved for i in instances if i.draw >= 20)  # beyond them solved starts serve nobody
    assert 0.4 < instances.share_solved < 0.9


def test_ids_tell_different_data_apart():
    other = fake_episodes(30, 20, step=1.5)
    assert {i.id for i in draw()}.isdisjoint(i.id for i in draw(other))


def test_too_few_instances_say_how_many_there_are():
    with pytest.raises(DataError, match=r"1000 instances.*give 150"):
        draw(episodes=1000)


def test_episodes_that_are_too_short_say_so():
    with pytest.raises(DataError, match="longer than 20 steps give 0"):
        draw(goal_offset=20)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"split": "tset"}, "did you mean 'test'"), ({"budget": 0}, "budget"), ({"seed": -1}, "seed")],
)
def test_bad_protocols_are_refused(options, message):
    with pytest.raises(AcidError, match=message):
        Protocol(**options)


def test_a_task_may_draw_goals_of_its_own():
    class Far(Line):
        def draw_goal(self, rng):
            return self.position + rng.uniform(50, 60, 1)

    def drawn(episodes: int):
        protocol = Protocol(goal_offset=None, episodes=episodes)
        return draw_instances(fake_episodes(30, 20), HELD_OUT, Far(), protocol)

    some, more = drawn(5), drawn(8)
    assert [i.id for i in some] == [i.id for i in more][:5]
    for one in more:
        assert one.goal_row is None
        assert 50 <= float(one.goal_state[0] - one.start_state[0]) <= 60
    assert len({float(i.goal_state[0] - i.start_state[0]) for i in more}) == 8


def test_starts_from_which_nothing_can_be_done_are_not_drawn():
    class Even(Line):
        def is_fair_start(self, state):
            return state[0] % 2 == 0

    protocol = Protocol(goal_offset=5, episodes=6)
    everywhere = draw_instances(fake_episodes(30, 20), HELD_OUT, Line(), Protocol(goal_offset=5, episodes=30))
    found = draw_instances(fake_episodes(30, 20), HELD_OUT, Even(), protocol)
    assert len(found) == 6
    assert [(i.id, i.draw) for i in found] == [(i.id, i.draw) for i in everywhere if i.start_state[0] % 2 == 0][:6]
